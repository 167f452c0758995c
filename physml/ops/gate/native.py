"""The step in C: gate.c. Axes: N nodes, H channels."""

from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.native import call
from physml.ops.native.library import load
from physml.ops.once import once

SOURCE = Path(__file__).with_name("gate.c")
PARALLEL = 1e6  # numbers (N, H) above which threads are worth being started


def refusal(x: Tensor, new: Tensor, total: Tensor, share: Tensor | None = None) -> str | None:
    """Why native code can't compute this case; None if it can."""
    return call.refusal(SOURCE, x, new, total, *([] if share is None else [share]))


def gate(x: Tensor, new: Tensor, total: Tensor, share: Tensor | None = None) -> tuple[Tensor, Tensor]:
    """`reference.gate` on a CPU, in one pass each way; differentiable once."""
    return GateNative.apply(x, new, total, share)


class GateNative(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, new: Tensor, total: Tensor, share: Tensor | None
    ) -> tuple[Tensor, Tensor]:
        x, new, total = x.contiguous(), new.contiguous(), total.contiguous()
        share = None if share is None else share.contiguous()
        out, rate = torch.empty_like(x), torch.empty_like(x)
        ctx.sizes, ctx.n_threads = call.integers(*x.shape), call.threads(len(x), float(x.numel()), PARALLEL)
        load(SOURCE, x.dtype).gate_forward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (x, new, total, share, out, rate))
        )
        ctx.save_for_backward(x, new, share, rate)
        ctx.set_materialize_grads(False)  # most often nobody asks for that of the rates
        return out, rate

    @staticmethod
    @once
    def backward(
        ctx: Any, grad: Tensor | None, to_rate: Tensor | None
    ) -> tuple[Tensor | None, Tensor | None, Tensor | None, None]:
        x, new, share, rate = ctx.saved_tensors
        grad = torch.zeros_like(x) if grad is None else grad.contiguous()
        to_rate = None if to_rate is None else to_rate.contiguous()
        to = [torch.empty_like(x) for _ in range(3)]
        load(SOURCE, x.dtype).gate_backward(
            ctx.n_threads, ctx.sizes, *map(call.pointer, (x, new, share, rate, grad, to_rate, *to))
        )
        return to[0], to[1], to[2], None
