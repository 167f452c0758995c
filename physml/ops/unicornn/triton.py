"""UnICORNN on a GPU, its scan and its backward as Triton kernels. Axes: B batch, T time, H hidden units.

Beside input and output, memory is needed for one z every SEGMENT steps only; `ops.triton.unicornn_kernels`
restores the others.
"""

from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import once, recorded
from physml.ops.triton.available import refusal as unavailable
from physml.ops.triton.launch import on_device, scan_block

SEGMENT = 128  # steps between two stored z
PREFETCH = 8  # steps whose input is on its way


def refusal(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, **_: Any) -> str | None:
    """The reason why Triton cannot take this case, or None."""
    return unavailable(push, y, z, w, step)


def _scan(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The path (T + 1, B, H), the state before first, and z at the end of every segment."""
    from physml.ops.triton.unicornn_kernels import forward

    n_batch, n_steps, n_hidden = push.shape
    path = push.new_empty(n_steps + 1, n_batch, n_hidden, dtype=torch.float32)
    path[0] = y
    z_ends = path.new_empty(-(-n_steps // SEGMENT), n_batch, n_hidden)
    block, warps = scan_block(n_batch, n_hidden)
    with on_device(push):
        forward[(n_batch, -(-n_hidden // block))](
            push,
            *push.stride(),
            path,
            z.contiguous(),
            z_ends,
            w.contiguous(),
            step.contiguous(),
            alpha,
            n_steps,
            n_batch,
            n_hidden,
            SEGMENT=SEGMENT,
            PREFETCH=PREFETCH,
            BLOCK=block,
            num_warps=warps,
        )
    return path, z_ends


def _results(path: Tensor, z_ends: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The results of the recurrence; the last states are copies, which do not keep the path alive."""
    outputs = path[1:].to(dtype).transpose(0, 1)
    return outputs, path[-1].to(dtype, copy=True), z_ends[-1].to(dtype, copy=True)


class UnICORNNFunction(torch.autograd.Function):
    """The map of `reference.unicornn`, arguments in the same order. Differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, alpha: float
    ) -> tuple[Tensor, Tensor, Tensor]:
        path, z_ends = _scan(push, y, z, w, step, alpha)
        ctx.save_for_backward(push, path, z_ends, w, step)
        ctx.alpha = alpha
        ctx.set_materialize_grads(False)
        return _results(path, z_ends, push.dtype)

    @staticmethod
    @once
    def backward(
        ctx: Any, d_outputs: Tensor | None, d_y: Tensor | None, d_z: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        from physml.ops.triton.unicornn_kernels import backward

        push, path, z_ends, w, step = ctx.saved_tensors
        n_batch, n_steps, n_hidden = push.shape
        dtype = push.dtype
        needs_push, *needs = ctx.needs_input_grad[:5]
        state = path.new_zeros(2, n_batch, n_hidden)
        for k, gradient in enumerate((d_y, d_z)):
            if gradient is not None:
                state[k] = gradient
        sums = torch.empty_like(state)
        d_push = path.new_empty(n_steps, n_batch, n_hidden) if needs_push else None
        block, warps = scan_block(n_batch, n_hidden)
        with on_device(push):
            backward[(n_batch, -(-n_hidden // block))](
                push,
                *push.stride(),
                path,
                z_ends,
                w.contiguous(),
                step.contiguous(),
                push if d_outputs is None else d_outputs,
                *(push if d_outputs is None else d_outputs).stride(),
                state[0],
                state[1],
                path if d_push is None else d_push,
                sums[0],
                sums[1],
                ctx.alpha,
                n_steps,
                n_batch,
                n_hidden,
                OUTPUTS=d_outputs is not None,
                PUSH=d_push is not None,
                SEGMENT=SEGMENT,
                PREFETCH=PREFETCH,
                BLOCK=block,
                num_warps=warps,
            )
        gradients = (state[0], state[1], *sums.sum(1))
        return (
            None if d_push is None else d_push.transpose(0, 1).to(dtype),
            *(x.to(dtype) if need else None for x, need in zip(gradients, needs, strict=True)),
            None,
        )


def unicornn(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.unicornn` in one kernel per pass, state and sums in float32; differentiable once."""
    if recorded(push, y, z, w, step):
        return UnICORNNFunction.apply(push, y, z, w, step, alpha)
    with torch.no_grad():
        return _results(*_scan(push, y, z, w, step, alpha), push.dtype)
