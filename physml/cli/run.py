"""`physml run`: one model on one task, or all combinations."""

import argparse
from typing import Any

from physml.cli.options import ENGINE, JOBS, PLAN, VERIFY, add_options


def add(commands: Any) -> None:
    run = commands.add_parser(
        "run",
        help="train one model on one task, or many with -m",
        epilog="Example: physml run model=lem task=fitzhugh_nagumo seed=1",
    )
    run.add_argument(
        "overrides", nargs="*", metavar="KEY=VALUE", help="Hydra overrides: model=lem trainer.epochs=3"
    )
    run.add_argument("-m", "--multirun", action="store_true", help="all combinations of lists: seed=0,1")
    run.add_argument("--cfg", action="store_true", help="show the composed config and stop; --cfg job too")
    run.add_argument("--resolve", action="store_true", help="with --cfg; values always stand for ${...}")
    run.add_argument("--adhoc", action="store_true", help="keep the record out of the tables")
    add_options(run, PLAN, JOBS, VERIFY, ENGINE)
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.config.compose import compose, names
    from physml.config.overrides import expand

    combinations = expand(options.overrides, names) if options.multirun else [options.overrides]
    verify = [f"data.verify={options.verify}"] if options.verify else []
    composed = [compose([*c, *verify]) for c in combinations]
    import yaml

    from physml.cli.console import show_plan
    from physml.cli.sweep import Sweep, show_outcomes
    from physml.config.identity import identity
    from physml.queue import planning, scheduler
    from physml.run.progress import tracked
    from physml.run.spec import checked_specs

    looking = options.cfg or (options.plan and not options.probe)
    every = checked_specs(composed, adhoc=options.adhoc, run=not looking)
    of_label = {spec.label: (spec, typed) for spec, typed in zip(every, combinations, strict=True)}
    specs = [spec for spec, _ in of_label.values()]  # equal runs once
    sweep = Sweep(list(of_label), [typed for _, typed in of_label.values()])
    if options.cfg:  # as composed, so that each can be run again
        for composition in composed:
            print(f"# identity {identity(composition.config)}")
            print(yaml.safe_dump(composition.config, sort_keys=False, allow_unicode=True), end="")
        return 0
    if options.plan and options.probe:
        timed = tracked(specs, "timing a few steps")
        planned = [p for spec in timed for p in planning.plan([spec], force=options.force, probe=True)]
    else:
        planned = planning.plan(specs, force=options.force)
    if options.plan:
        show_plan(planned, sweep.settings(planned))
        return 0
    if not (options.yes or options.max_hours or scheduler.maker()):
        planning.refuse_long(planned)
    if len(specs) == 1 and options.max_hours is None and options.on == "local":
        return _run_one(planned[0], combinations[0], options.force)
    outcome = scheduler.carry_out(
        planned,
        jobs=options.jobs,
        force=options.force,
        max_hours=options.max_hours,
        names=sweep.names,
        tables=[sweep.id],
    )
    show_outcomes(planned, outcome, sweep)
    return max(outcome.exit_code, 2 if any(run.state == "blocked" for run in planned) else 0)


def _run_one(planned: Any, typed: list[str], force: bool) -> int:
    """In this process."""
    from physml.cli.console import describe
    from physml.run import state as run_state
    from physml.run.perform import perform
    from physml.run.progress import reporter

    if planned.state == "blocked":
        run_state.refuse_blocked(planned.spec)
    record = perform(planned.spec, reporter(), force=force)
    print(describe(record, typed))
    return 0 if record["status"] == "finished" else 1
