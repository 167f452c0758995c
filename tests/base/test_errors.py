"""Errors for a person: exit codes, near names, checks of arguments."""

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refuses

from physml import LEM
from physml.base import check, errors
from physml.base.errors import InputError, suggest


@pytest.mark.parametrize(
    ("kinds", "code"),
    [("InputError ConfigError DataError RecordError MissingExtra", 2), ("RunFailed", 1), ("Preempted", 75)],
)
def test_every_error_has_the_exit_code_that_is_documented(kinds: str, code: int) -> None:
    for kind in kinds.split():
        error = getattr(errors, kind)("x")
        assert isinstance(error, errors.PhysmlError) and error.exit_code == code


def test_wrong_input_is_a_value_error_for_those_who_use_physml_from_python() -> None:
    assert issubclass(errors.ConfigError, errors.InputError)
    assert issubclass(errors.InputError, ValueError)


MANY = [f"{i:03}" for i in range(200)]
ONE_OF = partial(check.one_of, options=("paper", "official"))


@pytest.mark.parametrize(
    ("name", "known", "says"),
    [
        ("lme", ["lem", "lstm", "gru"], "Did you mean lem or lstm?"),
        ("weigth_decay", ["weight_decay", "lr"], "Did you mean weight_decay?"),
        ("xyz", ["b", "a"], "Known: a, b."),
        ("", ["b", "a"], "Known: a, b."),
        ("x", [], "None is known."),
        ("lem", iter(["lem"]), "Did you mean lem?"),
        ("x", MANY, f"Known: {', '.join(MANY[:10])} and 190 more."),
    ],
)
def test_near_names(name: str, known: list[str], says: str) -> None:
    assert suggest(name, known) == says


@pytest.mark.parametrize(
    ("call", "fitting", "wrong", "says"),
    [
        (check.positive, [1e-9], [0, -1, 0.0, math.nan], "x must be positive; got {}"),
        (check.non_negative, [0], [-1e-9, math.nan], "x must not be negative"),
        (partial(check.within, low=0, high=1), [0, 1], [-0.1, 1.1, math.nan], r"x must lie in \[0, 1\]"),
        (ONE_OF, ["paper"], ["papr"], "x must be one of 'paper', 'official'; got 'papr'. Did you mean paper"),
    ],
    ids=["positive", "not negative", "within", "one of"],
)
def test_values(call: Callable[[str, Any], None], fitting: list[Any], wrong: list[Any], says: str) -> None:
    for value in fitting:
        call("x", value)
    for value in wrong:
        refuses(InputError, says.format(value), call, "x", value)


@pytest.mark.parametrize(
    ("shape", "axes", "fits"),
    [
        ((4, 3, 2), ("B", "T", 2), True),
        ((4, 3, 2), ("B", "T", 3), False),
        ((4, 3), ("B", "T", 2), False),
        ((0, 3, 2), ("B", "T", 2), False),
        ((4, 3, 2), (4, 3, 2), True),
        ((), (), True),
    ],
)
def test_shapes(shape: tuple[int, ...], axes: tuple[int | str, ...], fits: bool) -> None:
    if fits:
        check.has_shape("u", torch.zeros(shape), axes)
        return
    axes_text = ", ".join(map(str, axes))
    hint = "Batch comes first."
    said = refuses(InputError, "^u must", check.has_shape, "u", torch.zeros(shape), axes, hint=hint)
    assert said == f"u must have shape ({axes_text}); got {shape}. {hint}"


def test_what_is_no_tensor_is_said() -> None:
    numbers = np.zeros((2, 5, 3), np.float32)
    with pytest.raises(InputError, match=r"u must be a tensor; got ndarray\. Use torch\.as_tensor"):
        check.has_shape("u", numbers, ("B", "T", 3))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="u must be a tensor; got ndarray"):
        LEM(3, 4)(numbers)
