"""The runs of `physml run -m`, named by the settings that differ, and their scores in a table at the end."""

import hashlib
import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from physml.cli.console import Line, aligned, terminal_width

if TYPE_CHECKING:
    from physml.queue.planning import Planned
    from physml.queue.scheduler import Outcome

SWEEP = "sweep-"
REPEATS = ("seed=", "split=")
WORDS = {0: "finished", 75: "stopped, start again to go on"}


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
    """A table of settings and scores, the best on validation first; a line for each run without a score."""
    from physml.run.perform import existing
    from physml.run.state import state_of

    scored: dict[str, list[dict[str, Any]]] = {}
    others = []
    for run in planned:
        label = run.spec.label
        record = existing(run.spec)
        if label in outcome.codes:
            end = WORDS.get(outcome.codes[label], f"failed, exit {outcome.codes[label]}")
        else:
            end = run.said if run.state == "blocked" else state_of(run.spec)  # others may have made it since
            end = "not started" if label in outcome.left and end != "done" else end
        best = (record["metrics"] or {}).get("best") if record else None
        if best and end in ("finished", "done"):
            scored.setdefault(sweep.setting(label), []).append(best)
        else:
            reason = f": {record['reason']}" if record and record["reason"] and "failed" in end else ""
            others.append(f"{sweep.names[label]}: {end}{reason}")
    if scored:
        print(aligned(_table(scored, *_metric(planned)), terminal_width(200)))
    print("\n".join([*others, f"{len(planned) - len(others)} of {len(planned)} runs have a score"]))


def _metric(planned: "Sequence[Planned]") -> tuple[str | None, bool]:
    """The metric of the task, and whether lower is better."""
    task = planned[0].spec.parts.task.make()  # type: ignore[union-attr]
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
    sd = f" ± {statistics.stdev(values):.2g}" if len(values) > 1 else ""
    return mean, f"{mean:.4g}{sd}"
