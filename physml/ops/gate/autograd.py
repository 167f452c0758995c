"""The step with sums in blocks of edges. Axes: N nodes, H channels."""

from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.gate.reference import at_rates
from physml.ops.gradient_sum.autograd import gradient_sum


def gate(
    x: Tensor, new: Tensor, q: Tensor, share: Tensor | None = None, *, edges: Edges, p: float
) -> tuple[Tensor, Tensor]:
    """`reference.gate`, differentiable once, without slow powers."""
    return at_rates(x, new, gradient_sum(q, edges, p), share)
