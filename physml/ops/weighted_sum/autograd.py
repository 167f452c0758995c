"""The sum as sparse products. Axes: N nodes, E edges, A heads, C channels of a head."""

from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once

CHUNK = 2**18  # numbers in a block of edge features: small enough to stay in the cache of a core


def weighted_sum(x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
    """`reference.weighted_sum`, differentiable once, without an array of all edges' features."""
    return _WeightedSum.apply(x, weight, edges)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.edges = edges
        heads = zip(x.unbind(1), weight.unbind(1), strict=True)
        return torch.stack([edges.matrix(w, "receiver") @ part for part, w in heads], 1)

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weight), edges = ctx.saved_tensors, ctx.edges
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            heads = zip(grad.unbind(1), weight.unbind(1), strict=True)
            to_x = torch.stack([edges.matrix(w, "sender") @ part for part, w in heads], 1)
        if ctx.needs_input_grad[1]:
            step = max(1, CHUNK // max(1, x.shape[1] * x.shape[2]))
            pairs = zip(edges.sender.split(step), edges.receiver.split(step), strict=True)
            products = [x.index_select(0, j).mul_(grad.index_select(0, i)).sum(2) for j, i in pairs]
            to_weight = torch.cat(products)
        return to_x, to_weight, None
