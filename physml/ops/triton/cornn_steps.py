"""coRNN for many hidden units: one product per step in cuBLAS, one kernel after it, as a CUDA graph.

Axes: B batch, T time, H hidden units.
"""

import torch
from torch import Tensor

from physml.ops.triton import graph
from physml.ops.triton import steps_kernels as kernels
from physml.ops.triton.launch import FLAT, blocks, flat_grid

Constants = tuple[float, float, float, float]  # dt, a, c, d


def _forward(inputs: list[Tensor], changed: list[Tensor], outputs: list[Tensor], *constants: float) -> None:
    (w,) = inputs  # (2H, H)
    x, y, z = changed  # (N, B, H) of N steps, (B, H)
    path_y, path_z = outputs  # (N, B, H)
    operand = torch.cat([y, z], 1).to(w.dtype)
    product = torch.empty_like(y, dtype=w.dtype)
    for n in range(len(x)):
        torch.mm(operand, w, out=product)
        kernels.cornn_step[flat_grid(y)](
            *(x[n], product, y, z, path_y[n], path_z[n], operand, *constants, y.numel(), y.shape[1]),
            BLOCK=FLAT,
        )


def forward(
    x: Tensor, path_y: Tensor, path_z: Tensor, W: Tensor, Wcal: Tensor, constants: Constants, saved: bool
) -> Tensor:
    """All steps; `x` (T, B, H) becomes f, the paths (T + 1, B, H) are filled. Returns the last z.

    Not `saved`, the path of z is its first entry alone.
    """
    inputs = [torch.cat([W, Wcal], 1).t().contiguous()]
    y, z = path_y[0].clone(), path_z[0].clone()
    for begin, end in blocks(len(x)):
        block_z = path_z[begin + 1 : end + 1] if saved else path_y.new_empty(end - begin, *z.shape)
        graph.run(_forward, inputs, [x[begin:end], y, z], [path_y[begin + 1 : end + 1], block_z], constants)
    return z


def _backward(inputs: list[Tensor], changed: list[Tensor], outputs: list[Tensor], *constants: float) -> None:
    w, forces, d_outputs = inputs  # (H, 2H), (N, B, H), (N, B, H)
    grad_y, grad_z, product = changed  # (B, H), (B, H), (B, 2H): what the step after sends to [y | z]
    (delta,) = outputs  # (N, B, H)
    operand = torch.empty_like(grad_y, dtype=w.dtype)
    for n in reversed(range(len(delta))):
        kernels.cornn_back[flat_grid(grad_y)](
            *(forces[n], d_outputs[n], product, grad_y, grad_z, delta[n], operand),
            *(*constants, grad_y.numel(), grad_y.shape[1]),
            BLOCK=FLAT,
        )
        torch.mm(operand, w, out=product)


def backward(
    forces: Tensor,
    d_outputs: Tensor | None,
    d_y: Tensor,
    d_z: Tensor,
    W: Tensor,
    Wcal: Tensor,
    constants: Constants,
) -> Tensor:
    """delta (T, B, H); `d_y` and `d_z` (B, H) become the gradients of the state before the first step."""
    delta = torch.empty_like(forces)
    w = torch.cat([W, Wcal], 1)
    product = w.new_zeros(len(d_y), w.shape[1])
    for begin, end in reversed(list(blocks(len(forces)))):
        d_block = d_y.new_zeros(end - begin, *d_y.shape)
        if d_outputs is not None:
            d_block.copy_(d_outputs[:, begin:end].transpose(0, 1))
        inputs = [w, forces[begin:end], d_block]
        graph.run(_backward, inputs, [d_y, d_z, product], [delta[begin:end]], constants)
    for state, rest in zip((d_y, d_z), product.chunk(2, 1), strict=True):
        state += rest
    return delta
