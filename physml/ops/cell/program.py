"""A compiled step as a function of tensors, in whatever language. Axes: B batch, T time.

Here steps are traced, leaves are laid out and autograd is served. A backend is a `Program` that computes.
"""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.ops.cell.graph import Graph, graph
from physml.ops.cell.layout import Layout, Part
from physml.ops.cell.outline import Outline
from physml.ops.cell.plan import Plan, plan
from physml.ops.cell.reference import Step
from physml.ops.cell.rows import NotExpressible, Trace
from physml.ops.cell.words import outline, trace
from physml.ops.cell.writer import Code
from physml.ops.derivatives import once, recorded
from physml.ops.native.library import Unavailable

Results = tuple[Tensor, Sequence[Tensor]]  # outputs (B, T, n) and last states (B, H)


class Program(ABC):
    """A compiled step, for the widths that it was traced with.

    Args:
        plan: what it computes, and where it lies.
        dtype: of all tensors.
    Errors: Unavailable.
    """

    code: Code
    layout: Layout

    def __init__(self, plan: Plan, dtype: torch.dtype) -> None:
        self.plan, self.graph, self.dtype = plan, plan.graph, dtype

    @staticmethod
    def arranged(graph: Graph) -> Graph:
        """The graph with the levels that this language computes one after the other."""
        return graph

    @abstractmethod
    def forward(self, work: "Forward", keep: bool) -> Results:
        """All steps; with `keep`, `work.path` becomes what the backward pass needs."""

    @abstractmethod
    def backward(self, work: "Backward", d_out: Tensor | None, d_last: Sequence[Tensor | None]) -> None:
        """Fill the gradients of `work`, from those of the outputs and the last states."""


@dataclass
class Compiled:
    """A step that was traced, and its program."""

    trace: Trace
    program: Program


def compiled(
    language: type[Program], step: Step, inputs: Sequence[Tensor], states: Sequence[Tensor]
) -> tuple[Compiled | None, str | None]:
    """The step, traced and compiled, or the reason why it can't be; what was compiled before is in memory."""
    if reason := unfit(inputs, states):
        return None, reason
    first = inputs[0]
    try:
        traced = trace(step, len(first), first, [x.shape[2] for x in inputs], [x.shape[1] for x in states])
        executable = program(language, outline(traced), tuple(x.requires_grad for x in inputs), first.dtype)
    except (NotExpressible, Unavailable) as error:
        return None, str(error)
    return Compiled(traced, executable), None


@lru_cache(maxsize=256)
def program(
    language: type[Program], outline: Outline, input_needs: tuple[bool, ...], dtype: torch.dtype
) -> Program:
    """The program of an outline, kept; `input_needs`: for each input, whether its gradient is needed.

    Errors: NotExpressible, Unavailable.
    """
    step_graph = graph(outline.nodes, outline.widths, outline.outputs, outline.single)
    return language(plan(language.arranged(step_graph), input_needs), dtype)


def unfit(inputs: Sequence[Tensor], states: Sequence[Tensor]) -> str | None:
    """The reason why these tensors can't be computed, or None. Errors: InputError for wrong shapes."""
    first = inputs[0]
    for name, tensors, axes in (("an input", inputs, "(B, T, D)"), ("a state", states, "(B, H)")):
        for x in tensors:
            if x.ndim != axes.count(",") + 1 or x.shape[0] != first.shape[0]:
                raise InputError(
                    f"{name} of a recurrence must be {axes}, B = {first.shape[0]}; got {tuple(x.shape)}."
                )
            if x.dtype != first.dtype or x.device != first.device:
                return f"it mixes {first.dtype} on {first.device} with {x.dtype} on {x.device}"
            if not torch.compiler.is_compiling() and x.numel() == 0:
                return f"compiled cells don't work on empty tensors; got one of shape {tuple(x.shape)}"
    if any(x.shape[1] != first.shape[1] for x in inputs):
        raise InputError(
            f"the inputs of a recurrence need equally many steps; got {[x.shape[1] for x in inputs]}."
        )
    return None


