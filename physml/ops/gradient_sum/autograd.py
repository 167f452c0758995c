"""Sums of powers of differences along edges, in blocks of edges, without slow powers.

Axes: N nodes, E edges, H channels.
"""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once

CHUNK = 2**18  # numbers in a block of edge features: small enough to stay in the cache of a core
FLOOR = 1e-6  # slopes of |d|^p with p < 1 are those at this distance where they would grow beyond it


def in_halves(p: float) -> bool:
    """True if |d|^p and its slope take a few products and a root: p = 1, 1.5, ..., 8."""
    return 1 <= p <= 8 and 2 * p == int(2 * p)


def powers(d: Tensor, p: float) -> Tensor:
    """d^p in place of d >= 0, without a slow power where p is a half of a small whole number; 0^0 = 1."""
    if p == 0:
        return d.fill_(1.0)
    if p == 1:
        return d
    if 2 * p != int(2 * p) or p > 8:
        return d.pow_(p)
    whole, half = int(p), p != int(p)
    if whole == 0:
        return d.sqrt_()
    # a root of 0 takes a CPU twenty times as long; where this is another root, its product with d is still 0
    root = d.clamp(min=torch.finfo(d.dtype).tiny).sqrt_() if half else None
    base = d.clone() if whole > 2 or (whole == 2 and half) else d
    if whole == 2 and not half:
        return d.mul_(d)
    for _ in range(whole - 1):
        d.mul_(base)
    return d if root is None else d.mul_(root)


def slopes(d: Tensor, p: float, floor: float = FLOOR) -> Tensor:
    """p |d|^(p-1), in place of d >= 0; 0 at d = 0, and for p < 1 nowhere steeper than at `floor`."""
    if p > 1:
        return powers(d, p - 1).mul_(p)
    zero = d == 0
    if p == 1:
        return d.fill_(1.0).masked_fill_(zero, 0.0)
    return d.clamp_(min=floor).pow_(p - 1).mul_(p).masked_fill_(zero, 0.0)


def gradient_sum(q: Tensor, edges: Edges, p: float) -> Tensor:
    """`reference.gradient_sum`, differentiable once, with slope 0 where features agree.

    Edges are taken in blocks, so that no (E, H) array is written to memory.
    """
    return _GradientSum.apply(q, edges, p)


class _GradientSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, edges: Edges, p: float) -> Tensor:
        ctx.save_for_backward(q)
        ctx.edges, ctx.p = edges, p
        total = torch.zeros_like(q)
        for i, j, block in blocks(q, edges):
            total.index_add_(0, i, powers(difference(q, i, j, block).abs_(), p))
        return total

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (q,), p = ctx.saved_tensors, ctx.p
        to_q = torch.zeros_like(q)
        for i, j, block in blocks(q, ctx.edges):
            d = difference(q, i, j, block)
            sign = d.sign()
            push = slopes(d.abs_(), p).mul_(sign)
            push.mul_(torch.index_select(grad, 0, i, out=block[1]))
            to_q.index_add_(0, j, push)
            to_q.index_add_(0, i, push, alpha=-1)
        return to_q, None, None


def blocks(q: Tensor, edges: Edges) -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Ends i, j of the edges, those of one sender together, with a buffer for their differences."""
    _, j, order = edges.rows("sender")
    i = edges.sender[order]
    step = max(1, CHUNK // q.shape[1]) if q.device.type == "cpu" else max(1, len(i))
    buffer = q.new_empty(2, min(step, len(i)), q.shape[1])
    for senders, receivers in zip(i.split(step), j.split(step), strict=True):
        yield senders, receivers, buffer[:, : len(senders)]


def difference(q: Tensor, i: Tensor, j: Tensor, block: Tensor) -> Tensor:
    """q_j - q_i, in the block's buffer."""
    torch.index_select(q, 0, j, out=block[0])
    torch.index_select(q, 0, i, out=block[1])
    return block[0].sub_(block[1])
