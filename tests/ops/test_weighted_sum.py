"""Sums with trained weights over the edges of a graph: all backends against a float64 loop."""

import numpy as np
import pytest
import torch
from c_compiler import needs_compiler
from edge_lists import ODD, N, draw, edges, many
from torch import Tensor
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops import backend
from physml.ops.weighted_sum import autograd, weighted_sum

BACKENDS = ("reference", "torch", "native")


def by_loop(x: Tensor, weight: Tensor, of: Edges) -> np.ndarray:
    given, w, total = x.double().numpy(), weight.double().numpy(), np.zeros(tuple(x.shape))
    for e, (j, i) in enumerate(zip(of.sender.tolist(), of.receiver.tolist(), strict=True)):
        total[i] += w[e][:, None] * given[j]
    return total


@pytest.fixture
def compiler() -> None:
    needs_compiler()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_sums_against_a_loop_and_their_slopes(name: str):
    x, weight, of = draw(N, 2, 3), draw(8, 2, seed=2), edges(ODD)
    np.testing.assert_allclose(weighted_sum(x, weight, of, backend=name), by_loop(x, weight, of), atol=1e-12)
    given = x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: weighted_sum(x, w, of, backend=name), given)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("A, C", [(1, 1), (3, 7), (2, 32), (1, 64), (2, 65), (1, 200)])
def test_c_against_torch_and_the_plain_sum(A: int, C: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    of, found = many(), {}
    for name in BACKENDS:
        x, weight = draw(40, A, C).requires_grad_(), draw(300, A, seed=3).requires_grad_()
        total = weighted_sum(x, weight, of, backend=name)
        (total * draw(40, A, C, seed=2)).sum().backward()
        found[name] = total.detach(), x.grad, weight.grad
    torch.testing.assert_close(found["native"], found["torch"], rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(found["native"], found["reference"], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("compiler")
def test_float32_in_c_is_as_close_as_in_torch():
    x, weight = draw(40, 2, 70).float(), draw(300, 2, seed=2).float()
    exact = torch.from_numpy(by_loop(x, weight, many()))
    for name in ("torch", "native"):
        total = weighted_sum(x, weight, many(), backend=name)
        torch.testing.assert_close(total.double(), exact, rtol=1e-5, atol=1e-5)


@pytest.mark.usefixtures("compiler")
def test_what_overflows_at_one_node_stays_with_its_neighbours():
    x = draw(N, 1, 70)
    x[0, 0, :64] = torch.inf  # the block before the last, in room that the last uses again
    weight = torch.ones(8, 1, dtype=torch.double).requires_grad_()
    total = weighted_sum(x, weight, edges(ODD), backend="native")
    assert torch.isfinite(total[[0, 2, 4, 5]]).all() and torch.isfinite(total[:, :, 64:]).all()
    grad = torch.zeros(N, 1, 70, dtype=torch.double)
    grad[0, 0, :64] = torch.inf
    weighted_sum(draw(N, 1, 70), weight, edges(ODD), backend="native").backward(grad)
    assert torch.isfinite(weight.grad[ODD[1] != 0]).all()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_one_head_needs_no_axis(name: str):
    x, weight = draw(N, 3), draw(8)
    total = weighted_sum(x, weight, edges(ODD), backend=name)
    torch.testing.assert_close(total, weighted_sum(x[:, None], weight[:, None], edges(ODD))[:, 0])


@pytest.mark.usefixtures("compiler")
def test_a_graph_without_edges_gives_zeros():
    none = edges(torch.zeros(2, 0, dtype=torch.long))
    with backend.running("auto"):
        assert (weighted_sum(draw(N, 1, 3), draw(0, 1), none) == 0).all()
        assert backend.ran() == ("torch",)


def test_a_graph_without_nodes_has_empty_gradients():
    none = edges(torch.zeros(2, 0, dtype=torch.long), 0)
    x, weight = draw(0, 2, 3).requires_grad_(), draw(0, 2).requires_grad_()
    weighted_sum(x, weight, none).sum().backward()
    assert x.grad.shape == x.shape and weight.grad.shape == weight.shape


@pytest.mark.parametrize("x, weight", [((5, 2, 3), (8, 2)), ((N, 2, 3), (7, 2)), ((N, 2, 3), (8, 1))])
def test_features_and_weights_of_another_graph_are_refused(x, weight):
    with pytest.raises(InputError, match=r"needs x \(6, A, C\) and weight \(8, A\)"):
        weighted_sum(draw(*x), draw(*weight), edges(ODD))


def test_many_blocks_of_edges_sum_to_what_one_gives(monkeypatch):
    x, found = draw(50, 1, 3).requires_grad_(), []
    for chunk in (2**19, 3 * 7):
        monkeypatch.setattr(autograd, "CHUNK", chunk)
        weight = draw(1000, 1, seed=4).requires_grad_()
        weighted_sum(x, weight, many(50, 1000), backend="torch").square().sum().backward()
        found.append((x.grad.clone(), weight.grad))
        x.grad = None
    torch.testing.assert_close(*found, rtol=1e-10, atol=1e-10)
