"""A step of a recurrence in C: whether its tensors are fit for that, and the function.

At one step and small sizes, Python around C takes longer than C. So as little as possible is checked here,
and where anything is unusual the answer is no: the ordinary way knows the rest, with its messages.
"""

import ctypes
from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from physml.ops import derivatives
from physml.ops.backend import bf16_products, note, resolved
from physml.ops.native import call, pool
from physml.ops.native.library import Unavailable, of_this_run

PLAIN = (Tensor, nn.Parameter)  # other classes, such as FakeTensor, may have no numbers in memory
NATIVE = ("auto", "native")
STEP_ROWS = 32  # of a batch up to which this way is worth it for one step, for there Python's time counts too

POINTER, SIZE, FLAG, REAL = ctypes.c_void_p, ctypes.c_ssize_t, ctypes.c_int, ctypes.c_double
Kinds = tuple[Any, ...]  # of the arguments of a C function
Numbers = tuple[float, ...]
Results = tuple[Tensor, Tensor, Tensor]


def fit(backend: str, u: Tensor, others: Sequence[Tensor]) -> bool:
    """True if C may compute a step from these tensors as they are, with nothing recording or tracing it.

    Args:
        backend: the layer's.
        u: (B, D), its rows in one piece.
        others: contiguous; the first one is a state (B, H).
    """
    if torch.compiler.is_dynamo_compiling() or resolved(backend) not in NATIVE:
        return False
    if derivatives.transformed(u, *others) or type(u) not in PLAIN or not u.is_cpu or u.stride(-1) != 1:
        return False
    if len(u) > STEP_ROWS and not few(len(u), others[0].shape[-1]):
        return False
    dtype, records = u.dtype, torch.is_grad_enabled()
    if records and u.requires_grad:
        return False
    for x in others:
        if x.dtype is not dtype or not x.is_cpu or not x.is_contiguous() or type(x) not in PLAIN:
            return False
        if records and x.requires_grad:
            return False
    return True


def few(n_rows: int, n_hidden: int) -> bool:
    """True if products of so many rows, batch times steps, are faster without packing the weights first."""
    return n_rows <= max(16, min(64, n_hidden // 8))


def pays(n_batch: int, n_steps: int, n_hidden: int, trained: bool) -> bool:
    """True if C is the fastest; for steps with a backward it packs the weights twice."""
    return not trained or n_hidden < 256 or (n_steps > 1 and (n_batch > 1 or n_steps > n_hidden // 128))


def function(source: Path, name: str, kinds: Kinds, dtype: torch.dtype) -> Any:
    """The function of a library, ready to be called with numbers; None if there is no library."""
    bf16 = bf16_products()
    function = kept_function(source, name, kinds, dtype, bf16)
    if bf16 and function is not None:
        of_this_run(source, dtype)  # which counts them for this run, though the function is known
    return function


@cache
def kept_function(source: Path, name: str, kinds: Kinds, dtype: torch.dtype, bf16: bool) -> Any:
    try:
        function = getattr(of_this_run(source, dtype), name)
    except Unavailable:
        return None
    function.argtypes = kinds
    return function


class Steps:
    """The function in C of a recurrence with states y and z (B, H) and four weights, V and b the last.

    Args:
        source: its file.
        name: of the function.
        numbers: the kinds of its last arguments.
        layer: the name of the layer, for errors.
    """

    def __init__(self, source: Path, name: str, numbers: Kinds, layer: str) -> None:
        self.source, self.name, self.layer = source, name, layer
        self.kinds = (POINTER, SIZE, SIZE, *[POINTER] * 9, *[SIZE] * 4, *numbers)

    def one(self, u: Tensor, others: tuple[Tensor, ...], numbers: Numbers) -> Results | None:
        """Output, y and z after one input u (B, D); None without a library. `others`: state and weights."""
        if (compute := function(self.source, self.name, self.kinds, u.dtype)) is None:
            return None
        y = others[0]
        results = torch.empty_like(y), torch.empty_like(y), torch.empty_like(y)
        self._run(compute, u, (u.stride(0), 0), (len(u), 1), others, results, numbers)
        note("native")
        return results

    def few(self, u: Tensor, others: Sequence[Tensor], numbers: Numbers) -> Results:
        """Outputs, y and z after a few inputs u (B, T, D); the caller has checked shapes and dtypes."""
        u, (n_batch, n_steps, _) = call.in_rows(u), u.shape
        others = tuple(x.contiguous() for x in others)
        path = pool.empty((n_steps, n_batch, others[0].shape[1]), u.dtype)
        results = path, torch.empty_like(others[0]), torch.empty_like(others[0])
        compute = function(self.source, self.name, self.kinds, u.dtype)
        self._run(compute, u, u.stride()[:2], (n_batch, n_steps), others, results, numbers)
        return path.transpose(0, 1), *results[1:]

    def _run(
        self,
        compute: Any,
        u: Tensor,
        strides: tuple[int, ...],
        sizes: tuple[int, int],
        others: tuple[Tensor, ...],
        results: Results,
        numbers: Numbers,
    ) -> None:
        n_batch, n_steps = sizes
        code = compute(
            u.data_ptr(),
            *strides,
            *[x.data_ptr() for x in others],
            *[x.data_ptr() for x in results],
            *(n_steps, n_batch, u.shape[-1], others[0].shape[1]),
            *numbers,
        )
        call.check(code, self.layer)
