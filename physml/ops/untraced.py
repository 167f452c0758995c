"""Functions that torch.compile leaves out, or evaluates at once. Imported late: it takes a second."""

from collections.abc import Callable
from typing import Any, TypeVar

import torch

R = TypeVar("R")


@torch.compiler.disable(
    reason="fast ops of physml run outside of compiled graphs. For fullgraph=True set backend='reference'"
)
def untraced(function: Callable[..., R], *args: object, **kwargs: object) -> R:
    """function(*args, **kwargs) between two graphs."""
    return function(*args, **kwargs)


@torch.compiler.assume_constant_result
def name_of(function: Callable[..., Any]) -> str:
    """The name of a function of torch."""
    return function.__name__
