"""Which way messages go: A[u, v] = 1 for a line "u v" on reversed edges."""

import numpy as np
import torch
from drawn_layers import numbers
from small_graphs import looped

from physml.data import graphs
from physml.models.graph.graph_layers import GraphConvolution

LINES = [(0, 1), (0, 2), (3, 0), (1, 4), (4, 2), (4, 0), (2, 2)]  # "u v": page u links to page v; 5 alone
STORED = np.array(LINES, np.int64).T


def test_reversing_twice_gives_the_stored_edges() -> None:
    once = graphs.reversed_edges(STORED)
    assert not np.array_equal(once, STORED)
    assert np.array_equal(graphs.reversed_edges(once), STORED)
    assert np.array_equal(graphs.directed(STORED, "stored"), STORED)
    both = graphs.directed(once, "undirected")
    assert np.array_equal(both, graphs.directed(STORED, "undirected"))


def test_convolution_is_the_product_with_the_matrix_of_lines() -> None:
    """Each page receives from those that it links to."""
    layer, x = GraphConvolution(4, 3).double(), numbers(6, 4)
    mixed = x.numpy() @ layer.lin.weight.detach().numpy().T
    P = looped(torch.tensor([(v, u) for u, v in LINES]).T)
    expected = P @ mixed + layer.bias.detach().numpy()
    output = layer(x, torch.from_numpy(graphs.directed(STORED, "reversed")))
    np.testing.assert_allclose(output.detach().numpy(), expected, atol=1e-12)
    stored = layer(x, torch.from_numpy(STORED)).detach().numpy()
    assert not np.allclose(stored, expected)
