"""`physml figure`: what is missing is trained; the figure is drawn."""

import argparse
import dataclasses
from pathlib import Path
from typing import Any

from physml.base import doing
from physml.base.errors import ConfigError, suggest
from physml.base.paths import display_path
from physml.cli.console import show_requested
from physml.cli.options import PUBLISHED, SMOKE, add_options, each, results_folder, run_options, smoke_roots


def add(commands: Any) -> None:
    figure = commands.add_parser("figure", help="train what is missing and draw a figure of a paper")
    figure.add_argument("ids", nargs="+", metavar="ID", help="lem-fig-4, ./mine.yaml")
    figure.add_argument(
        "--formats",
        metavar="LIST",
        help="of png, svg, pdf and csv, which has the drawn numbers; default: png,svg,csv",
    )
    add_options(figure, PUBLISHED)
    figure.set_defaults(command=_run)


def _forms(text: str | None) -> tuple[str, ...]:
    """The files that `--formats png,pdf` names."""
    from physml.report.figure.files import FORMS, USUAL

    forms = tuple(dict.fromkeys(part.strip() for part in text.split(","))) if text else USUAL
    for form in forms:
        if form not in FORMS:
            raise ConfigError(f"--formats: there is no format {form!r}. {suggest(form, FORMS)}")
    return forms


def _run(options: argparse.Namespace) -> int:
    from physml.report.figure.spec import find_figure

    paths = [find_figure(name, options.paper) for name in options.ids]
    with smoke_roots(options.smoke):
        return each(paths, lambda path: _figure(path, options))


def _figure(path: Path, options: argparse.Namespace) -> int:
    from physml.queue.requested import RequestedRuns
    from physml.report.figure.collect import collect, state_lines
    from physml.report.figure.files import write_figure
    from physml.report.figure.spec import load_figure
    from physml.report.table.typed import parse_seeds
    from physml.run.progress import now_and_then

    forms = _forms(options.formats)
    spec = load_figure(path)
    if options.seeds:
        spec = spec.with_seeds(parse_seeds(options.seeds))
    if options.smoke:
        spec = dataclasses.replace(spec.shrunk(), title=f"{spec.title} ({SMOKE})")
    requested = RequestedRuns(spec.runs, run_options(options), spec.id, metrics=spec.metrics)
    if options.plan:
        return show_requested(requested, probe=options.probe)
    code = 0 if options.no_run else requested.make()
    if options.on == "pilot":
        return code
    records = requested.wanted_records()
    code = max(code, requested.tell_broken())
    with doing.shown_by(now_and_then()):
        figure = collect(
            spec, requested.identities, records, requested.running(), blocked=requested.untrainable
        )
    print("\n".join(state_lines(figure)))
    if not figure.drawn:
        print("nothing to draw: no run of it is there yet, so no picture is written")
        return code
    with results_folder("figures", own=bool(options.seeds)) as folder:
        written = write_figure(figure, folder, forms)
    for file in written:
        print(f"written: {display_path(file)}")
    return code
