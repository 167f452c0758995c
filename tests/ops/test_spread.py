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


def by_loop(x: Tensor, weight: Tensor, of: Edges) -> np.ndarray:
    features, total = x.double().numpy(), np.zeros(tuple(x.shape))
    pairs = zip(of.sender.tolist(), of.receiver.tolist(), weight.double().tolist(), strict=True)
    for j, i, w in pairs:
        total[i] += w * features[j]
    return total


@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("H", [1, 7, 32, 64, 65, 200])
def test_products_against_a_loop(H: int, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    needs_compiler()
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    of, x, weight = many(), draw(40, H), draw(300, seed=3)
    exact = by_loop(x, weight, of)
    for name in ("reference", "native"):
        product = spread(x, *rows(of, weight), backend=name)
        np.testing.assert_allclose(product, exact, atol=1e-12)
    error = {
        name: np.abs(spread(x.float(), *rows(of, weight.float()), backend=name).numpy() - exact).max()
        for name in ("reference", "native")
    }
    assert error["native"] < 3 * error["reference"]


def test_gradients_of_both_directions() -> None:
    needs_compiler()
    of = edges(ODD)
    fixed, x = Spread(of, draw(8, seed=2)), draw(of.n, 3).requires_grad_()
    with backend.running("auto"):
        assert torch.autograd.gradcheck(fixed, x) and torch.autograd.gradcheck(fixed.back, x)
        assert torch.autograd.gradgradcheck(lambda y: fixed(y) ** 2, x)
        assert backend.ran() == ("native",)


def test_threads_and_columns_that_are_no_piece_change_no_bit() -> None:
    needs_compiler()
    of, x, weight = many(), draw(40, 130), draw(300, seed=3)
    output = spread(x, *rows(of, weight), backend="native")
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(3)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(native, "PARALLEL", 0.0)
            assert torch.equal(spread(x.T.contiguous().T, *rows(of, weight), backend="native"), output)
    finally:
        torch.set_num_threads(before)


def test_a_graph_without_edges_has_sums_of_zero() -> None:
    none = torch.zeros(0, dtype=torch.long)
    x = draw(4, 2)
    assert torch.equal(Spread(Edges(none, none, 4), draw(0))(x), torch.zeros_like(x))
