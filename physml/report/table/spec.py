"""The spec of a table, `conf/table/<id>.yaml`: rows, experiments, published numbers. No torch, no hydra."""

import dataclasses
import math
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import product, starmap
from pathlib import Path
from typing import Any, Literal

from physml.base.check import non_negative, positive
from physml.base.errors import ConfigError, suggest
from physml.config import conf_files
from physml.config.load import coerce, content_of, load, refuse_unknown
from physml.report.stats.across import FEWEST_COLUMNS
from physml.report.stats.comparison import Margin
from physml.report.stats.summary import Better, Bounds, Published
from physml.report.table.placeholders import filled

Run = tuple[str, int, int]  # experiment, split, seed
Kind = Literal["runs", "settings"]
DIRECTIONS: dict[Better, tuple[str, ...]] = {  # of metrics by their names
    "higher": ("accuracy", "micro_f1", "roc_auc"),
    "lower": (
        *("cross_entropy", "noisy_cross_entropy", "perplexity", "bpc"),
        *("mae", "mse", "log10_mse", "rmse", "nmse", "nrmse"),
    ),
}


def direction(metric: str) -> Better | None:
    """Which values of a metric are better, by its name: test/rmse_last128 is an rmse. None: not known."""
    name = f"{metric.partition('/')[2]}_"
    known = ((better, word) for better, words in DIRECTIONS.items() for word in words)
    return next((better for better, word in known if name.startswith(f"{word}_")), None)


@dataclass(frozen=True)
class Column:
    """One number of a run: metric `test/rmse` is metrics.best.test.rmse of its record, times `scale`.

    margin: how far apart two results may be and still be alike. decimals: how many are shown; by default two
    digits of the spread, and at most two more than the paper prints. short: a label for narrow tables.
    solved: what a run must reach to have solved the task, where runs either do or stay far off; in the unit
    of the column.
    """

    key: str
    metric: str
    better: Literal["lower", "higher"]
    protocol: Literal["official", "paper", "clean"]
    label: str | None = None
    short: str | None = None
    scale: float = 1.0
    unit: str = ""
    margin: Margin = field(default_factory=Margin)
    decimals: int | None = None
    solved: float | None = None

    def __post_init__(self) -> None:
        if not re.fullmatch(r"(test|valid)/\w+", self.metric):
            raise ConfigError(f"metric must look like test/rmse; got {self.metric!r}.")
        positive("scale", self.scale)
        if self.decimals is not None:
            non_negative("decimals", self.decimals)
        name, known = self.metric.partition("/")[2], direction(self.metric)
        if known not in (None, self.better):
            raise ConfigError(f"column {self.key}: {known} {name} is better; got better: {self.better}.")
        power = re.fullmatch(r"1e([+-]?\d+)", "1e-2" if known == "higher" and self.unit == "%" else self.unit)
        if power and not math.isclose(self.scale, 10.0 ** -int(power[1])):
            needed = f"the unit {self.unit} needs scale: {10.0 ** -int(power[1]):g}"
            raise ConfigError(f"column {self.key}: {needed}; got {self.scale:g}. Records hold plain values.")

    @property
    def bounds(self) -> Bounds:
        """Values that a known metric can have: a share in %, an error that is no logarithm; else any."""
        known = direction(self.metric)
        if known == "higher" and self.unit == "%":
            return 0.0, 100.0
        is_error = known == "lower" and not self.metric.startswith("test/log")
        return (0.0 if is_error else -math.inf), math.inf

    @property
    def title(self) -> str:
        return self.label or self.key

    @property
    def heading(self) -> str:
        """The title with its unit."""
        return f"{self.title} [{self.unit}]" if self.unit else self.title

    def best(self, values: Mapping[str, float]) -> set[str]:
        """The names with the best value; several where they are equal."""
        best = (min if self.better == "lower" else max)(values.values(), default=None)
        return {name for name, value in values.items() if value == best}


