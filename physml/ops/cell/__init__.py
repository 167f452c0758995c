"""A compiler for recurrent cells: from one step, written in torch, to all steps and their gradients.

A step is traced (rows.py, words.py, units.py), its sums of products are joined (graph.py) and put in order
(plan.py). Loops are written for what lies between the products, forward and back (operations.py, writer.py),
in C (source.py) or as Triton kernels (kernels.py), and everything gets its place (layout.py). program.py
serves autograd; native.py and triton.py compute. In graphs of torch a cell is an operator (operator.py).
"""

import importlib
from collections.abc import Callable
from functools import wraps
from typing import Any, TypeVar, cast

import torch
from torch import Tensor, nn

from physml.base.check import has_shape
from physml.base.errors import InputError
from physml.ops import derivatives
from physml.ops.backend import BACKENDS, FASTEST, LATE, Op, bf16_products, bf16_refused, resolved
from physml.ops.cell import reference
from physml.ops.cell.operator import CellOperator
from physml.ops.cell.program import unfit
from physml.ops.cell.reference import Step
from physml.ops.cell.rows import NotExpressible
from physml.ops.cell.words import outline, trace
from physml.ops.sequence import initial_state, no_autocast, sequence

__all__ = ["BACKENDS", "OP", "Step", "recurrence", "recurrent"]

OP = Op(__name__, multiplies=True, reference=reference.cell)
OPERATOR = CellOperator(OP)
FEW = 4  # steps that may not be worth a trace

Layer = TypeVar("Layer", bound=type[nn.Module])
Outputs = tuple[Tensor, tuple[Tensor, ...]]


def recurrence(
    step: Step, u: Tensor | tuple[Tensor, ...], state: tuple[Tensor, ...], *, backend: str = "auto"
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of a cell: outputs (B, T, n) and the last state.

    The step is compiled with its gradients: to C on a CPU, to kernels on a GPU. It may use sums, products
    and quotients, products with weights, activations, comparisons with `torch.where`, `chunk` and `cat`, any
    number of states, sums and norms over units, units by a constant index, and tensors from outside: weights
    (n, k), numbers per unit (n,), or per row of the batch (B, n). What it computes from these alone is
    computed once. A step that does anything else runs as a loop, and a warning says what it was.

    Args:
        step: `step(u, state) -> (output, state)`, from u (B, D) and a tuple of (B, H) to (B, n) and a tuple
            as before. It must not change anything, nor draw random numbers: draw those for all steps, as an
            input.
        u: (B, T, D), or a tuple of such; the step then gets a tuple.
        state: the state before the first step.
        backend: one of `physml.ops.backend.CHOICES`.
    Errors: InputError where `backend` can't compute this step, with the reason.
    """
    inputs, state = (u,) if isinstance(u, Tensor) else tuple(u), tuple(state)
    in_graph = torch.compiler.is_compiling() and not torch._C._are_functorch_transforms_active()
    if in_graph and resolved(backend) != "reference":
        return _in_graph(step, inputs, state, backend)
    return _at_once(step, inputs, state, backend)


def _at_once(step: Step, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...], backend: str) -> Outputs:
    """Compute the cell by an autograd function, not as nodes of a graph."""
    with no_autocast(inputs[0]):
        program, reason = _compiled(step, inputs, state, backend)
        return OP(
            *(*inputs, *state),
            step=step,
            n_inputs=len(inputs),
            program=program,
            backend=backend,
            plain=reason,
        )


def _in_graph(step: Step, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...], backend: str) -> Outputs:
    """Compute the cell as an operator or a few steps; else between two graphs, or unrolled for an export."""
    if bf16_products():
        raise bf16_refused("cell", "they are not there in graphs of torch")
    exporting = torch.compiler.is_exporting()
    if not exporting and backend == "auto" and inputs[0].shape[1] <= FEW:
        return _at_once(step, inputs, state, "reference")
    if resolved(backend) in ("auto", "native") and inputs[0].device.type == "cpu":
        with no_autocast(inputs[0]):
            result, why = _as_operator(step, inputs, state, backend)
        if result is not None:
            return result
        from physml.ops.cell.while_compiling import warn

        warn(f"a step can't be part of a graph: {why}")
    if exporting:
        return _at_once(step, inputs, state, backend)
    from physml.ops.untraced import untraced

    return untraced(_at_once, step, inputs, state, backend)


def _as_operator(
    step: Step, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...], backend: str
) -> tuple[Outputs | None, str]:
    """The cell as nodes of a graph; or None, and the reason why it can't be."""
    from physml.ops.cell.while_compiling import obstacle

    if why := unfit(inputs, state):
        return None, why
    first = inputs[0]
    # range makes a number of a symbol: one graph serves all batches and lengths, but not all widths.
    widths = [[len(range(x.shape[-1])) for x in some] for some in (inputs, state)]
    try:
        traced = trace(step, first.shape[0], first, *widths)
    except NotExpressible as error:
        return None, str(error)
    text = outline(traced).text()
    if why := obstacle(text):
        return None, why
    return OPERATOR(text, inputs, state, traced.leaves, traced.numbers, backend), ""


def _compiled(
    step: Step, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...], backend: str
) -> tuple[Any, str | None]:
    """A traced step with its program, or the reason why only the loop can compute it."""
    wish = resolved(backend)
    if wish == "reference" or derivatives.transformed(*inputs, *state):
        return None, None
    n_batch, n_steps, *_ = inputs[0].shape
    if (
        wish == "auto"
        and not bf16_products()
        and _few(n_batch, n_steps, max((x.shape[-1] for x in state), default=1))
    ):
        return None, "few steps are fastest as they are"
    language = _language(backend, (*inputs, *state))
    if language is None:
        return None, f"there are no compiled cells on {inputs[0].device}"
    compiled, why = None, OP.refusal(language, (*inputs, *state))
    if why is None:
        compiled, why = importlib.import_module(f"{__name__}.{language}").compiled(step, inputs, state)
    if compiled is not None and derivatives.transformed(*compiled.trace.leaves):
        return None, derivatives.REASON
    if why is not None and wish == "auto" and not bf16_products():
        OP.warn(f"{getattr(step, '__qualname__', 'a step')} can't be compiled: {why}", "reference")
    return compiled, why


