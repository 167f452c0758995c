"""Functions that torch.compile evaluates while it traces a cell. Imported then: it takes a second."""

from collections.abc import Callable
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from physml.ops.cell.graph import graph
from physml.ops.cell.outline import parsed
from physml.ops.cell.rows import RANDOM, NotExpressible


@torch.compiler.assume_constant_result
def draws(function: Callable[..., Any]) -> bool:
    """True if a function of torch draws random numbers."""
    packet = getattr(torch.ops.aten, function.__name__, None)
    return packet is not None and any(
        torch.Tag.nondeterministic_seeded in getattr(packet, name).tags for name in packet.overloads()
    )


@torch.compiler.assume_constant_result
def obstacle(text: str) -> str:
    """The reason why no program can be made of an outline; empty if one can."""
    outline = parsed(text)
    try:
        graph(outline.nodes, outline.widths, outline.outputs, outline.single)
    except NotExpressible as error:
        return str(error)
    return ""


@torch.compiler.assume_constant_result
def warn(reason: str) -> None:
    """Log, once per run, that a step is a loop in graphs."""
    from physml.ops.cell import OP

    OP.warn(reason, "reference")


class NothingDrawn(TorchFunctionMode):
    """Random numbers are refused: a graph would draw them once, and not at each step."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if draws(func):
            raise NotExpressible(RANDOM)
        return func(*args, **(kwargs or {}))
