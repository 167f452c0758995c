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
from physml.ops.derivatives import Gradients, recorded
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Tensors, outputs_of
from physml.ops.triton.available import refusal as refusal
from physml.ops.triton.inputs import drive, in_dtype, of_inputs, of_last_states
from physml.ops.triton.launch import on_device, packed, plan


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


def run(*tensors: Tensor, **named: Any) -> Run:
    """The forward pass, see `operators.Kernel`. The last y is a copy, which does not keep the path alive."""
    numbers, dtype = constants(**named), tensors[0].dtype
    forces, path_y, path_z, last_z = _steps(tensors, numbers, saved=True)
    return path_y[-1].to(dtype, copy=True), last_z.to(dtype), [path_y, forces, path_z], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, **named: Any
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    (u, _, _, W, Wcal, V, _), (path_y, forces, path_z), (d_outputs, *d_last) = tensors, kept, incoming
    need_u, need_y, need_z, need_W, need_Wcal, need_V, need_b = needs
    d_y, d_z = of_last_states(path_y, d_last)
    numbers = constants(**named)
    delta = _steps_back(forces, d_outputs, d_y, d_z, W, Wcal, numbers)
    flat, (d_u, d_V, d_b) = delta.flatten(0, 1), of_inputs(delta, u, V, (need_u, need_V, need_b))
    d_W = flat.t() @ path_y[:-1].flatten(0, 1) if need_W else None
    d_Wcal = flat.t() @ path_z[:-1].flatten(0, 1) if need_Wcal else None
    d_states = d_y if need_y else None, d_z if need_z else None
    return in_dtype(u.dtype, d_u, *d_states, d_W, d_Wcal, d_V, d_b)


PASSES = Passes(run, gradients, reads=(0, 3, 4, 5))


def cornn(*tensors: Tensor, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.cornn` for fixed dt, gamma and epsilon, on a GPU; differentiable once."""
    if recorded(*tensors):
        return Recurrence.apply(PASSES, named, *tensors)
    with torch.no_grad():
        _, path_y, _, last_z = _steps(tensors, constants(**named), saved=False)
        dtype = tensors[0].dtype
        return outputs_of(path_y, tensors), path_y[-1].to(dtype, copy=True), last_z.to(dtype)
