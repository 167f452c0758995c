"""`physml search`: settings of a row, found on validation data."""

import argparse
import functools
import os
from typing import Any

from physml.base.paths import display_path
from physml.cli.console import Line, aligned
from physml.cli.options import ENGINE, JOBS, VERIFY, add_options, count, each

MOST_REPEATS = 100


def add(commands: Any) -> None:
    search = commands.add_parser("search", help="find settings of a row of a study on validation data")
    search.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="experiments that name a search: lem/fitzhugh_nagumo-cornn, 'sequence/recall-*', "
        "./study.yaml:ROW",
    )
    search.add_argument(
        "--missing", action="store_true", help="leave out searches, or repeats, that are done"
    )
    search.add_argument("--plan", action="store_true", help="show stages, runs and hours, and stop")
    search.add_argument(
        "--picture",
        action="store_true",
        help="draw its trials so far, print how much each setting matters, and stop",
    )
    search.add_argument(
        "--repeat",
        type=functools.partial(count, most=MOST_REPEATS),
        metavar="N",
        default=0,
        help="repeat it N times with other points, and show how far the final test scores are apart; "
        "the settings stay",
    )
    search.add_argument(
        "--storage",
        metavar="URL",
        default=os.environ.get("PHYSML_STORAGE") or None,
        help="a database, or a file trials.journal, for a copy of the trials that Optuna's tools read; "
        "default: PHYSML_STORAGE, else a SQLite file in the work folder",
    )
    add_options(search, JOBS, VERIFY, ENGINE)
    search.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.search.spec import load_search, named

    options.ids = named(options.ids, missing=options.missing and not options.repeat)
    if not options.ids:
        print("all searches are done")
        return 0
    code = each(options.ids, lambda name: _one(name, options))
    # A later search may have granted extra trials to an earlier one; each is granted them twice at most.
    while code == 0 and not (options.plan or options.picture or options.repeat):
        again = [name for name in options.ids if load_search(name).behind]
        if not again:
            break
        code = each(again, lambda name: _one(name, options))
    return code


def _one(name: str, options: argparse.Namespace) -> int:
    if options.picture:
        return _picture(name)
    if options.plan:
        return _plan(name, options)
    from physml.search import staged

    return staged.carry_out(
        name,
        jobs=options.jobs,
        max_hours=options.max_hours,
        verify=options.verify or "bytes",
        repeats=options.repeat,
        missing=options.missing,
        storage=options.storage,
        yes=options.yes,
    )


def _picture(name: str) -> int:
    from physml.records.searches import state_text
    from physml.search.report import picture

    path, parts = picture(name)
    print(f"{path.stem}: {state_text(path.stem)}")
    for key, part in sorted(parts.items(), key=lambda item: -item[1]):
        print(f"  {key}: {part:.0%} of the variance")
    print(f"written: {display_path(path)}")
    return 0


def _plan(name: str, options: argparse.Namespace) -> int:
    from physml.queue.engines import session
    from physml.search import plan as search_plan

    planned = search_plan.plan(
        name, verify=options.verify or "bytes", repeats=options.repeat, missing=options.missing
    )
    rows = [Line(("runs", "done", "hours", name))]
    for stage in planned:
        hours = "" if stage.hours is None else f"{stage.hours:.2f}"
        rows.append(Line((str(stage.runs), str(stage.done), hours, stage.text)))
    known = [stage.hours for stage in planned if stage.hours is not None]
    text = "in all" if len(known) == len(planned) else "in all, as far as known"
    runs, done = sum(stage.runs for stage in planned), sum(stage.done for stage in planned)
    rows.append(Line((str(runs), str(done), f"{sum(known):.2f}" if known else "", text)))
    print(aligned(rows))
    if elsewhere := session.current():
        todo = next((stage.todo for stage in planned if stage.todo), [])
        print(f"\n{elsewhere.describe(todo)}")
    return 0
