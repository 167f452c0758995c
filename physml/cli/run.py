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
    run.add_argument("--cfg", action="store_true", help="show the composed config and stop")
    run.add_argument("--adhoc", action="store_true", help="keep the record out of the tables")
    add_options(run, PLAN, JOBS, VERIFY, ENGINE)
    run.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.config.compose import compose
    from physml.config.overrides import expand

    combinations = expand(options.overrides) if options.multirun else [options.overrides]
    verify = [f"data.verify={options.verify}"] if options.verify else []
    composed = [compose([*c, *verify]) for c in combinations]
    import yaml

    from physml.cli.console import show_outcomes, show_plan
    from physml.config.identity import identity
    from physml.queue import planning, scheduler
    from physml.run.progress import tracked
    from physml.run.spec import checked_specs

    looking = options.cfg or (options.plan and not options.probe)
    specs = checked_specs(composed, adhoc=options.adhoc, run=not looking)
    if options.cfg:  # as composed, so that each can be run again
        for one in composed:
            print(f"# identity {identity(one.config)}")
            print(yaml.safe_dump(one.config, sort_keys=False, allow_unicode=True), end="")
        return 0
    if options.plan and options.probe:
        timed = tracked(specs, "timing a few steps")
        show_plan([p for spec in timed for p in planning.plan([spec], force=options.force, probe=True)])
        return 0
    planned = planning.plan(specs, force=options.force)
    if options.plan:
        show_plan(planned)
        return 0
    if not (options.yes or options.max_hours or scheduler.maker()):
        planning.refuse_long(planned)
    if len(specs) == 1 and options.max_hours is None and options.on == "local":
        return _run_one(planned[0], combinations[0], options.force)
    outcome = scheduler.carry_out(
        planned, jobs=options.jobs, force=options.force, max_hours=options.max_hours
    )
    show_outcomes(planned, outcome, combinations)
    return max(outcome.exit_code, 2 if any(one.state == "blocked" for one in planned) else 0)


def _run_one(planned: Any, typed: list[str], force: bool) -> int:
    """In this process."""
    from physml.cli.console import describe
    from physml.run import state as run_state
    from physml.run.perform import perform
    from physml.run.progress import reporter

    if planned.state == "blocked":
        run_state.refuse_blocked(planned.spec)
    made = perform(planned.spec, reporter(), force=force)
    print(describe(made, typed))
    return 0 if made["status"] == "finished" else 1
