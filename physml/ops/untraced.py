"""Ops that torch.compile leaves out of its graphs. Imported while it traces, for it takes a second."""

from collections.abc import Callable
from typing import TypeVar

import torch

R = TypeVar("R")


@torch.compiler.disable(
    reason="fast ops of physml run outside of compiled graphs. For fullgraph=True set backend='reference'"
)
def untraced(function: Callable[..., R], *args: object, **kwargs: object) -> R:
    """function(*args, **kwargs) between two graphs."""
    return function(*args, **kwargs)
