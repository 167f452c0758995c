"""Figures: a config and the records of runs become a picture and a state line per curve. No torch, no hydra.

Kinds: `curves` draws a test metric against steps, from the curve files beside the records; `histogram` the
arrays beside a record; `trajectories` what a function of a task returns, without any run.
"""

import csv
import dataclasses
import gzip
import importlib.util
import inspect
import itertools
import math
import zipfile
import zlib
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from physml import atomic
from physml.errors import ConfigError, RecordError, near
from physml.paths import CONF, shown
from physml.source import module_file
from physml.spec import build, read_yaml
from physml.table import Record, Runs
from physml.tablespec import Run, find_id, natural

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure as Canvas

Kind = Literal["curves", "histogram", "trajectories"]
Scale = Literal["linear", "log"]


# --- what a config says


@dataclass(frozen=True)
class Series:
    """One curve of a panel: of an experiment, or of a simulation."""

    label: str
    experiment: str | None = None
    array: str | None = None  # of a histogram: the name in the record's .npz file
    arguments: dict[str, Any] = field(default_factory=dict)  # of a simulation


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...]


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
    metric: str | None = None  # of curves, as in the curve file: test/mse
    bins: int = 100  # of a histogram
    function: str | None = None  # of trajectories: returns (N, T, D); the first two variables are drawn
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    marks: tuple[Mark, ...] = ()
    claims: tuple[str, ...] = ()  # what the paper concludes from the figure
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        needs = {"curves": self.metric, "trajectories": self.function}
        if self.kind in needs and needs[self.kind] is None:
            raise ConfigError(
                f"kind {self.kind} needs {'a metric' if self.kind == 'curves' else 'a function'}."
            )
        if self.kind != "trajectories" and not self.seeds:
            raise ConfigError("seeds must name at least one run; got none.")
        for panel in self.panels:
            for series in panel.series:
                where = f"panel {panel.title}, series {series.label}"
                if (series.experiment is None) != (self.kind == "trajectories"):
                    wants = "takes no experiment" if self.kind == "trajectories" else "needs an experiment"
                    raise ConfigError(f"{where}: kind {self.kind} {wants}.")
                if (series.array is None) == (self.kind == "histogram"):
                    wants = "needs an array" if self.kind == "histogram" else "takes no array"
                    raise ConfigError(f"{where}: kind {self.kind} {wants}.")

    @property
    def runs(self) -> list[Run]:
        """Every run that the figure wants, each once."""
        return [(e, j, k) for e in experiments_of(self) for j in self.splits for k in self.seeds]


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
    every = (series.experiment for panel in spec.panels for series in panel.series)
    return list(dict.fromkeys(e for e in every if e))


# --- what the records say


@dataclass(frozen=True)
class Curve:
    """What is drawn of one series, and its state. Which fields are filled depends on the figure's kind.

    curves: x steps, y the mean over runs, low and high their least and greatest; each (n,).
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

    @property
    def drawn(self) -> bool:
        return self.y is not None or self.values is not None


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
    of = {e: Runs.find(e, identities.get(e), records, spec.seeds, spec.splits) for e in experiments_of(spec)}
    panels = []
    for panel in spec.panels:
        curves = []
        for series in panel.series:
            if series.experiment is None:
                curves.append(_simulated(spec, series))
            else:
                reason = (blocked or {}).get(series.experiment)
                curves.append(_measured(spec, series, of[series.experiment], running, reason))
        panels.append((panel, tuple(curves)))
    return Figure(spec, tuple(panels))


def _measured(
    spec: FigureSpec, series: Series, runs: Runs, running: Collection[Run], blocked: str | None
) -> Curve:
    wanted = [(split, seed) for split in spec.splits for seed in spec.seeds]
    done = len(runs.finished)
    found = list(runs.finished.values())
    if any((runs.experiment, *at) in running for at in wanted):
        state = "running"
    elif done < len(wanted):
        state = runs.unfinished(len(wanted), blocked)
    elif any(record.get("short") for record in found):
        state = "not comparable: short budget"
    else:
        state = "complete"
    curve = Curve(series.label, state, done, len(wanted))
    if not found:
        return curve
    try:
        if spec.kind == "histogram":
            values = [read_array(record, series.array or "") for record in found]
            return dataclasses.replace(curve, values=np.concatenate(values))
        return _mean_curve(curve, [read_curve(record, spec.metric or "") for record in found])
    except RecordError as error:
        return dataclasses.replace(curve, state=f"failed: {error}")


def _mean_curve(curve: Curve, paths: list[tuple[np.ndarray, np.ndarray]]) -> Curve:
    """Mean, least and greatest over runs, at the steps that all of them have."""
    steps = paths[0][0]
    for other, _ in paths[1:]:
        steps = np.intersect1d(steps, other)
    every = np.stack([value[np.isin(step, steps)] for step, value in paths])
    return dataclasses.replace(curve, x=steps, y=every.mean(0), low=every.min(0), high=every.max(0))


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


def _simulated(spec: FigureSpec, series: Series) -> Curve:
    arguments = {k: np.array(v, float) if isinstance(v, list) else v for k, v in series.arguments.items()}
    function = _function(spec.function or "")
    try:
        inspect.signature(function).bind(**arguments)
    except TypeError as error:
        raise ConfigError(f"{spec.id}: series {series.label}: {spec.function}: {error}.") from error
    path = np.asarray(function(**arguments))
    if path.ndim != 3 or path.shape[2] < 2:
        raise ConfigError(f"{spec.function} must return (N, T, D) with D of at least 2; got {path.shape}.")
    return Curve(series.label, "simulated", x=path[0, :, 0], y=path[0, :, 1])


def _function(target: str) -> Callable[..., Any]:
    """A function of one of our own tasks, from its file in the checkout, whatever else is called `tasks`."""
    module, _, name = target.rpartition(".")
    if not module.startswith("tasks."):
        raise ConfigError(
            f"function must be one of tasks/, such as tasks.lorenz96.trajectories; got {target!r}."
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
    """One line per curve: panel, label, runs, state."""
    lines = []
    for panel, curves in figure.panels:
        for curve in curves:
            runs = f"{curve.done}/{curve.wanted}, " if curve.wanted else ""
            lines.append(f"{panel.title}, {curve.label}: {runs}{curve.state}")
    return lines


def figure_state(figure: Figure) -> str:
    """One line for a list of figures."""
    words: dict[str, int] = {}
    for _, curves in figure.panels:
        for curve in curves:
            word = curve.state.partition(" ")[0].removesuffix(":") if curve.wanted else curve.state
            words[word] = words.get(word, 0) + 1
    return ", ".join(f"{count} {word}" for word, count in words.items())


# --- the picture


def draw(figure: Figure) -> "Canvas":
    """The figure as matplotlib draws it: a panel beside the other, missing curves named in the legend."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    spec = figure.spec
    n = len(figure.panels)
    canvas = Canvas(figsize=(4.6 * n if n > 1 else 6.4, 4.4), layout="constrained")
    FigureCanvasAgg(canvas)
    for axes, (panel, curves) in zip(canvas.subplots(1, n, squeeze=False)[0], figure.panels, strict=True):
        axes.set_title(panel.title, fontsize=10)
        axes.set_xlabel(spec.x_label)
        axes.set_ylabel(spec.y_label)
        axes.set_xscale(spec.x_scale)
        axes.set_yscale(spec.y_scale)
        _draw_panel(axes, spec, curves)
    canvas.suptitle(f"{spec.id}: {spec.title}", fontsize=11)
    return canvas


