"""Checks of arguments, with messages that say what was wanted and what came."""

from collections.abc import Callable, Collection
from numbers import Integral
from typing import TYPE_CHECKING, Any, Protocol, TypeGuard, cast

from physml.base.errors import InputError, suggest

if TYPE_CHECKING:
    import torch


class Shaped(Protocol):
    """An array of numbers, such as a tensor, as far as checks of its shape go."""

    @property
    def shape(self) -> tuple[int, ...]: ...
    @property
    def dtype(self) -> "torch.dtype": ...
    def dim(self) -> int: ...
    def __len__(self) -> int: ...


def positive(name: str, value: float) -> None:
    _number(name, value)
    if not value > 0:
        raise InputError(f"{name} must be positive; got {value}.")


def count(name: str, value: int) -> None:
    if not isinstance(value, Integral):
        raise InputError(f"{name} must be a whole number; got {value!r}.")
    positive(name, value)


def each(check: Callable[[str, Any], None], **values: object) -> None:
    """The same check of several arguments, by their names."""
    for name, value in values.items():
        check(name, value)


def non_negative(name: str, value: float) -> None:
    _number(name, value)
    if not value >= 0:
        raise InputError(f"{name} must not be negative; got {value}.")


def _number(name: str, value: object) -> None:
    if not hasattr(value, "__float__"):
        raise InputError(f"{name} must be a number; got {value!r}.")


def is_number(value: object) -> TypeGuard[float]:
    """True for an int or a float; true and false, which Python counts as ints, are none."""
    return isinstance(value, int | float) and not isinstance(value, bool)


def within(name: str, value: float, low: float, high: float) -> None:
    _number(name, value)
    if not low <= value <= high:
        raise InputError(f"{name} must lie in [{low}, {high}]; got {value}.")


def seed(name: str, value: int) -> None:
    """A seed of numpy, which takes 32 bits."""
    within(name, value, 0, 2**32 - 1)


def fraction(name: str, value: float) -> None:
    within(name, value, 0.0, 1.0)


def below_one(name: str, value: float | None, *, null: bool = False) -> None:
    """Not negative and less than 1, as a chance of dropout; `null`: None will do too."""
    if null and value is None:
        return
    _number(name, value)
    if not 0 <= cast(float, value) < 1:
        raise InputError(f"{name} must lie in [0, 1){', or be null' * null}; got {value}.")


def one_of(name: str, value: str | None, options: Collection[str], *, null: bool = False) -> None:
    """`null`: None will do too."""
    if value not in tuple(options) and not (null and value is None):
        hint = suggest(str(value), options)
        raise InputError(
            f"{name} must be one of {', '.join(map(repr, options))}; got {value!r}."
            + (f" {hint}" if hint.startswith("Did") else "")
        )


def is_tensor(name: str, x: object) -> None:
    if not hasattr(x, "dim"):
        raise InputError(f"{name} must be a tensor; got {type(x).__name__}. Use torch.as_tensor.")


def has_shape(name: str, x: Shaped, axes: tuple[int | str, ...], *, hint: str = "") -> None:
    """Letters stand for any positive size; numbers must match.

    Example:
        >>> import torch
        >>> has_shape("u", torch.zeros(4, 3, 2), ("B", "T", 2))
    """
    is_tensor(name, x)
    fits = x.dim() == len(axes) and all(
        size == axis if isinstance(axis, int) else size > 0 for size, axis in zip(x.shape, axes, strict=True)
    )
    if not fits:
        expected = ", ".join(map(str, axes))
        raise InputError(f"{name} must have shape ({expected}); got {tuple(x.shape)}. {hint}".rstrip())
