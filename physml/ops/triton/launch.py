"""Launch plans: programs, blocks and memory of a recurrence on a GPU. Axes: B batch, H hidden units.

The constants follow from sizes of registers and caches and from counted instructions, not from timings.
"""

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import asdict, dataclass
from functools import cache

import torch
from torch import Tensor

PROCESSORS = 132  # of an H100 or H200; also where there is no GPU to ask
FLAT = 256  # numbers in a program of an elementwise kernel
SHARED = 227 << 10  # bytes of shared memory that a program can have there
TILE_ROOM = 16 << 10  # bytes of it that a tile kernel needs beside its weights


def on_device(x: Tensor) -> AbstractContextManager[object]:
    """Triton launches on the current device: make it that of `x`."""
    return torch.cuda.device(x.device) if x.is_cuda else nullcontext()


@cache
def processors(device: torch.device) -> int:
    if device.type != "cuda":
        return PROCESSORS
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def shared_memory(device: torch.device) -> int:
    """Bytes for one program."""
    if device.type != "cuda":
        return SHARED
    properties = torch.cuda.get_device_properties(device)
    return int(getattr(properties, "shared_memory_per_block_optin", properties.shared_memory_per_block))


def power_of_two(n: int, least: int = 1) -> int:
    return max(least, 1 << (n - 1).bit_length())


def scan_block(n_batch: int, n_hidden: int) -> tuple[int, int]:
    """Columns and warps of one program of an elementwise scan, a thread per column.

    Few columns are spread in single warps over all processors; many come in blocks of 128.
    """
    block = 32 if n_batch * n_hidden <= 128 * PROCESSORS else 128
    return block, block // 32


def flat_grid(x: Tensor) -> tuple[int]:
    """Programs of FLAT numbers each for an elementwise kernel over `x`."""
    return (-(-x.numel() // FLAT),)


def precision(dtype: torch.dtype) -> str:
    """Precision of products of float32: that of torch's own products, also if set as `allow_tf32`."""
    matmul = torch.backends.cuda.matmul.fp32_precision
    return "tf32" if dtype == torch.float32 and matmul == "tf32" else "ieee"


@dataclass(frozen=True)
class Plan:
    """One kernel for all steps: M rows of the batch per program, on the matrix units if DOT."""

    DOT: bool
    PRECISION: str
    KEPT: int  # weight matrices that stay in registers
    M: int
    BLOCK: int
    num_warps: int

    def programs(self, n_batch: int) -> tuple[int]:
        return (-(-n_batch // self.M),)

    @property
    def arguments(self) -> dict[str, bool | int | str]:
        # One stage: the weights must not be copied ahead into shared memory, which has no room for them.
        return {**asdict(self), "num_stages": 1}


def plan(n_batch: int, n_hidden: int, n_matrices: int, weight: Tensor) -> Plan | None:
    """The plan for `n_matrices` weight matrices (H, H) in one kernel; None where cuBLAS is better.

    Rows: a program per sequence, which multiplies in plain float32. A thread has at most 255 registers, so
    two matrices of 128 x 128 fit into those of 256 threads; a third would leave no room for the rest.
    Tiles: a program per 16 sequences, on the matrix units, for tf32 and half precision, where the weights can
    pass through shared memory into registers. That pays when there are more sequences than processors, since
    the time of a step hardly grows with the rows.
    """
    block = power_of_two(n_hidden, 16)
    how = precision(weight.dtype)
    n_programs = processors(weight.device)
    tile = how == "tf32" or weight.dtype != torch.float32
    needed = n_matrices * block * block * weight.element_size() + TILE_ROOM
    if tile and n_batch > 2 * n_programs and needed <= shared_memory(weight.device):
        return Plan(True, how, n_matrices, 16, block, 4 if block <= 64 else 8)
    if block > 128 or n_batch > 8 * n_programs:
        return None
    kept = n_matrices if block <= 64 else 2
    return Plan(False, how, kept, 1, block, {16: 1, 32: 1, 64: 4 if n_matrices == 2 else 8, 128: 8}[block])


def packed(matrices: Sequence[Tensor], block: int) -> Tensor:
    """Matrices (H, H) as (n, block, block), filled up with zeros."""
    w = matrices[0].new_zeros(len(matrices), block, block)
    for place, matrix in zip(w, matrices, strict=True):
        place[: matrix.shape[0], : matrix.shape[1]] = matrix
    return w


def blocks(n_steps: int) -> Iterator[tuple[int, int]]:
    """(begin, end) of equal blocks, if there are any of 16 to 64 steps, so that one graph serves all."""
    size = next((k for k in range(64, 15, -1) if n_steps % k == 0), 32)
    for begin in range(0, n_steps, size):
        yield begin, min(begin + size, n_steps)
