"""Products with fixed weights of edges: C and torch against a float64 loop."""

import numpy as np
import pytest
import torch
from c_compiler import needs_compiler
from edge_lists import ODD, draw, edges, many
from torch import Tensor
from vectors import WIDTHS

from physml.graph.edges import Edges, gather
from physml.models.graph.graph_propagation import Spread
from physml.ops import backend
from physml.ops.spread import native, spread


def rows(of: Edges, weight: Tensor, end: str = "receiver") -> tuple[Tensor, Tensor, Tensor]:
    start, other, order = of.rows(end)
    return gather(weight, order), start, other


@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("H", [1, 7, 32, 64, 65, 200])
def test_products_against_a_loop(H: int, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    of, x, weight = many(), draw(40, H), draw(300, seed=3)
    exact = np.zeros((40, H))
    for j, i, w in zip(of.sender.tolist(), of.receiver.tolist(), weight.tolist(), strict=True):
        exact[i] += w * x[j].numpy()
    errors = []
    for name in ("reference", "native"):
        np.testing.assert_allclose(spread(x, *rows(of, weight), backend=name), exact, atol=1e-12)
        single = spread(x.float(), *rows(of, weight.float()), backend=name)
        errors.append(np.abs(single.numpy() - exact).max())
    assert errors[1] < 3 * errors[0]


def test_gradients_of_both_directions_and_threads_and_columns_that_change_no_bit(monkeypatch) -> None:
    needs_compiler()
    of = edges(ODD)
    fixed, x = Spread(of, draw(8, seed=2)), draw(of.n, 3).requires_grad_()
    with backend.running("auto"):
        assert torch.autograd.gradcheck(fixed, x) and torch.autograd.gradcheck(fixed.back, x)
        assert torch.autograd.gradgradcheck(lambda y: fixed(y) ** 2, x)
        assert backend.ran() == ("native",)
    of, x, weight = many(), draw(40, 130), draw(300, seed=3)
    output = spread(x, *rows(of, weight), backend="native")
    monkeypatch.setattr(native, "PARALLEL", 0.0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    assert torch.equal(spread(x.T.contiguous().T, *rows(of, weight), backend="native"), output)


def test_a_graph_without_edges_has_sums_of_zero() -> None:
    none = torch.zeros(0, dtype=torch.long)
    x = draw(4, 2)
    assert torch.equal(Spread(Edges(none, none, 4), draw(0))(x), torch.zeros_like(x))
