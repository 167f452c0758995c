"""The product as torch has it. Axes: N nodes, E edges, H channels."""

from torch import Tensor

from physml.graph.edges import csr


def spread(x: Tensor, weight: Tensor, start: Tensor, other: Tensor) -> Tensor:
    r""":math:`Y_i = \sum_e w_e X_{j_e}` over the run of edges of i, in their order.

    Args:
        x: features.
        weight: of the edges, node after node.
        start: where the run of each node begins, and the end.
        other: the node j that an edge leads to.
    Shapes: x (N, H), weight and other (E,), start (N + 1,) -> (N, H).
    """
    n = len(start) - 1
    return csr(start, other, weight, (n, n)) @ x
