"""The spec of a figure, from conf/figure. `collect` adds records, `plot` draws. No torch, no hydra.

A panel may have published points, `printed`, with a label that names their source.

Kinds: `curves` shows a test metric against steps, from the curve files beside the records; `points` the score
of finished runs against a setting, one experiment for each; `histogram` the arrays beside a record; `arrays`
one of these against another, a line for each experiment; `ranks` the rows of a table by their mean ranks, a
critical-difference diagram. Without any run: `trajectories` and `simulation` show what a function of tasks/
or physml/lab/simulate/ returns, see `simulated`; `measurement` what one reads that a benchmark wrote.
"""

import dataclasses
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Literal

from physml.base.check import count
from physml.base.errors import ConfigError
from physml.config import conf_files
from physml.config.load import load, refuse_unknown
from physml.report.table import spec as table_spec
from physml.report.table.spec import (
    Run,
    TableSpec,
    check_numbers,
    find_file,
    find_table,
    load_table,
    natural,
    only_ranked,
)
from physml.report.text.document import grouped

Kind = Literal[
    "curves", "points", "histogram", "arrays", "ranks", "trajectories", "simulation", "measurement"
]
WITHOUT_RUNS = ("trajectories", "simulation", "measurement")
Scale = Literal["linear", "log"]
Line = Literal["solid", "dashed", "dotted", "dots"]  # dots: no line


@dataclass(frozen=True)
class Point:
    """One experiment of a series of points: the setting that it stands for, and its name."""

    x: float
    experiment: str
    metric: str | None = None  # where it is another than that of the series or the figure


def _refuse_hidden(label: str) -> None:
    if label.startswith("_"):
        raise ConfigError(f"label {label!r}: matplotlib leaves one out that begins with _. Write another.")


@dataclass(frozen=True)
class Series:
    """One curve of a panel: of an experiment, of several (points), or of none."""

    label: str
    experiment: str | None = None
    points: tuple[Point, ...] = ()  # in place of the experiment
    seeds: tuple[int, ...] = ()  # where they are others than the figure's
    metric: str | None = None  # of curves and points, where it is another than the figure's
    array: str | None = None  # of a histogram, and the y of arrays: the name in the record's .npz file
    over: str | None = None  # the x of arrays
    arguments: dict[str, Any] = field(default_factory=dict)  # of the function of a figure without runs
    line: Line = "solid"

    def __post_init__(self) -> None:
        _refuse_hidden(self.label)

    @property
    def experiments(self) -> tuple[str, ...]:
        return (self.experiment,) if self.experiment else tuple(point.experiment for point in self.points)


@dataclass(frozen=True)
class Printed:
    """Points that the paper or its official log prints, drawn over our curves: in black, or in the colour of
    the series `of` that they belong to.
    """

    label: str
    x: tuple[float, ...]
    y: tuple[float, ...]
    of: str | None = None

    def __post_init__(self) -> None:
        _refuse_hidden(self.label)
        if not self.x or len(self.x) != len(self.y):
            raise ConfigError(
                f"printed {self.label!r} must have as many y as x, at least one; "
                f"got {len(self.x)} and {len(self.y)}."
            )


@dataclass(frozen=True)
class Panel:
    title: str
    series: tuple[Series, ...]
    printed: tuple[Printed, ...] = ()
    x_label: str | None = None  # in place of the figure's
    y_label: str | None = None
    function: str | None = None  # of a figure without runs, in place of the figure's
    y_limits: tuple[float, ...] = ()  # in place of the figure's
    equal: bool = False  # whether a unit is as long on one axis as on the other
    arguments: dict[str, Any] = field(default_factory=dict)  # of every series in it


