"""Large CPU tensors from memory that is used again.

The kernel hands out fresh memory page by page, zeroed, at a tenth of the speed at which warm memory is
written; a training step that frees its buffers pays for that at every batch. Here a block goes back to the
pool when the last tensor that looks at it dies, and the next tensor of about its size gets it.
"""

import mmap
import os
import weakref
from collections import deque
from math import prod
from threading import Lock

import numpy as np
import torch
from torch import Tensor

SMALL = 1 << 20  # bytes below which the allocator of torch keeps memory warm by itself
HUGE_PAGE = 1 << 21
MOST_IDLE = 1 << 32  # bytes that may lie unused, or an eighth of the machine's memory if that is less
NUMPY = {torch.float32: np.float32, torch.float64: np.float64}


class Pool:
    """Blocks of a few sizes, eight to the power of two, so that a slightly longer batch finds one too.

    Thread-safe. What died lies in `returned` until someone holds the lock: tensors die at any moment, also
    while this very thread holds it.
    """

    def __init__(self, most_idle: int) -> None:
        self.most_idle = most_idle
        self.lock = Lock()
        self.returned: deque[mmap.mmap] = deque()
        self.idle: list[mmap.mmap] = []  # the one that was used last is the last

    def empty(self, shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
        count = prod(shape)
        n_bytes = count * dtype.itemsize
        if n_bytes < SMALL or dtype not in NUMPY:
            return torch.empty(shape, dtype=dtype)
        block = self._block(_rounded(n_bytes))
        array = np.frombuffer(block, NUMPY[dtype], count)
        weakref.finalize(array, self._give_back, block).atexit = False
        return torch.from_numpy(array).view(shape)

    def clear(self) -> None:
        """Give all idle memory back to the system."""
        with self.lock:
            self._collect()
            self.idle.clear()

    def _block(self, size: int) -> mmap.mmap:
        with self.lock:
            self._collect()
            for k in range(len(self.idle) - 1, -1, -1):
                if len(self.idle[k]) == size:
                    return self.idle.pop(k)
        block = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        if hasattr(mmap, "MADV_HUGEPAGE"):
            block.madvise(mmap.MADV_HUGEPAGE)
        return block

    def _give_back(self, block: mmap.mmap) -> None:
        self.returned.append(block)
        if self.lock.acquire(blocking=False):
            try:
                self._collect()
            finally:
                self.lock.release()

    def _collect(self) -> None:
        """Take in what was returned; what has been idle longest goes if there is too much."""
        while self.returned:
            self.idle.append(self.returned.popleft())
        surplus = sum(map(len, self.idle)) - self.most_idle
        while surplus > 0:
            surplus -= len(self.idle.pop(0))


def _rounded(n_bytes: int) -> int:
    """Up to one of eight sizes per power of two, in whole huge pages."""
    unit = max(1 << max(0, n_bytes.bit_length() - 4), HUGE_PAGE)
    return -(-n_bytes // unit) * unit


def _most_idle() -> int:
    try:
        return min(MOST_IDLE, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") // 8)
    except (OSError, ValueError):
        return MOST_IDLE


_pool = Pool(_most_idle())


def empty(shape: tuple[int, ...], dtype: torch.dtype) -> Tensor:
    """A CPU tensor with arbitrary content, aligned to 64 bytes."""
    return _pool.empty(shape, dtype)


def like(x: Tensor) -> Tensor:
    """A CPU tensor of the shape and type of `x`, contiguous, with arbitrary content."""
    return _pool.empty(tuple(x.shape), x.dtype)


def beside(x: Tensor, *shape: int) -> Tensor:
    """A tensor with arbitrary content, of the type of `x` and on its device; on a CPU in warm memory."""
    return _pool.empty(shape, x.dtype) if x.device.type == "cpu" else x.new_empty(shape)


def clear() -> None:
    """Give all idle memory back to the system."""
    _pool.clear()


def _after_fork() -> None:
    global _pool
    _pool = Pool(_pool.most_idle)  # the lock may have been held by a thread that the child does not have


os.register_at_fork(after_in_child=_after_fork)
