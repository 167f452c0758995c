"""Layers, numbers and states in double precision, drawn from fixed seeds."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.func import functional_call


def numbers(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(seed))


def made(layer: Callable[[], nn.Module], spread: float = 0.3) -> nn.Module:
    """The layer in double precision, its weights moved away from zeros and identities."""
    torch.manual_seed(0)
    moved = layer().double()
    with torch.no_grad():
        for k, p in enumerate(moved.parameters()):
            p.add_(spread * numbers(*(p.shape or (1,)), seed=k).reshape(p.shape))
    return moved


def randomised(layer: Any, scale: float, seed: int) -> Any:
    """The layer in double precision and evaluation, all weights from a normal distribution of this width."""
    layer = layer.double().eval()
    rng = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for p in layer.parameters():
            p.copy_(scale * torch.randn(p.shape, generator=rng, dtype=torch.double))
    return layer


def zeroed(layer: nn.Module) -> nn.Module:
    for p in layer.parameters():
        nn.init.zeros_(p)
    return layer.requires_grad_(False)


def train(layer: nn.Module, steps: int) -> None:
    """By plain gradients of numbers that depend on every output."""
    optimizer = torch.optim.SGD(layer.parameters(), 0.1)
    for k in range(steps):
        optimizer.zero_grad()
        path, _ = layer(numbers(3, 6, layer.d_in, seed=k))
        (path.sin() * numbers(*path.shape, seed=k + 10)).sum().backward()
        optimizer.step()


def leaves(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:
            yield from leaves(part)


def like(state: Any, values: Iterator[Tensor]) -> Any:
    """The values in the nesting of a state."""
    return next(values) if isinstance(state, Tensor) else tuple(like(part, values) for part in state)


def of_step(layer: nn.Module, u: Tensor, loss: Any, k: int | None) -> dict[str, Tensor]:
    """The gradient by the weights of step k alone, which are tensors of their own; None: of all steps."""
    own = {name: p.detach().clone().requires_grad_() for name, p in layer.named_parameters()}
    state, output = None, u
    for i in range(u.shape[1]):
        weights = own if k is None or i == k - 1 else {}
        output, state = functional_call(layer, weights, (u[:, i : i + 1],), {"state": state})
    gradients = torch.autograd.grad(loss(output[:, -1]), list(own.values()), allow_unused=True)
    return {
        n: torch.zeros_like(p) if g is None else g for (n, p), g in zip(own.items(), gradients, strict=True)
    }
