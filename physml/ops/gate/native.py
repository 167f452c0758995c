"""The step in C: gate.c. Axes: N nodes, H channels."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once
from physml.ops.native import call
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("gate.c")
PARALLEL = 1e6  # numbers (N + E, H) above which threads are worth being started

refusal = partial(call.refusal, SOURCE, TWICE_P=4)  # told by p = 2


def gate(
    x: Tensor, new: Tensor, q: Tensor, share: Tensor | None = None, *, edges: Edges, p: float
) -> tuple[Tensor, Tensor]:
    """`reference.gate` on a CPU for p = 1, 1.5, ..., 8, in one pass; differentiable once."""
    return GateNative.apply(x, new, None if q is new else q, share, edges, p)


class GateNative(torch.autograd.Function):
    """q: None where it is `new`, whose gradient then has both parts."""

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, new: Tensor, q: Tensor | None, share: Tensor | None, edges: Edges, p: float
    ) -> tuple[Tensor, Tensor]:
        x, new = x.contiguous(), new.contiguous()
        q_is_new = q is None
        q = new if q is None else q.contiguous()
        share = None if share is None else share.contiguous()
        out, rate = torch.empty_like(x), torch.empty_like(x)
        ctx.edges, ctx.p, ctx.sizes = edges, p, call.integers(*x.shape, q_is_new)
        ctx.n_threads = call.threads(edges.n, float(edges.n + len(edges.sender)) * x.shape[1], PARALLEL)
        load(SOURCE, x.dtype, TWICE_P=int(2 * p)).gate_forward(
            ctx.n_threads,
            ctx.sizes,
            *map(call.pointer, (*edges.rows("sender")[:2], x, new, q, share, out, rate)),
        )
        ctx.save_for_backward(x, new, q, share, rate)
        ctx.set_materialize_grads(False)  # that of the rates is seldom needed
        return out, rate

    @staticmethod
    @once
    def backward(
        ctx: Any, grad: Tensor | None, to_rate: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None, None, None]:
        (x, new, q, share, rate), edges = ctx.saved_tensors, ctx.edges
        grad = torch.zeros_like(x) if grad is None else grad.contiguous()
        to_rate = None if to_rate is None else to_rate.contiguous()
        to_x, to_new, to_q, to_sum = (torch.empty_like(x) for _ in range(4))
        ends = *edges.rows("sender")[:2], *edges.rows("receiver")[:2]
        load(SOURCE, x.dtype, TWICE_P=int(2 * ctx.p)).gate_backward(
            ctx.n_threads,
            ctx.sizes,
            *map(call.pointer, (*ends, x, new, q, share, rate, grad, to_rate, to_x, to_new, to_q, to_sum)),
        )
        return to_x, to_new, to_q if ctx.needs_input_grad[2] else None, None, None, None
