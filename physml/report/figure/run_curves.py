"""The training curves of any runs as a figure of one panel: a line for each run, or means over seeds."""

import dataclasses
from collections.abc import Mapping, Sequence
from itertools import takewhile

from physml.base.errors import RecordError
from physml.records.curves import curve_of
from physml.records.schema import Record
from physml.report.figure.collect import Curve, Figure, of_runs
from physml.report.figure.spec import FigureSpec, Panel, Series
from physml.report.outcome import State


def metrics_of(record: Record) -> list[str]:
    """The metrics of a run's curve, those on validation data first. RecordError where it has no curve."""
    heads = [head for head in curve_of(record)[1][0] if "/" in head]
    return sorted(heads, key=lambda head: not head.startswith("valid/"))


def run_curves(
    groups: Mapping[str, Sequence[Record]],
    metric: str,
    *,
    mean: bool = False,
    log_x: bool = False,
    log_y: bool = False,
    title: str | None = None,
) -> Figure:
    """A figure of curves: every run of each group, or their mean with a band from the least to the greatest.

    Args:
        groups: Label to the records of one setting, each with the `path` of its file.
        title: By default what all labels begin with, which they then leave out.
    """
    common = _common(list(groups)) if title is None else ""
    groups = {label.removeprefix(common): records for label, records in groups.items()}
    series = tuple(Series(label, experiment=label) for label in groups)
    spec = FigureSpec(
        id=metric,
        title=title or common.rstrip("-/_") or "training curves",
        source="runs",
        kind="curves",
        metric=metric,
        seeds=(0,),
        x_label="training steps",
        y_label=metric,
        x_scale="log" if log_x else "linear",
        y_scale="log" if log_y else "linear",
        panels=(Panel("", series),),
    )
    curves = tuple(_curve(label, records, metric, mean) for label, records in groups.items())
    return Figure(spec, ((spec.panels[0], curves),))


def _common(labels: Sequence[str]) -> str:
    """The whole words that all of several labels begin with.

    Example:
        >>> _common(["lem/adding-500-lem", "lem/adding-500-lstm"]), _common(["lem/a"])
        ('lem/adding-500-', '')
    """
    if len(labels) < 2:
        return ""
    pairs = zip(*labels, strict=False)
    shared = labels[0][: sum(1 for _ in takewhile(lambda letters: len(set(letters)) == 1, pairs))]
    common = shared[: max(shared.rfind(mark) for mark in "-/") + 1]
    hidden = any(label.startswith(f"{common}_") for label in labels)  # matplotlib would leave such a rest out
    return "" if hidden else common


def _curve(label: str, records: Sequence[Record], metric: str, mean: bool) -> Curve:
    curve = Curve(label, State("complete"), done=len(records), wanted=len(records))
    try:
        curve = of_runs(curve, records, metric, mean=mean)
    except RecordError as error:
        return dataclasses.replace(curve, state=State("failed", str(error)))
    if not (mean and curve.each):
        return curve
    ends = [steps[-1] for steps, _ in curve.each]
    why = f"no mean: runs end at different steps, {min(ends):g} to {max(ends):g}"
    return dataclasses.replace(curve, state=State("complete", why))
