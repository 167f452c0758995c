"""`physml search`: random search on validation data."""

import argparse
from typing import Any

from physml.cli.options import ENGINE, JOBS, VERIFY, add_options, each


def add(commands: Any) -> None:
    search = commands.add_parser("search", help="random search on validation data for a row of a study")
    search.add_argument(
        "ids", nargs="+", metavar="ID", help="experiments that name a search, e.g. lem/fitzhugh_nagumo-cornn"
    )
    search.add_argument("--plan", action="store_true", help="show stages, trials and hours, and stop")
    search.add_argument(
        "--sampler-seed",
        type=int,
        metavar="N",
        help="repeat a search in stages with other points, in a file of its own; the settings stay",
    )
    search.add_argument(
        "--per-split",
        action="store_true",
        help="search, train and test on each split for itself; the settings stay",
    )
    search.add_argument("--export", choices=("wandb",), help="write a sweep for `wandb sweep`, and stop")
    search.add_argument("--to", metavar="FILE", help="of --export; default: <id>.sweep.yaml, here")
    add_options(search, JOBS, VERIFY, ENGINE)
    search.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.errors import ConfigError
    from physml.execution import per_split_search, staged_search
    from physml.execution.search import search
    from physml.execution.search_results import behind

    if options.export or options.to:
        return _export(options)
    verify, seed = options.verify or "bytes", options.sampler_seed

    def one(name: str) -> int:
        staged = staged_search.staged(name)
        if seed is not None and (not staged or seed < 0):
            raise ConfigError("--sampler-seed takes a number from 0 on, for a search with stages.")
        if options.per_split and (options.plan or seed is not None):
            raise ConfigError("--per-split stands alone: it has no plan and no other sampler seed.")
        if options.plan:
            return _plan(name, staged, verify, seed)
        budget = {"jobs": options.jobs, "max_hours": options.max_hours, "verify": verify}
        if options.per_split:
            return per_split_search.carry_out(name, **budget)
        if staged:
            return staged_search.carry_out(name, **budget, sampler_seed=seed)
        return search(name, **budget)

    code = each(options.ids, one)
    # A later search may have granted extra trials to an earlier one; each is granted them twice at most.
    while code == 0 and not (options.plan or options.per_split) and seed is None:
        again = [name for name in options.ids if behind(name)]
        if not again:
            break
        code = each(again, one)
    return code


def _export(options: argparse.Namespace) -> int:
    from pathlib import Path

    from physml.errors import ConfigError
    from physml.execution import sweep_export
    from physml.paths import display_path

    if not options.export or (options.to and len(options.ids) > 1):
        raise ConfigError("--to names the file of one search, with --export wandb.")
    for name in options.ids:
        path = sweep_export.export(name, Path(options.to) if options.to else None, options.verify or "bytes")
        print(f"written: {display_path(path)}; next: wandb sweep {display_path(path)}")
    return 0


def _plan(name: str, staged: bool, verify: str, seed: int | None) -> int:
    from physml.cli.console import Line, aligned, show_plan
    from physml.execution import planning, search, search_plan

    if not staged:
        spec = search.load_search(name)
        points = enumerate(search.draw(spec))
        show_plan(planning.plan([search.trial_spec(spec, i, point, verify) for i, point in points]))
        return 0
    planned = search_plan.plan(name, verify=verify, sampler_seed=seed)
    rows = [Line(("stage", "runs", "done", "hours", name))]
    for i, stage in enumerate(planned):
        number = "extra" if stage.text.startswith("up to") else str(i + 1)
        hours = "" if stage.hours is None else f"{stage.hours:.2f}"
        rows.append(Line((number, str(stage.runs), str(stage.done), hours, stage.text)))
    print(aligned(rows))
    return 0
