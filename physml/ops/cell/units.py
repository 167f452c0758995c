"""Operations across the units of a row: sums, norms, softmax, and choices of units by a constant index.

They are products with constant matrices, so all backends have them and their gradients. A number per row is a
row of width 1, which `Trace.row` repeats for all units by one more product.
"""

from collections.abc import Callable, Sequence
from typing import Any, cast

import torch
from torch import Tensor

from physml.ops.cell.rows import NotExpressible, Rows, members

MOST_NORMED = 256  # units that are normed faster here than by the loop, by measurement
MOST_JOINED = 48  # units whose mean is summed and repeated in one product, which takes their square


def summed(x: Rows, groups: int = 1) -> Rows:
    """Sums over `groups` of neighbouring units, a row of as many."""
    if x.width == groups:
        return x
    ones = x.trace.constant(("sums", x.width, groups), lambda like: members(like, x.width, groups).t())
    return x.trace.product(x, ones)


def chosen(x: Rows, index: Sequence[int]) -> Rows:
    """The units with these numbers, in this order."""
    places = tuple(int(i) for i in index)
    if not places or any(not -x.width <= i < x.width for i in places):
        raise NotExpressible(
            f"it takes units of a row of {x.width} by an index that is empty or out of range"
        )
    places = tuple(i % x.width for i in places)

    def matrix(like: Tensor) -> Tensor:
        return torch.eye(x.width, dtype=like.dtype, device=like.device)[list(places)]

    return x.trace.product(x, x.trace.constant(("chosen", x.width, places), matrix), chooses=True)


def _along(name: str, dim: Any, keepdim: bool = True) -> None:
    """Refuse all but operations over units that keep the axis."""
    dim = dim[0] if isinstance(dim, tuple | list) and len(dim) == 1 else dim
    if dim not in (1, -1) or not keepdim:
        raise NotExpressible(
            f"it uses {name} with dim={dim}, keepdim={keepdim}; the compiler knows dim=1, keepdim=True"
        )


def _sum(x: Rows, dim: Any = None, keepdim: bool = False) -> Rows:
    _along("sum", dim, keepdim)
    return summed(x)


def _mean(x: Rows, dim: Any = None, keepdim: bool = False) -> Rows:
    _along("mean", dim, keepdim)
    return summed(x) / x.width


