"""The functions of `physml.ops.cell.operations` in Triton, by the names that the C has too."""

import triton
import triton.language as tl

from physml.ops.triton.functions import sigmoid as vec_sigmoid
from physml.ops.triton.functions import tanh as vec_tanh

__all__ = [
    "pick",
    "vec_abs",
    "vec_cos",
    "vec_erf",
    "vec_erf_slope",
    "vec_exp",
    "vec_log",
    "vec_sigmoid",
    "vec_sin",
    "vec_softplus",
    "vec_sqrt",
    "vec_tanh",
]


@triton.jit
def pick(where, a, b):
    return tl.where(where, a, b)


@triton.jit
def vec_abs(x):
    return tl.abs(x)


@triton.jit
def vec_exp(x):
    return tl.exp(x)


@triton.jit
def vec_log(x):
    return tl.log(x)


@triton.jit
def vec_sqrt(x):
    return tl.sqrt_rn(x)


@triton.jit
def vec_erf(x):
    return tl.erf(x)


@triton.jit
def vec_erf_slope(x):
    return 1.1283791670955126 * tl.exp(-x * x)


@triton.jit
def vec_softplus(x):
    """max(x, 0) + log(1 + e), e = exp(-|x|), by the series of 2 artanh(s), s = e / (2 + e) <= 1/3."""
    e = tl.exp(-tl.abs(x))
    s = e / (2.0 + e)
    q = s * s
    series = 0.11111111 + q * (0.090909091 + q * 0.076923077)
    series = 1.0 + q * (0.33333333 + q * (0.2 + q * (0.14285714 + q * series)))
    return tl.where(x > 0.0, x, 0.0) + 2.0 * s * series


@triton.jit
def wave(x, quarter):
    """sin(x + quarter pi/2): the series at r = x - k pi/2; from 8192 on the reduction loses digits.

    The GPU's own sine is off by 2^-21 near zero, and by more beyond pi.
    """
    k = tl.floor(x * 0.636619772 + 0.5)
    r = ((x - k * 1.5703125) - k * 4.837512969970703e-04) - k * 7.549789948768648e-08
    q = r * r
    sine = r + r * q * (-0.16666667 + q * (0.0083333333 + q * (-0.00019841270 + q * 2.7557319e-06)))
    cosine = 1.0 + q * (-0.5 + q * (0.041666667 + q * (-0.0013888889 + q * 2.4801587e-05)))
    turn = k.to(tl.int32) + quarter
    value = tl.where((turn & 1) != 0, cosine, sine)
    return tl.where((turn & 2) != 0, -value, value)


@triton.jit
def vec_sin(x):
    return wave(x, 0)


@triton.jit
def vec_cos(x):
    return wave(x, 1)
