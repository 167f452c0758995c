"""Figures: what the records of runs say of each curve that a config names. No torch, no hydra."""

import dataclasses
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from physml.base.errors import DataError, RecordError
from physml.base.text import digits
from physml.records.curves import read_array, read_curve, read_scores
from physml.records.schema import Record
from physml.report.figure.simulated import simulate
from physml.report.figure.spec import WITHOUT_RUNS, FigureSpec, Line, Panel, Series
from physml.report.outcome import State
from physml.report.stats.across import Middle, rank_gaps
from physml.report.table.collect import Runs
from physml.report.table.ranks import Ranking, rank_lines, ranked
from physml.report.table.spec import Run, experiments_of


@dataclass(frozen=True)
class Curve:
    """The drawn data of one series, and its state. The kind of the figure decides which fields are filled.

    curves: x steps, y the mean over runs, low and high their least and greatest; each (n,). points: the same,
    x the settings, low and high one standard deviation from the mean. Where a short
    budget or a stopping rule may end one run before another: `each`, the steps and values of every run.
    arrays: as curves. histogram: values (n,), of all runs together. Without runs: as `simulated` says.
    """

    label: str
    state: State
    done: int = 0
    wanted: int = 0
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    values: np.ndarray | None = None
    each: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    counts: tuple[int, ...] = ()  # of points: the runs behind each
    gaps: tuple[int, ...] = ()  # of points: those before which some have no run
    shorts: tuple[str, ...] = ()  # why budgets are short, as the records say
    line: Line = "solid"

    @property
    def drawn(self) -> bool:
        return self.y is not None or self.values is not None or bool(self.each)


@dataclass(frozen=True)
class Figure:
    spec: FigureSpec
    panels: tuple[tuple[Panel, tuple[Curve, ...]], ...]
    ranking: Ranking | None = None  # of kind ranks
    gaps: dict[str, dict[str, Middle]] = field(default_factory=dict)  # family -> row -> behind the first

    @property
    def drawn(self) -> bool:
        """True if anything of it can be drawn."""
        ranked_rows = self.ranking is not None and self.ranking.ranks is not None
        return ranked_rows or any(curve.drawn for _, curves in self.panels for curve in curves)


def collect(
    spec: FigureSpec,
    identities: Mapping[str, str | None],
    records: Iterable[Record],
    running: Collection[Run] = (),
    *,
    blocked: Mapping[str, str] = MappingProxyType({}),
) -> Figure:
    """The curves, from records. Arguments as in `table.collect`; each record has the `path` of its file.

    Reads the curve and array files beside the records. A damaged one is the state of its curve.
    """
    records = list(records)
    if spec.table is not None:
        table = spec.ranked_table()
        by_experiment = {
            name: Runs.find(name, identities.get(name), records, table.places_of(name))
            for name in experiments_of(table)
        }
        ranking = ranked(table, by_experiment)
        return Figure(spec, (), ranking, _gaps(spec, ranking))

    def curve_of(panel: Panel, series: Series) -> Curve:
        if spec.kind in WITHOUT_RUNS:
            return _simulated(spec, panel, series)
        parts = []
        for of, metric in spec.scores_of(series):
            runs = Runs.find(of, identities.get(of), records, spec.places_of(series))
            parts.append(_measured(spec, series, metric, runs, running, blocked.get(of)))
        return _joined(spec, series, parts) if spec.kind == "points" else parts[0]

    panels = ((panel, tuple(curve_of(panel, series) for series in panel.series)) for panel in spec.panels)
    return Figure(spec, tuple(panels))


def _gaps(spec: FigureSpec, ranking: Ranking | None) -> dict[str, dict[str, Middle]]:
    """How far rows are behind the best one, over all columns and over those of each family."""
    if ranking is None or ranking.ranks is None or not ranking.behind:
        return {}
    first = next(iter(ranking.ranks.mean))
    gaps = {f"all {len(ranking.columns)} columns": ranking.behind}
    for family, keys in spec.families.items():
        at = [i for i, column in enumerate(ranking.columns) if column.key in keys]
        runs = {row: [samples[i] for i in at] for row, samples in ranking.samples.items()}
        gaps[family] = rank_gaps(runs, [ranking.columns[i].better for i in at], first)
    return gaps


def _simulated(spec: FigureSpec, panel: Panel, series: Series) -> Curve:
    try:
        arrays = simulate(spec, panel, series)
    except DataError as error:
        return Curve(series.label, State("blocked", str(error)), line=series.line)
    seeds = spec.seeds_of(series) if spec.kind == "simulation" else ()
    word = "measured" if spec.kind == "measurement" else "simulated"
    word = word if len(seeds) < 2 else f"simulated with {len(seeds)} seeds"
    curve = Curve(series.label, State(word), line=series.line)
    return dataclasses.replace(curve, **arrays)  # type: ignore[arg-type]