@dataclass(frozen=True)
class Cell:
    experiment: str | None = None  # by default that of the row
    published: Published | None = None
    params: str | None = None  # by default that of the row
    not_comparable: str | None = None  # the reason, where our settings or data are known to differ


@dataclass(frozen=True)
class Row:
    label: str
    params: str | int | None = None  # as printed
    experiment: str | None = None
    cells: dict[str, Cell] = field(default_factory=dict)
    seeds: tuple[int, ...] = ()  # where they are others than the table's
    extra: bool = False  # given on the command line


@dataclass(frozen=True)
class Order:
    """The row `better` beats each row of `than`, in one column."""

    better: str
    than: tuple[str, ...]
    column: str | None = None


@dataclass(frozen=True)
class Tie:
    """Two rows are alike within ± margin, in the unit of the column."""

    rows: tuple[str, ...]
    margin: float
    column: str | None = None

    def __post_init__(self) -> None:
        non_negative("margin", self.margin)
        if len(self.rows) != 2:
            raise ConfigError(f"rows of a tie must be two labels; got {len(self.rows)}.")


@dataclass(frozen=True)
class Amount:
    """The row `better` beats the row `than` by at least so much, in one column."""

    better: str  # label of a row
    than: str  # label of another
    times: float | None = None  # ratio of the metrics, at least 1 where the claim is true
    points: float | None = None  # difference, in the unit of the column. One of the two
    column: str | None = None  # key; by default that of the claim

    def __post_init__(self) -> None:
        if (self.times is None) == (self.points is None):
            raise ConfigError("an amount of a claim needs one of times and points.")
        if self.times is not None:
            positive("times", self.times)


@dataclass(frozen=True)
class Claim:
    """The conclusion of the paper from the table, in words and as comparisons of rows.

    searched: only rows that were searched with equally many trials are judged: those of a row that takes over
    the settings of another one say nothing of what it can do.
    """

    text: str
    searched: bool = False
    column: str | None = None  # for orders and ties that name none
    order: tuple[Order, ...] = ()
    ties: tuple[Tie, ...] = ()
    amounts: tuple[Amount, ...] = ()

    def comparisons(self) -> Iterator[tuple[Order | Tie | Amount, str, str, str]]:
        """Each with its part of the claim, the labels of both rows, and the key of the column."""
        own = self.column or ""
        for order in self.order:
            yield from ((order, order.better, other, order.column or own) for other in order.than)
        yield from ((tie, tie.rows[0], tie.rows[1], tie.column or own) for tie in self.ties)
        yield from ((amount, amount.better, amount.than, amount.column or own) for amount in self.amounts)


@dataclass(frozen=True)
class Reason:
    """Why cells deviate from print, as far as it is known."""

    text: str  # in a sentence or two
    rows: tuple[str, ...] = ()  # their labels; none: all rows
    columns: tuple[str, ...] = ()  # their keys; none: all columns

    def fits(self, row: str, column: str) -> bool:
        return row in (self.rows or (row,)) and column in (self.columns or (column,))


@dataclass(frozen=True)
class Finding:
    """The finding of a table, in one to three sentences; with other outcomes one that is made from them."""

    text: str  # with numbers by their names: `{LEM}`, `{LEM|official|printed}` (`placeholders.filled`)
    outcomes: str = ""  # for which it was written, `1 reproduced, 5 not run`; the best rows of an own table


def check_numbers(what: str, numbers: Sequence[int]) -> None:
    """ConfigError unless seeds or splits are different numbers from 0 on, at least one."""
    if not numbers or len(set(numbers)) < len(numbers) or min(numbers) < 0:
        raise ConfigError(f"{what} must be different whole numbers from 0 on; got {list(numbers)}.")


def check_rows(columns: Sequence[str], rows: Sequence[Any]) -> None:
    """ConfigError for a table without columns or rows, one that is there twice, and cells of no column."""
    for what, names in (("column", columns), ("row", [row.label for row in rows])):
        if not names:
            raise ConfigError(f"a table needs at least one {what}; got none.")
        if twice := [n for n in names if names.count(n) > 1]:
            raise ConfigError(f"the {what} {twice[0]} appears twice.")
        near: dict[str, str] = {}  # what names of pages and files keep of a name
        for name in names:
            if (other := near.setdefault(name.lower().replace(" ", "-"), name)) is not name:
                raise ConfigError(f"the {what}s {other} and {name} differ in case or hyphens alone.")
    for row in rows:
        refuse_unknown(row.cells, columns, f"row {row.label}: there is no column ")


