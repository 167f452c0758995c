"""An outline computed by torch, step by step, where there is no C. Axes: B batch, T time."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.cell.operations import FORWARD
from physml.ops.cell.outline import Outline

FUNCTIONS: dict[str, Callable[..., Tensor]] = {
    **{name: getattr(torch, name) for name in FORWARD if hasattr(torch, name)},
    "softplus": F.softplus,
    "greater": lambda a, b: (a > b).to(a.dtype),
    "greater_equal": lambda a, b: (a >= b).to(a.dtype),
    "select": lambda condition, a, b: torch.where(condition != 0, a, b),
    "stop": torch.detach,
}


def replay(
    outline: Outline,
    inputs: Sequence[Tensor],
    states: Sequence[Tensor],
    leaves: Sequence[Tensor],
    numbers: Sequence[float],
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (B, T, n) and the last states (B, H), differentiable as often as wanted.

    Args:
        inputs: each (B, T, D).
        states: each (B, H), before the first step.
        leaves: tensors from outside the step.
        numbers: those that the outline names by their place.
    """
    path, state = [], tuple(states)
    for u in zip(*(x.unbind(1) for x in inputs), strict=True):
        rows: list[Tensor] = []
        for (name, *rest), width in zip(outline.nodes, outline.widths, strict=True):
            if name in ("state", "input"):
                row = (state if name == "state" else u)[rest[0]]
            elif name in ("vector", "fixed"):
                row = leaves[rest[0]] if name == "fixed" else leaves[rest[0]].reshape(1, -1)
            elif name in ("number", "exactly"):
                row = u[0].new_full((1, 1), numbers[rest[0]] if name == "number" else rest[0])
            elif name == "slice":
                row = rows[rest[0]][:, rest[1] : rest[2]]
            elif name == "cat":
                row = torch.cat([rows[k] for k in rest], 1)
            elif name == "linear":
                row = F.linear(rows[rest[0]], leaves[rest[1]])
            else:
                row = FUNCTIONS[name](*(rows[k] for k in rest))
            rows.append(row.expand(len(u[0]), width))
        output, *state = (rows[k] for k in outline.outputs)  # type: ignore[assignment]
        path.append(output)
    return torch.stack(path).transpose(0, 1), tuple(state)
