"""Compiled cells in C. Axes: B batch, T time.

Here memory is laid out and autograd is served; the arithmetic is in generated code and in cell.h.
"""

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor

from physml.errors import InputError
from physml.ops.cell.graph import graph
from physml.ops.cell.layout import Layout, Part, Program
from physml.ops.cell.plan import ONE, plan
from physml.ops.cell.reference import Step
from physml.ops.cell.rows import Node, NotExpressible, Trace
from physml.ops.cell.source import code
from physml.ops.cell.words import trace
from physml.ops.native import pool
from physml.ops.native.call import pointer
from physml.ops.native.library import Unavailable
from physml.ops.once import once, recorded

ROWS = 32  # of the batch in a group: whole register tiles, and their states stay in the nearest cache
NEAR = 1 << 21  # bytes of weights up to which a cache gives them fast enough to be read for every group
MANY_ROWS = 128  # in a group if there are more
BLOCK = 1 << 16  # numbers in a block of steps of the backward pass
MIN_WORK = 5e8  # multiplications in a pass that are worth a second thread

SIZES = (
    *("n_batch", "n_steps", "block_rows", "block_steps", "n_threads", "keep"),
    *("n_states", "n_inputs", "n_groups", "n_backs", "n_levels", "one"),
)
LENGTHS = ("ld_row", "ld_pre", "ld_vec", "ld_fixed", "ld_state", "ld_op", "ld_in")
TABLES = ("at", "states", "inputs", "groups", "pieces", "backs", "numbers")
LISTS = ("u", "state", "d_last", "last", "d_first", "d_u")
ARRAYS = ("vec", "fixed", "weights", "path", "out", "d_out", "d_vec", "d_fixed", "d_weights", "scratch")


class Call(ctypes.Structure):
    """`cell_call` of cell.h."""

    _fields_ = (
        *[(name, ctypes.c_int64) for name in (*SIZES, *LENGTHS, "out_width", "out_room", "n_weights")],
        *[(name, ctypes.c_void_p) for name in (*TABLES, *LISTS, *ARRAYS)],
        *[(name, ctypes.c_int64) for name in ("d_batch", "d_step", "d_unit")],
    )


@dataclass
class Compiled:
    """A step that was traced, and its program."""

    trace: Trace
    program: Program


def compiled(
    step: Step, inputs: Sequence[Tensor], states: Sequence[Tensor]
) -> tuple[Compiled | None, str | None]:
    """The step, traced and compiled, or the reason why it can't be; what was compiled before is in memory."""
    if reason := _unfit(inputs, states):
        return None, reason
    first = inputs[0]
    try:
        found = trace(step, len(first), first, [x.shape[2] for x in inputs], [x.shape[1] for x in states])
        made = _program(
            tuple(found.nodes),
            tuple(found.widths),
            found.outputs,
            tuple(x.numel() for x in found.leaves),
            tuple(x.requires_grad for x in inputs),
            first.dtype,
        )
        _ = made.library
    except (NotExpressible, Unavailable) as error:
        return None, str(error)
    return Compiled(found, made), None


@lru_cache(maxsize=256)
def _program(
    nodes: tuple[Node, ...],
    widths: tuple[int, ...],
    outputs: tuple[int, ...],
    leaf_sizes: tuple[int, ...],
    wanted: tuple[bool, ...],
    dtype: torch.dtype,
) -> Program:
    made = plan(graph(nodes, widths, outputs, leaf_sizes), wanted)
    return Program(made, code(made), dtype)


def _unfit(inputs: Sequence[Tensor], states: Sequence[Tensor]) -> str | None:
    """The reason why these tensors are not for C; None if they are. Errors: InputError for wrong shapes."""
    first = inputs[0]
    for name, tensors, axes in (("an input", inputs, "(B, T, D)"), ("a state", states, "(B, H)")):
        for x in tensors:
            if x.ndim != axes.count(",") + 1 or len(x) != len(first):
                raise InputError(
                    f"{name} of a recurrence must be {axes}, B = {len(first)}; got {tuple(x.shape)}."
                )
            if x.dtype != first.dtype or x.device != first.device:
                return f"it mixes {first.dtype} on {first.device} with {x.dtype} on {x.device}"
            if x.numel() == 0:
                return f"native code can't work on empty tensors; got one of shape {tuple(x.shape)}"
    if any(x.shape[1] != first.shape[1] for x in inputs):
        raise InputError(
            f"the inputs of a recurrence need equally many steps; got {[x.shape[1] for x in inputs]}."
        )
    return None


