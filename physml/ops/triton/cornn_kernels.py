"""coRNN, all steps in one kernel. Axes: B batch, T time, H hidden units.

A program owns M rows of the batch and takes them through all steps, state in registers; so are the first KEPT
weight matrices, the other is read again each step, from the cache. Padding up to BLOCK is zero throughout.

A step is z_n = a z_{n-1} + c f_n - d y_{n-1}, y_n = y_{n-1} + dt z_n, with f_n = tanh(...); `function` has
the constants of both dampings and the equations of the backward pass.
"""

import triton
import triton.language as tl

from physml.ops.triton.functions import matrix, places, product, products, tanh


@triton.jit(do_not_specialize=["n_steps"], do_not_specialize_on_alignment=["w"])
def forward(
    x,  # (T, B, H): pre-activations without the state's part; becomes f if SAVED
    path_y,  # (T + 1, B, H); at 0 the state before
    path_z,  # the same, written if SAVED
    last_z,  # (B, H)
    w,  # packed, (2, BLOCK, BLOCK): transposed weights of y, of z
    dt,
    a,
    c,
    d,
    n_steps,
    n_batch,
    n_hidden,
    SAVED: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    KEPT: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, unit, here = places(n_batch, n_hidden, DOT, M, BLOCK)
    place = row * n_hidden + unit
    next_state = n_batch * n_hidden
    x += place
    path_y += place
    path_z += place
    y = tl.load(path_y, mask=here, other=0.0)
    z = tl.load(path_z, mask=here, other=0.0)
    w_y = matrix(w, 0, DOT, BLOCK)
    w_z = matrix(w, 1, DOT, BLOCK)
    if KEPT > 0:
        kept_y = tl.load(w_y)
    if KEPT > 1:
        kept_z = tl.load(w_z)
    now = tl.load(x, mask=here, other=0.0)
    for n in range(n_steps):
        # What the next step needs is fetched while this one is computed.
        ahead = tl.load(x + next_state, mask=here & (n + 1 < n_steps), other=0.0)
        recurrent = products(
            y,
            kept_y if KEPT > 0 else tl.load(w_y),
            z,
            kept_z if KEPT > 1 else tl.load(w_z),
            DOT,
            PRECISION,
        )
        f = tanh(now + recurrent)
        z = a * z + c * f - d * y
        y += dt * z
        path_y += next_state
        tl.store(path_y, y, mask=here)
        if SAVED:
            path_z += next_state
            tl.store(path_z, z, mask=here)
            tl.store(x, f, mask=here)
        x += next_state
        now = ahead
    tl.store(last_z + place, z, mask=here)


@triton.jit(do_not_specialize=["n_steps"], do_not_specialize_on_alignment=["w"])
def backward(
    forces,  # (T, B, H): f
    d_outputs,  # (B, T, H), strides below
    d_outputs_b,
    d_outputs_t,
    d_outputs_h,
    d_y,  # (B, H): of the last state; becomes that of the state before
    d_z,
    delta,  # (T, B, H): gradients of the pre-activations
    w,  # packed, (2, BLOCK, BLOCK): weights of y, of z
    dt,
    a,
    c,
    d,
    n_steps,
    n_batch,
    n_hidden,
    OUTPUTS: tl.constexpr,
    DOT: tl.constexpr,
    PRECISION: tl.constexpr,
    KEPT: tl.constexpr,
    M: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row, unit, here = places(n_batch, n_hidden, DOT, M, BLOCK)
    place = row * n_hidden + unit
    next_state = n_batch * n_hidden
    # Pointers to the last step, counted down; 64 bits, for a long path has more than 2^31 numbers.
    last = (n_steps - 1).to(tl.int64)
    forces += place + last * next_state
    delta += place + last * next_state
    d_outputs += row.to(tl.int64) * d_outputs_b + unit * d_outputs_h + last * d_outputs_t
    grad_y = tl.load(d_y + place, mask=here, other=0.0)
    grad_z = tl.load(d_z + place, mask=here, other=0.0)
    w_y = matrix(w, 0, DOT, BLOCK)
    w_z = matrix(w, 1, DOT, BLOCK)
    if KEPT > 0:
        kept_y = tl.load(w_y)
    if KEPT > 1:
        kept_z = tl.load(w_z)
    f = tl.load(forces, mask=here, other=0.0)
    if OUTPUTS:
        d_output = tl.load(d_outputs, mask=here, other=0.0).to(tl.float32)
    for n in range(n_steps):
        more = here & (n + 1 < n_steps)
        f_ahead = tl.load(forces - next_state, mask=more, other=0.0)
        if OUTPUTS:
            grad_y += d_output
            d_outputs -= d_outputs_t
            d_output = tl.load(d_outputs, mask=more, other=0.0).to(tl.float32)
        grad_z += dt * grad_y
        push = c * (1.0 - f * f) * grad_z
        tl.store(delta, push, mask=here)
        grad_y += product(push, kept_y if KEPT > 0 else tl.load(w_y), DOT, PRECISION) - d * grad_z
        grad_z = a * grad_z + product(push, kept_z if KEPT > 1 else tl.load(w_z), DOT, PRECISION)
        forces -= next_state
        delta -= next_state
        f = f_ahead
    tl.store(d_y + place, grad_y, mask=here)
    tl.store(d_z + place, grad_z, mask=here)
