"""Figures: what a config and the records of runs say of each curve. `picture` draws it. No torch, no hydra.

Kinds: `curves` shows a test metric against steps, from the curve files beside the records; `points` the score
of finished runs against a setting, one experiment for each; `histogram` the arrays beside a record;
`trajectories` what a function of tasks/ or physml/simulate/ returns, without any run.
"""

import csv
import dataclasses
import gzip
import importlib.util
import inspect
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import numpy as np

from physml.coerce import build
from physml.errors import ConfigError, RecordError, near
from physml.paths import CONF, shown
from physml.source import module_file
from physml.spec import read_yaml
from physml.table import Record, Runs
from physml.tablespec import Run, find_id, natural

Kind = Literal["curves", "points", "histogram", "trajectories"]
Scale = Literal["linear", "log"]
Line = Literal["solid", "dashed", "dotted"]
SIMULATIONS = ("tasks.", "physml.simulate.")  # where a function that a config names may stand


# --- what a config says


@dataclass(frozen=True)
class Point:
    """One experiment of a series of points: the setting that it stands for, and its name."""

    x: float
    experiment: str


@dataclass(frozen=True)
class Series:
    """One curve of a panel: of an experiment, of several (points), or of a simulation."""

    label: str
    experiment: str | None = None
    points: tuple[Point, ...] = ()  # in place of the experiment
    seeds: tuple[int, ...] = ()  # where they are others than the figure's
    array: str | None = None  # of a histogram: the name in the record's .npz file
    arguments: dict[str, Any] = field(default_factory=dict)  # of a simulation
    line: Line = "solid"

    @property
    def experiments(self) -> tuple[str, ...]:
        return (self.experiment,) if self.experiment else tuple(point.experiment for point in self.points)


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...]
    y_label: str | None = None  # in place of the figure's
    function: str | None = None  # of trajectories, in place of the figure's
    arguments: dict[str, Any] = field(default_factory=dict)  # of every simulation in it


@dataclass(frozen=True)
class Mark:
    """A straight line across all panels: at y, or at x."""

    label: str
    y: float | None = None
    x: float | None = None

    def __post_init__(self) -> None:
        if (self.x is None) == (self.y is None):
            raise ConfigError(f"the mark {self.label!r} must have either x or y.")


@dataclass(frozen=True)
class FigureSpec:
    id: str
    title: str
    source: str
    kind: Kind
    x_label: str
    y_label: str
    panels: tuple[Panel, ...]
    seeds: tuple[int, ...] = ()
    splits: tuple[int, ...] = (0,)
    metric: str | None = None  # of curves, as in the curve file: test/mse; of points, as in a table's column
    bins: int = 100  # of a histogram
    function: str | None = None  # of trajectories: returns (N, T, D); the first two variables are drawn
    columns: int | None = None  # panels in a row; None: all
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    y_limits: tuple[float, ...] = ()  # least and greatest; none: from the data
    marks: tuple[Mark, ...] = ()
    claims: tuple[str, ...] = ()  # what the paper concludes from the figure
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        needs = {"curves": self.metric, "points": self.metric, "trajectories": self.function}
        if self.kind in needs and needs[self.kind] is None:
            wants = "a function" if self.kind == "trajectories" else "a metric"
            raise ConfigError(f"kind {self.kind} needs {wants}.")
        if self.kind != "trajectories" and not self.seeds:
            raise ConfigError("seeds must name at least one run; got none.")
        if self.columns is not None and self.columns < 1:
            raise ConfigError(f"columns must be positive; got {self.columns}.")
        if self.y_limits and (len(self.y_limits) != 2 or not self.y_limits[0] < self.y_limits[1]):
            raise ConfigError(f"y_limits must be a number and a greater one; got {list(self.y_limits)}.")
        for panel in self.panels:
            for series in panel.series:
                where = f"panel {panel.title}, series {series.label}"
                if (series.experiment is None) != (self.kind in ("trajectories", "points")):
                    wants = "needs an" if series.experiment is None else "takes no"
                    raise ConfigError(f"{where}: kind {self.kind} {wants} experiment.")
                if bool(series.points) != (self.kind == "points"):
                    wants = "needs" if self.kind == "points" else "takes no"
                    raise ConfigError(f"{where}: kind {self.kind} {wants} points.")
                if (series.array is None) == (self.kind == "histogram"):
                    wants = "needs an array" if self.kind == "histogram" else "takes no array"
                    raise ConfigError(f"{where}: kind {self.kind} {wants}.")

    @property
    def runs(self) -> list[Run]:
        """Every run that the figure wants, each once."""
        found = [
            (experiment, j, k)
            for panel in self.panels
            for series in panel.series
            for experiment in series.experiments
            for j in self.splits
            for k in self.seeds_of(series)
        ]
        return list(dict.fromkeys(found))

    def seeds_of(self, series: Series) -> tuple[int, ...]:
        return series.seeds or self.seeds

    def with_seeds(self, seeds: tuple[int, ...]) -> "FigureSpec":
        """The same figure with these seeds for every curve."""
        panels = tuple(
            dataclasses.replace(panel, series=tuple(dataclasses.replace(s, seeds=()) for s in panel.series))
            for panel in self.panels
        )
        return dataclasses.replace(self, seeds=seeds, panels=panels)


