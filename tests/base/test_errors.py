"""Errors for a person: exit codes, near names, checks of arguments."""

import pytest
import torch

from physml.base import check, errors
from physml.base.errors import InputError, suggest


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (errors.InputError, 2),
        (errors.ConfigError, 2),
        (errors.DataError, 2),
        (errors.RecordError, 2),
        (errors.MissingExtra, 2),
        (errors.RunFailed, 1),
        (errors.Preempted, 75),
    ],
)
def test_every_error_has_the_exit_code_that_is_documented(error: type[errors.PhysmlError], code: int) -> None:
    assert issubclass(error, errors.PhysmlError)
    assert error("x").exit_code == code


def test_wrong_input_is_a_value_error_for_those_who_use_physml_from_python() -> None:
    assert issubclass(errors.ConfigError, errors.InputError)
    assert issubclass(errors.InputError, ValueError)


@pytest.mark.parametrize(
    ("name", "known", "says"),
    [
        ("lme", ["lem", "lstm", "gru"], "Did you mean lem or lstm?"),
        ("weigth_decay", ["weight_decay", "lr"], "Did you mean weight_decay?"),
        ("xyz", ["b", "a"], "Known: a, b."),
        ("", ["b", "a"], "Known: a, b."),
        ("x", [], "None is known."),
        ("lem", iter(["lem"]), "Did you mean lem?"),
        (
            "x",
            (f"{i:03}" for i in range(200)),
            f"Known: {', '.join(f'{i:03}' for i in range(10))} and 190 more.",
        ),
    ],
)
def test_near_names(name: str, known: list[str], says: str) -> None:
    assert suggest(name, known) == says


@pytest.mark.parametrize("value", [0, -1, 0.0, float("nan")])
def test_what_must_be_positive(value: float) -> None:
    check.positive("dt", 1e-9)
    with pytest.raises(InputError, match=f"dt must be positive; got {value}"):
        check.positive("dt", value)


@pytest.mark.parametrize("value", [-1e-9, float("nan")])
def test_what_must_not_be_negative(value: float) -> None:
    check.non_negative("alpha", 0)
    with pytest.raises(InputError, match="alpha must not be negative"):
        check.non_negative("alpha", value)


@pytest.mark.parametrize("value", [-0.1, 1.1, float("nan")])
def test_what_must_lie_within(value: float) -> None:
    check.within("p", 0, 0, 1)
    check.within("p", 1, 0, 1)
    with pytest.raises(InputError, match=r"p must lie in \[0, 1\]"):
        check.within("p", value, 0, 1)


def test_what_must_be_one_of() -> None:
    check.one_of("init", "paper", ("paper", "official"))
    with pytest.raises(
        InputError, match=r"init must be one of 'paper', 'official'; got 'papr'. Did you mean paper"
    ):
        check.one_of("init", "papr", ("paper", "official"))


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
    with pytest.raises(InputError) as refusal:
        check.has_shape("u", torch.zeros(shape), axes, hint="Batch comes first.")
    assert str(refusal.value) == f"u must have shape ({axes_text}); got {shape}. Batch comes first."
