"""The rate of plain matrix products, float32: what a kernel made of them could reach at best.

Timed are torch's own products and, on a CPU, those of the native kernels' gemm.h: the better of both tells
what the machine can do. (On AMD processors torch's library, MKL, may leave half of the vector unit idle.)
"""

import ctypes
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from physml.ops.native.call import pointer
from physml.ops.native.library import Unavailable, load

Shape = tuple[int, int, int]
Step = Callable[[], object]

# (m, n, k) of C (m, n) = A (m, k) B (k, n): the shapes of the steps, and square ones.
CPU_SHAPES: tuple[Shape, ...] = (
    (120, 512, 256),
    (128, 128, 384),
    (128, 512, 128),
    (128, 384, 128),
    (256, 512, 256),
    (512, 512, 512),
)
CUDA_SHAPES: tuple[Shape, ...] = ((4096, 4096, 4096), (8192, 8192, 8192), (16384, 2048, 2048))
LIBRARIES = ("torch", "native")
SOURCE = Path(__file__).with_name("gemm.c")


def steps(device: str) -> dict[tuple[str, Shape], Step]:
    """A product per library and shape, ready to be timed; without a compiler torch's alone."""
    cuda = device.startswith("cuda")
    library = None if cuda else _library()
    products: dict[tuple[str, Shape], Step] = {}
    for m, n, k in CUDA_SHAPES if cuda else CPU_SHAPES:
        a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
        c = torch.empty(m, n, device=device)
        products["torch", (m, n, k)] = partial(torch.mm, a, b, out=c)
        if library is not None:
            products["native", (m, n, k)] = _native(library, a, b)
    return products


def _library() -> ctypes.CDLL | None:
    try:
        library = load(SOURCE, torch.float32)
    except Unavailable:
        return None
    library.size_of_packed.restype = ctypes.c_size_t
    return library


def _native(library: ctypes.CDLL, a: Tensor, b: Tensor) -> Step:
    (m, k), n = a.shape, b.shape[1]
    packed, c = torch.empty(library.size_of_packed(k, n)), torch.empty(m, n)
    library.pack_dense(pointer(packed), pointer(b), k, n)

    def step() -> Tensor:
        library.product(m, n, k, pointer(a), pointer(packed), pointer(c))
        return c

    return step


def rates(timed: Mapping[tuple[str, Shape], Mapping[str, Any]]) -> dict[str, Any]:
    """Per library the rate of each shape, in GFLOP/s of the median, and the best one."""
    by_library: dict[str, Any] = {}
    for (library, (m, n, k)), facts in timed.items():
        if "ms" in facts:
            rate = round(2 * m * n * k / facts["ms"] / 1e6, 1)
            entry = by_library.setdefault(library, {"best_gflops": 0.0, "shapes": {}})
            entry["shapes"][f"{m}x{n}x{k}"] = rate
            entry["best_gflops"] = max(rate, entry["best_gflops"])
    return by_library
