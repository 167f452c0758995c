"""Labels of any kind to classes, by one rule for all tasks: those of train, by exact value. No torch here.

Axes: N items.
"""

import hashlib
import logging
import math
from collections.abc import Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from physml.base.errors import DataError
from physml.base.text import brief

log = logging.getLogger(__name__)

HIDDEN = (-1, "-1", "?", "")  # the label of a test set whose labels are not published


def coded(
    labels: Mapping[str, Sequence[Any]],
    where: str,
    order: Sequence[Hashable] | None = None,
    *,
    divided: bool = False,
) -> tuple[dict[str, np.ndarray], tuple[Any, ...]]:
    """Positions (N,) int64 of the labels of each part among the classes, and the classes.

    The classes are the values in train: in the order of `order`, else sorted.

    Args:
        labels: of "train" and of other parts; `A` and `a` are two classes, and so are 1 and "1".
        where: the data set, the beginning of every message.
        order: the classes that the data set declares; those that train lacks are left out.
        divided: the parts are published, and a class that train lacks is one all the same: the log tells it.

    Errors: DataError for a label that is missing or hidden, a class that train lacks, a train of one class.
    """
    plain = {part: [_plain(label) for label in part_labels] for part, part_labels in labels.items()}
    for part, values in plain.items():
        for row, value in enumerate(values):
            if not isinstance(value, Hashable):
                raise DataError(
                    f"{where}, {part}: the label of item {row} is {brief(value, 80)}, expected a number or a "
                    "text. Name a column that has one label for each item."
                )
        _refuse_missing(part, values, plain["train"], where)
    train = set(plain["train"])
    if divided and (lacking := {label for values in plain.values() for label in values} - train):
        log.warning("%s: train has no item of %s: none of them can be right.", where, _listed(lacking))
        train |= lacking
    if order is not None and (strange := train - set(order)):
        raise DataError(f"{where}, train: {_listed(strange)} is none of the classes {_listed(order)}.")
    classes = tuple(_sorted(train) if order is None else (label for label in order if label in train))
    if len(classes) < 2:
        raise DataError(
            f"{where}, train: all {len(plain['train'])} items are of the class {_short(classes[0])}; a task "
            "needs two classes or more. Take items of another class too."
        )
    place = {label: i for i, label in enumerate(classes)}
    for part, values in plain.items():
        refuse_beyond(part, values, classes, where)
    _tell_gaps(classes, where)
    y = {part: np.array([place[label] for label in values], np.int64) for part, values in plain.items()}
    return y, classes


def refuse_beyond(part: str, values: Sequence[Any], classes: Iterable[Any], where: str) -> None:
    """DataError for the first item of a part whose class is none of those of train."""
    known = set(classes)
    beyond = [(row, label) for row, label in enumerate(values) if label not in known]
    if beyond:
        row, label = beyond[0]
        raise DataError(
            f"{where}, {part}: {len(beyond)} of {len(values)} items are of no class of train, the first of "
            f"class {_short(label)} (item {row}); train has {_listed(classes)}. Correct the labels, or "
            "divide the items anew so that train has each class."
        )


def _plain(label: Any) -> Any:
    """The value as Python has it: None where it is missing, whole numbers as int."""
    value = label.item() if isinstance(label, np.generic) else label
    if isinstance(value, float):
        return None if math.isnan(value) else int(value) if value.is_integer() else value
    return value


def _sorted(values: set[Any]) -> list[Any]:
    try:
        return sorted(values)
    except TypeError:  # texts and numbers
        return sorted(values, key=lambda value: (type(value).__name__, value))


def _refuse_missing(part: str, values: Sequence[Any], train: Sequence[Any], where: str) -> None:
    if not values:
        raise DataError(f"{where}, {part}: there are no items.")
    first = values[0]
    hidden = part != "train" and (first is None or first in HIDDEN) and first not in set(train) - {None}
    if hidden and all(value == first for value in values):
        raise DataError(
            f"{where}, {part}: all {len(values)} labels are {_short(first)}: they are hidden, so nothing can "
            f"be scored. Name a part with labels as {part}, or hold out items of train."
        )
    missing = [row for row, value in enumerate(values) if value is None]
    if missing:
        raise DataError(
            f"{where}, {part}: {len(missing)} of {len(values)} labels are missing, the first of item "
            f"{missing[0]}. Leave such items out, or give them a class of their own."
        )


def _tell_gaps(classes: Sequence[Any], where: str) -> None:
    """A line of the log where numbers are classes and do not count from 0 on."""
    if all(type(label) is int for label in classes) and classes != tuple(range(len(classes))):
        last = len(classes) - 1
        log.warning("%s: the labels %s became the classes 0 to %d.", where, _listed(classes), last)


def _short(label: Any) -> str:
    return brief(repr(label), 80)


def _listed(classes: Iterable[Any]) -> str:
    shown = [str(label)[:40] for label in classes]
    return ", ".join(shown[:20]) + (f" and {len(shown) - 20} more" if len(shown) > 20 else "")


def in_both(first: Sequence[np.ndarray], second: Sequence[np.ndarray]) -> int:
    """How many rows of the second are equal to one of the first."""
    known = {_digest(row) for row in first}
    return sum(_digest(row) in known for row in second)


def _digest(row: np.ndarray) -> bytes:
    return hashlib.blake2b(np.ascontiguousarray(row).tobytes(), digest_size=16).digest()
