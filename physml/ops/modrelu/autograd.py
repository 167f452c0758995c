r"""The map of the plain loop with a backward written by hand. Axes, time first: T time, B batch, H units.

The path alone is kept: a unit passed at step n where its h is not 0, and there h has the sign of p. With e
the gradient of h, and :math:`\bar e` the part of it from outside:

.. math:: q_n = [h_n \ne 0] \circ e_n, \qquad e_{n-1} = \bar e_{n-1} + W^T q_n

The gradient of d is q; those of W and b are sums over n of :math:`q_n h_{n-1}^T` and
:math:`\mathrm{sign}(h_n) \circ e_n`.
"""

from typing import Any

import torch
from torch import Tensor

from physml.ops.modrelu import reference
from physml.ops.once import once
from physml.ops.transforms import transformed

BLOCK = 1 << 16  # numbers in one block of the backward pass: 256 KiB in float32


def modrelu(drive: Tensor, h: Tensor, W: Tensor, b: Tensor) -> Tensor:
    """`reference.modrelu`, differentiable once. To be called without autocast."""
    if transformed(drive, h, W, b):
        return reference.modrelu(drive, h, W, b)
    return _ModReLU.apply(drive, h, W, b)


class _ModReLU(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, drive: Tensor, h: Tensor, W: Tensor, b: Tensor) -> Tensor:
        path = drive.new_empty(len(drive) + 1, *h.shape)
        path[0] = h
        pushes, states, Wt = drive.unbind(0), path.unbind(0), W.t()
        p, sign = torch.empty_like(states[0]), torch.empty_like(states[0])
        for n in range(len(drive)):
            torch.addmm(pushes[n], states[n], Wt, out=p)
            torch.sign(p, out=sign)
            torch.addcmul(b, p, sign, out=states[n + 1]).relu_().mul_(sign)
        ctx.save_for_backward(path, W)
        return path[1:]

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        path, W = ctx.saved_tensors
        n_steps, (n_batch, n_hidden) = len(path) - 1, path.shape[1:]
        n_block = max(1, min(n_steps, BLOCK // (n_batch * n_hidden)))
        d_drive = path.new_empty(n_steps, n_batch, n_hidden)
        dW, db = torch.zeros_like(W), W.new_zeros(n_hidden)
        e_block = path.new_empty(n_block, n_batch, n_hidden)
        later = path.new_zeros(n_batch, n_hidden)
        for end in range(n_steps, 0, -n_block):
            begin = max(0, end - n_block)
            n = end - begin
            q, e = d_drive[begin:end], e_block[:n]
            sign = torch.sign(path[begin + 1 : end + 1])
            torch.abs(sign, out=q)
            e.copy_(grad[begin:end])
            e[-1] += later
            es, qs = e.unbind(0), q.unbind(0)
            for k in range(n - 1, 0, -1):
                es[k - 1].addmm_(qs[k].mul_(es[k]), W)
            later = qs[0].mul_(es[0]) @ W
            dW.addmm_(q.flatten(0, 1).t(), path[begin:end].flatten(0, 1))
            db += sign.mul_(q).sum((0, 1))
        return d_drive, later, dW, db
