"""The input projection of a layer, for all steps. Axes: B batch, T time, D features, H hidden units.

`F.linear` on (B, T, D) copies what lies time first in memory, as every path does here, into and out of each
product, forward and backward; it takes fresh memory for each result, and is slow at the gradient of a V with
a few columns. The algorithm in C: `projection.c`.
"""

from collections.abc import Sequence
from ctypes import CDLL, c_int, c_size_t, c_ssize_t, c_void_p
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.backend import bf16_products, bf16_refused, resolved
from physml.ops.derivatives import once, transformed
from physml.ops.native import library, pool
from physml.ops.native.library import of_this_run
from physml.ops.operators import Arguments, alone, define, register_gradients
from physml.ops.sequence import no_autocast

SOURCE = Path(__file__).with_name("projection.c")
BLOCK = 1 << 17  # numbers of the masked input that torch makes at once: 512 KiB in float32
WORTH_A_THREAD = 1 << 27  # products below which a thread costs more than it brings: some 2 ms


def project(
    x: Tensor, V: Tensor, b: Tensor | None = None, mask: Tensor | None = None, *, backend: str = "auto"
) -> Tensor:
    """V (mask x) + b, time first in memory; differentiable as often as wanted.

    Shapes: x (B, T, D), V (H, D), b (H,), mask (B, D), the same at all steps -> (B, T, H).
    backend: "auto" and "native" compute in C where there is a library, everything else in torch. In graphs of
    torch they are an operator, differentiable once.
    """
    native_allowed = resolved(backend) in ("auto", "native") and x.device.type == "cpu"
    in_graph = torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
    in_torch = in_graph or transformed(x, V, b, mask)
    native = native_allowed and not in_torch and _available(x.dtype)
    if bf16_products() and not native:
        raise bf16_refused("unicornn", "its projections are not computed in C here")
    if in_graph and native_allowed:
        return _operator(x.transpose(0, 1).contiguous(), V, b, mask).transpose(0, 1)
    if in_torch:
        return F.linear(_masked(x.transpose(0, 1), mask), V, b).transpose(0, 1)
    rows = x.transpose(0, 1).contiguous()
    return _Project.apply(rows, V.contiguous(), b, mask, native).transpose(0, 1)


class _Project(torch.autograd.Function):
    @staticmethod
    def forward(
        ctx: Any, x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None, native: bool
    ) -> Tensor:
        ctx.save_for_backward(x, V, mask)
        ctx.native = native
        return _projected(x, V, b, mask, native)

    @staticmethod
    def backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        with no_autocast(d_out):  # backward may be called under autocast
            return _Project._backward(ctx, d_out)

    @staticmethod
    def _backward(ctx: Any, d_out: Tensor) -> tuple[Tensor | None, ...]:
        x, V, mask = ctx.saved_tensors
        needs_x, needs_V, needs_b = ctx.needs_input_grad[:3]
        if torch.is_grad_enabled():  # create_graph=True: nothing may be written in place
            d_x = _masked(d_out @ V, mask) if needs_x else None
            d_V = d_out.flatten(0, 1).t() @ _masked(x, mask).flatten(0, 1) if needs_V else None
            return d_x, d_V, d_out.sum((0, 1)) if needs_b else None, None, None
        return *_gradients(x, V, mask, d_out, ctx.needs_input_grad[:3], ctx.native), None, None


Gradients = tuple[Tensor | None, Tensor | None]  # of V and b


def _projected(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None, native: bool) -> Tensor:
    """V (mask x) + b; x (T, B, D) and V contiguous."""
    out = pool.beside(x, *x.shape[:2], V.shape[0])
    if native:
        _forward(x, V, b, mask, out)
        return out
    for steps in _blocks(x, mask):
        rows, room = _masked(x[steps], mask).flatten(0, 1), out[steps].flatten(0, 1)
        if b is None:
            torch.mm(rows, V.t(), out=room)
        else:
            torch.addmm(b, rows, V.t(), out=room)
    return out


def _gradients(
    x: Tensor, V: Tensor, mask: Tensor | None, d_out: Tensor, needs: Sequence[bool], native: bool
) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
    """Gradients of x, V and b."""
    needs_x, needs_V, needs_b = needs
    d_x = pool.beside(x, *x.shape) if needs_x else None
    gradients = _backward if native else _torch_backward
    return d_x, *gradients(x, V, mask, d_out.contiguous(), d_x, needs_V, needs_b)


# ---- in graphs of torch: x and the result time first, as for the recurrence after it ----


def _real(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None) -> Tensor:
    with torch.no_grad():
        return _projected(x.contiguous(), V.contiguous(), b, mask, _native(x))


def _fake(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None) -> Tensor:
    return x.new_empty(x.shape[0], x.shape[1], V.shape[0])


def _real_back(x: Tensor, V: Tensor, mask: Tensor | None, d_out: Tensor, needs: list[bool]) -> list[Tensor]:
    with torch.no_grad():
        gradients = _gradients(x.contiguous(), V.contiguous(), mask, d_out, needs, _native(x))
    return [alone(d) for d in gradients if d is not None]