def _draw_panel(axes: "Axes", spec: FigureSpec, curves: tuple[Curve, ...]) -> None:
    edges = None
    drawn = [curve.values for curve in curves if curve.values is not None]
    if drawn:
        together = np.concatenate(drawn)
        edges = np.linspace(min(0.0, together.min()), together.max(), spec.bins + 1)
    for i, curve in enumerate(curves):
        colour = f"C{i}"  # the same for a label in every panel
        said = curve.label if curve.state in ("complete", "simulated") else f"{curve.label} ({curve.state})"
        if curve.values is not None and edges is not None:
            axes.hist(curve.values, bins=list(edges), label=said, color=colour, alpha=0.6)
        elif curve.y is not None and curve.x is not None:
            axes.plot(curve.x, curve.y, label=said, color=colour, linewidth=1.2)
            if curve.low is not None and curve.high is not None and curve.done > 1:
                axes.fill_between(curve.x, curve.low, curve.high, color=colour, alpha=0.2, linewidth=0)
        else:
            axes.plot([], [], label=said, color=colour, linestyle="none", marker="x")
    if not any(curve.drawn for curve in curves):
        axes.text(0.5, 0.5, "no run yet", transform=axes.transAxes, ha="center", va="center", color="0.5")
    for mark, dashes in zip(spec.marks, itertools.cycle(("--", ":", "-.")), strict=False):
        if mark.y is not None:
            axes.axhline(mark.y, color="0.3", linestyle=dashes, linewidth=1, label=mark.label)
        elif mark.x is not None:
            axes.axvline(mark.x, color="0.3", linestyle=dashes, linewidth=1, label=mark.label)
    if len(curves) > 1 or spec.marks or curves[0].state != "simulated":
        axes.legend(fontsize=7)


def write_figure(figure: Figure, folder: Path) -> Path:
    """Writes <id>.png into `folder`, whole or not at all. The same records, the same bytes."""
    path = folder / f"{figure.spec.id}.png"
    canvas = draw(figure)
    atomic.write(path, lambda file: canvas.savefig(file, format="png", dpi=150, metadata={"Software": None}))
    return path


def plot_rows(rows: list[dict[str, Any]], title: str, path: Path) -> None:
    """The curves of one run: loss and metrics of each evaluation against steps. Whole or not at all."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure as Canvas

    canvas = Canvas(figsize=(6.4, 4.4), layout="constrained")
    FigureCanvasAgg(canvas)
    axes = canvas.subplots()
    names = [key for key in dict.fromkeys(k for row in rows for k in row) if "/" in key]
    positive = True
    for name in names:
        points = [(row["step"], row[name]) for row in rows if row.get(name) is not None]
        kept = [(step, value) for step, value in points if math.isfinite(value)]
        positive &= all(value > 0 for _, value in kept)
        axes.plot([step for step, _ in kept], [value for _, value in kept], label=name, linewidth=1.2)
    axes.set_yscale("log" if positive else "linear")
    axes.set_xlabel("training steps")
    axes.set_title(title, fontsize=10)
    if names:
        axes.legend(fontsize=7)
    atomic.write(path, lambda file: canvas.savefig(file, format="png", dpi=100, metadata={"Software": None}))
