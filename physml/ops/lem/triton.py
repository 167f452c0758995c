"""LEM on a GPU. Axes: B batch, T time, D features, H hidden units; R rows of pre-activations, 4H or 2H.

The input's part of all pre-activations is one product before the loop, the gradients of all weights are
products after it. Between them the steps run in one kernel, `ops.triton.lem_kernels`, where the weights fit
into a multiprocessor, else as products in cuBLAS with a kernel after each, `ops.triton.lem_steps`. States and
sums are float32 whatever the dtype of the weights.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import once, recorded
from physml.ops.sequence import Clip
from physml.ops.triton.available import refusal as unavailable
from physml.ops.triton.inputs import drive, rows
from physml.ops.triton.launch import on_device, packed, plan

Path = tuple[Tensor, Tensor, Tensor, Tensor]


def refusal(*tensors: Tensor) -> str | None:
    """The reason why Triton cannot take this case, or None."""
    return unavailable(*tensors)


def _matrices(W: Tensor, Wy: Tensor) -> list[Tensor]:
    """[y, z, 1, 2], each (H, H), or [y, z]."""
    return [Wy, *W.split(len(Wy))]


def _steps(tensors: Sequence[Tensor], dt: float, clip: Clip, saved: bool) -> Path:
    """Values (T, B, R), paths of y and z (T + 1, B, H), the state before first, and the last z."""
    from physml.ops.triton import lem_kernels, lem_steps

    u, y, z, W, Wy, V, b = tensors
    x = drive(u, V, b)
    (n_steps, n_batch, _), n_hidden = x.shape, len(Wy)
    path_y = x.new_empty(n_steps + 1, n_batch, n_hidden)
    path_z = x.new_empty(n_steps + 1 if saved else 1, n_batch, n_hidden)
    path_y[0], path_z[0] = y, z
    matrices = _matrices(W, Wy)
    how = plan(n_batch, n_hidden, len(matrices), W)
    with on_device(x):
        if how is None:
            return x, path_y, path_z, lem_steps.forward(x, path_y, path_z, W, Wy, dt, clip, saved)
        last_z = torch.empty_like(path_z[0])
        lem_kernels.forward[how.programs(n_batch)](
            *(x, path_y, path_z, last_z, packed([w.t() for w in matrices], how.BLOCK)),
            *(dt, *(clip or (0.0, 0.0)), n_steps, n_batch, n_hidden),
            GATED=len(matrices) == 4,
            CLIP=clip is not None,
            SAVED=saved,
            **how.arguments,
        )
    return x, path_y, path_z, last_z


def _steps_back(
    values: Tensor,
    path_y: Tensor,
    path_z: Tensor,
    d_outputs: Tensor | None,
    d_y: Tensor,
    d_z: Tensor,
    W: Tensor,
    Wy: Tensor,
    dt: float,
    clip: Clip,
) -> Tensor:
    """Gradients of the pre-activations (T, B, R); `d_y`, `d_z` become those of the state before."""
    from physml.ops.triton import lem_kernels, lem_steps

    (n_steps, n_batch, _), n_hidden = values.shape, len(Wy)
    matrices = _matrices(W, Wy)
    how = plan(n_batch, n_hidden, len(matrices), W)
    with on_device(values):
        if how is None:
            return lem_steps.backward(values, path_y, path_z, d_outputs, d_y, d_z, W, Wy, dt, clip)
        delta = torch.empty_like(values)
        some = path_y[1:].transpose(0, 1) if d_outputs is None else d_outputs
        lem_kernels.backward[how.programs(n_batch)](
            *(values, path_y, path_z, some, *some.stride(), d_y, d_z, delta, packed(matrices, how.BLOCK)),
            *(dt, *(clip or (0.0, 0.0)), n_steps, n_batch, n_hidden),
            GATED=len(matrices) == 4,
            CLIP=clip is not None,
            OUTPUTS=d_outputs is not None,
            **how.arguments,
        )
    return delta


def _results(path_y: Tensor, last_z: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The results of the recurrence; the last y is a copy, which does not keep the path alive."""
    return path_y[1:].to(dtype).transpose(0, 1), path_y[-1].to(dtype, copy=True), last_z.to(dtype)


class LEMFunction(torch.autograd.Function):
    """The map of `reference.lem`, its tensors in the same order after the constants. Differentiable once."""

    @staticmethod
    def forward(ctx: Any, dt: float, clip: Clip, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        values, path_y, path_z, last_z = _steps(tensors, dt, clip, saved=True)
        u, _, _, W, Wy, V, _ = tensors
        ctx.save_for_backward(u, values, path_y, path_z, W, Wy, V)
        ctx.dt, ctx.clip = dt, clip
        ctx.set_materialize_grads(False)
        return _results(path_y, last_z, u.dtype)

    @staticmethod
    @once
    def backward(
        ctx: Any, d_outputs: Tensor | None, d_y: Tensor | None, d_z: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        u, values, path_y, path_z, W, Wy, V = ctx.saved_tensors
        _, _, need_u, need_y, need_z, need_W, need_Wy, need_V, need_b = ctx.needs_input_grad
        states = torch.zeros_like(path_y[:2])
        for state, gradient in zip(states, (d_y, d_z), strict=True):
            if gradient is not None:
                state.copy_(gradient)
        d_y, d_z = states
        delta = _steps_back(values, path_y, path_z, d_outputs, d_y, d_z, W, Wy, ctx.dt, ctx.clip)
        flat, split = delta.flatten(0, 1), len(W)
        d_u = (flat @ V.float()).view(*delta.shape[:2], -1).transpose(0, 1) if need_u else None
        gradients = (
            d_u,
            d_y if need_y else None,
            d_z if need_z else None,
            flat[:, :split].t() @ path_y[:-1].flatten(0, 1) if need_W else None,
            flat[:, split:].t() @ path_z[1:].flatten(0, 1) if need_Wy else None,
            flat.t() @ rows(u) if need_V else None,
            flat.sum(0) if need_b else None,
        )
        return (None, None, *(None if x is None else x.to(u.dtype) for x in gradients))


def lem(*tensors: Tensor, dt: float, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.lem` on a GPU; differentiable once."""
    if recorded(*tensors):
        return LEMFunction.apply(dt, clip, *tensors)
    with torch.no_grad():
        _, path_y, _, last_z = _steps(tensors, dt, clip, saved=False)
        return _results(path_y, last_z, tensors[0].dtype)
