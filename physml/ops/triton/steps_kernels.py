"""The elementwise kernels between two matrix products of a step. Axes: B batch, H hidden units.

For many hidden units the products of a step fill the GPU, and cuBLAS does them; `lem_steps` and `cornn_steps`
call these kernels between them. One number per thread, n = B H in all. States and sums are float32; `operand`
is what the next product takes, in the dtype of the weights, and `product` what the last one gave. The gates
of a sequence lie side by side, [z, 1, 2, y], so that gate g of number i is at (i // H) R + g H + i % H.
"""

import triton
import triton.language as tl

from physml.ops.triton.functions import sigmoid, tanh


@triton.jit
def numbers(n, n_hidden, BLOCK: tl.constexpr):
    """The numbers of a program: their positions, a mask of those that exist, row and unit of each."""
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    return i, i < n, i // n_hidden, i % n_hidden


@triton.jit
def lem_z(
    x, product, z, path_z, operand, dt, low, high, n, n_hidden,
    GATED: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """Pre-activations of z and both steps -> values in their place, new z."""
    i, here, row, unit = numbers(n, n_hidden, BLOCK)
    x += row * (4 * n_hidden if GATED else 2 * n_hidden) + unit
    product += row * (3 * n_hidden if GATED else n_hidden) + unit
    old = tl.load(z + i, mask=here)
    new = tanh(tl.load(x, mask=here) + tl.load(product, mask=here).to(tl.float32))
    tl.store(x, new, mask=here)
    step = dt
    if GATED:
        for gate in tl.static_range(2, 0, -1):  # that of z comes last and is used here
            offset = gate * n_hidden
            pre = tl.load(x + offset, mask=here) + tl.load(product + offset, mask=here).to(tl.float32)
            step = dt * sigmoid(pre)
            if CLIP:  # comparisons, for minimum and maximum would turn NaN into a number
                step = tl.where(step < low, low, tl.where(step > high, high, step))
            tl.store(x + offset, step, mask=here)
    new = old + step * (new - old)
    tl.store(z + i, new, mask=here)
    tl.store(path_z + i, new, mask=here)
    tl.store(operand + i, new, mask=here)


@triton.jit
def lem_y(
    x, product, y, path_y, operand, dt, n, n_hidden, GATED: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Pre-activation of y -> value in its place, new y."""
    i, here, row, unit = numbers(n, n_hidden, BLOCK)
    x += row * (4 * n_hidden if GATED else 2 * n_hidden) + unit
    offset = 3 * n_hidden if GATED else n_hidden
    old = tl.load(y + i, mask=here)
    new = tanh(tl.load(x + offset, mask=here) + tl.load(product + i, mask=here).to(tl.float32))
    tl.store(x + offset, new, mask=here)
    step = tl.load(x + 2 * n_hidden, mask=here) if GATED else dt
    new = old + step * (new - old)
    tl.store(y + i, new, mask=here)
    tl.store(path_y + i, new, mask=here)
    tl.store(operand + i, new, mask=here)


@triton.jit
def lem_back(
    values, old, d_output, product, grad, delta, operand, operand_step, dt, low, high, n, n_hidden,
    Y: tl.constexpr, GATED: tl.constexpr, CLIP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    """The half step of y or z back: gradients of the new state -> of its pre-activations, of the old state.

    operand: what the next product takes, delta_y alone or the row [delta_z, delta_1, delta_2], of whose
    columns the half step of y writes the last, into `operand_step`.
    """
    i, here, row, unit = numbers(n, n_hidden, BLOCK)
    wide = row * (4 * n_hidden if GATED else 2 * n_hidden) + unit
    values += wide
    delta += wide
    if Y:
        at_tanh = 3 * n_hidden if GATED else n_hidden
        at_step = 2 * n_hidden
        at_operand = i
    else:
        at_tanh = 0 * n_hidden
        at_step = n_hidden
        at_operand = row * (3 * n_hidden if GATED else n_hidden) + unit
    new = tl.load(grad + i, mask=here) + tl.load(product + i, mask=here).to(tl.float32)
    if Y:
        new += tl.load(d_output + i, mask=here)
    f = tl.load(values + at_tanh, mask=here)
    step = dt
    if GATED:
        step = tl.load(values + at_step, mask=here)
        to_step = new * (f - tl.load(old + i, mask=here)) * step * (1.0 - step / dt)
        if CLIP:
            to_step = tl.where((step > low) & (step < high), to_step, 0.0)
        tl.store(delta + at_step, to_step, mask=here)
        tl.store(operand_step + row * (3 * n_hidden) + at_step + unit, to_step, mask=here)
    to_tanh = new * step * (1.0 - f * f)
    tl.store(delta + at_tanh, to_tanh, mask=here)
    tl.store(operand + at_operand, to_tanh, mask=here)
    tl.store(grad + i, new - step * new, mask=here)


@triton.jit
def cornn_step(
    x, product, y, z, path_y, path_z, operand, dt, a, c, d, n, n_hidden, BLOCK: tl.constexpr
):  # fmt: skip
    """Pre-activation -> f in its place, new y and z; operand (B, 2H) is [y | z]."""
    i, here, row, unit = numbers(n, n_hidden, BLOCK)
    f = tanh(tl.load(x + i, mask=here) + tl.load(product + i, mask=here).to(tl.float32))
    old = tl.load(y + i, mask=here)
    new_z = a * tl.load(z + i, mask=here) + c * f - d * old
    new_y = old + dt * new_z
    operand += row * 2 * n_hidden + unit
    tl.store(x + i, f, mask=here)
    tl.store(y + i, new_y, mask=here)
    tl.store(z + i, new_z, mask=here)
    tl.store(path_y + i, new_y, mask=here)
    tl.store(path_z + i, new_z, mask=here)
    tl.store(operand, new_y, mask=here)
    tl.store(operand + n_hidden, new_z, mask=here)


@triton.jit
def cornn_back(
    f, d_output, product, grad_y, grad_z, delta, operand, dt, a, c, d, n, n_hidden, BLOCK: tl.constexpr
):  # fmt: skip
    """A step back; product (B, 2H) is what the step after it sends to [y | z]."""
    i, here, row, unit = numbers(n, n_hidden, BLOCK)
    product += row * 2 * n_hidden + unit
    new_y = tl.load(grad_y + i, mask=here) + tl.load(product, mask=here).to(tl.float32)
    new_y += tl.load(d_output + i, mask=here)
    new_z = tl.load(grad_z + i, mask=here) + tl.load(product + n_hidden, mask=here).to(tl.float32)
    new_z += dt * new_y
    f = tl.load(f + i, mask=here)
    push = c * (1.0 - f * f) * new_z
    tl.store(delta + i, push, mask=here)
    tl.store(operand + i, push, mask=here)
    tl.store(grad_y + i, new_y - d * new_z, mask=here)
    tl.store(grad_z + i, a * new_z, mask=here)
