"""Layers, numbers and states in double precision, drawn from fixed seeds."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def made(layer: Callable[[], nn.Module], spread: float = 0.3) -> nn.Module:
    """The layer in double precision, its weights moved away from zeros and identities."""
    torch.manual_seed(0)
    found = layer().double()
    with torch.no_grad():
        for k, p in enumerate(found.parameters()):
            p.add_(spread * numbers(*(p.shape or (1,)), seed=k).reshape(p.shape))
    return found


def leaves(state: Any) -> Iterator[Tensor]:
    """The tensors of a state, however it is nested."""
    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:
            yield from leaves(part)


def like(state: Any, values: Iterator[Tensor]) -> Any:
    """The values in the nesting of a state."""
    return next(values) if isinstance(state, Tensor) else tuple(like(part, values) for part in state)
