"""Small functions inside Triton kernels."""

import triton
import triton.language as tl


@triton.jit
def tanh(x):
    """tanh of float32 to about one unit in the last place; NaN stays NaN.

    Below 0.55 a polynomial in x^2 (least maximal relative error, fitted to tanh in float64), above it
    1 - 2 / (1 + exp 2x), whose rounding errors are of the size of 1 and would swamp a small result.
    """
    size = tl.abs(x)
    square = x * x
    series = -0.053853857 + square * (0.021077754 - 0.006282468 * square)
    series = -0.33333318 + square * (0.13332602 + square * series)
    large = 1.0 - 2.0 / (1.0 + tl.exp(2.0 * size))
    return tl.where(size < 0.55, x + x * (square * series), tl.where(x < 0.0, -large, large))


@triton.jit
def sigmoid(x):
    return 1.0 / (1.0 + tl.exp(-x))


@triton.jit
def product(x, w, DOT: tl.constexpr, PRECISION: tl.constexpr):
    """x times w (K, N), summed in float32.

    DOT: x is (M, K), on the matrix units, which take 16 rows or more. Else x is (K,): each thread multiplies
    the weights it holds, which can stay in registers, in full float32.
    """
    if DOT:
        return tl.dot(x.to(w.dtype), w, input_precision=PRECISION)
    else:
        return tl.sum(x[:, None] * w.to(tl.float32), axis=0)


@triton.jit
def places(n_batch, n_hidden, DOT: tl.constexpr, M: tl.constexpr, BLOCK: tl.constexpr):
    """Rows, units and which of them exist: (M, 1), (1, BLOCK), (M, BLOCK) for DOT, else one row, (BLOCK,)."""
    if DOT:
        row = tl.program_id(0) * M + tl.arange(0, M)[:, None]
        unit = tl.arange(0, BLOCK)[None, :]
        return row, unit, (row < n_batch) & (unit < n_hidden)
    else:
        row = tl.program_id(0)
        unit = tl.arange(0, BLOCK)
        return row, unit, unit < n_hidden


@triton.jit
def matrix(w, k, DOT: tl.constexpr, BLOCK: tl.constexpr):
    """Pointers to matrix k of packed weights, (BLOCK, BLOCK).

    The kernels hide from the compiler that `w` is aligned. So, not DOT, a load is one number wide, and a
    thread holds weights of one column, sums it alone and has one unit to compute; with wide loads four, each
    computed by many threads at once.
    """
    if DOT:
        w = tl.multiple_of(w, 16)
    return w + k * BLOCK * BLOCK + tl.arange(0, BLOCK)[:, None] * BLOCK + tl.arange(0, BLOCK)[None, :]


@triton.jit
def again(w):
    """Weights that each step reads; the nearest cache keeps them rather than what passes through it once."""
    return tl.load(w, eviction_policy="evict_last")


@triton.jit
def products(x, w, y, v, DOT: tl.constexpr, PRECISION: tl.constexpr):
    """x times w plus y times v; one sum across threads instead of two."""
    if DOT:
        return tl.dot(
            x.to(w.dtype), w, tl.dot(y.to(v.dtype), v, input_precision=PRECISION), input_precision=PRECISION
        )
    else:
        return tl.sum(x[:, None] * w.to(tl.float32) + y[:, None] * v.to(tl.float32), axis=0)
