"""Sums of norms of differences along edges, in blocks of edges, without slow powers.

Axes: N nodes, E edges, H channels.
"""

from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once
from physml.ops.gradient_sum.autograd import blocks, difference, powers, slopes


def norm_sum(q: Tensor, edges: Edges, p: float) -> Tensor:
    """`reference.norm_sum`, differentiable once, with slope 0 in channels that agree.

    Edges are taken in blocks, so that no (E, H) array is written to memory.
    """
    return _NormSum.apply(q, edges, p)


class _NormSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, edges: Edges, p: float) -> Tensor:
        total, norms = q.new_zeros(len(q), 1), []
        for i, j, block in blocks(q, edges):
            d = difference(q, i, j, block).abs_()
            top = d.amax(1, keepdim=True)  # the powers of what is scaled by it can't run out of range
            scaled = d.div_(torch.where(top > 0, top, 1))
            norms.append(top * powers(scaled, p).sum(1, keepdim=True) ** (1 / p))
            total.index_add_(0, i, norms[-1])
        ctx.save_for_backward(q, torch.cat(norms) if norms else q.new_empty(0, 1))
        ctx.edges, ctx.p = edges, p
        return total

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (q, norm), p = ctx.saved_tensors, ctx.p
        to_q, first = torch.zeros_like(q), 0
        for i, j, block in blocks(q, ctx.edges):
            own, first = norm[first : first + len(i)], first + len(i)
            d = difference(q, i, j, block)
            sign = d.sign()
            share = d.abs_().div_(torch.where(own > 0, own, 1))  # (|d| / norm)^(p-1) follows
            push = slopes(share, p).div_(p).mul_(sign).mul_(grad.index_select(0, i))
            to_q.index_add_(0, j, push)
            to_q.index_add_(0, i, push, alpha=-1)
        return to_q, None, None
