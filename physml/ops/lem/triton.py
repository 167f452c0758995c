"""LEM on a GPU. Axes: B batch, T time, D features, H hidden units; R rows of pre-activations, 4H or 2H.

The input's part of all pre-activations is one product before the loop, the gradients of all weights are
products after it. Between them the steps run in one kernel, `ops.triton.lem_kernels`, where the weights fit
into a multiprocessor, else as products in cuBLAS with a kernel after each, `ops.triton.lem_steps`. States and
sums are float32 whatever the dtype of the weights.
"""

from collections.abc import Sequence

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Tensors, outputs_of
from physml.ops.sequence import Clip
from physml.ops.triton.available import refusal as refusal
from physml.ops.triton.inputs import drive, in_dtype, of_inputs, of_last_states
from physml.ops.triton.launch import on_device, packed, plan

Path = tuple[Tensor, Tensor, Tensor, Tensor]


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


def run(*tensors: Tensor, dt: float, clip: Clip) -> Run:
    """The forward pass, see `operators.Kernel`. The last y is a copy, which does not keep the path alive."""
    values, path_y, path_z, last_z = _steps(tensors, dt, clip, saved=True)
    dtype = tensors[0].dtype
    return path_y[-1].to(dtype, copy=True), last_z.to(dtype), [path_y, values, path_z], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, dt: float, clip: Clip
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    (u, _, _, W, Wy, V, _), (path_y, values, path_z), (d_outputs, *d_last) = tensors, kept, incoming
    need_u, need_y, need_z, need_W, need_Wy, need_V, need_b = needs
    d_y, d_z = of_last_states(path_y, d_last)
    delta = _steps_back(values, path_y, path_z, d_outputs, d_y, d_z, W, Wy, dt, clip)
    d_u, d_V, d_b = of_inputs(delta, u, V, (need_u, need_V, need_b))
    flat, split = delta.flatten(0, 1), len(W)
    d_W = flat[:, :split].t() @ path_y[:-1].flatten(0, 1) if need_W else None
    d_Wy = flat[:, split:].t() @ path_z[1:].flatten(0, 1) if need_Wy else None
    d_states = d_y if need_y else None, d_z if need_z else None
    return in_dtype(u.dtype, d_u, *d_states, d_W, d_Wy, d_V, d_b)


PASSES = Passes(run, gradients, reads=(0, 3, 4, 5))


def lem(*tensors: Tensor, dt: float, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.lem` on a GPU; differentiable once."""
    if recorded(*tensors):
        return Recurrence.apply(PASSES, {"dt": dt, "clip": clip}, *tensors)
    with torch.no_grad():
        _, path_y, _, last_z = _steps(tensors, dt, clip, saved=False)
        dtype = tensors[0].dtype
        return outputs_of(path_y, tensors), path_y[-1].to(dtype, copy=True), last_z.to(dtype)