def _few(n_batch: int, n_steps: int, n_hidden: int) -> bool:
    """True if a loop is faster than a trace and packed weights, by the sweep of `scripts.bench.dispatch`."""
    rows = n_steps * n_batch
    small = rows * n_hidden**2 < 1.5e6
    few_rows = n_steps == 1 or (n_steps == 2 and rows < 256) or (rows <= 8 and n_hidden >= 256)
    return few_rows or (n_steps <= FEW and small)


def _language(backend: str, tensors: tuple[Tensor, ...]) -> str | None:
    """The backend to compile for, as `Op` chooses it: that required, that preferred, or the fastest."""
    if backend in LATE:
        return backend
    preferred = resolved(backend)
    if preferred in LATE and OP.refusal(preferred, tensors) is None:
        return preferred
    return FASTEST.get(tensors[0].device.type)


def _size(layer: nn.Module, name: str) -> int:
    """A number of units that a layer has as its attribute."""
    size = getattr(layer, name, None)
    if not isinstance(size, int):
        raise InputError(f"{type(layer).__name__} needs an integer attribute {name}; got {size!r}.")
    return size


def recurrent(*names: str, **sizes: str) -> Callable[[Layer], Layer]:
    """Make a layer of a class with one step, `step(self, u, state) -> (output, state)`.

    The class gets a `forward(u, state=None)` over all steps, compiled as in `recurrence`: u (B, T, D) to
    outputs (B, T, n) and the last state; and its `step(u, state=None)`, for a sequence that comes in live,
    checks what it is given. States are zero at the start. An attribute `backend` is a requirement, as of
    other layers.

    Args:
        names: of states with `d_out` units.
        sizes: of other states, each the name of the attribute that holds its number of units.

    Example:
        >>> @recurrent("y")
        ... class Leaky(nn.Module):
        ...     def __init__(self, d_in: int, d_hidden: int) -> None:
        ...         super().__init__()
        ...         self.d_in, self.d_out = d_in, d_hidden
        ...         self.drive, self.W = nn.Linear(d_in, d_hidden), nn.Linear(d_hidden, d_hidden)
        ...
        ...     def step(self, u, state):
        ...         (y,) = state
        ...         y = 0.9 * y + 0.1 * torch.tanh(self.W(y) + self.drive(u))
        ...         return y, (y,)
        >>> Leaky(2, 8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """
    if not all(isinstance(name, str) for name in names):
        raise InputError('recurrent is called with the names of the states: @recurrent("y"), not @recurrent.')
    if not names and not sizes:
        raise InputError('recurrent needs the names of the states, such as @recurrent("y", "z").')
    units = {**dict.fromkeys(names, "d_out"), **sizes}

    def decorate(layer: Layer) -> Layer:
        written = getattr(layer, "step", None)
        if not callable(written):
            raise InputError(f"{layer.__name__} needs a method step(self, u, state) -> (output, state).")

        def before(self: Any, u: Tensor, state: tuple[Tensor, ...] | None) -> tuple[Tensor, ...]:
            sizes = tuple(_size(self, size) for size in units.values())
            return initial_state(state, tuple(units), u, sizes)

        @wraps(written)
        def step(self: Any, u: Tensor, state: tuple[Tensor, ...] | None = None) -> Outputs:
            d_in = _size(self, "d_in")
            has_shape("u", u, ("B", d_in), hint="One step: batch comes first, then features.")
            u = sequence(u.unsqueeze(1), d_in, next(self.parameters(), u)).squeeze(1)
            with no_autocast(u):
                y, new = cast(Outputs, written(self, u, before(self, u, state)))
            in_state = any(y is x for x in new)
            return y.clone() if in_state else y, new  # an output that is changed in place spares the state

        def forward(self: Any, u: Tensor, state: tuple[Tensor, ...] | None = None) -> Outputs:
            u = sequence(u, _size(self, "d_in"), next(self.parameters(), u))
            how = getattr(self, "backend", "auto")
            return recurrence(written.__get__(self), u, before(self, u, state), backend=how)

        for name, method in {"step": step, "forward": forward}.items():
            setattr(layer, name, method)
        return layer

    return decorate
