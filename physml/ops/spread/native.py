"""The product in C: spread.c. Axes: N nodes, E edges, H channels."""

from pathlib import Path

from torch import Tensor

from physml.ops.native import call, pool
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("spread.c")
PARALLEL = 4e6  # numbers (E, H) above which threads are worth being started


def refusal(x: Tensor, weight: Tensor) -> str | None:
    """The reason why native code can't compute this case; None if it can."""
    if x.dim() != 2:
        return f"backend native needs features (N, H); got {tuple(x.shape)}"
    return call.refusal(SOURCE, x, weight)


def spread(x: Tensor, weight: Tensor, start: Tensor, other: Tensor) -> Tensor:
    """`reference.spread` on a CPU."""
    x = x.contiguous()
    y = pool.like(x)
    n_threads = call.threads(len(x), float(len(weight)) * x.shape[1], PARALLEL)
    load(SOURCE, x.dtype).spread(
        n_threads, call.integers(*x.shape), *map(call.pointer, (start, other, weight, x, y))
    )
    return y
