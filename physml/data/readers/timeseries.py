"""The .ts files of the UEA, UCR and TSR archives. No torch here.

Axes: N cases, T steps, D dimensions.
"""

import re
from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from physml.data.files.archives import damaged
from physml.data.files.limits import WrongFile

LABEL = re.compile(r'"([^"]*)"|(\S+)')  # in the header, where blanks end a label that has no quotes
MISSING = ("?", "")


@dataclass(frozen=True)
class Cases:
    """The contents of one file.

    x: one array (T, D) float64 per case; T may differ. y: (N,) int64 positions in `labels`, or (N,) float64
    where the file has numbers to predict. labels: the classes in the order of the header. lines: where in the
    file each case stands. name: of the problem, as the header says.
    """

    path: Path
    name: str
    x: tuple[np.ndarray, ...]
    y: np.ndarray
    labels: tuple[str, ...]
    lines: tuple[int, ...]

    def stacked(self, steps: Collection[int], dimensions: int) -> np.ndarray:
        """x (N, T, D) float32. DataError where a case has another number of steps than the first one, or
        T is none of `steps`, or D another than `dimensions`.
        """
        shape = self.x[0].shape
        if shape[0] not in steps or shape[1] != dimensions:
            raise WrongFile(
                f"{self.path}: the cases must have {' or '.join(map(str, steps))} steps of {dimensions} "
                f"dimension(s); got {shape[0]} of {shape[1]}."
            )
        for case, line in zip(self.x, self.lines, strict=True):
            if case.shape != shape:
                raise WrongFile(
                    f"{self.path}, line {line}: this case has {len(case)} steps, the first one {shape[0]}. "
                    "All must be equally long."
                )
        return np.stack(self.x).astype(np.float32)

    def expect(self, name: str, n: Collection[int], labels: Sequence[str] | None) -> "Cases":
        """Itself, once it is the problem `name` with as many cases; y counts `labels` in the order given.

        labels None: the file must have numbers to predict.
        """
        if self.name.lower() != name.lower():
            raise WrongFile(f"{self.path} is the problem {self.name}; expected {name}.")
        if set(self.labels) != set(labels or ()):
            got = f"the classes {', '.join(self.labels)}" if self.labels else "numbers"
            expected = f"the classes {', '.join(labels)}" if labels else "numbers to predict"
            raise WrongFile(f"{self.path}: expected {expected}; got {got}.")
        if len(self.x) not in n:
            raise WrongFile(
                f"{self.path}: {len(self.x)} cases, expected {' or '.join(map(str, n))}: half a file, or "
                "another one."
            )
        if not labels:
            return self
        place = np.array([labels.index(label) for label in self.labels])
        return replace(self, y=place[self.y], labels=tuple(labels))


# ---------------------------------------------------------------------------- what a file says of itself