@dataclass(frozen=True)
class TableSpec:
    id: str
    title: str
    source: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    seeds: tuple[int, ...]
    splits: tuple[int, ...] = (0,)
    paired: bool = False  # each split with the seed at its place alone; else every split with every seed
    spread: Literal["runs", "splits"] = "runs"
    claim: Claim | str | None = None
    reasons: tuple[Reason, ...] = ()
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    ranks: tuple[str, ...] = ()  # columns of different data, over which rows are ranked
    finding: Finding | None = None

    def __post_init__(self) -> None:
        keys, labels = [c.key for c in self.columns], [r.label for r in self.rows]
        check_rows(keys, self.rows)
        own = [(f"row {row.label}: seeds", row.seeds) for row in self.rows if row.seeds]
        for what, numbers in (("seeds", self.seeds), ("splits", self.splits), *own):
            check_numbers(what, numbers)
        if self.paired and (own or len(self.seeds) != len(self.splits)):
            raise ConfigError(
                "paired wants as many seeds as splits, and no seeds of rows; "
                f"got {len(self.seeds)} seeds and {len(self.splits)} splits."
            )
        self._check_names(labels, keys)
        if self.finding:
            filled(self.finding.text, labels, keys, lambda *_: "")

    def _check_names(self, labels: list[str], keys: list[str]) -> None:
        """ConfigError where a part names a row or column that is not there."""
        if self.ranks and len(set(self.ranks)) < max(len(self.ranks), FEWEST_COLUMNS):
            raise ConfigError(
                f"ranks must name at least {FEWEST_COLUMNS} different columns; got {list(self.ranks)}."
            )
        refuse_unknown(self.ranks, keys, "ranks: there is no column ")
        claimed = self.claim.comparisons() if isinstance(self.claim, Claim) else ()
        named = [("claim", both, [key]) for _, *both, key in claimed]
        for where, rows, columns in [*named, *(("reasons", r.rows, r.columns) for r in self.reasons)]:
            refuse_unknown(rows, labels, f"{where}: there is no row ")
            for key in columns:
                if key not in keys:
                    raise ConfigError(f"{where}: there is no column {key!r}. {suggest(key, keys)}")

    def cell(self, row: Row, column: Column) -> Cell:
        """The cell as it counts: what it leaves out is taken from its row."""
        cell = row.cells.get(column.key, Cell())
        params = cell.params if cell.params is not None else row.params
        return dataclasses.replace(
            cell, experiment=cell.experiment or row.experiment, params=None if params is None else str(params)
        )

    @property
    def runs(self) -> list[Run]:
        """Every run that the table wants, each once, in the order of the rows."""
        return [(e, *place) for e in experiments_of(self) for place in self.places_of(e)]

    def places_of(self, experiment: str | None) -> list[tuple[int, int]]:
        """Split and seed of every run of an experiment; None: as for a row without seeds of its own."""
        if self.paired:
            return list(zip(self.splits, self.seeds, strict=True))
        return list(product(self.splits, self.seeds_of(experiment) if experiment else self.seeds))

    def seeds_of(self, experiment: str) -> tuple[int, ...]:
        """Seeds of an experiment: those of all its rows together."""
        return self._seeds.get(experiment, ())

    @cached_property
    def _seeds(self) -> dict[str, tuple[int, ...]]:
        by_experiment: defaultdict[str, set[int]] = defaultdict(set)
        for row, column in product(self.rows, self.columns):
            by_experiment[self.cell(row, column).experiment or ""].update(row.seeds or self.seeds)
        return {experiment: tuple(sorted(seeds)) for experiment, seeds in by_experiment.items()}

    def with_seeds(self, seeds: tuple[int, ...]) -> "TableSpec":
        """The same table with these seeds for every row, and every split."""
        rows = tuple(dataclasses.replace(row, seeds=()) for row in self.rows)
        return dataclasses.replace(self, rows=rows, seeds=seeds, paired=False)