def load_figure(path: Path | str) -> FigureSpec:
    """The config of one figure. ConfigError names file and key of whatever is wrong in it."""
    path = Path(path)
    return build(FigureSpec, {"id": path.stem, **read_yaml(path)}, path.name)


def figure_ids(folder: Path | None = None) -> list[str]:
    return sorted((p.stem for p in (folder or CONF / "figure").glob("*.yaml")), key=natural)


def find_figure(name: str, paper: str = "lem", folder: Path | None = None) -> Path:
    """The config of the figure a person means by `lem-fig-1`, `fig-1`, `1`, `thesis-fig-5.1` or `fig-5.1`."""
    folder = folder or CONF / "figure"
    known = figure_ids(folder)
    if name in known:
        return folder / f"{name}.yaml"
    aliases = {alias: i for i in known for alias in load_figure(folder / f"{i}.yaml").aliases}
    numbered = f"fig-{name}" if name[:1].isdigit() else name
    return folder / f"{find_id(numbered, known, aliases, paper, 'figure')}.yaml"


def experiments_of(spec: FigureSpec) -> list[str]:
    """The experiments of a figure, each once, in the order of the panels."""
    return list(dict.fromkeys(e for panel in spec.panels for s in panel.series for e in s.experiments))


# --- what the records say


@dataclass(frozen=True)
class Curve:
    """What is drawn of one series, and its state. Which fields are filled depends on the figure's kind.

    curves: x steps, y the mean over runs, low and high their least and greatest; each (n,). points: the same,
    x the settings, low and high one standard deviation from the mean. Where a short
    budget or a stopping rule may end one run before another: `each`, the steps and values of every run.
    histogram: values (n,), of all runs together. trajectories: x, y (n,).
    """

    label: str
    state: str
    done: int = 0
    wanted: int = 0
    x: np.ndarray | None = None
    y: np.ndarray | None = None
    low: np.ndarray | None = None
    high: np.ndarray | None = None
    values: np.ndarray | None = None
    each: tuple[tuple[np.ndarray, np.ndarray], ...] = ()
    shorts: tuple[str, ...] = ()  # why budgets are short, as the records say
    line: Line = "solid"

    @property
    def drawn(self) -> bool:
        return self.y is not None or self.values is not None or bool(self.each)


@dataclass(frozen=True)
class Figure:
    spec: FigureSpec
    panels: tuple[tuple[Panel, tuple[Curve, ...]], ...]


