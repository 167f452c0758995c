"""Sums over the edges of a graph with weights that are trained, as those of attention."""

from torch import Tensor

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops.backend import Op, of_nothing
from physml.ops.weighted_sum import autograd, reference

__all__ = ["weighted_sum"]

_weighted_sum = Op(__name__, reference=reference.weighted_sum, torch=autograd.weighted_sum)


def weighted_sum(x: Tensor, weight: Tensor, edges: Edges, *, backend: str = "auto") -> Tensor:
    """S by the fastest backend that can; arguments as in `reference.weighted_sum`.

    Shapes: x (N, A, C), weight (E, A) -> (N, A, C); or x (N, C), weight (E,) -> (N, C), one head.
    """
    if x.dim() == 2:
        return weighted_sum(x[:, None], weight[:, None], edges, backend=backend)[:, 0]
    n, n_edges = edges.n, len(edges.sender)
    if len(x) != n or weight.shape != (n_edges, x.shape[1]):  # C would read beyond the end
        raise InputError(
            f"a graph of {n} nodes and {n_edges} edges needs x ({n}, A, C) and weight ({n_edges}, A); "
            f"got {tuple(x.shape)} and {tuple(weight.shape)}."
        )
    backend = backend if n_edges else of_nothing(backend, x, weight)
    return _weighted_sum(x, weight, edges=edges, backend=backend)