def _fake_back(x: Tensor, V: Tensor, mask: Tensor | None, d_out: Tensor, needs: list[bool]) -> list[Tensor]:
    shapes = x.shape, V.shape, V.shape[:1]
    return [x.new_empty(shape) for shape, need in zip(shapes, needs, strict=True) if need]


def _native(x: Tensor) -> bool:
    return x.device.type == "cpu" and _available(x.dtype)


def _save(ctx: Any, inputs: Arguments, output: Tensor) -> None:
    x, V, _, mask = inputs
    ctx.save_for_backward(x, V, mask)


def _of_operator(ctx: Any, d_out: Tensor) -> Arguments:
    needs = list(ctx.needs_input_grad[:3])
    gradients = iter(_operator_back(*ctx.saved_tensors, d_out, needs))
    return *(next(gradients) if need else None for need in needs), None


_operator = define("project", "(Tensor x, Tensor V, Tensor? b, Tensor? mask) -> Tensor", _real, _fake)
_operator_back = define(
    "project_backward",
    "(Tensor x, Tensor V, Tensor? mask, Tensor d_out, bool[] needs) -> Tensor[]",
    _real_back,
    _fake_back,
)
register_gradients("project", once(_of_operator), _save)


def _masked(x: Tensor, mask: Tensor | None) -> Tensor:
    return x if mask is None else x * mask


def _blocks(x: Tensor, mask: Tensor | None) -> list[slice]:
    """Steps to treat at once: all of them, or with a mask as many as stay in cache."""
    n_steps = x.shape[0]
    n = n_steps if mask is None else max(1, BLOCK // x[0].numel())
    return [slice(begin, begin + n) for begin in range(0, n_steps, n)]


def _torch_backward(
    x: Tensor,
    V: Tensor,
    mask: Tensor | None,
    d_out: Tensor,
    d_x: Tensor | None,
    needs_V: bool,
    needs_b: bool,
) -> Gradients:
    d_V_t = torch.zeros_like(V).t() if needs_V else None
    for steps in _blocks(x, mask):
        rows = d_out[steps].flatten(0, 1)
        if d_x is not None:
            torch.mm(rows, V, out=d_x[steps].flatten(0, 1))
            if mask is not None:
                d_x[steps] *= mask
        if d_V_t is not None:
            # As D rows: BLAS is several times slower at H rows of a few numbers each.
            d_V_t += _masked(x[steps], mask).flatten(0, 1).t() @ rows
    d_b = d_out.flatten(0, 1).sum(0) if needs_b else None
    return None if d_V_t is None else d_V_t.t(), d_b


@cache
def _typed(library: CDLL) -> CDLL:
    sizes = [*[c_ssize_t] * 4, c_int]
    library.forward.argtypes = [*[c_void_p] * 6, *sizes]
    library.backward.argtypes = [*[c_void_p] * 8, *sizes]
    library.room_for.argtypes, library.room_for.restype = [c_ssize_t, c_ssize_t, c_int, c_int], c_size_t
    return library


def _library(dtype: torch.dtype) -> CDLL:
    return _typed(of_this_run(SOURCE, dtype))


def _available(dtype: torch.dtype) -> bool:
    """True if there is a library; the recurrence, which needs one too, warns where there is none."""
    try:
        _library(dtype)
    except library.Unavailable:
        return False
    return True


def _sizes(x: Tensor, V: Tensor) -> tuple[int, int, int, int, int]:
    """T B, B, D, H and the number of threads."""
    n_steps, n_batch, d_in = x.shape
    worth = x.numel() * V.shape[0] >= WORTH_A_THREAD
    return n_steps * n_batch, n_batch, d_in, V.shape[0], torch.get_num_threads() if worth else 1


def _address(x: Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def _scratch(library: CDLL, V: Tensor, n_threads: int, backward: bool) -> Tensor:
    n_hidden, d_in = V.shape
    return pool.empty((library.room_for(d_in, n_hidden, n_threads, backward),), V.dtype)


def _forward(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None, out: Tensor) -> None:
    b = None if b is None else b.contiguous()
    library, sizes = _library(x.dtype), _sizes(x, V)
    room = _scratch(library, V, sizes[-1], backward=False)
    library.forward(*map(_address, (x, mask, V, b, out, room)), *sizes)


def _backward(
    x: Tensor,
    V: Tensor,
    mask: Tensor | None,
    d_out: Tensor,
    d_x: Tensor | None,
    needs_V: bool,
    needs_b: bool,
) -> Gradients:
    library, sizes = _library(x.dtype), _sizes(x, V)
    (n_hidden, d_in), n_threads = V.shape, sizes[-1]
    wide = -(-n_hidden // library.vector_length()) * library.vector_length()
    d_V = pool.empty((n_threads, d_in, wide), x.dtype).zero_() if needs_V else None
    d_b = x.new_zeros(n_threads, wide) if needs_b else None
    room = _scratch(library, V, n_threads, backward=True)
    library.backward(*map(_address, (x, mask, V, d_out, d_x, d_V, d_b, room)), *sizes)
    return (
        None if d_V is None else (d_V[0] if n_threads == 1 else d_V.sum(0))[:, :n_hidden].t(),
        None if d_b is None else d_b.sum(0)[:n_hidden],
    )
