"""`physml search`: settings of a row, found on validation data."""

import argparse
from typing import TYPE_CHECKING, Any

from physml.base.paths import display_path
from physml.cli.options import ENGINE, JOBS, VERIFY, add_options, count, each
from physml.config.search_schema import PRUNERS, SAMPLERS

if TYPE_CHECKING:
    from physml.search.plain import SearchSpec
    from physml.search.shared import SharedSearch


def add(commands: Any) -> None:
    search = commands.add_parser("search", help="find settings of a row of a study on validation data")
    search.add_argument(
        "ids",
        nargs="+",
        metavar="ID",
        help="experiments that name a search: lem/fitzhugh_nagumo-cornn, 'sequence/recall-*', "
        "./study.yaml:ROW",
    )
    search.add_argument("--missing", action="store_true", help="leave out those that are done")
    search.add_argument("--plan", action="store_true", help="show stages, trials and hours, and stop")
    search.add_argument(
        "--picture",
        action="store_true",
        help="draw its trials so far, print how much each setting matters, and stop",
    )
    search.add_argument(
        "--sampler-seed",
        type=int,
        metavar="N",
        help="repeat a search in stages with other points, in a file of its own; the settings stay",
    )
    for name, choices in (("--sampler", SAMPLERS), ("--pruner", PRUNERS)):
        search.add_argument(
            name,
            choices=choices,
            help="search with this one, by workers that share a store; the settings stay",
        )
    search.add_argument(
        "--trials", type=count, metavar="N", help="with --sampler or --pruner: at most so many"
    )
    search.add_argument(
        "--storage", metavar="URL", help="a database for the trials; default: a journal in the results folder"
    )
    add_options(search, JOBS, VERIFY, ENGINE)
    search.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.search.plain import named
    from physml.search.results import behind

    options.ids = named(options.ids, missing=options.missing)
    if not options.ids:
        print("all searches are done")
        return 0
    code = each(options.ids, lambda name: _one(name, options))
    # A later search may have granted extra trials to an earlier one; each is granted them twice at most.
    whole = (
        options.plan,
        options.picture,
        options.sampler_seed is not None,
        _chosen(options),
    )
    while code == 0 and not any(whole):
        again = [name for name in options.ids if behind(name)]
        if not again:
            break
        code = each(again, lambda name: _one(name, options))
    return code


def _chosen(options: argparse.Namespace) -> dict[str, Any]:
    """Options of the command line that change a shared search."""
    chosen = {"sampler": options.sampler, "pruner": options.pruner, "trials": options.trials}
    return {key: value for key, value in chosen.items() if value is not None}


def _one(name: str, options: argparse.Namespace) -> int:
    from physml.base.errors import ConfigError
    from physml.search import plain as search
    from physml.search import shared as shared_search
    from physml.search import staged as staged_search

    declared = search.load_search(name)
    spec = shared_search.adapted(declared, **_chosen(options))
    shared, staged = spec.shared or bool(_chosen(options)), declared.stages is not None
    seed, verify = options.sampler_seed, options.verify or "bytes"
    if seed is not None and (shared or not staged or seed < 0):
        raise ConfigError("--sampler-seed takes a number from 0 on, for a search with stages.")
    if options.storage and not shared:
        raise ConfigError("--storage is for a search with --sampler or --pruner.")
    if options.picture:
        return _picture(name, spec)
    budget = {"jobs": options.jobs, "max_hours": options.max_hours}
    if shared:
        made = shared_search.SharedSearch(spec, options.storage, verify)
        if options.plan:
            return _plan_shared(made)
        return shared_search.carry_out(made, own=spec == declared, **budget)
    budget["verify"] = verify
    if options.plan:
        return _plan(name, staged, verify, seed)
    if staged:
        return staged_search.carry_out(name, **budget, sampler_seed=seed)
    return search.search(name, **budget)


def _picture(name: str, spec: "SearchSpec") -> int:
    from physml.search.overview import picture
    from physml.search.state import state_text

    path, parts = picture(name, spec)
    print(f"{spec.id}: {state_text(spec.id)}")
    for key, part in sorted(parts.items(), key=lambda one: -one[1]):
        print(f"  {key}: {part:.0%} of the variance")
    print(f"written: {display_path(path)}")
    return 0


def _plan_shared(made: "SharedSearch") -> int:
    from physml.queue import planning
    from physml.queue.engines import session

    (first,) = planning.plan([made.first], probe=True)
    left = made.left()
    hours = f"about {first.cost.hours:.2g} hours each" if first.cost.hours else "of unknown time"
    print(f"{made.spec.id}: {left} of {made.spec.trials} trials to do, {hours}; trials: {made.store.place}")
    if running := session.current():
        print(running.describe([first] * left))
    return 0


def _plan(name: str, staged: bool, verify: str, seed: int | None) -> int:
    from physml.cli.console import Line, aligned, show_plan
    from physml.queue import planning
    from physml.queue.engines import session
    from physml.search import plain as search
    from physml.search import plan as search_plan

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
    if elsewhere := session.current():
        todo = next((stage.todo for stage in planned if stage.todo), [])
        print(f"\n{elsewhere.describe(todo)}")
    return 0
