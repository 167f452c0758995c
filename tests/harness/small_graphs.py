"""A graph with everything that is awkward, and what dense loops over graphs are written with.

Axes: N nodes, E edges. Edges are (sender, receiver), as stored.
"""

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn

from physml.graph.measures import grid
from physml.models.graph.graph_layers import GraphConvolution

N = 6
ODD = torch.tensor([[0, 0, 0, 1, 1, 3, 4, 2], [1, 2, 2, 1, 3, 0, 2, 0]])  # directed, loop, twice, 5 alone


def received(edge_index: Tensor, n: int = N) -> list[list[int]]:
    return [[j for j, i in edge_index.T.tolist() if i == node] for node in range(n)]


def adjacency(edge_index: Tensor, n: int = N) -> np.ndarray:
    """A[i, j] = 1 where i receives from j, without loops."""
    A = np.zeros((n, n))
    for j, i in edge_index.T.tolist():
        A[i, j] = float(i != j)
    return A


def looped(edge_index: Tensor, n: int = N) -> np.ndarray:
    """P of equation 7.5: edges as stored, one loop at each node, over the roots of what both ends receive."""
    A = np.eye(n)
    for j, i in edge_index.T.tolist():
        A[i, j] += float(i != j)
    scale = A.sum(1) ** -0.5
    return scale[:, None] * A * scale


def relu(x: np.ndarray) -> np.ndarray:
    return np.maximum(x, 0)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def weights(layer: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in layer.symbols().items()}


def parameters(module: nn.Module) -> dict[str, np.ndarray]:
    return {name: p.detach().numpy() for name, p in module.named_parameters()}


def close(output: Tensor, expected: np.ndarray) -> None:
    np.testing.assert_allclose(output.detach().numpy(), expected, rtol=1e-11, atol=1e-12)


def attended(attention: nn.Module, x: Tensor) -> np.ndarray:
    """The weights of an attention on ODD as a dense matrix."""
    of, weight = attention.attention(x, ODD)
    A = np.zeros((N, N))
    np.add.at(A, (of.receiver.numpy(), of.sender.numpy()), weight.detach().numpy())
    return A


class Dense(nn.Module):
    """F(X) = A X, as a coupling."""

    def __init__(self, A: np.ndarray) -> None:
        super().__init__()
        self.A = torch.from_numpy(A)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.A @ x


def first_gradients(make: Callable[[nn.Module, int], nn.Module]) -> list[float]:
    """With respect to the features at the input, on a grid, through stacks of 8, 32 and 128 layers."""
    norms = []
    for n in (8, 32, 128):
        torch.manual_seed(0)
        layer, x = make(GraphConvolution(8, 8), n), torch.rand(25, 8, requires_grad=True)
        (layer(x, grid(5, 5)) * torch.linspace(-1, 1, 25)[:, None]).sum().backward()
        norms.append(float(x.grad.norm()))
    return norms


def far_from_start(layer: nn.Module) -> nn.Module:
    """The layer in double precision, all its weights drawn anew, so that no zero hides a term."""
    layer = layer.double()
    for p in layer.parameters():
        nn.init.normal_(p, std=0.5)
    return layer
