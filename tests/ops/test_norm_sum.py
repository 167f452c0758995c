"""Sums of norms along edges: all backends against a float64 loop."""

import numpy as np
import pytest
import torch
from c_compiler import needs_compiler
from edge_lists import ODD, N, draw, edges, many
from torch import Tensor
from variants import variants
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops import backend
from physml.ops.gradient_sum import autograd
from physml.ops.norm_sum import norm_sum

HALVES = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.5, 8.0]
OTHERS = [2.3, 9.0]


def by_loop(q: Tensor, of: Edges, p: float) -> np.ndarray:
    x, total = q.detach().double().numpy(), np.zeros((len(q), 1))
    for i, j in zip(of.sender.tolist(), of.receiver.tolist(), strict=True):
        total[i] += (np.abs(x[j] - x[i]) ** p).sum() ** (1 / p)
    return total


@pytest.fixture
def compiler() -> None:
    needs_compiler()


@pytest.mark.parametrize("p", [*HALVES, *OTHERS])
def test_sums_against_a_loop_and_their_slopes(p: float):
    q = draw(N, 3)
    np.testing.assert_allclose(norm_sum(q, edges(ODD), p), by_loop(q, edges(ODD), p), atol=1e-12)
    no_loops = edges(ODD[:, ODD[0] != ODD[1]])  # at a loop a norm has a kink
    assert torch.autograd.gradcheck(lambda q: norm_sum(q, no_loops, p), (q.requires_grad_(),))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", variants([1.0, 1.5, 2.0, 2.5, 2.3], [*HALVES, *OTHERS]))
def test_slopes_are_finite_where_features_agree_or_nearly(p: float, dtype: torch.dtype):
    for spread in (0.0, 1e-310, 1e-40, 1e-30, 1e-12):
        q = (torch.ones(N, 3, dtype=dtype) * spread * torch.arange(N)[:, None]).requires_grad_()
        total = norm_sum(q, edges(ODD), p)
        total.sum().backward()
        assert torch.isfinite(total).all() and torch.isfinite(q.grad).all()
        if spread == 0:
            assert (q.grad == 0).all()


@pytest.mark.parametrize("name", ["torch", "native"])
def test_powers_of_small_and_large_differences_stay_in_range(name: str, compiler):
    q, of = torch.tensor([[0.0, 0, 0], [1, 1, 1]]), Edges(torch.tensor([0]), torch.tensor([1]), 2)
    for size in (1e-25, 1e25):
        total = norm_sum(q * size, of, 4.0, backend=name)
        assert total[0].item() == pytest.approx(size * 3**0.25, rel=1e-5)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("H", [1, 7, 64, 65])
def test_c_against_torch_and_the_plain_sum(H: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    of, found = many(), {}
    no_loops = edges(torch.stack([of.sender, of.receiver])[:, of.sender != of.receiver], 40)
    for p in HALVES:
        for name in ("reference", "torch", "native"):
            q = draw(40, H).requires_grad_()
            total = norm_sum(q, no_loops, p, backend=name)
            (total * draw(40, 1, seed=2)).sum().backward()
            found[name] = total.detach(), q.grad
        torch.testing.assert_close(found["native"], found["torch"], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found["native"], found["reference"], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("compiler")
def test_c_is_taken_where_p_is_a_half_of_a_whole_number_and_torch_elsewhere():
    for p, name in ((2.5, "native"), (2.3, "torch")):
        with backend.running("auto"):
            norm_sum(draw(N, 3), edges(ODD), p)
            assert backend.ran() == (name,)
    with pytest.raises(InputError, match=r"norm_sum with backend='native' needs p = 1, 1.5, ..., 8; got 2.3"):
        norm_sum(draw(N, 3), edges(ODD), 2.3, backend="native")


def test_features_of_another_graph_are_refused():
    with pytest.raises(InputError, match="a row for each of the 6 nodes of the edges; got 5"):
        norm_sum(draw(5, 3), edges(ODD), 2.5)


def test_many_blocks_of_edges_sum_to_what_one_gives(monkeypatch):
    found = []
    for chunk in (2**19, 3 * 7):
        monkeypatch.setattr(autograd, "CHUNK", chunk)
        q = draw(40, 3).requires_grad_()
        total = norm_sum(q, many(), 2.5, backend="torch")
        total.square().sum().backward()
        found.append((total.detach(), q.grad))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
