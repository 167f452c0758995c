"""LEM with a backward written by hand. Axes: B batch, T time, D features, H hidden units, K = H + D + 1.

A step of LEM is a handful of small operations, and the plain loop pays for each of them several times: in the
forward pass, in autograd's book-keeping and in the backward pass. Here

- the operands [y | u | 1] and [z | u | 1] lie side by side, so that one product per half step takes in the
  input and the bias, and one product per block of steps gives the gradients of W, V and b together (alone,
  those of V and b are products with a handful of columns, at which BLAS is very slow);
- activations overwrite pre-activations, and states are written where they are needed next;
- the derivative factors of a block of steps are computed at once, and turned into gradients in place.

Blocks are small enough to stay in cache. Nothing that was saved is changed: backward can run twice.
"""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.native import pool
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Shapes, Tensors, outputs_of
from physml.ops.sequence import Clip

STEPS = 64  # at most in a block: all views of more would stay alive and make Python collect garbage
BLOCK = 1 << 16  # numbers in one (steps, B, H) block of the backward pass: 256 KiB in float32


class _Path:
    """Everything the steps read and write, with the time axis first."""

    def __init__(self, u: Tensor, y: Tensor, z: Tensor, n_rows: int, saved: bool) -> None:
        (n_batch, n_steps, d_in), n_hidden = u.shape, y.shape[1]
        width = n_hidden + d_in + 1
        self.y = pool.beside(u, n_steps + 1, n_batch, width)  # at n: [y_{n-1} | u_n | 1]
        self.z = pool.beside(u, n_steps, n_batch, width)  # at n: [z_n | u_n | 1]
        for operand in (self.y[:n_steps], self.z):
            operand[..., n_hidden:-1] = u.transpose(0, 1)
            operand[..., -1] = 1
        self.y[0, :, :n_hidden] = y
        # At n: [tanh of z, step of z, step of y, tanh of y]; without gates the two tanh.
        self.values = pool.beside(u, n_steps if saved else 1, n_batch, n_rows)
        self.n_hidden = n_hidden

    def last(self) -> tuple[Tensor, Tensor]:
        """The last y and z, as copies: a carried state must not keep the whole path alive."""
        return self.y[-1, :, : self.n_hidden].clone(), self.z[-1, :, : self.n_hidden].clone()


def forward(tensors: Sequence[Tensor], dt: float, clip: Clip, saved: bool) -> _Path:
    """All steps. `tensors`: as in `reference.lem`, u to b."""
    u, y, z, W, Wy, V, b = tensors
    n_hidden, n_steps, split = Wy.shape[0], u.shape[1], W.shape[0]
    path = _Path(u, y, z, V.shape[0], saved)
    weight_y = torch.cat([W, V[:split], b[:split, None]], 1).t().contiguous()  # (K, 3H)
    weight_z = torch.cat([Wy, V[split:], b[split:, None]], 1).t().contiguous()  # (K, H)
    mm, lerp = torch.mm, torch.lerp
    for begin in range(0, n_steps, STEPS):
        end = min(begin + STEPS, n_steps)
        values = path.values[begin:end] if saved else path.values.expand(end - begin, -1, -1)
        states = path.y[begin : end + 1, :, :n_hidden].unbind(0)
        operands_y, operands_z = path.y[begin:end].unbind(0), path.z[begin:end].unbind(0)
        news_z = path.z[begin:end, :, :n_hidden].unbind(0)
        first, tanh_y = values[..., :split].unbind(0), values[..., split:].unbind(0)
        tanh_z = values[..., :n_hidden].unbind(0)
        if split > n_hidden:
            gates = values[..., n_hidden:split].unbind(0)
            steps_z = values[..., n_hidden : 2 * n_hidden].unbind(0)
            steps_y = values[..., 2 * n_hidden : split].unbind(0)
            for n in range(end - begin):
                mm(operands_y[n], weight_y, out=first[n])
                gate = gates[n].sigmoid_()
                if dt != 1:
                    gate.mul_(dt)
                if clip is not None:
                    gate.clamp_(*clip)
                z = lerp(z, tanh_z[n].tanh_(), steps_z[n], out=news_z[n])
                mm(operands_z[n], weight_z, out=tanh_y[n])
                lerp(states[n], tanh_y[n].tanh_(), steps_y[n], out=states[n + 1])
        else:
            for n in range(end - begin):
                mm(operands_y[n], weight_y, out=first[n])
                z = lerp(z, tanh_z[n].tanh_(), dt, out=news_z[n])
                mm(operands_z[n], weight_z, out=tanh_y[n])
                lerp(states[n], tanh_y[n].tanh_(), dt, out=states[n + 1])
    return path


def _factors(values: Tensor, y: Tensor, z: Tensor, dt: float, clip: Clip, out: Tensor) -> Tensor:
    """d(new state) / d(pre-activation) of a block of steps, into `out` (N, B, 4H); returns 1 - step of y.

    y, z (N, B, H): the states before each step.
    """
    tanh_z, step_z, step_y, tanh_y = values.chunk(4, 2)
    gate_z, gate_1, gate_2, gate_y = out.chunk(4, 2)
    for tanh, step, to_tanh, to_step, old in (
        (tanh_z, step_z, gate_z, gate_1, z),
        (tanh_y, step_y, gate_y, gate_2, y),
    ):
        torch.mul(tanh, tanh, out=to_tanh).sub_(1).mul_(step).neg_()  # step (1 - tanh^2)
        torch.sub(tanh, old, out=to_step).mul_(step).mul_(1 - step / dt)  # (tanh - old) step (1 - step / dt)
        if clip is not None:
            to_step.mul_((step > clip[0]) & (step < clip[1]))
    return 1 - step_y


