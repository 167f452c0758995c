"""LEM, all steps in one kernel. Axes: B batch, T time, H hidden units; R rows of pre-activations, 4H or 2H.

A program owns M rows of the batch and takes them through all steps: nothing has to wait for another program,
and the state stays in registers. So do the first KEPT weight matrices; the others are read again each step,
from the cache. Padding up to BLOCK is zero throughout: weights, states and gradients.

What the forward pass leaves at step n, in place of the pre-activations that came in: [tanh of z, step of z,
step of y, tanh of y]; without gates the two tanh.
"""

import triton
import triton.language as tl

from physml.ops.triton.functions import again, matrix, places, product, products, sigmoid, tanh


@triton.jit
def gates(x, here, n_hidden, GATED: tl.constexpr):
    """The four rows of one step (M, BLOCK): of z, of its step, of the step of y, of y."""
    x_z = tl.load(x, mask=here, other=0.0)
    if GATED:
        x_1 = tl.load(x + n_hidden, mask=here, other=0.0)
        x_2 = tl.load(x + 2 * n_hidden, mask=here, other=0.0)
        x_y = tl.load(x + 3 * n_hidden, mask=here, other=0.0)
    else:
        x_1 = x_z
        x_2 = x_z
        x_y = tl.load(x + n_hidden, mask=here, other=0.0)
    return x_z, x_1, x_2, x_y


