"""Dropout in C against torch: the same masks, the same state of the generator."""

import pytest
import torch
from each import each
from edge_lists import draw
from refusals import refuses
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.ops import backend
from physml.ops.dropout import dropout, native


@pytest.mark.usefixtures("compiler")
@each("dtype", [torch.float32, torch.float64])
@each("before", [0, 1, 17, 623, 624, 625])
@each("p", [0.3, 0.5, 1e-3, 0.999, 1 / 3])
def test_masks_and_the_state_after_them_are_torchs(p: float, before: int, dtype: torch.dtype):
    runs = []
    for drop in (F.dropout, lambda x, p: dropout(x, p, True, backend="native")):
        torch.manual_seed(5)
        torch.rand(before)  # of one word each: the next may be anywhere in a block
        x = draw(4, 7, 61).to(dtype)
        runs.append((drop(x, p), drop(x[0], p), torch.rand(3), torch.get_rng_state()))
    for by_torch, other in zip(*runs, strict=True):
        assert torch.equal(by_torch, other)


@pytest.mark.usefixtures("compiler")
@each(
    "x",
    [
        *(torch.ones(n) for n in (1, 2, 511, 512, 513, 100_003)),
        torch.tensor([torch.inf, -torch.inf, torch.nan, -0.0, 1e38]).repeat(20),
        draw(6, 5).T,  # drawn in torch's order
    ],
)
def test_any_number_of_draws_of_any_layout_and_what_overflows_or_is_no_number(x: torch.Tensor):
    dropped = []
    for drop in (F.dropout, lambda x, p: dropout(x, p, True, backend="native")):
        torch.manual_seed(0)
        dropped.append(drop(x, 0.4))
    torch.testing.assert_close(*dropped, equal_nan=True, rtol=0, atol=0)


@pytest.mark.usefixtures("compiler")
def test_gradients_pass_where_numbers_do_and_beyond_1_is_an_error() -> None:
    x = draw(50).requires_grad_()
    y = dropout(x, 0.5, True, backend="native")
    (first,) = torch.autograd.grad(y.square().sum(), x, create_graph=True)
    torch.testing.assert_close(first, torch.where(y == 0, 0.0, 2 * 2 * y))
    (second,) = torch.autograd.grad(first.sum(), x)
    torch.testing.assert_close(second, torch.where(y == 0, 0.0, 8.0).double())
    assert (dropout(draw(5), 1.0, True) == 0).all()
    for p in (1.5, -0.5):
        refuses(ValueError, "between 0 and 1", dropout, draw(5), p, True)


@pytest.mark.parametrize("name", backend.CHOICES[:4])
def test_nothing_is_drawn_where_nothing_is_dropped(name: str):
    x, state = draw(5), torch.get_rng_state()
    for values, p, training in ((x, 0.5, False), (x, 0.0, True), (x[:0], 0.5, True)):
        assert dropout(values, p, training, backend=name) is values
    assert torch.equal(torch.get_rng_state(), state)


@pytest.mark.usefixtures("compiler")
def test_torch_is_asked_where_it_draws_in_another_way(monkeypatch, caplog):
    monkeypatch.setattr(native, "noise", lambda x, _: torch.ones_like(x))
    native._draws_agree.cache_clear()
    try:
        with backend.running("auto"):
            torch.manual_seed(0)
            output = dropout(draw(100), 0.5, True)
            assert backend.ran() == ("torch",)
        torch.manual_seed(0)
        assert torch.equal(output, F.dropout(draw(100), 0.5))
        assert "draws its masks in another way. Backend torch computes it" in caplog.text
        refuses(InputError, "draws its masks in another way", dropout, draw(100), 0.5, True, backend="native")
    finally:
        native._draws_agree.cache_clear()
