r"""The map of the plain loop with a backward written by hand. Axes, time first: T time, B batch, H units.

With e the gradient of h and :math:`\bar e` the part of it that comes from outside:

.. math::
    q_n &= [(h_{n-1} - \zeta c)\, g (1 - g) + (\zeta (1 - g) + \nu)(1 - c^2)] \circ e_n \\
    e_{n-1} &= \bar e_{n-1} + g \circ e_n + U^T q_n

Everything in brackets is known before the loop. The gradient of d is q, and the second term of it, summed, is
the gradient of the shift.
"""

from typing import Any

import torch
from torch import Tensor

from physml.ops.fastgrnn import reference
from physml.ops.once import once, recorded
from physml.ops.transforms import transformed

BLOCK = 1 << 16  # numbers in one block of the backward pass: 256 KiB in float32


def fastgrnn(drive: Tensor, h: Tensor, U: Tensor, shift: Tensor, zeta: Tensor, nu: Tensor) -> Tensor:
    """`reference.fastgrnn`, differentiable once. To be called without autocast."""
    if transformed(drive, h, U, shift, zeta, nu):
        return reference.fastgrnn(drive, h, U, shift, zeta, nu)
    if recorded(drive, h, U, shift, zeta, nu):
        return _FastGRNN.apply(drive, h, U, shift, zeta, nu)
    with torch.no_grad():
        return _forward(drive, h, U, shift, float(zeta), float(nu), saved=False)[0][1:]


def _forward(
    drive: Tensor, h: Tensor, U: Tensor, shift: Tensor, zeta: float, nu: float, saved: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The path with its start, (T + 1, B, H), and the gates and candidates of all steps, if saved."""
    n_steps = len(drive)
    path = drive.new_empty(n_steps + 1, *h.shape)
    path[0] = h
    gates, candidates = drive.new_empty(2, n_steps if saved else 1, *h.shape).unbind(0)
    pushes, states, Ut = drive.unbind(0), path.unbind(0), U.t()
    repeat = 1 if saved else n_steps
    new_gates, new_candidates = gates.unbind(0) * repeat, candidates.unbind(0) * repeat
    for n in range(n_steps):
        g = torch.addmm(pushes[n], states[n], Ut, out=new_gates[n])
        c = torch.add(g, shift, out=new_candidates[n]).tanh_()
        g.sigmoid_()
        # g h + (zeta (1 - g) + nu) c = (h - zeta c) g + (zeta + nu) c, in three operations
        new = torch.add(states[n], c, alpha=-zeta, out=states[n + 1])
        new.mul_(g).add_(c, alpha=zeta + nu)
    return path, gates, candidates


class _FastGRNN(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, drive: Tensor, h: Tensor, U: Tensor, shift: Tensor, zeta: Tensor, nu: Tensor
    ) -> Tensor:
        ctx.zeta, ctx.nu = float(zeta), float(nu)
        path, gates, candidates = _forward(drive, h, U, shift, ctx.zeta, ctx.nu, saved=True)
        ctx.save_for_backward(path, gates, candidates, U)
        return path[1:]

    @staticmethod
    @once
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        path, gates, candidates, U = ctx.saved_tensors
        zeta, nu = ctx.zeta, ctx.nu
        n_steps, n_batch, n_hidden = gates.shape
        n_block = max(1, min(n_steps, BLOCK // (n_batch * n_hidden)))
        d_drive = torch.empty_like(gates)
        dU, d_shift = torch.zeros_like(U), U.new_zeros(n_hidden)
        d_zeta, d_nu = U.new_zeros(()), U.new_zeros(())
        e_block = gates.new_empty(n_block + 1, n_batch, n_hidden)  # of the states before and after each step
        later: Tensor | None = None
        for end in range(n_steps, 0, -n_block):
            begin = max(0, end - n_block)
            n = end - begin
            g, c, q, e = gates[begin:end], candidates[begin:end], d_drive[begin:end], e_block[: n + 1]
            before = path[begin:end]
            in_candidate = torch.mul(c, c).sub_(1.0).mul_(torch.mul(g, zeta).sub_(zeta + nu))
            torch.add(before, c, alpha=-zeta, out=q).mul_(g).mul_(1.0 - g).add_(in_candidate)
            e[0] = 0
            e[1:] = grad[begin:end]
            if later is not None:
                e[n] += later
            es, qs, gs = e.unbind(0), q.unbind(0), g.unbind(0)
            for k in range(n - 1, -1, -1):
                qs[k].mul_(es[k + 1])
                es[k].addcmul_(es[k + 1], gs[k]).addmm_(qs[k], U)
            later = e[0].clone()
            dU.addmm_(q.flatten(0, 1).t(), before.flatten(0, 1))
            after = e[1:]
            d_shift += in_candidate.mul_(after).sum((0, 1))
            felt = after.mul_(c)
            total = felt.sum()
            d_nu += total
            d_zeta += total - torch.dot(felt.flatten(), g.flatten())
        return d_drive, later, dU, d_shift, d_zeta, d_nu
