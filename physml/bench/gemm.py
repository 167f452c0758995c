"""The rate of plain matrix products, float32: what a kernel made of them could reach at best."""

from collections.abc import Callable
from functools import partial

import torch

# (m, n, k) of C (m, n) = A (m, k) B (k, n): the shapes of the steps, and square ones.
CPU_SHAPES = (
    (120, 512, 256),
    (128, 128, 384),
    (128, 512, 128),
    (128, 384, 128),
    (256, 512, 256),
    (512, 512, 512),
)
CUDA_SHAPES = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 2048, 2048))


def steps(device: str) -> dict[tuple[int, int, int], Callable[[], object]]:
    """One product per shape, ready to run."""
    found: dict[tuple[int, int, int], Callable[[], object]] = {}
    for m, n, k in CUDA_SHAPES if device.startswith("cuda") else CPU_SHAPES:
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        found[m, n, k] = partial(torch.mm, a, b, out=torch.empty(m, n, device=device))
    return found


def gflops(shape: tuple[int, int, int], ms: float) -> float:
    m, n, k = shape
    return 2 * m * n * k / ms / 1e6