def kept_shapes(
    u: Tensor, y: Tensor, z: Tensor, W: Tensor, Wy: Tensor, V: Tensor, b: Tensor, **constants: Any
) -> Shapes:
    """Shapes of the tensors that `run` saves for backward."""
    (n_batch, n_steps, _), width = u.shape, y.shape[1] + u.shape[2] + 1
    return (n_steps + 1, n_batch, width), (n_steps, n_batch, width), (n_steps, n_batch, V.shape[0])


def run(*tensors: Tensor, dt: float, clip: Clip) -> Run:
    """The forward pass, see `operators.Kernel`."""
    path = forward(tensors, dt, clip, saved=True)
    return *path.last(), [path.y, path.z, path.values], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, dt: float, clip: Clip
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`. `kept`: what `_Path` has."""
    z0, W, Wy, V = tensors[2:6]
    operands_y, operands_z, values = kept
    d_outputs, d_y, d_z = incoming
    n_steps, n_batch, n_rows = values.shape
    n_hidden, split, gated = Wy.shape[0], W.shape[0], W.shape[0] > Wy.shape[0]
    n_block = max(1, min(n_steps, STEPS, BLOCK // (n_batch * n_hidden)))

    d_weight_y = W.new_zeros(split, operands_y.shape[2])  # (3H, K)
    d_weight_z = W.new_zeros(n_hidden, operands_z.shape[2])  # (H, K)
    d_u = pool.beside(values, n_steps, n_batch, V.shape[1]) if needs[0] else None
    d_z = torch.zeros_like(z0) if d_z is None else d_z.clone()
    d_z_wide = d_z.unsqueeze(1)  # the same numbers as (B, 1, H)
    d_path = z0.new_zeros(n_block + 1, n_batch, n_hidden)  # gradients of the states y before and after
    slopes = values.new_empty(n_block, n_batch, n_rows)
    if d_y is not None:
        d_path[0] = d_y  # where every block finds what the block after it left

    for end in range(n_steps, 0, -n_block):
        begin = max(0, end - n_block)
        n = end - begin
        last = d_path[0].clone()
        d_path[0] = 0
        if d_outputs is None:
            d_path[1:] = 0
        else:
            d_path[1 : n + 1] = d_outputs[:, begin:end].transpose(0, 1)
        d_path[n] += last
        block, slope = values[begin:end], slopes[:n]
        old_y = operands_y[begin:end, :, :n_hidden]
        d_states, d_states_wide = d_path.unbind(0), d_path.unsqueeze(2).unbind(0)
        wide = slope.view(n, n_batch, -1, n_hidden)
        half = wide.shape[2] // 2
        for_z, for_y = wide[:, :, :half].unbind(0), wide[:, :, half:].unbind(0)
        first, second = slope[..., :split].unbind(0), slope[..., split:].unbind(0)
        if gated:
            if begin:
                old_z = operands_z[begin - 1 : end - 1, :, :n_hidden]
            else:
                old_z = torch.cat([z0[None], operands_z[: end - 1, :, :n_hidden]])
            keeps_y = _factors(block, old_y, old_z, dt, clip, slope).unbind(0)
            steps_z = block[..., n_hidden : 2 * n_hidden].unbind(0)
            for k in range(n - 1, -1, -1):
                for_y[k].mul_(d_states_wide[k + 1])
                d_z.addmm_(second[k], Wy)
                for_z[k].mul_(d_z_wide)
                d_states[k].addcmul_(d_states[k + 1], keeps_y[k]).addmm_(first[k], W)
                d_z.addcmul_(d_z, steps_z[k], value=-1)
        else:
            torch.mul(block, block, out=slope).sub_(1).mul_(-dt)  # dt (1 - tanh^2)
            for k in range(n - 1, -1, -1):
                for_y[k].mul_(d_states_wide[k + 1])
                d_z.addmm_(second[k], Wy)
                for_z[k].mul_(d_z_wide)
                d_states[k].add_(d_states[k + 1], alpha=1 - dt).addmm_(first[k], W)
                d_z.mul_(1 - dt)
        rows = slope.flatten(0, 1)
        d_weight_y.addmm_(rows[:, :split].t(), operands_y[begin:end].flatten(0, 1))
        d_weight_z.addmm_(rows[:, split:].t(), operands_z[begin:end].flatten(0, 1))
        if d_u is not None:
            torch.mm(rows, V, out=d_u[begin:end].flatten(0, 1))

    d_W, d_V_first, d_b_first = d_weight_y.split([n_hidden, V.shape[1], 1], 1)
    d_Wy, d_V_second, d_b_second = d_weight_z.split([n_hidden, V.shape[1], 1], 1)
    return (
        None if d_u is None else d_u.transpose(0, 1),
        d_path[0].clone(),
        d_z,
        d_W.contiguous(),
        d_Wy.contiguous(),
        torch.cat([d_V_first, d_V_second]),
        torch.cat([d_b_first, d_b_second]).squeeze(1),
    )


PASSES = Passes(run, gradients, reads=(2, 3, 4, 5))


def lem(*tensors: Tensor, dt: float, clip: Clip) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.lem`, five times as fast on a CPU for small H; differentiable once."""
    if recorded(*tensors):
        return Recurrence.apply(PASSES, {"dt": dt, "clip": clip}, *tensors)
    with torch.no_grad():
        path = forward(tensors, dt, clip, saved=False)
    return outputs_of(path.y, tensors), *path.last()
