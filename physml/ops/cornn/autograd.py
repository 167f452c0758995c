r"""coRNN with a backward written by hand. Axes: B batch, T time, D features, H hidden units, K = 2H + D + 1.

Both dampings are z_n = a z_{n-1} + c f_n - d y_{n-1} with f_n = tanh(...), and three constants each. The
operand [y | z | u | 1] takes the input and the bias into the product of the step, and gives all gradients of
weights in one product per block of steps; blocks stay in cache. Nothing that was saved is changed: backward
can run twice.

With :math:`\bar y, \bar z` for the gradients of the states, one step back is

.. math::
    \bar z_n &\mathrel{+}= \Delta t\,\bar y_n, \qquad p_n = c\,(1 - f_n^2)\,\bar z_n \\
    \bar y_{n-1} &\mathrel{+}= \bar y_n - d\,\bar z_n + W^T p_n, \qquad
    \bar z_{n-1} = a\,\bar z_n + \mathcal{W}^T p_n
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors

STEPS = 64  # at most in a block: all views of more would stay alive and make Python collect garbage
BLOCK = 1 << 16  # numbers in one (steps, B, H) block of the backward pass: 256 KiB in float32


Constants = tuple[float, float, float, float]  # dt, a, c, d


def constants(dt: float, gamma: float, epsilon: float, damping: str) -> Constants:
    """dt, and a, c, d of z_n = a z_{n-1} + c f_n - d y_{n-1}."""
    if damping == "explicit":
        return dt, 1 - dt * epsilon, dt, dt * gamma
    share = 1 / (1 + dt * epsilon)
    return dt, share, share * dt, share * dt * gamma


def forward(tensors: Sequence[Tensor], numbers: Constants, saved: bool) -> tuple[Tensor, Tensor]:
    """The operands [y_{n-1} | z_{n-1} | u_n | 1] (T + 1, B, K) and the forces f_n (T, B, H).

    If not `saved`, only the last f is kept. `tensors`: as in `reference.cornn`, u to b.
    """
    (u, y, z, W, Wcal, V, b), (dt, a, c, d) = tensors, numbers
    (n_batch, n_steps, d_in), n_hidden = u.shape, W.shape[0]
    operands = u.new_empty(n_steps + 1, n_batch, 2 * n_hidden + d_in + 1)
    operands[0, :, :n_hidden] = y
    operands[0, :, n_hidden : 2 * n_hidden] = z
    operands[:n_steps, :, 2 * n_hidden : -1] = u.transpose(0, 1)
    operands[:n_steps, :, -1] = 1
    weight = torch.cat([W, Wcal, V, b[:, None]], 1).t().contiguous()  # (K, H)
    forces = u.new_empty(n_steps if saved else 1, n_batch, n_hidden)
    mm, add, mul = torch.mm, torch.add, torch.mul
    for begin in range(0, n_steps, STEPS):
        end = min(begin + STEPS, n_steps)
        rows = operands[begin:end].unbind(0)
        force = (forces[begin:end] if saved else forces.expand(end - begin, -1, -1)).unbind(0)
        path_y = operands[begin : end + 1, :, :n_hidden].unbind(0)
        path_z = operands[begin : end + 1, :, n_hidden : 2 * n_hidden].unbind(0)
        for n in range(end - begin):
            f = mm(rows[n], weight, out=force[n]).tanh_()
            new = mul(path_z[n], a, out=path_z[n + 1]).add_(f, alpha=c).sub_(path_y[n], alpha=d)
            add(path_y[n], new, alpha=dt, out=path_y[n + 1])
    return operands, forces


def kept_shapes(u: Tensor, y: Tensor, *others: Tensor, **constants: Any) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    (n_batch, n_steps, d_in), n_hidden = u.shape, y.shape[1]
    return (n_steps + 1, n_batch, 2 * n_hidden + d_in + 1), (n_steps, n_batch, n_hidden)


def run(*tensors: Tensor, **named: Any) -> Run:
    """The forward pass, see `operators.Kernel`."""
    operands, forces = forward(tensors, constants(**named), saved=True)
    _, y, z = _results(operands, forces.shape[2])
    return y, z, [operands, forces], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, **named: Any
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    (W, Wcal, V), (operands, forces) = tensors[3:6], kept
    d_outputs, d_y, d_z = incoming
    dt, a, c, d = constants(**named)
    n_steps, n_batch, n_hidden = forces.shape
    n_block = max(1, min(n_steps, STEPS, BLOCK // (n_batch * n_hidden)))
    recurrent = torch.cat([W, Wcal], 1)  # (H, 2H)
    d_weight = W.new_zeros(n_hidden, operands.shape[2])  # (H, K)
    d_u = forces.new_empty(n_steps, n_batch, V.shape[1]) if needs[0] else None
    slopes = torch.empty_like(forces[:n_block])
    # Gradients of [y | z] before and after the steps of a block; entry 0 goes on to the block before.
    d_states = forces.new_zeros(n_block + 1, n_batch, 2 * n_hidden)
    if d_y is not None:
        d_states[0, :, :n_hidden] = d_y
    if d_z is not None:
        d_states[0, :, n_hidden:] = d_z
    both = d_states.unbind(0)
    of_y, of_z = d_states[..., :n_hidden].unbind(0), d_states[..., n_hidden:].unbind(0)

    for end in range(n_steps, 0, -n_block):
        begin = max(0, end - n_block)
        n = end - begin
        last = both[0].clone()
        d_states[: n + 1] = 0
        if d_outputs is not None:
            d_states[1 : n + 1, :, :n_hidden] = d_outputs[:, begin:end].transpose(0, 1)
        d_states[n] += last
        block = forces[begin:end]
        torch.mul(block, block, out=slopes[:n]).sub_(1).mul_(-c)
        slope = slopes.unbind(0)
        for k in range(n - 1, -1, -1):
            grad_y, grad_z = of_y[k + 1], of_z[k + 1]
            grad_z.add_(grad_y, alpha=dt)
            push = slope[k].mul_(grad_z)
            torch.mul(grad_z, a, out=of_z[k])
            of_y[k].add_(grad_y).sub_(grad_z, alpha=d)
            both[k].addmm_(push, recurrent)
        rows = slopes[:n].flatten(0, 1)
        d_weight.addmm_(rows.t(), operands[begin:end].flatten(0, 1))
        if d_u is not None:
            torch.mm(rows, V, out=d_u[begin:end].flatten(0, 1))

    d_W, d_Wcal, d_V, d_b = d_weight.split([n_hidden, n_hidden, V.shape[1], 1], 1)
    d_y, d_z = both[0].clone().split(n_hidden, 1)
    return (
        None if d_u is None else d_u.transpose(0, 1),
        d_y.contiguous(),
        d_z.contiguous(),
        d_W.contiguous(),
        d_Wcal.contiguous(),
        d_V.contiguous(),
        d_b.flatten(),
    )


PASSES = Passes(run, gradients, reads=(3, 4, 5))


def cornn(*tensors: Tensor, **named: Any) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.cornn` for fixed dt, gamma and epsilon; faster on a CPU, differentiable once.

    `named`: the arguments of `constants`.
    """
    if recorded(*tensors):
        return Recurrence.apply(PASSES, named, *tensors)
    with torch.no_grad():
        operands, _ = forward(tensors, constants(**named), saved=False)
        return _results(operands, tensors[1].shape[1])


def _results(operands: Tensor, n_hidden: int) -> tuple[Tensor, Tensor, Tensor]:
    """The outputs, and the last states as copies: a carried state must not keep the whole path alive."""
    y, z = operands[-1, :, : 2 * n_hidden].clone().split(n_hidden, 1)
    return operands[1:, :, :n_hidden].transpose(0, 1), y.contiguous(), z.contiguous()
