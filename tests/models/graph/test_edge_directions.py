"""Which way messages go: layers on reversed edges against dense sums, A[u, v] = 1 for a line "u v"."""

import math

import numpy as np
import pytest
import torch
from torch import Tensor

from physml.data import graphs
from physml.models.graph.g2 import GradientGating
from physml.models.graph.gcnii import GCNII
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, MeanConvolution

LINES = [(0, 1), (0, 2), (3, 0), (1, 4), (4, 2), (4, 0), (2, 2)]  # "u v": page u links to page v; 5 alone
STORED = np.array(LINES, np.int64).T
N, H = 6, 4


def adjacency() -> np.ndarray:
    """A[u, v] = 1 for a line "u v"."""
    A = np.zeros((N, N))
    for u, v in LINES:
        A[u, v] = 1
    return A


def symmetric(A: np.ndarray) -> np.ndarray:
    """D^(-1/2) (A + I) D^(-1/2), with one loop at each node and D the sums of rows."""
    looped = A.copy()
    np.fill_diagonal(looped, 1)
    scale = looped.sum(1) ** -0.5
    return scale[:, None] * looped * scale


def features() -> Tensor:
    return torch.randn(N, H, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def handed_over() -> Tensor:
    return torch.from_numpy(graphs.directed(STORED, "reversed"))


def array(weight: Tensor) -> np.ndarray:
    return weight.detach().numpy()


def test_reversing_twice_gives_the_stored_edges() -> None:
    once = graphs.reversed_edges(STORED)
    assert not np.array_equal(once, STORED)
    assert np.array_equal(graphs.reversed_edges(once), STORED)
    assert np.array_equal(graphs.directed(STORED, "stored"), STORED)
    both = graphs.directed(once, "undirected")
    assert np.array_equal(both, graphs.directed(STORED, "undirected"))


def test_convolution_is_the_product_with_the_matrix_of_lines() -> None:
    layer, x = GraphConvolution(H, 3).double(), features()
    wanted = symmetric(adjacency()) @ x.numpy() @ array(layer.lin.weight).T + array(layer.bias)
    np.testing.assert_allclose(array(layer(x, handed_over())), wanted, atol=1e-12)
    assert not np.allclose(array(layer(x, torch.from_numpy(STORED))), wanted)


def sage(layer: MeanConvolution, x: np.ndarray) -> np.ndarray:
    """A page takes the mean over the pages that it links to, 0 where it links to none."""
    A = adjacency()
    mean = A @ x / np.maximum(A.sum(1, keepdims=True), 1)
    return mean @ array(layer.lin_l.weight).T + array(layer.lin_l.bias) + x @ array(layer.lin_r.weight).T


def test_means_are_over_the_pages_that_a_page_links_to() -> None:
    layer, x = MeanConvolution(H, H).double(), features()
    np.testing.assert_allclose(array(layer(x, handed_over())), sage(layer, x.numpy()), atol=1e-12)


def test_attention_is_over_the_pages_that_a_page_links_to() -> None:
    layer, x = GraphAttention(H, 3).double(), features()
    mixed = x.numpy() @ array(layer.lin.weight).T
    sent, received = (array(a).ravel() for a in (layer.att_src, layer.att_dst))
    wanted = np.zeros((N, 3))
    for u in range(N):
        others = sorted({v for a, v in LINES if a == u} | {u})
        scores = [mixed[u] @ received + mixed[v] @ sent for v in others]
        weights = np.exp([s if s > 0 else 0.2 * s for s in scores])
        wanted[u] = sum(w * mixed[v] for w, v in zip(weights, others, strict=True)) / weights.sum()
    np.testing.assert_allclose(array(layer(x, handed_over())), wanted + array(layer.bias), atol=1e-12)


def test_gcnii_spreads_by_the_matrix_of_lines() -> None:
    net, x = GCNII(H, 2, alpha=0.3, lam=1.5).double(), features()
    start, wanted, P = x.numpy(), x.numpy(), symmetric(adjacency())
    for n, W in enumerate(net.W, 1):
        beta = math.log(1.5 / n + 1)
        mixed = 0.7 * P @ wanted + 0.3 * start
        wanted = np.maximum(mixed @ ((1 - beta) * np.eye(H) + beta * array(W)), 0)
    np.testing.assert_allclose(array(net(x, handed_over())), wanted, atol=1e-12)


@pytest.mark.parametrize("aggregate", ["sum", "mean"])
def test_rates_look_at_the_pages_that_link_to_a_page(aggregate: str) -> None:
    """Those that a page sends to, which are those that link to it once edges are reversed."""
    layer = MeanConvolution(H, H).double()
    net = GradientGating(layer, 1, p=2.0, activation="tanh", aggregate=aggregate)
    x = features()
    new = np.tanh(sage(layer, x.numpy()))
    total = np.zeros((N, H))
    for u, v in LINES:  # v sends to u
        total[v] += np.abs(new[u] - new[v]) ** 2
    if aggregate == "mean":
        total /= np.maximum(adjacency().sum(0)[:, None], 1)
    rate = np.tanh(total)
    wanted = (1 - rate) * x.numpy() + rate * new
    np.testing.assert_allclose(array(net(x, handed_over())), wanted, atol=1e-12)
