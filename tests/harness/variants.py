"""Which variants of a test are run always, and which with --grid alone."""

from collections.abc import Iterable
from typing import Any

GRID = False  # whether `--grid` was given: tests/conftest.py sets it before tests are collected


def variants(always: Iterable[Any], with_grid: Iterable[Any]) -> list[Any]:
    """Values for `pytest.mark.parametrize`: the first always, those of the second that are new with --grid.

    A value with several parts is a tuple.
    """
    always = list(always)
    return [*always, *(value for value in with_grid if value not in always)] if GRID else always


def grid() -> bool:
    return GRID
