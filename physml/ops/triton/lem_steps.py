"""LEM for many hidden units: two products per step in cuBLAS, one kernel after each, as a CUDA graph.

Axes: B batch, T time, H hidden units; R rows of pre-activations, 4H or 2H.
"""

import torch
from torch import Tensor

from physml.ops.sequence import Clip
from physml.ops.triton import graph
from physml.ops.triton import steps_kernels as kernels
from physml.ops.triton.launch import FLAT, blocks, flat_grid


def _forward(
    inputs: list[Tensor], changed: list[Tensor], outputs: list[Tensor], dt: float, clip: Clip, gated: bool
) -> None:
    w, w_y = inputs  # (H, 3H), (H, H)
    x, y, z = changed  # (N, B, R) of N steps, (B, H)
    path_y, path_z = outputs  # (N, B, H)
    operand_y, operand_z = y.to(w.dtype, copy=True), torch.empty_like(z, dtype=w.dtype)
    product, product_y = w.new_empty(len(y), w.shape[1]), torch.empty_like(operand_y)
    n_hidden, grid = y.shape[1], flat_grid(y)
    bounds, sizes = clip or (0.0, 0.0), (y.numel(), n_hidden)
    options = {"GATED": gated, "BLOCK": FLAT}
    for n in range(len(x)):
        torch.mm(operand_y, w, out=product)
        kernels.lem_z[grid](
            x[n], product, z, path_z[n], operand_z, dt, *bounds, *sizes, CLIP=clip is not None, **options
        )
        torch.mm(operand_z, w_y, out=product_y)
        kernels.lem_y[grid](x[n], product_y, y, path_y[n], operand_y, dt, *sizes, **options)


def forward(
    x: Tensor, path_y: Tensor, path_z: Tensor, W: Tensor, Wy: Tensor, dt: float, clip: Clip, saved: bool
) -> Tensor:
    """All steps; `x` (T, B, R) becomes the values, the paths (T + 1, B, H) are filled. Returns the last z.

    Not `saved`, the path of z is its first entry alone.
    """
    inputs = [W.t().contiguous(), Wy.t().contiguous()]
    y, z = path_y[0].clone(), path_z[0].clone()
    for begin, end in blocks(len(x)):
        block_z = path_z[begin + 1 : end + 1] if saved else path_y.new_empty(end - begin, *z.shape)
        outputs = [path_y[begin + 1 : end + 1], block_z]
        graph.run(_forward, inputs, [x[begin:end], y, z], outputs, (dt, clip, len(W) > len(Wy)))
    return z


def _backward(
    inputs: list[Tensor], changed: list[Tensor], outputs: list[Tensor], dt: float, clip: Clip, gated: bool
) -> None:
    w, w_y, values, old_y, old_z, d_outputs = inputs  # w (3H, H), w_y (H, H); the others (N, B, ...)
    grad_y, grad_z, product_y = changed  # (B, H); the last one: what the step after sends to y
    (delta,) = outputs  # (N, B, R)
    operand, operand_y = w.new_empty(len(grad_y), len(w)), w.new_empty(grad_y.shape)
    product_z = torch.empty_like(product_y)
    n_hidden, grid = grad_y.shape[1], flat_grid(grad_y)
    bounds, sizes = clip or (0.0, 0.0), (grad_y.numel(), n_hidden)
    options = {"GATED": gated, "CLIP": clip is not None, "BLOCK": FLAT}
    for n in reversed(range(len(delta))):
        kernels.lem_back[grid](
            *(values[n], old_y[n], d_outputs[n], product_y, grad_y, delta[n], operand_y, operand),
            *(dt, *bounds, *sizes),
            Y=True,
            **options,
        )
        torch.mm(operand_y, w_y, out=product_z)
        kernels.lem_back[grid](
            *(values[n], old_z[n], d_outputs[n], product_z, grad_z, delta[n], operand, operand),
            *(dt, *bounds, *sizes),
            Y=False,
            **options,
        )
        torch.mm(operand, w, out=product_y)


def backward(
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
    """delta (T, B, R); `d_y` and `d_z` (B, H) become the gradients of the state before the first step."""
    delta = torch.empty_like(values)
    product = W.new_zeros(d_y.shape)
    for begin, end in reversed(list(blocks(len(values)))):
        d_block = d_y.new_zeros(end - begin, *d_y.shape)
        if d_outputs is not None:
            d_block.copy_(d_outputs[:, begin:end].transpose(0, 1))
        inputs = [W, Wy, values[begin:end], path_y[begin:end], path_z[begin:end], d_block]
        changed = [d_y, d_z, product]
        graph.run(_backward, inputs, changed, [delta[begin:end]], (dt, clip, len(W) > len(Wy)))
    d_y += product
    return delta
