"""`physml run`: one model on one task, or all combinations, whose scores stand in a table at the end."""

import argparse
import hashlib
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from physml.base.text import digits
from physml.cli.console import Line, aligned, describe, show_plan, terminal_width
from physml.cli.options import ENGINE, JOBS, PLAN, VERIFY, add_options

if TYPE_CHECKING:
    from physml.queue.planning import Planned
    from physml.queue.scheduler import Outcome

Metric = tuple[str | None, bool]  # whether lower is better
REPEATS = ("seed=", "split=")
WORDS = {0: "finished", 75: "stopped, start again to go on"}


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
    timed = tracked(specs, "timing a few steps") if options.probe else specs
    planned = planning.plan(timed, force=options.force, probe=options.probe)
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


def _run_one(planned: "Planned", typed: list[str], force: bool) -> int:
    """In this process."""
    from physml.run import state as run_state
    from physml.run.perform import perform
    from physml.run.progress import reporter

    if planned.state == "blocked":
        run_state.refuse_blocked(planned.spec)
    record = perform(planned.spec, reporter(), force=force)
    print(describe(record, typed))
    return 0 if record["status"] == "finished" else 1


# ---------------------------------------------------------------------------- combinations


class Sweep:
    """Runs by the typed settings, the overrides of each, in which they differ."""

    def __init__(self, labels: Sequence[str], typed: Sequence[Sequence[str]]) -> None:
        last = [{text.partition("=")[0].lstrip("+"): text for text in texts} for texts in typed]
        shared = set.intersection(*(set(texts.values()) for texts in last)) if last else set()
        self.own = {
            label: [text for text in texts.values() if text not in shared]
            for label, texts in zip(labels, last, strict=True)
        }

    @property
    def id(self) -> str:
        """The same for the same runs, as a tag of trackers."""
        from physml.run.trackers.tracker import SWEEP

        return f"{SWEEP}{hashlib.sha256(' '.join(sorted(self.own)).encode()).hexdigest()[:8]}"

    @property
    def names(self) -> dict[str, str]:
        """The name of each run, by its label."""
        return {label: " ".join(own) or label for label, own in self.own.items()}

    def setting(self, label: str) -> str:
        """Without seed and split."""
        return " ".join(text for text in self.own[label] if not text.startswith(REPEATS))

    def settings(self, planned: "Sequence[Planned]") -> dict[str, str]:
        """Names of settings for a plan."""
        named = {run.spec.setting: self.setting(run.spec.label) for run in planned}
        return {setting: name for setting, name in named.items() if name}


def show_outcomes(planned: "Sequence[Planned]", outcome: "Outcome", sweep: Sweep) -> None:
    """A table of settings and scores for each metric, the best on validation first; a line for each run
    without a score.
    """
    from physml.run.perform import existing
    from physml.run.state import state_of

    metrics: dict[Metric, dict[str, list[dict[str, Any]]]] = {}  # by metric and setting
    others = []
    for run in planned:
        label = run.spec.label
        record = existing(run.spec)
        if label in outcome.codes:
            end = WORDS.get(outcome.codes[label], f"failed, exit {outcome.codes[label]}")
            end = "diverged" if record and record.get("status") == "diverged" else end
        else:
            end = run.said if run.state == "blocked" else state_of(run.spec)  # others may have made it since
            end = "not started" if label in outcome.left and end != "done" else end
        best = (record["metrics"] or {}).get("best") if record else None
        if best and end in ("finished", "done"):
            scored = metrics.setdefault(_metric(run), {})
            scored.setdefault(sweep.setting(label), []).append(best)
        else:
            why = record["reason"] if record and ("failed" in end or end == "diverged") else ""
            others.append(f"{sweep.names[label]}: {end}{': ' if why else ''}{why}")
    for metric, scored in metrics.items():
        print(aligned(_table(scored, *metric), terminal_width(200)))
    print("\n".join([*others, f"{len(planned) - len(others)} of {len(planned)} runs have a score"]))


def _metric(run: "Planned") -> Metric:
    """The metric of the task, and whether lower is better."""
    task = run.spec.parts.task.make()  # type: ignore[union-attr]
    return task.metric, task.better.get(task.metric) != "higher"


def _table(scored: dict[str, list[dict[str, Any]]], metric: str | None, lower: bool) -> list[Line]:
    parts = [part for part in ("valid", "test") if any(part in best for of in scored.values() for best in of)]
    rows = []
    for setting, bests in scored.items():
        means = [_scores(bests, part, metric) for part in parts]
        first = means[0][0] if means else math.nan
        key = math.inf if math.isnan(first) else (first if lower else -first)
        rows.append((key, Line((setting or "all", str(len(bests)), *(text for _, text in means)))))
    heads = [f"{part} {metric}" for part in parts]
    return [Line(("setting", "runs", *heads)), *(line for _, line in sorted(rows, key=lambda row: row[0]))]


def _scores(bests: list[dict[str, Any]], part: str, metric: str | None) -> tuple[float, str]:
    """The mean over runs, and it with the standard deviation as text."""
    scores = [best.get(part, {}).get(metric) for best in bests]
    values = [value for value in scores if value is not None]
    if not values:
        return math.nan, "none"
    mean = statistics.fmean(values)
    sd = f" ± {digits(statistics.stdev(values), 2)}" if len(values) > 1 else ""
    return mean, f"{mean:.4g}{sd}"
