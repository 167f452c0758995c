"""Seeds and extra rows as they are typed on the command line."""

import dataclasses
import re
from collections import Counter
from collections.abc import Iterable

from physml.base.errors import ConfigError, suggest
from physml.report.table.spec import Cell, Row, TableSpec

MOST_SEEDS = 100_000  # of one range


def parse_seeds(text: str) -> tuple[int, ...]:
    """`0,1,2`, `0-4`, or `n5` for the first five.

    Example:
        >>> parse_seeds("n3"), parse_seeds("4,7-9")
        ((0, 1, 2), (4, 7, 8, 9))
    """
    if match := re.fullmatch(r"n([1-9]\d{0,4})", text.strip()):
        return tuple(range(int(match[1])))
    seeds: dict[int, None] = {}
    for part in text.split(","):
        match = re.fullmatch(r"\s*(\d{1,18})(?:-(\d{1,18}))?\s*", part)
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (0, -1)
        if last - first >= MOST_SEEDS:
            raise ConfigError(f"at most {MOST_SEEDS} seeds; got {text!r}.")
        if last < first:
            raise ConfigError(f"seeds must look like 0,1,2, 0-4 or n5; got {text!r}.")
        seeds |= dict.fromkeys(range(first, last + 1))
    return tuple(seeds)


def parse_row(text: str) -> Row:
    """An extra row from the command line: one experiment for all columns, or one for each by its key.

    `seeds` are those of this row; else it has those of the table.

    Example:
        >>> made = parse_row("label=Mine,experiment=./mine.yaml:lem,seeds=0-2")
        >>> made.experiment, made.seeds
        ('./mine.yaml:lem', (0, 1, 2))
        >>> sorted(parse_row("label=Mine,texas=./a.yaml:x,cornell=./a.yaml:y").cells)
        ['cornell', 'texas']
    """
    label, *parts = re.split(r",(?=\w+=)", text.strip())
    pairs = [part.split("=", 1) for part in parts]
    if twice := [key for key, n in Counter(key for key, _ in pairs).items() if n > 1]:
        raise ConfigError(f"the row {text!r} names {twice[0]} twice. Name it once.")
    cells = dict(pairs)
    seeds = cells.pop("seeds", None)
    named = label.removeprefix("label=").strip()
    if not (label.startswith("label=") and named and cells and all(cells.values())):
        raise ConfigError(
            "a row must look like label=Mine,experiment=./mine.yaml:ROW, or, where the columns differ in "
            f"task, label=Mine,COLUMN=./mine.yaml:A,COLUMN=./mine.yaml:B; got {text!r}."
        )
    whole = cells.pop("experiment", None)
    return Row(
        named,
        experiment=None if whole is None else whole.strip(),
        cells={key: Cell(experiment=value.strip()) for key, value in cells.items()},
        seeds=() if seeds is None else parse_seeds(seeds),
        extra=True,
    )


def with_rows(spec: TableSpec, rows: Iterable[Row]) -> TableSpec:
    """The table with these rows below its own. ConfigError for a cell of no column."""
    rows = tuple(rows)
    known = [column.key for column in spec.columns]
    for row in rows:
        for key in row.cells.keys() - known:
            hint = suggest(key, [*known, "experiment", "seeds"])
            raise ConfigError(f"row {row.label}: there is no column {key}. {hint}")
    return dataclasses.replace(spec, rows=(*spec.rows, *rows))