def collect(
    spec: FigureSpec,
    identities: Mapping[str, str | None],
    records: Iterable[Record],
    running: Collection[Run] = (),
    *,
    blocked: Mapping[str, str] | None = None,
) -> Figure:
    """What is known of each curve. Arguments as in `table.collect`; each record has the `path` of its file.

    Reads the curve and array files beside the records. A damaged one is the state of its curve.
    """
    records = list(records)
    panels = []
    for panel in spec.panels:
        curves = []
        for series in panel.series:
            if spec.kind == "trajectories":
                curves.append(_simulated(spec, panel, series))
                continue
            parts = []
            for of in series.experiments:
                runs = Runs.find(of, identities.get(of), records, spec.seeds_of(series), spec.splits)
                parts.append(_measured(spec, series, runs, running, (blocked or {}).get(of)))
            curves.append(_joined(spec, series, parts) if spec.kind == "points" else parts[0])
        panels.append((panel, tuple(curves)))
    return Figure(spec, tuple(panels))


def _measured(
    spec: FigureSpec, series: Series, runs: Runs, running: Collection[Run], blocked: str | None
) -> Curve:
    wanted = [(split, seed) for split in spec.splits for seed in spec.seeds_of(series)]
    done = len(runs.finished)
    found = list(runs.finished.values())
    shorts = tuple(sorted({record["short"] for record in found if record.get("short")}))
    if any((runs.experiment, *at) in running for at in wanted):
        state = "running"
    elif done < len(wanted):
        state = runs.unfinished(len(wanted), blocked)
    elif shorts:
        state = "not comparable: short budget"
    else:
        state = "complete"
    curve = Curve(series.label, state, done, len(wanted), shorts=shorts, line=series.line)
    if not found:
        return curve
    try:
        if spec.kind == "histogram":
            values = [read_array(record, series.array or "") for record in found]
            return dataclasses.replace(curve, values=np.concatenate(values))
        if spec.kind == "points":
            return dataclasses.replace(curve, values=read_scores(found, spec.metric or ""))
        paths = [read_curve(record, spec.metric or "") for record in found]
        if shorts or len({steps[-1] for steps, _ in paths}) > 1:
            return dataclasses.replace(curve, each=tuple(paths))
        return _mean_curve(curve, paths)
    except RecordError as error:
        return dataclasses.replace(curve, state=f"failed: {error}")


def _joined(spec: FigureSpec, series: Series, parts: list[Curve]) -> Curve:
    """One curve through the points of a series that have runs."""
    done, wanted = sum(part.done for part in parts), sum(part.wanted for part in parts)
    states = [part.state for part in parts if part.state != "complete"] or ["complete"]
    state = next((s for s in states if s.startswith(("failed", "diverged", "running"))), states[0])
    if 0 < done < wanted and state.startswith(("missing", "stale", "partial")):
        state = f"partial {done}/{wanted}"
    curve = Curve(
        series.label,
        state,
        done=done,
        wanted=wanted,
        shorts=tuple(sorted({short for part in parts for short in part.shorts})),
        line=series.line,
    )
    there = [
        (p.x, part.values) for p, part in zip(series.points, parts, strict=True) if part.values is not None
    ]
    if not there:
        return curve
    mean = np.array([values.mean() for _, values in there])
    sd = np.array([values.std(ddof=1) if len(values) > 1 else 0.0 for _, values in there])
    return dataclasses.replace(
        curve, x=np.array([x for x, _ in there]), y=mean, low=mean - sd, high=mean + sd
    )


