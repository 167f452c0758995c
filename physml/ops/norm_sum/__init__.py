"""Sums of distances of features along edges, from which a single rate of gradient gating is made."""

from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.backend import Op
from physml.ops.gradient_sum import where_p_allows
from physml.ops.norm_sum import autograd, reference

__all__ = ["norm_sum"]

_norm_sum = Op(__name__, reference=reference.norm_sum, torch=autograd.norm_sum)


def norm_sum(q: Tensor, edges: Edges, p: float, *, backend: str = "auto") -> Tensor:
    """S (N, 1), by the fastest backend that can; arguments as in `reference.norm_sum`."""
    return _norm_sum(q, edges=edges, p=p, backend=where_p_allows("norm_sum", q, edges, p, backend))
