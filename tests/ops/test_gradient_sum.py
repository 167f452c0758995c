"""Sums of powers along edges: all backends against a float64 loop."""

import numpy as np
import pytest
import torch
from c_compiler import needs_compiler
from edge_lists import ODD, N, draw, edges
from torch import Tensor
from variants import variants
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.ops import backend
from physml.ops.gradient_sum import autograd, gradient_sum

HALVES = [1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 5.5, 6.0, 6.5, 7.0, 7.5, 8.0]
OTHERS = [0.0, 0.3, 0.5, 2.3, 9.0]
FEW = [1.0, 1.5, 2.0, 2.5, 8.0, 0.0, 0.5, 2.3]


def by_loop(q: Tensor, edge_index: Tensor, p: float) -> np.ndarray:
    x, total = q.detach().double().numpy(), np.zeros(tuple(q.shape))
    for i, j in edge_index.T.tolist():
        total[i] += np.abs(x[j] - x[i]) ** p
    return total


@pytest.fixture
def compiler() -> None:
    needs_compiler()


@pytest.mark.parametrize("p", variants(FEW, [*HALVES, *OTHERS]))
def test_sums_against_a_loop_and_their_slopes(p: float):
    q = draw(N, 3)
    np.testing.assert_allclose(gradient_sum(q, edges(ODD), p), by_loop(q, ODD, p), atol=1e-12)
    no_loops = edges(ODD[:, ODD[0] != ODD[1]])  # at a loop |d|^p has a kink
    assert torch.autograd.gradcheck(lambda q: gradient_sum(q, no_loops, p), (q.requires_grad_(),))


@pytest.mark.parametrize("p", variants(FEW, [*HALVES, *OTHERS]))
def test_slopes_are_finite_where_features_agree_or_nearly(p: float):
    for spread in (0.0, 1e-30, 1e-12):
        q = (torch.ones(N, 3) * spread * torch.arange(N)[:, None]).requires_grad_()
        gradient_sum(q, edges(ODD), p).sum().backward()
        assert torch.isfinite(q.grad).all()
        if spread == 0:
            assert (q.grad == 0).all()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("H", [1, 16, 65])
def test_c_against_torch_and_the_plain_sum(H: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    edge_index = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(0))
    of, found = edges(edge_index, 40), {}
    for p in HALVES:
        for name in ("reference", "torch", "native"):
            q = torch.relu(draw(40, H)).requires_grad_()
            total = gradient_sum(q, of, p, backend=name)
            (total * draw(40, H, seed=2)).sum().backward()
            found[name] = total.detach(), q.grad
        torch.testing.assert_close(found["native"], found["torch"], rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(found["native"], found["reference"], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("p", [1.0, 2.5, 4.0])
def test_float32_in_c_is_as_close_as_in_torch(p: float):
    edge_index = torch.randint(0, 40, (2, 300), generator=torch.Generator().manual_seed(0))
    exact = torch.from_numpy(by_loop(draw(40, 9).float(), edge_index, p))
    for name in ("torch", "native"):
        total = gradient_sum(draw(40, 9).float(), edges(edge_index, 40), p, backend=name)
        torch.testing.assert_close(total.double(), exact, rtol=1e-5, atol=1e-6)


@pytest.mark.usefixtures("compiler")
def test_c_is_taken_where_p_is_a_half_of_a_whole_number_and_torch_elsewhere(caplog):
    for p, name in ((2.5, "native"), (2.3, "torch"), (0.5, "torch")):
        with backend.running("auto"):
            gradient_sum(draw(N, 3), edges(ODD), p)
            assert backend.ran() == (name,)
    with backend.running("native"):
        gradient_sum(draw(N, 3), edges(ODD), 2.3)
        assert backend.ran() == ("torch",)
    assert not caplog.records
    with pytest.raises(InputError, match=r"needs p = 1, 1.5, ..., 8; got 2.3"):
        gradient_sum(draw(N, 3), edges(ODD), 2.3, backend="native")


def test_features_of_another_graph_are_refused():
    with pytest.raises(InputError, match="a row for each of the 6 nodes of the edges; got 5"):
        gradient_sum(draw(5, 3), edges(ODD), 2.5)


def test_many_blocks_of_edges_sum_to_what_one_gives(monkeypatch):
    edge_index = torch.randint(0, 50, (2, 1000), generator=torch.Generator().manual_seed(0))
    found = []
    for chunk in (2**19, 3 * 7):
        monkeypatch.setattr(autograd, "CHUNK", chunk)
        q = draw(50, 3).requires_grad_()
        total = gradient_sum(q, edges(edge_index, 50), 2.5, backend="torch")
        total.square().sum().backward()
        found.append((total.detach(), q.grad))
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1.5, 2.5, 3.5])
def test_half_powers_are_exact_to_the_last_bit_at_zeros_and_beside_them(p: float, dtype: torch.dtype):
    d = torch.cat([torch.zeros(2), torch.logspace(-45, 30, 60)]).to(dtype)
    wanted = d.sqrt() * {1.5: d, 2.5: d * d, 3.5: d * d * d}[p]
    assert torch.equal(autograd.powers(d.clone(), p), wanted)