def load_table(path: Path | str) -> TableSpec:
    """The config of one table. ConfigError names file and key of whatever is wrong in it."""
    path = Path(path)
    if kind_of(path) != "runs":
        raise ConfigError(f"{path.name} is a table of settings: it has no runs.")
    return conf_files.placed(load(TableSpec, path, ignore=("kind",), id=path.stem), path.parent)


def kind_of(path: Path) -> Kind:
    """`runs`, the usual table of results; `settings`, one that is read from conf/ (`settings.py`)."""
    kind: Kind = coerce(content_of(path).get("kind", "runs"), Kind, f"{path.name}: kind")
    return kind


def table_ids(kind: Kind | None = None) -> list[str]:
    """The ids of all tables, or of those of one kind; numbers in their order: lem-4 before lem-10."""
    paths = conf_files.files("table")
    return sorted((i for i, path in paths.items() if kind is None or kind_of(path) == kind), key=natural)


def natural(name: str) -> list[tuple[int, int, str]]:
    """A sort key under which lem-4 comes before lem-10."""
    return [
        (0, int(part), "") if part.isdigit() else (1, 0, part) for part in re.split(r"(\d+)", name) if part
    ]


def find_file(name: str, paper: str, what: Literal["table", "figure"]) -> Path:
    """The config a person means: `./mine.yaml`, `lem-4`, `4` with the paper's name, or an alias as 5.4."""
    if conf_files.is_path(name):
        return conf_files.at_path(what, name)
    if path := conf_files.find(what, name):
        return path
    known = conf_files.files(what)
    aliases: dict[str, str] = {}
    for ident, path in known.items():
        for alias in coerce(content_of(path).get("aliases", []), tuple[str, ...], f"{path.name}: aliases"):
            if other := aliases.get(alias):
                raise ConfigError(f"{path}: the alias {alias} is one of {other} too. Remove one.")
            aliases[alias] = ident
    bare = name.strip().removeprefix(f"{what}-")
    for option in (bare, f"{paper}-{bare}"):
        if option in known:
            return known[option]
    for option in (bare, f"thesis-{bare}"):
        if option in aliases:
            return known[aliases[option]]
    papers = {ident.rpartition("-")[0] for ident in known}
    if bare.isdigit() and paper not in papers:
        raise ConfigError(f"there is no paper {paper!r}. {suggest(paper, papers)}")
    short = [alias.removeprefix("thesis-") for alias in aliases]
    near = suggest(bare, {*known, *aliases, *short})
    hint = near if near.startswith("Did you mean") else f"All: physml list {what}s"
    raise ConfigError(f"there is no {what} {name!r}. {conf_files.other_kind(bare) or hint}")


def find_table(name: str, paper: str = "lem") -> Path:
    """The config of the table a person means by `./mine.yaml`, `4`, `lem-4`, `thesis-5.4` or `5.4`."""
    return find_file(name, paper, "table")


def experiments_of(spec: TableSpec) -> list[str]:
    """The experiments of a table, each once, in the order of the rows."""
    cells = starmap(spec.cell, product(spec.rows, spec.columns))
    return list(dict.fromkeys(cell.experiment for cell in cells if cell.experiment))


def only_ranked(spec: TableSpec) -> TableSpec:
    """The ranked columns alone, and the rows with an experiment in each of them."""
    columns = tuple(column for column in spec.columns if column.key in spec.ranks)
    rows = (
        dataclasses.replace(row, cells={key: cell for key, cell in row.cells.items() if key in spec.ranks})
        for row in spec.rows
        if all(spec.cell(row, column).experiment for column in columns)
    )
    return dataclasses.replace(spec, columns=columns, rows=tuple(rows), claim=None, reasons=(), finding=None)
