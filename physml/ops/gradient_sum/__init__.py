"""Sums of feature differences along edges, from which the rates of gradient gating are made."""

from torch import Tensor

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops.backend import Op, resolved
from physml.ops.derivatives import transformed
from physml.ops.gradient_sum import autograd, reference

__all__ = ["gradient_sum"]

_gradient_sum = Op(__name__, reference=reference.gradient_sum, torch=autograd.gradient_sum)


def gradient_sum(q: Tensor, edges: Edges, p: float, *, backend: str = "auto") -> Tensor:
    """S (N, H), by the fastest backend that can; arguments as in `reference.gradient_sum`."""
    return _gradient_sum(q, edges=edges, p=p, backend=where_p_allows("gradient_sum", q, edges, p, backend))


def where_p_allows(name: str, q: Tensor, edges: Edges, p: float, backend: str, *others: Tensor) -> str:
    """The backend for this p: C has powers in halves only. InputError if q belongs to another graph.

    `others`: what the op takes beside q; with tangents in one of them, "auto" is left to choose.
    """
    if len(q) != edges.n:  # C would read beyond the end
        raise InputError(f"q must have a row for each of the {edges.n} nodes of the edges; got {len(q)}.")
    if transformed(q, *others) or autograd.in_halves(p) or resolved(backend) not in ("auto", "native"):
        return backend
    if backend == "native":
        raise InputError(f"{name} with backend='native' needs p = 1, 1.5, ..., 8; got {p}.")
    return "torch"