@dataclass(frozen=True)
class Mark:
    """A straight line across all panels: at y, or at x."""

    label: str
    y: float | None = None
    x: float | None = None

    def __post_init__(self) -> None:
        _refuse_hidden(self.label)
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
    panels: tuple[Panel, ...] = ()  # none of ranks, at least one of all others
    table: str | None = None  # of ranks: the id of the table whose rows are ranked
    families: dict[str, tuple[str, ...]] = field(default_factory=dict)  # of ranks: title -> columns
    seeds: tuple[int, ...] = ()  # of a simulation: each is given to the function as `seed`; none: it has none
    splits: tuple[int, ...] = (0,)
    metric: str | None = None  # of curves, as in the curve file: test/mse; of points, as in a table's column
    bins: int = 100  # of a histogram
    function: str | None = None  # of a figure without runs, see `simulated`
    smoke: dict[str, Any] = field(default_factory=dict)  # arguments of a smoke run, where they are named
    columns: int | None = None  # panels in a row; None: all
    x_scale: Scale = "linear"
    y_scale: Scale = "linear"
    y_limits: tuple[float, ...] = ()  # least and greatest; none: from the data
    marks: tuple[Mark, ...] = ()
    claims: tuple[str, ...] = ()  # what the paper concludes from the figure
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if (self.kind == "ranks") != (self.table is not None):
            raise ConfigError("a table belongs to kind ranks, and to no other kind.")
        self._has("panels", "panels", bool(self.panels), self.kind != "ranks")
        each = all(s.metric or (s.points and all(p.metric for p in s.points)) for s in self.series)
        if self.kind in ("curves", "points") and self.metric is None and not each:
            raise ConfigError(f"kind {self.kind} needs a metric.")
        if self.kind in WITHOUT_RUNS and not (self.function or all(panel.function for panel in self.panels)):
            raise ConfigError(f"kind {self.kind} needs a function.")
        if self.kind not in (*WITHOUT_RUNS, "ranks") and not self.seeds:
            raise ConfigError("seeds must name at least one run; got none.")
        check_numbers("splits", self.splits)
        check_numbers("seeds", self.seeds or (0,))
        count("bins", self.bins)
        if self.columns is not None:
            count("columns", self.columns)
        for limits in filter(None, (self.y_limits, *(panel.y_limits for panel in self.panels))):
            self._check_limits(limits)
        for panel in self.panels:
            self._check_panel(panel)

    def _check_limits(self, limits: tuple[float, ...]) -> None:
        if len(limits) != 2 or not limits[0] < limits[1]:
            raise ConfigError(f"y_limits must be a number and a greater one; got {list(limits)}.")
        if self.y_scale == "log" and limits[0] <= 0:
            raise ConfigError(f"y_limits must be positive on a logarithmic axis; got {list(limits)}.")

    def _check_panel(self, panel: Panel) -> None:
        labels = {series.label for series in panel.series}
        for printed in panel.printed:
            if printed.of is not None and printed.of not in labels:
                raise ConfigError(
                    f"panel {panel.title}, printed {printed.label}: `of` must name a series of the "
                    f"panel; got {printed.of!r}."
                )
        for series in panel.series:
            of_runs = self.kind not in (*WITHOUT_RUNS, "points")
            where = f"panel {panel.title}, series {series.label}: "
            check_numbers(f"{where}seeds", series.seeds or (0,))
            self._has("an experiment", "experiment", series.experiment is not None, of_runs, where)
            self._has("points", "points", bool(series.points), self.kind == "points", where)
            of_array = self.kind in ("histogram", "arrays")
            self._has("an array", "array", series.array is not None, of_array, where)
            self._has("an over", "over", series.over is not None, self.kind == "arrays", where)

    def _has(self, needed: str, name: str, present: bool, needs: bool, where: str = "") -> None:
        if present != needs:
            rule = f"needs {needed}" if needs else f"takes no {name}"
            raise ConfigError(f"{where}kind {self.kind} {rule}.")

    @property
    def series(self) -> list[Series]:
        return [series for panel in self.panels for series in panel.series]

    @property
    def runs(self) -> list[Run]:
        """Every run that the figure wants, each once."""
        if self.table is not None:
            return self.ranked_table().runs
        runs = ((e, *place) for s in self.series for e in s.experiments for place in self.places_of(s))
        return list(dict.fromkeys(runs))

    def scores_of(self, series: Series) -> list[tuple[str, str]]:
        """The experiments of a series with the metric of each; of points one for each, in their order."""
        own = series.metric or self.metric or ""
        if series.experiment:
            return [(series.experiment, own)]
        return [(point.experiment, point.metric or own) for point in series.points]

    @property
    def metrics(self) -> dict[str, dict[str, None]]:
        """Experiment -> the metrics of its evaluations that are drawn; which way is better plays no part."""
        scores = (score for series in self.series for score in self.scores_of(series))
        known = grouped((experiment, m) for experiment, m in scores if m.startswith(("test/", "valid/")))
        return {experiment: dict.fromkeys(metrics) for experiment, metrics in known.items()}

    def seeds_of(self, series: Series) -> tuple[int, ...]:
        return series.seeds or self.seeds

    def places_of(self, series: Series) -> list[tuple[int, int]]:
        """Split and seed of every run of an experiment of a series."""
        return list(product(self.splits, self.seeds_of(series)))

    def ranked_table(self) -> TableSpec:
        """The part of the table that a figure of ranks shows, with the figure's seeds if it has some."""
        shown_table = load_table(find_table(self.table or ""))
        if not shown_table.ranks:
            raise ConfigError(f"{self.id}: table {self.table} names no columns to rank its rows over.")
        for family, keys in self.families.items():
            if not keys:
                raise ConfigError(f"{self.id}: families: {family} must name at least one column; got none.")
            refuse_unknown(keys, shown_table.ranks, f"{self.id}: families: {self.table} ranks no column ")
        return only_ranked(shown_table.with_seeds(self.seeds) if self.seeds else shown_table)

    def with_seeds(self, seeds: tuple[int, ...]) -> "FigureSpec":
        """The same figure with these seeds for every curve that has some: not all simulations do."""

        def seeded(series: Series) -> Series:
            return dataclasses.replace(series, seeds=seeds if self.seeds_of(series) else ())

        panels = tuple(
            dataclasses.replace(panel, series=tuple(map(seeded, panel.series))) for panel in self.panels
        )
        return dataclasses.replace(self, seeds=seeds if self.seeds or self.table else (), panels=panels)

    def shrunk(self) -> "FigureSpec":
        """The same figure for a smoke run: what `smoke` says in place of arguments of that name."""

        def small(arguments: dict[str, Any]) -> dict[str, Any]:
            return arguments | {key: value for key, value in self.smoke.items() if key in arguments}

        panels = tuple(
            dataclasses.replace(
                panel,
                arguments=small(panel.arguments),
                series=tuple(dataclasses.replace(s, arguments=small(s.arguments)) for s in panel.series),
            )
            for panel in self.panels
        )
        return dataclasses.replace(self, panels=panels)


def load_figure(path: Path | str) -> FigureSpec:
    """The config of one figure. ConfigError names file and key of whatever is wrong in it."""
    path = Path(path)
    return conf_files.placed(load(FigureSpec, path, id=path.stem), path.parent)


def figure_ids() -> list[str]:
    return sorted(conf_files.files("figure"), key=natural)


def find_figure(name: str, paper: str = "lem") -> Path:
    """The config of the figure a person means by `./mine.yaml`, `lem-fig-1`, `fig-1`, `1` or `fig-5.1`."""
    path = conf_files.is_path(name)
    return find_file(f"fig-{name}" if name[:1].isdigit() and not path else name, paper, "figure")


def experiments_of(spec: FigureSpec) -> list[str]:
    """The experiments of a figure, each once, in the order of the panels, or of the rows of its table."""
    if spec.table is not None:
        return table_spec.experiments_of(spec.ranked_table())
    return list(dict.fromkeys(e for series in spec.series for e in series.experiments))
