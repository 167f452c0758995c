r"""UnICORNN, a scan over time. Axes: B batch, T time, H hidden units.

No unit hears another, so a program owns one row of the batch and BLOCK units, and takes them through all
steps with the state in registers. A load takes longer than several steps, therefore the loops over time are
pipelined: the compiler fetches the next PREFETCH steps while one is computed.

Going back, y is read from the path that the forward pass wrote. z is not stored: it follows from

.. math:: z_{n-1} = z_n + s \odot [\tanh(w \odot y_{n-1} + x_n) + \alpha y_{n-1}],

thesis equation 3.7, with the stored y, so that rounding errors only add up and are not amplified; and it
starts anew from a stored z at the end of every segment.
"""

import triton
import triton.language as tl

from physml.ops.triton.functions import tanh


@triton.jit(do_not_specialize=["n_steps"])
def forward(
    push,  # (B, T, H), strides below
    push_b,
    push_t,
    push_h,
    path,  # (T + 1, B, H); at 0 the state before
    z_start,  # (B, H)
    z_ends,  # (segments, B, H): z after each segment
    w,
    step,
    alpha,
    n_steps,
    n_batch,
    n_hidden,
    SEGMENT: tl.constexpr,
    PREFETCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = unit < n_hidden
    place = row * n_hidden + unit
    w = tl.load(w + unit, mask=here, other=0.0).to(tl.float32)
    s = tl.load(step + unit, mask=here, other=0.0).to(tl.float32)
    y = tl.load(path + place, mask=here, other=0.0)
    z = tl.load(z_start + place, mask=here, other=0.0).to(tl.float32)
    push += row * push_b + unit * push_h
    path += place
    z_ends += place
    for begin in range(0, n_steps, SEGMENT):
        for _ in tl.range(begin, min(begin + SEGMENT, n_steps), num_stages=PREFETCH):
            x = tl.load(push, mask=here, other=0.0).to(tl.float32)
            z -= s * (tanh(w * y + x) + alpha * y)
            y += s * z
            push += push_t
            path += n_batch * n_hidden
            tl.store(path, y, mask=here)
        tl.store(z_ends, z, mask=here)
        z_ends += n_batch * n_hidden


@triton.jit(do_not_specialize=["n_steps"])
def backward(
    push,  # (B, T, H), strides below
    push_b,
    push_t,
    push_h,
    path,  # (T + 1, B, H)
    z_ends,  # (segments, B, H)
    w,
    step,
    d_outputs,  # (B, T, H), strides below
    d_outputs_b,
    d_outputs_t,
    d_outputs_h,
    d_y,  # (B, H): of the last state; becomes that of the state before
    d_z,
    d_push,  # (T, B, H)
    d_w,  # (B, H), one row per program and no atomics: the sums have one order
    d_step,
    alpha,
    n_steps,
    n_batch,
    n_hidden,
    OUTPUTS: tl.constexpr,
    PUSH: tl.constexpr,
    SEGMENT: tl.constexpr,
    PREFETCH: tl.constexpr,
    BLOCK: tl.constexpr,
):
    row = tl.program_id(0).to(tl.int64)
    unit = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    here = unit < n_hidden
    place = row * n_hidden + unit
    w = tl.load(w + unit, mask=here, other=0.0).to(tl.float32)
    s = tl.load(step + unit, mask=here, other=0.0).to(tl.float32)
    grad_y = tl.load(d_y + place, mask=here, other=0.0)
    grad_z = tl.load(d_z + place, mask=here, other=0.0)
    sum_w = tl.zeros((BLOCK,), tl.float32)
    sum_s = tl.zeros((BLOCK,), tl.float32)
    # Pointers to the last step, counted down; 64 bits, for a long path has more than 2^31 numbers.
    wide = n_batch * n_hidden
    last = (n_steps - 1).to(tl.int64)
    push += row * push_b + unit * push_h + last * push_t
    d_outputs += row * d_outputs_b + unit * d_outputs_h + last * d_outputs_t
    path += place + last * wide
    d_push += place + last * wide
    n_segments = (n_steps + SEGMENT - 1) // SEGMENT
    for k in range(n_segments):
        segment = n_segments - 1 - k
        z = tl.load(z_ends + segment.to(tl.int64) * wide + place, mask=here, other=0.0)
        for _ in tl.range(segment * SEGMENT, min(segment * SEGMENT + SEGMENT, n_steps), num_stages=PREFETCH):
            x = tl.load(push, mask=here, other=0.0).to(tl.float32)
            y = tl.load(path, mask=here, other=0.0)
            if OUTPUTS:
                grad_y += tl.load(d_outputs, mask=here, other=0.0).to(tl.float32)
            f = tanh(w * y + x)
            pull = f + alpha * y
            grad_z += s * grad_y
            sum_s += grad_y * z - grad_z * pull
            z += s * pull
            grad_x = -s * grad_z * (1.0 - f * f)
            sum_w += grad_x * y
            grad_y += w * grad_x - alpha * s * grad_z
            if PUSH:
                tl.store(d_push, grad_x, mask=here)
            push -= push_t
            path -= wide
            d_outputs -= d_outputs_t
            d_push -= wide
    tl.store(d_y + place, grad_y, mask=here)
    tl.store(d_z + place, grad_z, mask=here)
    tl.store(d_w + place, sum_w, mask=here)
    tl.store(d_step + place, sum_s, mask=here)
