"""A compiler for recurrent cells: from one step, written in torch, to all steps and their gradients in C.

A step is traced (rows.py, words.py), its sums of products are joined (graph.py) and put in order (plan.py), C
is written for what lies between the products, forward and back (source.py), and everything gets its place
(layout.py). native.py calls it.
"""

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from physml.errors import InputError
from physml.ops import transforms
from physml.ops.backend import BACKENDS, Op, resolved
from physml.ops.cell import reference
from physml.ops.cell.reference import Step
from physml.ops.sequence import initial_state, no_autocast, sequence

__all__ = ["BACKENDS", "OP", "Step", "recurrence", "recurrent"]

OP = Op(__name__, reference=reference.cell)
FEW = 2  # steps that are not worth a trace

Layer = TypeVar("Layer", bound=type[nn.Module])


def recurrence(
    step: Step, u: Tensor | tuple[Tensor, ...], state: tuple[Tensor, ...], *, backend: str = "auto"
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of a cell: outputs (B, T, n) and the last state.

    On a CPU the step is compiled to C, with its gradients. It may use sums, products and quotients, products
    with weights, activations, comparisons with `torch.where`, `chunk` and `cat`, any number of states, and
    tensors from outside: weights (n, k), numbers per unit (n,), or per row of the batch (B, n). What it
    computes from these alone is computed once. A step that does anything else runs as a loop, and a warning
    says what it was.

    Args:
        step: `step(u, state) -> (output, state)`, from u (B, D) and a tuple of (B, H) to (B, n) and a tuple
            as before. It must not change anything, nor draw random numbers: draw those for all steps, as an
            input.
        u: (B, T, D), or a tuple of such; the step then gets a tuple.
        state: the state before the first step.
        backend: one of `physml.ops.backend.CHOICES`.
    Errors: InputError where `backend` can't compute this step, with the reason.
    """
    if torch.compiler.is_dynamo_compiling() and resolved(backend) != "reference":
        first = u if isinstance(u, Tensor) else u[0]
        if backend != "auto" or not (torch.compiler.is_exporting() or first.shape[1] <= FEW):
            from physml.ops.untraced import untraced

            return untraced(recurrence, step, u, state, backend=backend)
        backend = "reference"
    inputs = (u,) if isinstance(u, Tensor) else tuple(u)
    with no_autocast(inputs[0]):
        program, reason = _compiled(step, inputs, tuple(state), backend)
        return OP(
            *(*inputs, *state),
            step=step,
            n_inputs=len(inputs),
            program=program,
            backend=backend,
            plain=reason,
        )


def _compiled(
    step: Step, inputs: tuple[Tensor, ...], state: tuple[Tensor, ...], backend: str
) -> tuple[Any, str | None]:
    """A traced step with its program, or the reason why only the loop can compute it."""
    wish = resolved(backend)
    if wish == "reference" or transforms.transformed(*inputs, *state):
        return None, None
    if wish == "auto" and inputs[0].shape[1] <= FEW:
        return None, f"up to {FEW} steps are fastest as they are"
    if inputs[0].device.type != "cpu":
        return None, f"a compiled cell runs on a CPU; got a tensor on {inputs[0].device}"
    from physml.ops.cell import native

    made, why = native.compiled(step, inputs, state)
    if made is not None and transforms.transformed(*made.trace.leaves):
        return None, transforms.REASON
    if why is not None and wish == "auto":
        OP.warn(f"{getattr(step, '__qualname__', 'a step')} can't be compiled: {why}", "reference")
    return made, why


def recurrent(*names: str, **sizes: str) -> Callable[[Layer], Layer]:
    """Make a layer of a class with one step, `step(self, u, state) -> (output, state)`.

    The class gets a `forward(u, state=None)` over all steps, compiled as in `recurrence`: u (B, T, D) to
    outputs (B, T, n) and the last state. States are zero at the start. An attribute `backend` is a
    requirement, as of other layers.

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
    if not names and not sizes:
        raise InputError('recurrent needs the names of the states, such as @recurrent("y", "z").')
    units = {**dict.fromkeys(names, "d_out"), **sizes}

    def decorate(layer: Layer) -> Layer:
        if not callable(getattr(layer, "step", None)):
            raise InputError(f"{layer.__name__} needs a method step(self, u, state) -> (output, state).")

        def forward(
            self: Any, u: Tensor, state: tuple[Tensor, ...] | None = None
        ) -> tuple[Tensor, tuple[Tensor, ...]]:
            u = sequence(u, self.d_in, next(self.parameters(), u))
            sizes = tuple(getattr(self, size) for size in units.values())
            before = initial_state(state, tuple(units), u, sizes)
            return recurrence(self.step, u, before, backend=getattr(self, "backend", "auto"))

        layer.forward = forward
        return layer

    return decorate
