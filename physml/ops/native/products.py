"""Libraries whose products with weights are in the precision of the run: float32, or bfloat16 (bf16.h)."""

import ctypes
from pathlib import Path

import torch

from physml.ops import backend
from physml.ops.native import library


def load(source: Path, dtype: torch.dtype) -> ctypes.CDLL:
    """Same as `library.load`, for the products of this run: exact, or of numbers rounded to bfloat16."""
    loaded = library.load(source, dtype, backend.bf16_products())
    if backend.bf16_products():
        backend.note_bf16_products(bool(loaded.bf16_instructions()))
    return loaded
