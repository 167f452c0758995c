"""What tests on a GPU share: a module there in single precision against itself in double precision."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_layers import leaves, numbers
from torch import Tensor, nn

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="there is no GPU")
BOUND = 1e-3  # of the largest number of a tensor, or of a hundredth of the largest of all where that is more


def agrees_on_a_gpu(layer: nn.Module, call: Callable[..., Any], *inputs: Tensor) -> None:
    """Outputs and all gradients of call(layer, *inputs), there and in double precision on the CPU.

    Args:
        layer: in double precision; it ends on the GPU.
        inputs: in double precision, or of whole numbers.
    """
    exact = _computed(layer, call, inputs, "cpu", torch.float64)
    result = _computed(layer.float().cuda(), call, inputs, "cuda", torch.float32)
    assert exact.keys() == result.keys()
    least = max(float(x.abs().max()) for x in exact.values()) / 100
    wrong = {
        name: f"{distance:.1e}"
        for name, x in exact.items()
        if not (distance := float((result[name] - x).abs().max()) / max(float(x.abs().max()), least)) <= BOUND
    }
    assert not wrong


def _computed(
    layer: nn.Module, call: Callable[..., Any], inputs: tuple[Tensor, ...], device: str, real: torch.dtype
) -> dict[str, Tensor]:
    moved = [x.to(device, real if x.is_floating_point() else None) for x in inputs]
    sources = {f"input {k}": x.requires_grad_() for k, x in enumerate(moved) if x.is_floating_point()}
    sources |= {name: p for name, p in layer.named_parameters() if p.requires_grad}
    outputs = list(leaves(call(layer, *moved)))
    assert all(x.device.type == device for x in outputs)
    loss = sum((x * numbers(*x.shape, seed=k).to(x)).sum() for k, x in enumerate(outputs))
    slopes = torch.autograd.grad(loss, list(sources.values()), allow_unused=True)
    results = {f"output {k}": x for k, x in enumerate(outputs)}
    results |= {f"d {name}": g for name, g in zip(sources, slopes, strict=True) if g is not None}
    return {name: x.detach().double().cpu() for name, x in results.items()}