def _averaged(x: Rows, groups: int, away: bool = False) -> Rows:
    """The mean of each unit's group of neighbours, or with `away` the unit's distance from it."""
    if away and (centred := x.trace.changed(x, lambda weight: _centred(weight, groups))) is not None:
        return centred
    if x.width > MOST_JOINED:
        means = x.trace.spread(summed(x, groups) / (x.width // groups), x.width)
        return x - means if away else means

    def matrix(like: Tensor) -> Tensor:
        of_unit = members(like, x.width, groups)
        means = of_unit @ of_unit.t() * (groups / x.width)
        return torch.eye(x.width, dtype=like.dtype, device=like.device) - means if away else means

    return x.trace.product(x, x.trace.constant(("means", x.width, groups, away), matrix))


def _centred(weight: Tensor, groups: int) -> Tensor:
    """A weight (n, k) or numbers per unit (n,), each less the mean of its group of neighbours."""
    grouped = weight.unflatten(0, (groups, -1))
    return (grouped - grouped.mean(1, keepdim=True)).flatten(0, 1)


def _root(x: Any) -> Any:
    """The square root, with gradient 0 at 0 as norms of torch have it."""
    return torch.where(x > 0, torch.sqrt(torch.where(x > 0, x, 1.0)), 0.0 * x)


def _var(
    x: Rows, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Rows:
    _along("var", dim, keepdim)
    away = float(unbiased) if correction is None else correction
    if away >= x.width:
        raise NotExpressible(f"it uses the variance of {x.width} units, which has no degree of freedom")
    centred = _averaged(x, 1, away=True)
    return summed(centred * centred) / (x.width - away)


def _std(
    x: Rows, dim: Any = None, unbiased: bool = True, keepdim: bool = False, *, correction: float | None = None
) -> Rows:
    _along("std", dim, keepdim)
    return _root(_var(x, dim, unbiased, keepdim, correction=correction))


def _norm(x: Rows, p: Any = "fro", dim: Any = None, keepdim: bool = False) -> Rows:
    _along("norm", dim, keepdim)
    if p not in (None, "fro", 2):
        raise NotExpressible(f"it uses the {p}-norm; the 2-norm is what the compiler knows")
    return _root(summed(x * x))


def _normalize(x: Any, p: float = 2.0, dim: int = 1, eps: float = 1e-12, out: None = None) -> Any:
    _along("normalize", dim)
    return x / cast(Any, _norm(x, p, dim, True)).clamp(min=eps)


def _scaled(x: Any, weight: Tensor | None, bias: Tensor | None) -> Any:
    x = x if weight is None else x * weight
    return x if bias is None else x + bias


def _layer_norm(
    x: Rows, shape: Sequence[int], weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Any:
    _whole("layer_norm", x, shape)
    return _group_norm(x, 1, weight, bias, eps)


def _group_norm(
    x: Rows, groups: int, weight: Tensor | None = None, bias: Tensor | None = None, eps: float = 1e-5
) -> Any:
    if x.width % groups:
        raise NotExpressible(f"it uses group_norm of {x.width} units in {groups} groups")
    if x.width > MOST_NORMED:
        raise NotExpressible(f"it norms {x.width} units; beyond {MOST_NORMED} the loop is faster")
    centred = _averaged(x, groups, away=True)
    return _scaled(centred * (_averaged(centred * centred, groups) + eps).rsqrt(), weight, bias)


def _rms_norm(x: Rows, shape: Sequence[int], weight: Tensor | None = None, eps: float | None = None) -> Any:
    _whole("rms_norm", x, shape)
    eps = torch.finfo(x.dtype).eps if eps is None else eps
    return _scaled(x * (_averaged(x * x, 1) + eps).rsqrt(), weight, None)


def _whole(name: str, x: Rows, shape: Sequence[int]) -> None:
    if tuple(shape) != (x.width,):
        raise NotExpressible(f"it uses {name} over {tuple(shape)} of rows of {x.width} units")


def _highest(x: Any) -> Any:
    """The greatest unit, without gradient: the greater of two halves, again and again."""
    x = x.detach()
    while x.width > 1:
        half = -(-x.width // 2)  # halves of an odd width share a unit
        lower: Any = chosen(x, range(half))
        x = lower.maximum(chosen(x, range(x.width - half, x.width)))
    return x


def _shifted(name: str, x: Rows, dim: Any) -> tuple[Rows, Rows]:
    _along(name, dim)
    x = x - _highest(x)
    return x, x.exp()


def _softmax(x: Rows, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Rows:
    _, e = _shifted("softmax", x, dim)
    return e / summed(e)


def _log_softmax(x: Rows, dim: Any = None, _stacklevel: int = 3, dtype: Any = None) -> Rows:
    x, e = _shifted("log_softmax", x, dim)
    return x - summed(e).log()


def _roll(x: Rows, shifts: Any, dims: Any = None) -> Rows:
    _along("roll", dims)
    by = shifts[0] if isinstance(shifts, tuple | list) else shifts
    return chosen(x, [(i - by) % x.width for i in range(x.width)])


def _flip(x: Rows, *dims: Any) -> Rows:
    _along("flip", dims[0] if len(dims) == 1 else dims)
    return chosen(x, range(x.width - 1, -1, -1))


def _index_select(x: Rows, dim: int, index: Any) -> Rows:
    _along("index_select", dim)
    if torch.compiler.is_compiling() and isinstance(index, Tensor):  # whose numbers are not known yet
        unit = torch.eye(x.width, dtype=x.dtype, device=x.device)
        return x.trace.product(x, unit[index], chooses=True)
    return chosen(x, index.tolist() if isinstance(index, Tensor) else index)


UNITS: dict[str, Callable[..., Any]] = {
    "sum": _sum,
    "mean": _mean,
    "var": _var,
    "std": _std,
    "norm": _norm,
    "normalize": _normalize,
    "layer_norm": _layer_norm,
    "group_norm": _group_norm,
    "rms_norm": _rms_norm,
    "softmax": _softmax,
    "log_softmax": _log_softmax,
    "roll": _roll,
    "flip": _flip,
    "index_select": _index_select,
}