@triton.jit(do_not_specialize=["n_steps"], do_not_specialize_on_alignment=["w"])
def forward(
    x,  # (T, B, R): pre-activations without the state's part; becomes the values
    path_y,  # (T + 1, B, H); at 0 the state before
    path_z,  # the same, written if SAVED
    last_z,  # (B, H)
    w,  # packed, (4, BLOCK, BLOCK): transposed weights of y, of z; [y, z, 1, 2]
    dt,
    low,
    high,
    n_steps,
    n_batch,
    n_hidden,
    GATED: tl.constexpr,
    CLIP: tl.constexpr,
    SAVED: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    KEPT: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, unit, here = places(n_batch, n_hidden, DOT, M, BLOCK)
    place = row * n_hidden + unit
    n_rows = 4 * n_hidden if GATED else 2 * n_hidden
    next_x = n_batch * n_rows
    next_state = n_batch * n_hidden
    x += row * n_rows + unit
    path_y += place
    path_z += place
    y = tl.load(path_y, mask=here, other=0.0)
    z = tl.load(path_z, mask=here, other=0.0)
    w_y = matrix(w, 0, DOT, BLOCK)
    w_z = matrix(w, 1, DOT, BLOCK)
    w_1 = matrix(w, 2, DOT, BLOCK)
    w_2 = matrix(w, 3, DOT, BLOCK)
    if KEPT > 0:
        kept_y = tl.load(w_y)
    if KEPT > 1:
        kept_z = tl.load(w_z)
    if KEPT > 2:
        kept_1 = tl.load(w_1)
    if KEPT > 3:
        kept_2 = tl.load(w_2)
    x_z, x_1, x_2, x_y = gates(x, here, n_hidden, GATED)
    for n in range(n_steps):
        # What the next step needs is fetched while this one is computed.
        ahead = gates(x + next_x, here & (n + 1 < n_steps), n_hidden, GATED)
        tanh_z = tanh(x_z + product(y, kept_z if KEPT > 1 else tl.load(w_z), DOT, PRECISION))
        if GATED:
            step_z = dt * sigmoid(x_1 + product(y, kept_1 if KEPT > 2 else again(w_1), DOT, PRECISION))
            step_y = dt * sigmoid(x_2 + product(y, kept_2 if KEPT > 3 else again(w_2), DOT, PRECISION))
            if CLIP:  # comparisons, for minimum and maximum would turn NaN into a number
                step_z = tl.where(step_z < low, low, tl.where(step_z > high, high, step_z))
                step_y = tl.where(step_y < low, low, tl.where(step_y > high, high, step_y))
            z += step_z * (tanh_z - z)
        else:
            z += dt * (tanh_z - z)
        tanh_y = tanh(x_y + product(z, kept_y if KEPT > 0 else tl.load(w_y), DOT, PRECISION))
        if GATED:
            y += step_y * (tanh_y - y)
        else:
            y += dt * (tanh_y - y)
        path_y += next_state
        tl.store(path_y, y, mask=here)
        if SAVED:
            path_z += next_state
            tl.store(path_z, z, mask=here)
            tl.store(x, tanh_z, mask=here)
            if GATED:
                tl.store(x + n_hidden, step_z, mask=here)
                tl.store(x + 2 * n_hidden, step_y, mask=here)
                tl.store(x + 3 * n_hidden, tanh_y, mask=here)
            else:
                tl.store(x + n_hidden, tanh_y, mask=here)
        x += next_x
        x_z, x_1, x_2, x_y = ahead
    tl.store(last_z + place, z, mask=here)


@triton.jit
def through_gate(tanh, step, old, grad, dt, low, high, CLIP: tl.constexpr):
    """From the gradient of old + step (tanh - old) to those of both pre-activations."""
    to_step = grad * (tanh - old) * step * (1.0 - step / dt)
    if CLIP:
        to_step = tl.where((step > low) & (step < high), to_step, 0.0)
    return grad * step * (1.0 - tanh * tanh), to_step


@triton.jit
def saved(values, path_y, path_z, d_outputs, here, n_hidden, GATED: tl.constexpr, OUTPUTS: tl.constexpr):
    """The inputs of one step back: four rows of values, y and z before it, the gradient of its output."""
    tanh_z, step_z, step_y, tanh_y = gates(values, here, n_hidden, GATED)
    old_y = tl.load(path_y, mask=here, other=0.0)
    old_z = tl.load(path_z, mask=here, other=0.0)
    d_output = tl.load(d_outputs, mask=here, other=0.0).to(tl.float32) if OUTPUTS else old_y
    return tanh_z, step_z, step_y, tanh_y, old_y, old_z, d_output


@triton.jit(do_not_specialize=["n_steps"], do_not_specialize_on_alignment=["w"])
def backward(
    values,  # (T, B, R), as the forward pass left them
    path_y,  # (T + 1, B, H)
    path_z,
    d_outputs,  # (B, T, H), strides below
    d_outputs_b,
    d_outputs_t,
    d_outputs_h,
    d_y,  # (B, H): of the last state; becomes that of the state before
    d_z,
    delta,  # (T, B, R): gradients of the pre-activations, rows [z, 1, 2, y]
    w,  # packed, (4, BLOCK, BLOCK): weights of y, of z; [y, z, 1, 2]
    dt,
    low,
    high,
    n_steps,
    n_batch,
    n_hidden,
    GATED: tl.constexpr,
    CLIP: tl.constexpr,
    OUTPUTS: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    KEPT: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, unit, here = places(n_batch, n_hidden, DOT, M, BLOCK)
    place = row * n_hidden + unit
    n_rows = 4 * n_hidden if GATED else 2 * n_hidden
    next_x = n_batch * n_rows
    next_state = n_batch * n_hidden
    # Pointers to the last step, counted down; 64 bits, for a long path has more than 2^31 numbers.
    last = (n_steps - 1).to(tl.int64)
    values += row * n_rows + unit + last * next_x
    delta += row * n_rows + unit + last * next_x
    path_y += place + last * next_state
    path_z += place + last * next_state
    d_outputs += row.to(tl.int64) * d_outputs_b + unit * d_outputs_h + last * d_outputs_t
    grad_y = tl.load(d_y + place, mask=here, other=0.0)
    grad_z = tl.load(d_z + place, mask=here, other=0.0)
    w_y = matrix(w, 0, DOT, BLOCK)
    w_z = matrix(w, 1, DOT, BLOCK)
    w_1 = matrix(w, 2, DOT, BLOCK)
    w_2 = matrix(w, 3, DOT, BLOCK)
    if KEPT > 0:
        kept_y = tl.load(w_y)
    if KEPT > 1:
        kept_z = tl.load(w_z)
    if KEPT > 2:
        kept_1 = tl.load(w_1)
    if KEPT > 3:
        kept_2 = tl.load(w_2)
    now = saved(values, path_y, path_z, d_outputs, here, n_hidden, GATED, OUTPUTS)
    for n in range(n_steps):
        values -= next_x
        path_y -= next_state
        path_z -= next_state
        d_outputs -= d_outputs_t
        more = here & (n + 1 < n_steps)
        ahead = saved(values, path_y, path_z, d_outputs, more, n_hidden, GATED, OUTPUTS)
        tanh_z, step_z, step_y, tanh_y, old_y, old_z, d_output = now
        if OUTPUTS:
            grad_y += d_output
        if GATED:
            delta_y, delta_2 = through_gate(tanh_y, step_y, old_y, grad_y, dt, low, high, CLIP)
        else:
            delta_y = grad_y * dt * (1.0 - tanh_y * tanh_y)
        grad_z += product(delta_y, kept_y if KEPT > 0 else tl.load(w_y), DOT, PRECISION)
        if GATED:
            delta_z, delta_1 = through_gate(tanh_z, step_z, old_z, grad_z, dt, low, high, CLIP)
            grad_y -= step_y * grad_y
            grad_y += product(delta_z, kept_z if KEPT > 1 else tl.load(w_z), DOT, PRECISION)
            if KEPT > 3:
                grad_y += products(delta_1, kept_1, delta_2, kept_2, DOT, PRECISION)
            else:  # one after the other: there is no room for two matrices on their way
                grad_y += product(delta_1, kept_1 if KEPT > 2 else again(w_1), DOT, PRECISION)
                grad_y += product(delta_2, again(w_2), DOT, PRECISION)
            grad_z -= step_z * grad_z
            tl.store(delta + n_hidden, delta_1, mask=here)
            tl.store(delta + 2 * n_hidden, delta_2, mask=here)
            tl.store(delta + 3 * n_hidden, delta_y, mask=here)
        else:
            delta_z = grad_z * dt * (1.0 - tanh_z * tanh_z)
            grad_y -= dt * grad_y
            grad_y += product(delta_z, kept_z if KEPT > 1 else tl.load(w_z), DOT, PRECISION)
            grad_z -= dt * grad_z
            tl.store(delta + n_hidden, delta_y, mask=here)
        tl.store(delta, delta_z, mask=here)
        delta -= next_x
        now = ahead
    tl.store(d_y + place, grad_y, mask=here)
    tl.store(d_z + place, grad_z, mask=here)