def refusal(*tensors: Tensor) -> str | None:
    """None: `compiled` has said it all before."""
    return None


def cell(*tensors: Tensor, step: Step, n_inputs: int, program: Compiled) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (B, T, n) and last states; differentiable once. `tensors`: inputs (B, T, D), states (B, H)."""
    found = program.trace
    given = (*tensors, *found.leaves)
    sizes, numbers = (n_inputs, len(tensors) - n_inputs), tuple(found.numbers)
    if recorded(*given):
        output, *last = CellFunction.apply(program.program, numbers, sizes, *given)
    else:
        with torch.no_grad():
            output, *last = _Forward(program.program, numbers, sizes, given).run(keep=False)
    return output, tuple(last)


class CellFunction(torch.autograd.Function):
    """A program as a function of inputs, states and leaves. Differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, made: Program, numbers: tuple[float, ...], sizes: tuple[int, int], *tensors: Tensor
    ) -> tuple[Tensor, ...]:
        work = _Forward(made, numbers, sizes, tensors)
        results = work.run(keep=True)
        ctx.save_for_backward(work.path, work.weights, work.vec, work.fixed)
        ctx.work = (made, numbers, sizes, [x.shape for x in tensors])
        ctx.set_materialize_grads(False)
        return results

    @staticmethod
    @once
    def backward(ctx: Any, d_out: Tensor | None, *d_last: Tensor | None) -> tuple[Tensor | None, ...]:
        made, numbers, sizes, shapes = ctx.work
        work = _Backward(made, numbers, sizes, shapes, ctx.saved_tensors)
        work.run(d_out, d_last)
        return None, None, None, *work.gradients(ctx.needs_input_grad[3:])


class _Forward:
    """The buffers of a forward pass; leaves are laid out anew for every call."""

    def __init__(
        self, made: Program, numbers: tuple[float, ...], sizes: tuple[int, int], tensors: Sequence[Tensor]
    ) -> None:
        n_inputs, n_states = sizes
        self.made, self.layout, self.numbers = made, made.layout, numbers
        self.inputs = tensors[:n_inputs]
        self.states = [x.contiguous() for x in tensors[n_inputs:][:n_states]]
        self.leaves = [x.detach() for x in tensors[n_inputs + n_states :]]
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

    def run(self, keep: bool) -> tuple[Tensor, ...]:
        """Outputs (B, T, n) and last states; with `keep`, what the backward pass needs is in `path`."""
        layout, first = self.layout, self.inputs[0]
        n_batch, n_steps = first.shape[:2]
        call, tables = _call(
            self.made, n_batch, n_steps, self.numbers, [x.stride() for x in self.inputs], keep
        )
        self.path = first.new_empty(0)
        if keep:
            self.path = pool.empty(((n_steps + 2) * n_batch, layout.ld_row), first.dtype)
        out = pool.empty((n_steps, n_batch, layout.room(layout.out_width)), first.dtype)
        last = [torch.empty_like(x) for x in self.states]
        parts = [
            self.inputs[k][..., a:b] for _, k, a, b in (layout.graph.nodes[v] for v in layout.plan.inputs)
        ]
        lists = _point(call, u=parts, state=self.states, last=last)
        for name in ("vec", "fixed", "weights", "path"):
            setattr(call, name, pointer(getattr(self, name)))
        call.out = pointer(out)
        _run(self.made, call, backward=False)
        del tables, lists
        return out[..., : layout.out_width].transpose(0, 1), *last


def _run(made: Program, call: Call, backward: bool) -> None:
    """One pass, with scratch memory that is warm already."""
    library = made.library
    library.cell_room.restype = ctypes.c_size_t
    scratch = pool.empty((library.cell_room(ctypes.byref(call), int(backward)),), made.dtype)
    call.scratch = pointer(scratch)
    (library.cell_backward if backward else library.cell_forward)(ctypes.byref(call))


def _of_leaf(x: Tensor, part: Part) -> Tensor:
    """The part itself; a single number stands for a vector of any length."""
    if part.columns is not None:
        return x[part.rows, part.columns]
    return x.reshape(-1)[part.rows] if x.numel() > 1 else x.reshape(1)


def _place(joined: Tensor, part: Part) -> Tensor:
    return joined.as_strided(part.shape, part.strides, part.at)


def _point(call: Call, **lists: Sequence[Tensor | None]) -> list[Any]:
    """Lists of tensors as arrays of pointers; the caller keeps them until the call is done."""
    kept = []
    for name, tensors in lists.items():
        pointers = (None if x is None else x.data_ptr() for x in tensors)
        kept.append((ctypes.c_void_p * max(1, len(tensors)))(*pointers))
        setattr(call, name, ctypes.addressof(kept[-1]))
    return kept


