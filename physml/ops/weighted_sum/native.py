"""The map in C: weighted_sum.c. Axes: N nodes, E edges, A heads, C channels."""

from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.graph.edges import Edges
from physml.ops.derivatives import once
from physml.ops.native import call, pool
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("weighted_sum.c")
PARALLEL = 4e6  # numbers (E, A, C) above which threads are worth being started

refusal = partial(call.refusal, SOURCE)


def weighted_sum(x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
    """`reference.weighted_sum` on a CPU, differentiable once."""
    return WeightedSumNative.apply(x, weight, edges)


class WeightedSumNative(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, edges: Edges) -> Tensor:
        x, weight = x.contiguous(), weight.contiguous()
        ctx.save_for_backward(x, weight)
        ctx.edges, ctx.sizes = edges, call.integers(*x.shape)
        ctx.n_threads = call.threads(len(x), float(len(weight)) * x[0].numel(), PARALLEL)
        total = pool.like(x)
        code = load(SOURCE, x.dtype).weighted_sum_forward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (*edges.rows("receiver"), x, weight, total))
        )
        call.check(code, "weighted sum")
        return total

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weight), edges = ctx.saved_tensors, ctx.edges
        grad, to_x, to_weight = grad.contiguous(), pool.like(x), torch.empty_like(weight)
        code = load(SOURCE, x.dtype).weighted_sum_backward(
            ctx.n_threads,
            ctx.sizes,
            *map(call.pointer, (*edges.rows("sender"), x, weight, grad, to_x, to_weight)),
        )
        call.check(code, "weighted sum")
        return (
            to_x if ctx.needs_input_grad[0] else None,
            to_weight if ctx.needs_input_grad[1] else None,
            None,
        )
