"""`physml plot`: the training curves of any runs in one picture."""

import argparse
import fnmatch
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base.errors import ConfigError, RecordError, suggest
from physml.base.paths import display_path, results_roots
from physml.cli.options import out_file

if TYPE_CHECKING:
    from physml.records.schema import Record

HELP = "experiments, tables or figures ('lem/fitzhugh_nagumo-*', lem-4), folders of results/runs, or records"


def add(commands: Any) -> None:
    plot = commands.add_parser(
        "plot",
        help="draw the training curves of any runs",
        epilog="Example: physml plot 'lem/fitzhugh_nagumo-*' --mean --log-y --out curves.pdf",
    )
    plot.add_argument("names", nargs="+", metavar="RUN", help=HELP)
    plot.add_argument(
        "--metric", help="a column of the curves: valid/rmse, train/loss; default: the first on valid"
    )
    plot.add_argument("--seeds", help="0,1,2, 0-4, or n5 for the first five; default: all")
    plot.add_argument("--mean", action="store_true", help="the mean over runs of a setting, and their range")
    plot.add_argument("--log-x", action="store_true", help="a logarithmic axis of steps")
    plot.add_argument("--log-y", action="store_true", help="a logarithmic axis of values")
    plot.add_argument("--title", help="of the picture; default: what the names have in common")
    plot.add_argument("--out", metavar="FILE", default="curves.png", help=".png, .svg, .pdf or .csv")
    plot.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.report.figure.files import FORMS, write_form
    from physml.report.figure.run_curves import metrics_of, run_curves
    from physml.report.table.typed import parse_seeds

    out = out_file(options.out, FORMS)
    seeds = parse_seeds(options.seeds) if options.seeds else None
    groups = _groups(options.names, seeds)
    first = next(iter(groups.values()))[0]
    metrics = metrics_of(first)
    metric = options.metric or next(iter(metrics), "")
    if metric not in metrics:
        raise ConfigError(
            f"{display_path(Path(first['path']))} has no {metric!r}. {suggest(metric, metrics)}"
        )
    logs = {"log_x": options.log_x, "log_y": options.log_y}
    figure = run_curves(groups, metric, mean=options.mean, title=options.title, **logs)
    curves = figure.panels[0][1]
    for curve in curves:
        print(f"{curve.label}: {curve.done} run{'s' if curve.done > 1 else ''}, {metric}", end="")
        print("" if curve.drawn else f": {curve.state}")
    print(f"written: {display_path(write_form(figure, out))}")
    return 0 if all(curve.drawn for curve in curves) else 2


def _groups(names: list[str], seeds: tuple[int, ...] | None) -> "dict[str, list[Record]]":
    """Finished runs by setting: a label and its records, in the order of the names."""
    settings: dict[tuple[str, str], dict[str, Record]] = {}
    other = set()
    for name in names:
        for record in _named(name):
            if record["status"] == "finished" and seeds is not None and record["seed"] not in seeds:
                other.add(record["seed"])
            elif record["status"] == "finished":
                settings.setdefault((record["experiment"], record["identity"]), {})[record["path"]] = record
    if not settings and other:
        raise RecordError(
            f"no finished run of {', '.join(names)} has these seeds; there are {sorted(other)}."
        )
    if not settings:
        raise RecordError(
            f"no finished run of {', '.join(names)}. Train it, or see what is there: physml status"
        )
    experiments = [experiment for experiment, _ in settings]
    groups = {}
    for (experiment, identity), records in settings.items():
        label = experiment if experiments.count(experiment) == 1 else f"{experiment} {identity}"
        groups[label] = list(records.values())
    return groups


def _named(name: str) -> "list[Record]":
    """The records that a name means: one file, or those of experiments with their settings of today."""
    from physml.records import record
    from physml.run.named import identity_of, of_file
    from physml.run.spec import folder_of

    if recorded := of_file(name):
        return [recorded]
    chosen = []
    for experiment in _experiments(name):
        records = record.records(folder_of(experiment))
        identity = identity_of(experiment)
        now = [run for run in records if run["identity"] == identity]
        chosen += now or records
    return chosen


def _experiments(name: str) -> list[str]:
    """Experiments by name or pattern, or those of a table or figure; a folder of runs is one too."""
    from physml.config.conf_files import YAML, absolute, kind_at
    from physml.records import record
    from physml.report.figure import spec as figure_spec
    from physml.report.table import spec as table_spec
    from physml.run.spec import folder_of

    kind = kind_at(Path(absolute(name))) if name.endswith(YAML) else ""
    if kind == "table" or name in table_spec.table_ids("runs"):
        return table_spec.experiments_of(table_spec.load_table(table_spec.find_table(name)))
    if kind == "figure" or name in figure_spec.figure_ids():
        return figure_spec.experiments_of(figure_spec.load_figure(figure_spec.find_figure(name)))
    existing = {
        path.parent.relative_to(root / "runs").as_posix()
        for root in results_roots()
        for path in record.runs_below(root / "runs")
    }
    names = [name] if folder_of(name) in existing else sorted(fnmatch.filter(existing, name))
    if not names:
        raise ConfigError(f"there are no runs of {name}. {suggest(name, sorted(existing))}")
    return names