def _call(
    made: Program,
    n_batch: int,
    n_steps: int,
    numbers: tuple[float, ...],
    strides: Sequence[tuple[int, ...]],
    keep: bool,
) -> tuple[Call, list[Any]]:
    """A call with its sizes, and its tables, which the caller keeps until the call is done."""
    layout = made.layout
    n_threads = torch.get_num_threads() if n_steps * n_batch * layout.n_weights >= MIN_WORK else 1
    near = layout.n_weights * made.dtype.itemsize <= NEAR
    block_rows = min(-(-n_batch // n_threads), ROWS if near else MANY_ROWS)
    length = block_rows * (layout.ld_row + layout.ld_pre + layout.ld_in)
    call = Call.from_buffer_copy(_template(made))
    call.n_batch, call.n_steps, call.block_rows, call.n_threads = n_batch, n_steps, block_rows, n_threads
    call.block_steps, call.keep = max(1, min(n_steps, BLOCK // length)), keep
    own = [layout.input_places(strides), np.array(numbers, np.float64)]
    call.inputs, call.numbers = (table.ctypes.data for table in own)
    return call, own


@lru_cache(maxsize=256)
def _template(made: Program) -> Call:
    """What all calls of a program have in common; the program keeps the tables."""
    layout = made.layout
    call = Call(
        n_states=len(layout.graph.states),
        n_inputs=len(layout.plan.inputs),
        n_groups=len(layout.groups),
        n_backs=len(made.code.backs),
        n_levels=max(layout.graph.levels) + 1,
        one=layout.at.get(("row", ONE), -1),
        out_width=layout.out_width,
        out_room=layout.room(layout.out_width),
        n_weights=layout.n_weights,
        **{name: getattr(layout, name) for name in LENGTHS},
    )
    for name, table in layout.tables.items():
        setattr(call, name, table.ctypes.data)
    return call


class _Backward:
    """The buffers of a backward pass."""

    def __init__(
        self,
        made: Program,
        numbers: tuple[float, ...],
        sizes: tuple[int, int],
        shapes: Sequence[torch.Size],
        saved: Sequence[Tensor],
    ) -> None:
        self.made, self.layout, self.numbers = made, made.layout, numbers
        (self.n_inputs, self.n_states), self.shapes = sizes, shapes
        self.path, self.weights, self.vec, self.fixed = saved
        self.n_batch, self.n_steps = shapes[0][:2]
        self.d_first = [self.path.new_empty(s) for s in shapes[self.n_inputs :][: self.n_states]]
        self.d_weights, self.d_vec = torch.empty_like(self.weights), torch.empty_like(self.vec)
        self.d_fixed = torch.zeros_like(self.fixed)
        self.d_u = {
            v: pool.empty((self.n_steps, self.n_batch, made.graph.widths[v]), made.dtype)
            for v in made.code.inputs_written
        }

    def run(self, d_out: Tensor | None, d_last: Sequence[Tensor | None]) -> None:
        strides = [(0, 0, 0)] * self.n_inputs
        call, tables = _call(self.made, self.n_batch, self.n_steps, self.numbers, strides, keep=True)
        d_last = [None if x is None else x.contiguous() for x in d_last]
        d_u = [self.d_u.get(v) for v in self.layout.plan.inputs]
        lists = _point(call, d_last=d_last, d_first=self.d_first, d_u=d_u)
        for name in ("path", "weights", "vec", "fixed", "d_weights", "d_vec", "d_fixed"):
            setattr(call, name, pointer(getattr(self, name)))
        if d_out is not None:
            call.d_out, (call.d_batch, call.d_step, call.d_unit) = pointer(d_out), d_out.stride()
        _run(self.made, call, backward=True)
        del tables, lists

    def gradients(self, needed: Sequence[bool]) -> list[Tensor | None]:
        """Of inputs, states and leaves; None where none is wanted."""
        layout, n_before = self.layout, self.n_inputs + self.n_states
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


def _add(grad: Tensor, part: Part, x: Tensor) -> None:
    """x to the part of a leaf's gradient that it belongs to."""
    if grad.numel() == 1 and part.columns is None:
        grad += x.sum()
    elif part.columns is None:
        grad.view(-1)[part.rows] += x
    else:
        grad[part.rows, part.columns] += x


__all__ = ["Compiled", "Layout", "cell", "compiled", "refusal"]
