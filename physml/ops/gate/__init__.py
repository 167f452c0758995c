"""The step of gradient gating: each node and channel moves at a rate of its own."""

from torch import Tensor

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops.backend import Op
from physml.ops.gate import autograd, reference
from physml.ops.gradient_sum import where_p_allows

__all__ = ["gate"]

_gate = Op(__name__, reference=reference.gate, torch=autograd.gate)


def gate(
    x: Tensor,
    new: Tensor,
    q: Tensor,
    edges: Edges,
    p: float,
    share: Tensor | None = None,
    *,
    backend: str = "auto",
) -> tuple[Tensor, Tensor]:
    """(X, rates), by the fastest backend that can; arguments as in `reference.gate`."""
    shapes = [tuple(t.shape) for t in (x, new, q)] + ([] if share is None else [tuple(share.shape)])
    n, h = edges.n, x.shape[-1]
    if shapes != [(n, h)] * 3 + [(n, 1)] * (len(shapes) - 3):  # C would read beyond the end
        raise InputError(
            f"a graph of {n} nodes needs x, new and q ({n}, H) and share ({n}, 1); "
            f"got {', '.join(map(str, shapes))}."
        )
    tensors = (x, new, q) if share is None else (x, new, q, share)
    return _gate(*tensors, edges=edges, p=p, backend=where_p_allows("gate", q, edges, p, backend, x, new))
