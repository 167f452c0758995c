"""Columns for the metrics that two experiments share, where no table says which, and which is better."""

from collections.abc import Iterable
from typing import Literal, cast

from physml.base.errors import ConfigError, InputError, suggest
from physml.records.schema import Scores
from physml.report.compare.rows import Side
from physml.report.stats.summary import Better
from physml.report.table.runs import Runs
from physml.report.table.spec import Column

Protocol = Literal["official", "paper", "clean"]
HIGHER = ("accuracy", "micro_f1", "roc_auc")
LOWER = (
    *("cross_entropy", "noisy_cross_entropy", "perplexity", "bpc"),
    *("mae", "mse", "log10_mse", "rmse", "nmse", "nrmse"),
)


def columns_of(first: Side, second: Side, metric: str | None, better: Better | None) -> list[Column]:
    """A column for each metric of the test part that both have, or for the named one.

    Args:
        first: One experiment.
        second: The other one.
        metric: Such as test/rmse; None: all, except those of unknown direction.
        better: The direction of the named metric, where physml cannot know it.

    Raises:
        ConfigError: Both do not have the metric, or its direction is unknown.
        InputError: An experiment has no finished run, or they share no metric.
    """
    if better and not metric:
        raise ConfigError("--better is the direction of one metric: give --metric too.")
    shared = _scored(first) & _scored(second)
    if metric and metric not in shared:
        raise ConfigError(f"there is no metric {metric} that both have. {suggest(metric, shared)}")
    names = [metric] if metric else sorted(shared)
    directions = {name: better or direction(name, (first.runs, second.runs)) for name in names}
    if metric and directions[metric] is None:
        raise ConfigError(
            f"whether more of {metric} is better is not known. Add --better higher or --better lower."
        )
    columns = [
        Column(key=name, metric=name, better=known, protocol=_protocol(first.runs, name))
        for name, known in directions.items()
        if known is not None
    ]
    if not columns:
        raise InputError(
            f"a comparison needs a metric of known direction that both have; {first.label} and "
            f"{second.label} share {', '.join(names) or 'none'}. Add --metric and --better."
        )
    return columns


def _scored(side: Side) -> set[str]:
    """The metrics of the test part, or of a part that is named, of finished runs."""
    if not side.runs.finished:
        stale = f", but {side.runs.stale} of other settings than today's" if side.runs.stale else ""
        raise InputError(
            f"a comparison needs finished runs; {side.label} has none{stale}. "
            f"Train it: physml run experiment={side.runs.experiment}"
        )
    found = set()
    for record in side.runs.finished.values():
        best: dict[str, Scores] = record["metrics"]["best"] or {}
        test = best.get("test") or {}
        found |= {f"test/{name}" for name, value in test.items() if value is not None}
    return found


def direction(metric: str, of: Iterable[Runs] = ()) -> Better | None:
    """Better direction of a metric, if known: by its name, else by the rule that selected the epochs."""
    name = metric.partition("/")[2]
    if _starts(name, HIGHER):
        return "higher"
    if _starts(name, LOWER):
        return "lower"
    for runs in of:
        for record in runs.finished.values():
            selected = record.get("selected")
            rule = selected["rule"] if selected else ""
            if rule.endswith(f"valid/{name}") and rule.startswith(("min ", "max ")):
                return "lower" if rule.startswith("min ") else "higher"
    return None


def _starts(name: str, known: Iterable[str]) -> bool:
    """`rmse_last128` is a kind of rmse."""
    return any(name == word or name.startswith(f"{word}_") for word in known)


def _protocol(runs: Runs, metric: str) -> Protocol:
    record = next(iter(runs.finished.values()))
    name = metric.partition("/")[2]
    return cast(Protocol, (record.get("scoring") or {}).get(name, record.get("protocol")))
