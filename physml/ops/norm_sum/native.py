"""The map in C: norm_sum.c. Axes: N nodes, E edges, H channels."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once
from physml.ops.native import call
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("norm_sum.c")
PARALLEL = 1e6  # numbers (E, H) above which threads are worth being started

refusal = partial(call.refusal, SOURCE, TWICE_P=4)  # told by p = 2


def norm_sum(q: Tensor, edges: Edges, p: float) -> Tensor:
    """`reference.norm_sum` on a CPU for p = 1, 1.5, ..., 8, differentiable once."""
    return NormSumNative.apply(q, edges, p)


class NormSumNative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, edges: Edges, p: float) -> Tensor:
        q = q.contiguous()
        norm, total = q.new_empty(len(edges.sender)), q.new_empty(len(q), 1)
        ctx.save_for_backward(q, norm)
        ctx.edges, ctx.p, ctx.sizes = edges, p, call.integers(*q.shape)
        ctx.n_threads = call.threads(len(q), float(len(edges.sender)) * q.shape[1], PARALLEL)
        load(SOURCE, q.dtype, TWICE_P=int(2 * p)).norm_sum_forward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (*edges.rows("sender")[:2], q, norm, total))
        )
        return total

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (q, norm), edges = ctx.saved_tensors, ctx.edges
        grad, to_q = grad.contiguous(), torch.empty_like(q)
        ends = *edges.rows("sender")[:2], *edges.rows("receiver")[:2], edges.received_order()
        load(SOURCE, q.dtype, TWICE_P=int(2 * ctx.p)).norm_sum_backward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (*ends, q, norm, grad, to_q))
        )
        return to_q, None, None
