r"""The map of the plain loop with a backward written by hand. Axes, time first: T time, B batch, H units.

There is no graph of T nodes and no new memory per step, and the gradients of the weights are one product per
block of steps; blocks are small enough to stay in cache. With :math:`s_n = \tanh(W h_{n-1} + d_n)`, e the
gradient of h, and :math:`\bar e` the part of it that comes from outside:

.. math::
    p_n = g\,(1 - s_n^2) \circ e_n, \qquad e_{n-1} = \bar e_{n-1} + K^T e_n + W^T p_n

The gradient of d is p; those of W, K and g are sums over n of :math:`p_n h_{n-1}^T`,
:math:`e_n h_{n-1}^T` and :math:`\langle e_n, s_n \rangle`.
"""

from typing import Any

import torch
from torch import Tensor

from physml.ops.once import once, recorded

BLOCK = 1 << 16  # numbers in one block of the backward pass: 256 KiB in float32


def residual_tanh(drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: Tensor | float) -> Tensor:
    """`reference.residual_tanh`, differentiable once. To be called without autocast."""
    tensors = [x for x in (drive, h, W, keep, gain) if isinstance(x, Tensor)]
    if recorded(*tensors):
        return _ResidualTanh.apply(drive, h, W, keep, gain)
    with torch.no_grad():
        return _forward(drive, h, W, keep, float(gain), saved=False)[0][1:]


def _forward(
    drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: float, saved: bool
) -> tuple[Tensor, Tensor]:
    """The path with its start, (T + 1, B, H), and the tanh of all steps, if saved."""
    n_steps = len(drive)
    path = drive.new_empty(n_steps + 1, *h.shape)
    path[0] = h
    tanh = drive.new_empty(n_steps if saved else 1, *h.shape)
    pushes, states, Wt = drive.unbind(0), path.unbind(0), W.t()
    news = tanh.unbind(0) * (1 if saved else n_steps)
    if isinstance(keep, Tensor) and keep.dim() == 2:
        Kt = keep.t()
        for n in range(n_steps):
            s = torch.addmm(pushes[n], states[n], Wt, out=news[n]).tanh_()
            torch.addmm(s, states[n], Kt, beta=gain, out=states[n + 1])
        return path, tanh
    kept = float(keep)
    for n in range(n_steps):
        s = torch.addmm(pushes[n], states[n], Wt, out=news[n]).tanh_()
        if kept == 1.0:
            torch.add(states[n], s, alpha=gain, out=states[n + 1])
        else:
            torch.mul(states[n], kept, out=states[n + 1]).add_(s, alpha=gain)
    return path, tanh


class _ResidualTanh(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, drive: Tensor, h: Tensor, W: Tensor, keep: Tensor | float, gain: Tensor | float
    ) -> Tensor:
        matrix = isinstance(keep, Tensor) and keep.dim() == 2
        path, tanh = _forward(drive, h, W, keep, float(gain), saved=True)
        ctx.save_for_backward(path, tanh, W, keep if matrix else None)
        ctx.kept, ctx.gain = None if matrix else float(keep), float(gain)
        return path[1:]

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        path, tanh, W, K = ctx.saved_tensors
        _, _, want_W, want_keep, want_gain = ctx.needs_input_grad
        n_steps, n_batch, n_hidden = tanh.shape
        n_block = max(1, min(n_steps, BLOCK // (n_batch * n_hidden)))
        d_drive = torch.empty_like(tanh)
        dW = torch.zeros_like(W) if want_W else None
        d_keep = None
        if want_keep:
            d_keep = W.new_zeros(()) if K is None else torch.zeros_like(K)
        d_gain = W.new_zeros(()) if want_gain else None
        e_block = tanh.new_empty(n_block + 1, n_batch, n_hidden)  # of the states before and after each step
        later: Tensor | None = None
        for end in range(n_steps, 0, -n_block):
            begin = max(0, end - n_block)
            n = end - begin
            s, p, e, before = tanh[begin:end], d_drive[begin:end], e_block[: n + 1], path[begin:end]
            torch.mul(s, s, out=p).sub_(1.0).mul_(-ctx.gain)
            e[0] = 0
            e[1:] = grad[begin:end]
            if later is not None:
                e[n] += later
            es, ps = e.unbind(0), p.unbind(0)
            for k in range(n - 1, -1, -1):
                ps[k].mul_(es[k + 1])
                if K is None:
                    es[k].add_(es[k + 1], alpha=ctx.kept).addmm_(ps[k], W)
                else:
                    es[k].addmm_(es[k + 1], K).addmm_(ps[k], W)
            later = e[0].clone()
            after, before = e[1:].flatten(0, 1), before.flatten(0, 1)
            if dW is not None:
                dW.addmm_(p.flatten(0, 1).t(), before)
            if d_keep is not None and K is not None:
                d_keep.addmm_(after.t(), before)
            elif d_keep is not None:
                d_keep += torch.dot(after.flatten(), before.flatten())
            if d_gain is not None:
                d_gain += torch.dot(after.flatten(), s.flatten())
        return d_drive, later, dW, d_keep, d_gain
