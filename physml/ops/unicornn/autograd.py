"""UnICORNN with a backward written by hand. Axes: B batch, T time, H hidden units.

A step is a handful of small operations, and the plain loop pays for each of them again in autograd's
book-keeping and in the backward pass. Here a step writes where the next one reads. Of what it computes only
the path of y stays, which is an output anyway, and z after every block of steps. Backward goes through blocks
that fit the cache: the factors of all their steps are computed at once, from y and the input. Nothing saved
is changed: backward can run twice.
"""

from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors

STEPS = 64  # at most in a block: all views of more would stay alive and make Python collect garbage
BLOCK = 1 << 16  # numbers in one (steps, B, H) block of the backward pass: 256 KiB in float32


def _block(push: Tensor) -> int:
    n_batch, n_steps, n_hidden = push.shape
    return max(1, min(n_steps, STEPS, BLOCK // (n_batch * n_hidden)))


def forward(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, alpha: float, every: int
) -> tuple[Tensor, Tensor]:
    """The path of y (T + 1, B, H), the first one included, and z after every so many steps (N, B, H)."""
    (n_batch, n_steps, n_hidden), addcmul = push.shape, torch.addcmul
    path = push.new_empty(n_steps + 1, n_batch, n_hidden)
    path[0] = y
    kept = push.new_empty(-(-n_steps // every), n_batch, n_hidden)
    z, force = z.clone(memory_format=torch.contiguous_format), torch.empty_like(path[0])
    for begin in range(0, n_steps, every):
        end = min(begin + every, n_steps)
        states = path[begin : end + 1].unbind(0)
        for n, x in enumerate(push[:, begin:end].unbind(1)):
            y = states[n]
            addcmul(x, w, y, out=force).tanh_()
            if alpha:
                force.add_(y, alpha=alpha)
            z.addcmul_(step, force, value=-1)
            addcmul(y, step, z, out=states[n + 1])
        kept[begin // every] = z
    return path, kept


def kept_shapes(push: Tensor, *others: Tensor, **constants: Any) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    n_batch, n_steps, n_hidden = push.shape
    return (n_steps + 1, n_batch, n_hidden), (-(-n_steps // _block(push)), n_batch, n_hidden)


def run(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float) -> Run:
    """The forward pass, see `operators.Kernel`."""
    path, kept = forward(push, y, z, w, step, alpha, _block(push))
    # Copies: a carried state must not keep the whole path alive.
    return path[-1].clone(), kept[-1].clone(), [path, kept], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, alpha: float
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    (push, _, _, w, step), (path, zs) = tensors, kept
    d_outputs, d_y, d_z = incoming
    n_block = _block(push)
    n_batch, n_steps, n_hidden = push.shape
    needs_push, _, _, needs_w, needs_step = needs
    d_push = torch.empty_like(path[1:]) if needs_push else None
    d_w, d_step = torch.zeros_like(w), torch.zeros_like(step)
    # At k + 1: the gradient of y after step k of a block, and of z; at 0: before the block, where each
    # block finds what the block after it left.
    d_ys, d_zs = (path.new_zeros(n_block + 1, n_batch, n_hidden) for _ in range(2))
    for d_states, d_last in ((d_ys, d_y), (d_zs, d_z)):
        if d_last is not None:
            d_states[0] = d_last
    room_force, room_slope, room_a = (path.new_empty(n_block, n_batch, n_hidden) for _ in range(3))

    for begin in range((n_steps - 1) // n_block * n_block, -1, -n_block):
        end = min(begin + n_block, n_steps)
        n = end - begin
        d_zs[n] = d_zs[0]
        last = d_ys[0].clone()
        d_ys[0] = 0
        if d_outputs is None:
            d_ys[1:] = 0
        else:
            d_ys[1 : n + 1] = d_outputs[:, begin:end].transpose(0, 1)
        d_ys[n] += last
        old, force, slope, a = path[begin:end], room_force[:n], room_slope[:n], room_a[:n]
        torch.addcmul(push[:, begin:end].transpose(0, 1), w, old, out=force).tanh_()
        torch.mul(force, force, out=a).sub_(1).mul_(-step)  # s (1 - tanh^2)
        torch.mul(a, -w, out=slope)
        if alpha:
            slope.sub_(step, alpha=alpha)
        _walk(d_ys[: n + 1], d_zs[: n + 1], slope, step)
        a.mul_(d_zs[:n])
        if d_push is not None:
            torch.neg(a, out=d_push[begin:end])
        if needs_w:
            d_w -= a.mul_(old).sum((0, 1))
        if needs_step:
            d_step += _d_step(d_ys[1 : n + 1], d_zs[:n], force.add_(old, alpha=alpha), zs[begin // n_block])

    return (
        None if d_push is None else d_push.transpose(0, 1),
        d_ys[0].clone(),
        d_zs[0].clone(),
        d_w if needs_w else None,
        d_step if needs_step else None,
    )


def _walk(d_ys: Tensor, d_zs: Tensor, slope: Tensor, step: Tensor) -> None:
    """Gradients of all states of a block, (N + 1, B, H), from the last; d_ys holds what comes by outputs."""
    ys, zs, slopes = d_ys.unbind(0), d_zs.unbind(0), slope.unbind(0)
    for k in range(len(slopes) - 1, -1, -1):
        torch.addcmul(zs[k + 1], step, ys[k + 1], out=zs[k])
        ys[k].add_(ys[k + 1]).addcmul_(zs[k], slopes[k])


def _d_step(d_y: Tensor, d_z: Tensor, force: Tensor, z: Tensor) -> Tensor:
    r"""A block's part of :math:`\sum_n dy_n z_n - dz_n F_n`, without the path of z; z (B, H) is the last one.

    .. math::
        z_n = z_N + s \sum_{m > n} F_m, \quad s \sum_{n < m} dy_n = dz_1 - dz_m \quad\Rightarrow\quad
        \sum_n dy_n z_n = z_N \sum_n dy_n + \sum_m (dz_1 - dz_m) F_m
    """
    first = d_z[0] * force.sum(0) + z * d_y.sum(0)
    return (first - 2 * (d_z * force).sum(0)).sum(0)


PASSES = Passes(run, gradients, reads=(0, 3, 4))


def unicornn(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.unicornn`, several times as fast on a CPU for small H; differentiable once."""
    if recorded(push, y, z, w, step):
        return Recurrence.apply(PASSES, {"alpha": alpha}, push, y, z, w, step)
    with torch.no_grad():
        path, kept = forward(push, y, z, w, step, alpha, push.shape[1])
    return path[1:].transpose(0, 1), path[-1].clone(), kept[-1]
