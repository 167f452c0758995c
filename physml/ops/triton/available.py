"""The reason why Triton cannot take a case, in one line, or None."""

import importlib
import os
from functools import cache

import torch
from torch import Tensor

DTYPES = (torch.float32, torch.bfloat16, torch.float16)


def refusal(*tensors: Tensor) -> str | None:
    """The reason why Triton cannot take these tensors, or None; the first one sets device and dtype."""
    first = tensors[0]
    if reason := unusable(str(first.device)):
        return reason
    if first.dtype not in DTYPES:
        return f"backend triton computes in float32, bfloat16 and float16; got {first.dtype}"
    for x in tensors:
        if x.device != first.device:
            return f"backend triton needs all tensors on one device; got {first.device} and {x.device}"
        if x.dtype != first.dtype:
            return f"backend triton needs one dtype for all tensors; got {first.dtype} and {x.dtype}"
    return None


def interpreted() -> bool:
    """Triton's own switch: kernels run in NumPy, on tensors of any device."""
    return os.environ.get("TRITON_INTERPRET") == "1"


@cache
def unusable(device: str) -> str | None:
    """The reason why Triton does not work on a device, or None; tried once per device with a small kernel."""
    if torch.device(device).type != "cuda" and not interpreted():
        return f"backend triton runs on a GPU; got a tensor on {device}"
    try:
        probe = importlib.import_module("physml.ops.triton.probe")
        probe.run(device)
    except ImportError as error:
        return f"backend triton needs the package triton: {error}"
    except Exception as error:  # a compiler, a driver or a GPU that Triton cannot work with
        first = next(iter(str(error).strip().splitlines()), "")
        return f"Triton does not work here: {type(error).__name__}: {first}"
    return None