def computed(
    program: Program, trace: Trace, n_inputs: int, *tensors: Tensor
) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (B, T, n) and last states; differentiable once. `tensors`: inputs, states, leaves."""
    n_leaves = len(trace.leaves)
    sizes, numbers = (n_inputs, len(tensors) - n_leaves - n_inputs), tuple(trace.numbers)
    if recorded(*tensors):
        output, *last = CellFunction.apply(program, numbers, sizes, *tensors)
    else:
        with torch.no_grad():
            output, last = program.forward(Forward(program, numbers, sizes, tensors), keep=False)
    return output, tuple(last)


class CellFunction(torch.autograd.Function):
    """A program as a function of inputs, states and leaves. Differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, program: Program, numbers: tuple[float, ...], sizes: tuple[int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        work = Forward(program, numbers, sizes, tensors)
        output, last = program.forward(work, keep=True)
        ctx.save_for_backward(work.path, work.weights, work.vec, work.fixed)
        ctx.work = (program, numbers, sizes, [x.shape for x in tensors])
        ctx.set_materialize_grads(False)
        return output, *last

    @staticmethod
    @once
    def backward(ctx: Any, d_out: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        program, numbers, sizes, shapes = ctx.work
        work = Backward(program, numbers, sizes, shapes, ctx.saved_tensors, ctx.needs_input_grad[3:])
        program.backward(work, d_out, d_last)
        return None, None, None, *work.gradients()


class Forward:
    """The tensors of a forward pass; leaves are laid out anew for every call.

    Args:
        program: the program.
        numbers: those of the step.
        sizes: how many inputs and states there are.
        tensors: inputs (B, T, D), states (B, H) and leaves.
    """

    def __init__(
        self, program: Program, numbers: tuple[float, ...], sizes: tuple[int, int], tensors: Sequence[Tensor]
    ) -> None:
        n_inputs, n_states = sizes
        self.layout, self.numbers = program.layout, numbers
        self.inputs = tensors[:n_inputs]
        self.states = [x.contiguous() for x in tensors[n_inputs:][:n_states]]
        self.leaves = [x.detach() for x in tensors[n_inputs + n_states :]]
        self.n_batch, self.n_steps = self.inputs[0].shape[:2]
        self.path = self.inputs[0].new_empty(0)
        self._lay_out()

    def _lay_out(self) -> None:
        layout, like = self.layout, self.inputs[0]
        self.weights, self.vec = like.new_zeros(layout.n_weights), like.new_zeros(layout.ld_vec)
        self.fixed = like.new_zeros(len(like), layout.ld_fixed)
        for part in layout.parts:
            _place(self.weights, part).add_(_of_leaf(self.leaves[part.leaf], part))
        for key in layout.vectors:
            _, leaf, a, b, width = key
            x = self.leaves[leaf].reshape(-1)
            self.vec[layout.at[key] :][:width] = x[a:b] if len(x) > 1 else x
        for key in layout.fixed:
            _, leaf, a, b = key
            self.fixed[:, layout.at[key] :][:, : b - a] = self.leaves[leaf][:, a:b]

    def parts(self) -> list[Tensor]:
        """The parts of inputs that the plan names, in its order."""
        nodes = self.layout.graph.nodes
        return [self.inputs[k][..., a:b] for _, k, a, b in (nodes[v] for v in self.layout.plan.inputs)]


class Backward:
    """The gradients of a backward pass, to be filled.

    Args:
        program: the program.
        numbers: those of the step.
        sizes: how many inputs and states there are.
        shapes: of inputs, states and leaves.
        saved: path, weights, vectors and fixed numbers of the forward pass.
        needed: for each of inputs, states and leaves, whether its gradient is.
    """

    def __init__(
        self,
        program: Program,
        numbers: tuple[float, ...],
        sizes: tuple[int, int],
        shapes: Sequence[torch.Size],
        saved: Sequence[Tensor],
        needed: Sequence[bool],
    ) -> None:
        self.layout, self.numbers = program.layout, numbers
        (self.n_inputs, self.n_states), self.shapes, self.needed = sizes, shapes, needed
        self.path, self.weights, self.vec, self.fixed = saved
        self.n_batch, self.n_steps = shapes[0][:2]
        self.d_first = [self.path.new_empty(s) for s in shapes[self.n_inputs :][: self.n_states]]
        self.d_weights, self.d_vec = torch.empty_like(self.weights), torch.empty_like(self.vec)
        self.d_fixed = torch.zeros_like(self.fixed)
        self.d_u: dict[int, Tensor] = {}  # per input node (T, B, n), made by the program

    def trained(self) -> list[bool]:
        """For each group of products, True if the gradient of one of its weights is needed."""
        leaves = self.needed[self.n_inputs + self.n_states :]
        return [any(leaves[k] for k in group_leaves) for group_leaves in self.layout.leaves]

    def gradients(self) -> list[Tensor | None]:
        """Gradients of inputs, states and leaves; None where none is needed."""
        layout, needed, n_before = self.layout, self.needed, self.n_inputs + self.n_states
        inputs = [self._of_input(k) if needed[k] else None for k in range(self.n_inputs)]
        states = [
            x if need else None
            for x, need in zip(self.d_first, needed[self.n_inputs : n_before], strict=True)
        ]
        leaves = [
            self.path.new_zeros(shape) if need else None
            for shape, need in zip(self.shapes[n_before:], needed[n_before:], strict=True)
        ]
        for part in layout.parts:
            if (grad := leaves[part.leaf]) is not None:
                _add(grad, part, _place(self.d_weights, part))
        for key in layout.vectors:
            _, leaf, a, b, width = key
            if (grad := leaves[leaf]) is not None:
                _add(grad, Part(leaf, slice(a, b), None, (), 0, ()), self.d_vec[layout.at[key] :][:width])
        for key in layout.fixed:
            _, leaf, a, b = key
            if (grad := leaves[leaf]) is not None:
                grad[:, a:b] += self.d_fixed[:, layout.at[key] :][:, : b - a]
        return [*inputs, *states, *leaves]

    def _of_input(self, k: int) -> Tensor:
        """The gradient of an input (B, T, D), from those of the parts of it that the step uses."""
        nodes = self.layout.graph.nodes
        mine = [(nodes[v][2:], x.transpose(0, 1)) for v, x in self.d_u.items() if nodes[v][1] == k]
        if len(mine) == 1 and mine[0][0] == (0, self.shapes[k][2]):
            return mine[0][1]
        whole = self.path.new_zeros(self.shapes[k])
        for (begin, end), x in mine:
            whole[..., begin:end] += x
        return whole


def _of_leaf(x: Tensor, part: Part) -> Tensor:
    """The part itself; a single number stands for a vector of any length."""
    if part.columns is not None:
        return x[part.rows, part.columns]
    return x.reshape(-1)[part.rows] if x.numel() > 1 else x.reshape(1)


def _place(joined: Tensor, part: Part) -> Tensor:
    return joined.as_strided(part.shape, part.strides, part.at)


def _add(grad: Tensor, part: Part, x: Tensor) -> None:
    """x to the part of a leaf's gradient that it belongs to."""
    if grad.numel() == 1 and part.columns is None:
        grad += x.sum()
    elif part.columns is None:
        grad.view(-1)[part.rows] += x
    else:
        grad[part.rows, part.columns] += x
