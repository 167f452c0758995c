"""Tables of numbers in text, as spreadsheets and programs write them. No torch. Axes: N rows, K columns."""

import logging
import re
from collections.abc import Sequence
from pathlib import Path

import numpy as np

from physml.base.errors import DataError
from physml.data.files.limits import read_bytes

log = logging.getLogger(__name__)

SEPARATORS = (";", "\t", ",")
THOUSANDS = re.compile(r"[-+]?[1-9]\d{0,2}(,\d{3})+")  # or a comma for the point of decimals
QUOTED = re.compile(r'(?<![^;,\s])"[^"]*"')  # from the start of a cell on
MISSING = ("", "?", "na", "n/a", "nan", "null", "none")


def table(path: Path, *, gaps: bool = False) -> np.ndarray:
    """The numbers of a file, (N, K) float64, with or without a line of names above them.

    Values are separated by semicolons, tabs, commas or blanks, whichever the first line of numbers has; a
    comma may stand for the point of decimals where it separates nothing, as in quotes. Lines that are empty
    or start with `#` are left out.

    gaps: missing values, such as an empty one, `?` or `NaN`, are NaN; else they are refused.

    Errors: DataError, with line and column, for what is no number or not finite, for lines of another length,
    and for a file without numbers.
    """
    lines = [(n, line) for n, line in enumerate(_text(path).splitlines(), 1) if line.strip()]
    lines = [(n, line) for n, line in lines if not line.lstrip().startswith("#")]
    names: list[str] = []
    if lines and _is_header(lines[0][1], _separator(lines[0][1])):
        names = _cells(lines[0][1], _separator(lines[0][1]))
        lines = lines[1:]
    if not lines:
        raise DataError(f"{path}: there are no lines with numbers.")
    separator = _separator(lines[0][1])
    width, rows = len(names) or len(_cells(lines[0][1], separator)), []
    for number, line in lines:
        cells = _cells(line, separator)
        if len(cells) != width:
            raise DataError(
                f"{path}, line {number}: {len(cells)} columns, expected {width} as in the first line, "
                f"separated by {separator or ' '!r}. Correct that line."
            )
        for k, cell in enumerate(cells):
            if separator == "," and THOUSANDS.fullmatch(cell):
                raise DataError(
                    f"{_place(path, number, k, names)}: the comma of {cell[:40]!r} may be of thousands or of "
                    "decimals. Write decimals with a point, and thousands without a mark."
                )
        rows.append([_value(v, _place(path, number, k, names), gaps) for k, v in enumerate(cells)])
    if width > 2 and rows[0] == list(range(width)):
        says = (
            "%s, line %d: 0 to %d are read as numbers. Remove them if they name columns (pandas writes them)."
        )
        log.warning(says, path, lines[0][0], width - 1)
    return np.array(rows)


def _text(path: Path) -> str:
    try:
        return read_bytes(path).decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise DataError(
            f"{path} is no text in UTF-8: byte {error.start} is {error.object[error.start]:#x}. Save it as "
            "CSV in UTF-8."
        ) from error


def _separator(line: str) -> str | None:
    """The one outside of quotes. None: blanks, which may have decimals with a comma between them."""
    outside = QUOTED.sub("", line)
    separator = next((separator for separator in SEPARATORS if separator in outside), None)
    cells = outside.split()
    decimals = len(cells) > 1 and all(_number(c) is not None or c.lower() in MISSING for c in cells)
    return None if separator == "," and decimals else separator


def _cells(line: str, separator: str | None) -> list[str]:
    masked = QUOTED.sub(lambda quoted: quoted[0].replace(separator or " ", "\0"), line)
    return [cell.replace("\0", separator or " ").strip().strip('"') for cell in masked.split(separator)]


def _is_header(line: str, separator: str | None) -> bool:
    """True if no cell is a number, and some are more than a missing value."""
    cells = _cells(line, separator)
    return not any(_number(cell) is not None for cell in cells) and any(
        c.lower() not in MISSING for c in cells
    )


def _number(cell: str) -> float | None:
    text = cell.replace(",", ".") if re.fullmatch(r"[-+]?\d*,\d+([eE][-+]?\d+)?", cell) else cell
    try:
        return None if "_" in text else float(text)  # Python takes 1_000 for 1000
    except ValueError:
        return None


def _value(cell: str, place: str, gaps: bool) -> float:
    if cell.lower() in MISSING:
        if gaps:
            return np.nan
        raise DataError(f"{place}: the value is missing. Fill it in, or leave the line out.")
    number = _number(cell)
    if number is None:
        raise DataError(f"{place}: {cell[:40]!r} is no number. Correct it, or code texts as numbers.")
    if not np.isfinite(number):
        raise DataError(f"{place}: {cell[:40]!r} is not finite. Correct it, or leave the line out.")
    return number


def _place(path: Path, line: int, column: int, names: Sequence[str]) -> str:
    name = f" ({names[column]})" if names else ""
    return f"{path}, line {line}, column {column + 1}{name}"