def _mean_curve(curve: Curve, paths: list[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """Mean, least and greatest over runs, at the steps that all of them have."""
    steps = paths[0][0]
    for other, _ in paths[1:]:
        steps = np.intersect1d(steps, other)
    every = np.stack([value[np.isin(step, steps)] for step, value in paths])
    return dataclasses.replace(curve, x=steps, y=every.mean(0), low=every.min(0), high=every.max(0))


def read_scores(records: Iterable[Record], metric: str) -> np.ndarray:
    """The score of each run with its selected weights (n,). RecordError where one has none of that name."""
    part, _, name = metric.partition("/")
    values = []
    for record in records:
        scores = record.get("metrics", {}).get("best", {}).get(part, {})
        if scores.get(name) is None:
            raise RecordError(f"{shown(Path(record['path']))} has no {metric}. {near(name, scores)}")
        values.append(float(scores[name]))
    return np.array(values)


def _beside(record: Record, key: str) -> Path:
    """The file that a record names under `key`, which lies beside it."""
    if not record.get(key):
        raise RecordError(f"the record {shown(Path(record['path']))} has no {key} file")
    return Path(record["path"]).parent / Path(record[key]).name


def read_curve(record: Record, metric: str) -> tuple[np.ndarray, np.ndarray]:
    """Steps and values of one metric from the curve file of a record; rows without it are left out.

    Shapes: (n,), (n,). RecordError if the file is missing or damaged, or has no such column.
    """
    path = _beside(record, "curve")
    try:
        with gzip.open(path, "rt", encoding="utf-8", newline="") as file:
            reader = csv.DictReader(file)
            heads = list(reader.fieldnames or ())
            if metric not in heads:
                raise RecordError(f"{shown(path)} has no column {metric}. {near(metric, heads)}")
            rows = [(float(row["step"]), float(row[metric])) for row in reader if row[metric]]
    except (OSError, EOFError, ValueError, KeyError, zlib.error) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{shown(path)} can't be read: {error}") from error
    if not rows:
        raise RecordError(f"{shown(path)} has no value of {metric}")
    table = np.array([row for row in rows if math.isfinite(row[1])])
    return table[:, 0], table[:, 1]


def read_array(record: Record, name: str) -> np.ndarray:
    """One array, flat, from the .npz file of a record. RecordError if it is missing or damaged."""
    path = _beside(record, "arrays")
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as arrays:
            if name not in arrays:
                raise RecordError(f"{shown(path)} has no array {name}. {near(name, arrays.files)}")
            return np.asarray(arrays[name]).ravel()
    except (OSError, EOFError, ValueError, zipfile.BadZipFile, zlib.error) as error:
        if isinstance(error, RecordError):
            raise
        raise RecordError(f"{shown(path)} can't be read: {error}") from error


def _simulated(spec: FigureSpec, panel: Panel, series: Series) -> Curve:
    given = panel.arguments | series.arguments
    arguments = {k: np.array(v, float) if isinstance(v, list) else v for k, v in given.items()}
    name = panel.function or spec.function or ""
    function = _function(name)
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{spec.id}: series {series.label}: {name}: {error}.") from error
    path = np.asarray(function(**arguments))
    if path.ndim != 3 or path.shape[2] < 2:
        raise ConfigError(f"{name} must return (N, T, D) with D of at least 2; got {path.shape}.")
    return Curve(series.label, "simulated", x=path[0, :, 0], y=path[0, :, 1], line=series.line)


def _function(target: str) -> Callable[..., Any]:
    """A function of our own, from its file in the checkout, whatever else is called `tasks`."""
    module, _, name = target.rpartition(".")
    if not module.startswith(SIMULATIONS):
        raise ConfigError(
            "function must be one of tasks/ or physml/simulate/, such as tasks.lorenz96.trajectories; "
            f"got {target!r}."
        )
    file = module_file(module)
    spec = importlib.util.spec_from_file_location(f"physml_figure_{file.stem}", file)
    assert spec is not None and spec.loader is not None  # module_file gave a .py file
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    functions = {n: f for n, f in vars(loaded).items() if inspect.isfunction(f) and f.__module__ == spec.name}
    if name not in functions:
        raise ConfigError(f"{module} has no function {name}. {near(name, functions)}")
    return functions[name]


def state_lines(figure: Figure) -> list[str]:
    """One line per curve: panel, label, runs, state; and where runs end, if one may end before another."""
    lines = []
    for panel, curves in figure.panels:
        for curve in curves:
            runs = f"{curve.done}/{curve.wanted}, " if curve.wanted else ""
            ends = ", ".join(f"{values[-1]:.2g} at step {steps[-1]:.0f}" for steps, values in curve.each)
            line = f"{panel.title}, {curve.label}: {runs}{curve.state}"
            lines.append(f"{line}; ends with {ends}" if ends else line)
    return lines


def figure_state(figure: Figure) -> str:
    """One line for a list of figures."""
    words: dict[str, int] = {}
    for _, curves in figure.panels:
        for curve in curves:
            word = curve.state.partition(" ")[0].removesuffix(":") if curve.wanted else curve.state
            words[word] = words.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in words.items())
