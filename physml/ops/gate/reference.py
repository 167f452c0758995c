"""The step as it is printed. Axes: N nodes, H channels."""

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.gradient_sum import reference


def gate(
    x: Tensor, new: Tensor, q: Tensor, share: Tensor | None = None, *, edges: Edges, p: float
) -> tuple[Tensor, Tensor]:
    r""":math:`(1 - \tau) X + \tau \hat X` and the rates :math:`\tau_i = \tanh(s_i \sum_j |q_j - q_i|^p)`.

    Exact at both ends: X where the rate is 0, the new features where it is 1.

    Shapes: x (N, H) X, new (N, H), q (N, H), share (N, 1) s, 1 if None, without a gradient; the sum is over
    the edges that i sends -> (N, H), (N, H).
    """
    return at_rates(x, new, reference.gradient_sum(q, edges, p), share)


def at_rates(x: Tensor, new: Tensor, total: Tensor, share: Tensor | None) -> tuple[Tensor, Tensor]:
    rate = torch.tanh(total if share is None else total * share)
    return torch.lerp(x, new, rate), rate
