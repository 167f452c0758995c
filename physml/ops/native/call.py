"""Helpers around a call into C: refusals, threads, tiles, arguments, errors."""

import ctypes
from collections.abc import Callable, Sequence
from pathlib import Path

import torch
from torch import Tensor

from physml.base.check import has_shape
from physml.base.errors import InputError
from physml.ops.native import library, pool
from physml.ops.native.library import Unavailable

MOST_THREADS = 256  # as in threads.h


def refusal(
    source: Path,
    *tensors: Tensor,
    load: Callable[..., ctypes.CDLL] = library.load,
    **macros: int,
) -> str | None:
    """The reason why C from `source`, made a library by `load`, can't take these tensors; None if it can.

    `macros`: for `load`.
    """
    dtype = tensors[0].dtype
    for x in tensors:
        if not x.is_cpu:
            return f"backend native runs on a CPU; got a tensor on {x.device}"
        if x.dtype is not dtype:
            return f"backend native needs one dtype for all; got {dtype} and {x.dtype}"
        if not x.numel():
            return f"backend native can't work on empty tensors; got one of shape {tuple(x.shape)}"
    try:
        load(source, dtype, **macros)
    except Unavailable as reason:
        return str(reason)
    return None


def threads(n_rows: int, work: float, worth: float) -> int:
    """Number of threads that share the rows of a batch: one if all `work` is less than `worth`."""
    return min(torch.get_num_threads(), n_rows, MOST_THREADS) if work >= worth else 1


def tile(n_rows: int, n_threads: int, most: int) -> int:
    """Rows per tile: the thread's share split evenly into tiles of at most `most`, rounded up to 8.

    8 is the register tile of gemm.h.
    """
    rows = -(-n_rows // n_threads)
    return min(rows, -(-rows // -(-rows // most) // 8) * 8)


def in_rows(x: Tensor) -> Tensor:
    """x (.., .., N), copied only if its last axis is not in one piece."""
    return x if x.stride(2) == 1 or x.shape[2] == 1 else x.contiguous()


def pointer(x: Tensor | None) -> ctypes.c_void_p:
    return ctypes.c_void_p(None if x is None else x.data_ptr())


def integers(*numbers: int) -> ctypes.Array[ctypes.c_longlong]:
    return (ctypes.c_longlong * len(numbers))(*numbers)


def reals(*numbers: float) -> ctypes.Array[ctypes.c_double]:
    return (ctypes.c_double * len(numbers))(*numbers)


def scratch(
    library: ctypes.CDLL,
    name: str,
    n_threads: int,
    sizes: ctypes.Array[ctypes.c_longlong],
    x: Tensor,
    backward: bool,
) -> Tensor:
    """Memory that is warm already, as much as `<name>_room` of the library says, of the dtype of x.

    Memory that C takes from the system for a call comes page by page, and each page costs a fault.
    """
    size = getattr(library, f"{name}_room")
    size.restype = ctypes.c_size_t
    return pool.empty((size(n_threads, sizes, backward),), x.dtype)


def fits(
    u: Tensor, names: Sequence[str], tensors: Sequence[Tensor], shapes: Sequence[tuple[int, ...]]
) -> None:
    """InputError unless shapes, dtypes and devices fit: C would read beyond the end of a smaller tensor."""
    for name, x, shape in zip(names, tensors, shapes, strict=True):
        if x.shape != shape:
            has_shape(name, x, shape)
        if x.dtype != u.dtype or x.device != u.device:
            raise InputError(f"{name} must be {u.dtype} on {u.device}, as u is; got {x.dtype} on {x.device}.")


def check(code: int, name: str) -> None:
    if code:
        raise MemoryError(f"{name} in C: no memory for its work space.")