def _measured(
    spec: FigureSpec, series: Series, metric: str, runs: Runs, running: Collection[Run], blocked: str | None
) -> Curve:
    done, n_wanted = len(runs.finished), len(runs.places)
    records = list(runs.finished.values())
    shorts = tuple(sorted({short for record in records if (short := record.get("short"))}))
    if runs.among(running):
        state = State("running")
    elif done < n_wanted:
        state = runs.unfinished(blocked)
    elif shorts:
        state = State("not comparable", "short budget")
    else:
        state = State("complete")
    curve = Curve(series.label, state, done, n_wanted, shorts=shorts, line=series.line)
    if not records:
        return curve
    try:
        if spec.kind == "histogram":
            values = np.concatenate([read_array(record, series.array or "") for record in records])
            if not np.isfinite(values).any():
                raise RecordError(f"the array {series.array} has no finite number")
            return dataclasses.replace(curve, values=values[np.isfinite(values)])
        if spec.kind == "points":
            return dataclasses.replace(curve, values=read_scores(records, metric))
        if spec.kind == "arrays":
            return mean_curve(curve, [_pair(record, series.over, series.array) for record in records])
        return of_runs(curve, records, metric, mean=not shorts)
    except RecordError as error:
        return dataclasses.replace(curve, state=State("failed", str(error)))


def _pair(record: Record, *names: str | None) -> tuple[np.ndarray, np.ndarray]:
    """Two arrays of a record, of equal length. Errors: RecordError."""
    x, y = (read_array(record, name or "") for name in names)
    if len(x) != len(y):
        raise RecordError(f"arrays {' and '.join(map(str, names))} have {len(x)} and {len(y)} numbers")
    return x, y


def _joined(spec: FigureSpec, series: Series, parts: list[Curve]) -> Curve:
    """One curve through the points of a series that have runs; those of one experiment share them."""
    once = {point.experiment: part for point, part in zip(series.points, parts, strict=True)}.values()
    done, n_wanted = sum(part.done for part in once), sum(part.wanted for part in once)
    states = [part.state for part in parts if part.state.word != "complete"] or [State("complete")]
    state = next((s for s in states if s.word in ("failed", "diverged", "running")), states[0])
    if 0 < done < n_wanted and state.word in ("missing", "stale", "partial", "not comparable"):
        state = State("partial", done=done, wanted=n_wanted)
    shorts = tuple(sorted({short for part in parts for short in part.shorts}))
    curve = Curve(series.label, state, done, n_wanted, shorts=shorts, line=series.line)
    present: list[tuple[float, np.ndarray]] = []
    gaps: list[int] = []
    for i, (point, part) in enumerate(zip(series.points, parts, strict=True)):
        if part.values is not None:
            if present and parts[i - 1].values is None:
                gaps.append(len(present))
            present.append((point.x, part.values))
    if not present:
        return curve
    mean = np.array([values.mean() for _, values in present])
    sd = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for _, values in present])
    x, counts = np.array([x for x, _ in present]), tuple(len(values) for _, values in present)
    drawn = {"x": x, "y": mean, "low": mean - sd, "high": mean + sd}
    return dataclasses.replace(curve, **drawn, counts=counts, gaps=tuple(gaps))


def of_runs(curve: Curve, records: Iterable[Record], metric: str, *, mean: bool) -> Curve:
    """The mean of a metric over runs that end at the same step, else every run. Errors: RecordError."""
    paths = [read_curve(record, metric) for record in records]
    if mean and len({steps[-1] for steps, _ in paths}) == 1:
        return mean_curve(curve, paths)
    return dataclasses.replace(curve, each=tuple(paths))


def mean_curve(curve: Curve, paths: list[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """Mean, least and greatest over runs, at the steps that all of them have. RecordError where none is."""
    steps, every = paths[0][0], paths[0][1][None]
    if len(paths) > 1:
        by_step = [dict(zip(*path, strict=True)) for path in paths]
        steps = np.array(sorted(set.intersection(*map(set, by_step))))
        every = np.array([[values[step] for step in steps] for values in by_step])
    if not len(steps):
        raise RecordError("the runs have no step in common")
    return dataclasses.replace(curve, x=steps, y=every.mean(0), low=every.min(0), high=every.max(0))


def state_lines(figure: Figure) -> list[str]:
    """One line per curve: panel, label, runs, state; and where runs end, if one may end before another."""
    lines = list(rank_lines(figure.ranking)) if figure.ranking else []
    known: set[str] = set()  # reasons
    for panel, curves in figure.panels:
        for curve in curves:
            runs = f"{curve.done}/{curve.wanted}, " if curve.wanted else ""
            ends = ", ".join(
                f"{digits(values[-1], 2)} at step {steps[-1]:.0f}" for steps, values in curve.each
            )
            reason = curve.state.reason
            again = reason in known and curve.state.word in ("blocked", "failed")
            state = f"{curve.state.word}, as above" if again else str(curve.state)
            known |= {reason} if reason else set()
            line = f"{panel.title}, {curve.label}: {runs}{state}"
            lines.append(f"{line}; ends with {ends}" if ends else line)
    return lines
