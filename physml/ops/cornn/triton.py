"""coRNN on a GPU. Axes: B batch, T time, D features, H hidden units.

The input's part of all pre-activations is one product before the loop, the gradients of all weights are
products after it. Between them the steps run in one kernel, `ops.triton.cornn_kernels`, where the weights
fit into a multiprocessor, else as products in cuBLAS with a kernel after each, `ops.triton.cornn_steps`.
States and sums are float32 whatever the dtype of the weights.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.ops.cornn.autograd import Constants, constants
from physml.ops.derivatives import once, recorded
from physml.ops.triton.available import refusal as unavailable
from physml.ops.triton.inputs import drive, rows
from physml.ops.triton.launch import on_device, packed, plan


def refusal(*tensors: Tensor) -> str | None:
    """The reason why Triton cannot take this case, or None."""
    return unavailable(*tensors)


def _steps(
    tensors: Sequence[Tensor], numbers: Constants, saved: bool
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """f (T, B, H), paths of y and z (T + 1, B, H), the state before first, and the last z."""
    from physml.ops.triton import cornn_kernels, cornn_steps

    u, y, z, W, Wcal, V, b = tensors
    x = drive(u, V, b)
    n_steps, n_batch, n_hidden = x.shape
    path_y = x.new_empty(n_steps + 1, n_batch, n_hidden)
    path_z = x.new_empty(n_steps + 1 if saved else 1, n_batch, n_hidden)
    path_y[0], path_z[0] = y, z
    how = plan(n_batch, n_hidden, 2, W)
    with on_device(x):
        if how is None:
            return x, path_y, path_z, cornn_steps.forward(x, path_y, path_z, W, Wcal, numbers, saved)
        last_z = torch.empty_like(path_z[0])
        cornn_kernels.forward[how.programs(n_batch)](
            *(x, path_y, path_z, last_z, packed([W.t(), Wcal.t()], how.BLOCK)),
            *(*numbers, n_steps, n_batch, n_hidden),
            SAVED=saved,
            **how.arguments,
        )
    return x, path_y, path_z, last_z


def _steps_back(
    forces: Tensor,
    d_outputs: Tensor | None,
    d_y: Tensor,
    d_z: Tensor,
    W: Tensor,
    Wcal: Tensor,
    numbers: Constants,
) -> Tensor:
    """Gradients of the pre-activations (T, B, H); `d_y`, `d_z` become those of the state before."""
    from physml.ops.triton import cornn_kernels, cornn_steps

    n_steps, n_batch, n_hidden = forces.shape
    how = plan(n_batch, n_hidden, 2, W)
    with on_device(forces):
        if how is None:
            return cornn_steps.backward(forces, d_outputs, d_y, d_z, W, Wcal, numbers)
        delta = torch.empty_like(forces)
        some = forces.transpose(0, 1) if d_outputs is None else d_outputs
        cornn_kernels.backward[how.programs(n_batch)](
            *(forces, some, *some.stride(), d_y, d_z, delta, packed([W, Wcal], how.BLOCK)),
            *(*numbers, n_steps, n_batch, n_hidden),
            OUTPUTS=d_outputs is not None,
            **how.arguments,
        )
    return delta


def _results(path_y: Tensor, last_z: Tensor, dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor]:
    """The results of the recurrence; the last y is a copy, which does not keep the path alive."""
    return path_y[1:].to(dtype).transpose(0, 1), path_y[-1].to(dtype, copy=True), last_z.to(dtype)


class CoRNNFunction(torch.autograd.Function):
    """The map of `reference.cornn`, its tensors after fixed constants. Differentiable once."""

    @staticmethod
    def forward(ctx: Any, numbers: Constants, *tensors: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        forces, path_y, path_z, last_z = _steps(tensors, numbers, saved=True)
        u, _, _, W, Wcal, V, _ = tensors
        ctx.save_for_backward(u, forces, path_y, path_z, W, Wcal, V)
        ctx.numbers = numbers
        ctx.set_materialize_grads(False)
        return _results(path_y, last_z, u.dtype)

    @staticmethod
    @once
    def backward(
        ctx: Any, d_outputs: Tensor | None, d_y: Tensor | None, d_z: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        u, forces, path_y, path_z, W, Wcal, V = ctx.saved_tensors
        _, need_u, need_y, need_z, need_W, need_Wcal, need_V, need_b = ctx.needs_input_grad
        states = torch.zeros_like(path_y[:2])
        for state, gradient in zip(states, (d_y, d_z), strict=True):
            if gradient is not None:
                state.copy_(gradient)
        d_y, d_z = states
        delta = _steps_back(forces, d_outputs, d_y, d_z, W, Wcal, ctx.numbers)
        flat = delta.flatten(0, 1)
        d_u = (flat @ V.float()).view(*delta.shape[:2], -1).transpose(0, 1) if need_u else None
        gradients = (
            d_u,
            d_y if need_y else None,
            d_z if need_z else None,
            flat.t() @ path_y[:-1].flatten(0, 1) if need_W else None,
            flat.t() @ path_z[:-1].flatten(0, 1) if need_Wcal else None,
            flat.t() @ rows(u) if need_V else None,
            flat.sum(0) if need_b else None,
        )
        return (None, *(None if x is None else x.to(u.dtype) for x in gradients))


def cornn(
    *tensors: Tensor, dt: float, gamma: float, epsilon: float, damping: str
) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.cornn` for fixed dt, gamma and epsilon, on a GPU; differentiable once."""
    numbers = constants(dt, gamma, epsilon, damping)
    if recorded(*tensors):
        return CoRNNFunction.apply(numbers, *tensors)
    with torch.no_grad():
        _, path_y, _, last_z = _steps(tensors, numbers, saved=False)
        return _results(path_y, last_z, tensors[0].dtype)