@dataclass(frozen=True)
class _Head:
    """The lines before the data. steps: 0 where the header does not say, or cases differ."""

    name: str = ""
    labels: tuple[str, ...] = ()
    numbers: bool = False  # in place of labels
    dimensions: int = 0  # 0: not said
    steps: int = 0


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Number and text of each line that is not empty."""
    try:
        with path.open(encoding="utf-8-sig") as file:
            for number, line in enumerate(file, 1):
                if line := line.strip():
                    yield number, line
    except UnicodeDecodeError as error:
        raise WrongFile(
            f"{path} is no text file: byte {error.start} is {error.object[error.start]:#x}."
        ) from error


def _told(head: _Head, words: list[str], where: str) -> _Head:
    """The header with what one of its lines says. Words are lower case in the header of some files."""
    tag, values = words[0].lower(), words[1:]
    true = bool(values) and values[0].lower() == "true"
    match tag:
        case "@problemname" if values:
            return replace(head, name=values[0])
        case "@classlabel" if true:
            quoted = LABEL.findall(" ".join(values[1:]))
            return replace(head, labels=tuple(inside or word for inside, word in quoted))
        case "@targetlabel" if true:
            return replace(head, numbers=True)
        case "@dimensions" | "@dimension" | "@serieslength":
            if not (len(values) == 1 and values[0].isdigit() and int(values[0]) > 0):
                raise WrongFile(f"{where}: {words[0]} needs a positive whole number; got {values}.")
            n = int(values[0])
            return replace(head, steps=n) if tag == "@serieslength" else replace(head, dimensions=n)
        case "@timestamps" if true:
            raise WrongFile(f"{where}: series with time stamps are not read here.")
        case "@univariate" if true:
            return replace(head, dimensions=1)
    return head


def _parted(line: str, head: _Head, where: str) -> tuple[list[str], str]:
    """The dimensions of a case, each with a colon behind it, and the label behind them."""
    *dimensions, label = line.split(":")
    if len(dimensions) != (head.dimensions or len(dimensions)) or not dimensions:
        raise WrongFile(
            f"{where}: {len(dimensions)} dimension(s) before the label, expected "
            f"{head.dimensions or 'some'}: the line may be cut off."
        )
    lengths = {d.count(",") + 1 for d in dimensions}
    if len(lengths) > 1:
        raise WrongFile(f"{where}: the dimensions of a case must be equally long; got {sorted(lengths)}.")
    if head.steps and lengths != {head.steps}:
        raise WrongFile(f"{where}: {lengths.pop()} steps, but the header says {head.steps}.")
    return dimensions, label.strip()


def _numbers(values: str, where: str, gaps: bool) -> np.ndarray:
    """The values of one dimension, (T,) float64; a missing one is NaN, or refused."""
    steps = values.split(",")
    try:
        numbers = np.array(steps, np.float64) if "_" not in values else None  # Python takes 1_000 for 1000
    except ValueError:
        numbers = None
    if numbers is None:
        numbers = np.array([_number(v, n, where) for n, v in enumerate(steps, 1)])
    if not gaps and np.isnan(numbers).any():
        n = int(np.isnan(numbers).argmax()) + 1
        raise WrongFile(f"{where}: the value at step {n} of {len(steps)} is missing.")
    beyond = np.abs(numbers) > np.finfo(np.float32).max  # which they become
    if beyond.any():
        n = int(beyond.argmax()) + 1
        raise WrongFile(f"{where}: the value at step {n} is not finite.")
    return numbers


def _number(value: str, step: int, where: str) -> float:
    if value.strip() in MISSING:
        return np.nan
    try:
        if "_" not in value:
            return float(value)
        raise ValueError
    except ValueError:
        comma = " Decimals need a point." if re.fullmatch(r"\s*-?\d+;\d+\s*", value) else ""
        raise WrongFile(f"{where}: the value at step {step}, {value[:40]!r}, is no number.{comma}") from None


def _target(label: str, head: _Head, where: str) -> float:
    """The position of the class, or the number to predict."""
    if head.numbers:
        try:
            if "_" not in label and np.isfinite(number := float(label)):  # Python takes 1_000 for 1000
                return number
        except ValueError:
            pass
        raise WrongFile(f"{where}: expected a number to predict behind the last colon; got {label!r}.")
    label = label[1:-1] if LABEL.fullmatch(label) and label.startswith('"') else label
    if label not in head.labels:
        hint = ""
        if set(label.split()) <= set(head.labels):
            hint = f' A class with a blank in it has quotes in the header: "{label[:40]}".'
        elif near := [known for known in head.labels if known.lower() == label.lower()]:
            hint = f" {label} and {near[0]} are two classes."
        raise WrongFile(f"{where}: {label[:40]!r} is none of the classes {', '.join(head.labels)}.{hint}")
    return head.labels.index(label)


def read_ts(path: Path, *, gaps: bool = False) -> Cases:
    """All cases of a .ts file without time stamps, of equal or unequal length.

    gaps: missing values are NaN; else they are refused. Errors: DataError for the first line that cannot be
    right.
    """
    head, x, y, lines, in_data, tags = _Head(), [], [], [], False, set()
    for number, line in _lines(path):
        where = f"{path}, line {number}"
        if in_data:
            dimensions, label = _parted(line, head, where)
            lines.append(number)
            y.append(_target(label, head, where))
            named = [(d, f"{where}, dimension {k}") for k, d in enumerate(dimensions, 1)]
            x.append(np.stack([_numbers(values, place, gaps) for values, place in named], -1))
            if not head.dimensions:
                head = replace(head, dimensions=len(dimensions))
        elif line.startswith("@"):
            words = line.split()
            tags.add(words[0].lower())
            head = _told(head, words, where)
            in_data = words[0].lower() == "@data"
        elif not line.startswith("#"):
            if not tags:
                raise damaged(path, ".ts file", None)
            raise WrongFile(f"{where}: expected a line of the header, which starts with @.")
    if not tags:
        raise damaged(path, ".ts file", None)
    if not lines:
        behind = "@data" if "@data" in tags else "its header"
        raise WrongFile(f"{path}: no case stands behind {behind}.")
    for tag in ("@problemname", "@timestamps", "@univariate"):
        if tag not in tags:
            raise WrongFile(f"{path}: its header has no {tag}.")
    if not head.labels and not head.numbers:
        raise WrongFile(f"{path}: its header must have @classLabel true or @targetLabel true.")
    targets = np.array(y, np.float64 if head.numbers else np.int64)
    return Cases(path, head.name, tuple(x), targets, () if head.numbers else head.labels, tuple(lines))


# ---------------------------------------------------------------------------- for fixtures


def write_ts(path: Path, name: str, x: np.ndarray, y: Collection[object], labels: Collection[str]) -> None:
    """A .ts file as the archives have it, with 7 digits. Shapes: x (N, T, D); y (N,) labels or numbers."""
    n_steps, n_dimensions = x.shape[1:]
    head = [
        "#Made for tests; the form is that of the archive.",
        f"@problemName {name}",
        "@timeStamps false",
        "@missing false",
        f"@univariate {'true' if n_dimensions == 1 else 'false'}",
        *([f"@dimensions {n_dimensions}"] if n_dimensions > 1 else []),
        "@equalLength true",
        f"@seriesLength {n_steps}",
        f"@classLabel true {' '.join(labels)}" if labels else "@targetlabel true",
        "@data",
    ]
    rows = [
        ":".join([*(",".join(f"{v:.7g}" for v in dimension) for dimension in case.T), str(label)])
        for case, label in zip(x, y, strict=True)
    ]
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join([*head, *rows]) + "\n", encoding="utf-8")
