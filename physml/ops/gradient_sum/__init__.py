"""How fast features change along edges: the sums that the rates of gradient gating are made of."""

from torch import Tensor

from physml.errors import InputError
from physml.graph.edges import Edges
from physml.ops.backend import Op, asked
from physml.ops.gradient_sum import autograd, reference

__all__ = ["gradient_sum"]

_gradient_sum = Op(__name__, reference=reference.gradient_sum, torch=autograd.gradient_sum)


def gradient_sum(q: Tensor, of: Edges, p: float, *, backend: str = "auto") -> Tensor:
    """S (N, H), by the fastest backend that can; `reference.gradient_sum` tells the arguments."""
    return _gradient_sum(q, of=of, p=p, backend=where_p_allows("gradient_sum", q, of, p, backend))


def where_p_allows(name: str, q: Tensor, of: Edges, p: float, backend: str) -> str:
    """The backend to ask for: C has powers in halves alone. InputError if q is of another graph."""
    if len(q) != of.n:  # C would read beyond the end
        raise InputError(f"q must have a row for each of the {of.n} nodes of the edges; got {len(q)}.")
    if autograd.in_halves(p) or asked(backend) not in ("auto", "native"):
        return backend
    if backend == "native":
        raise InputError(f"{name} with backend='native' needs p = 1, 1.5, ..., 8; got {p}.")
    return "torch"
