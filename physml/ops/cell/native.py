"""Compiled cells in C. Axes: B batch, T time.

Here memory is handed over; the arithmetic is in cell.c, and for the step itself in generated code.
"""

import ctypes
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor

from physml.ops.cell import program as programs
from physml.ops.cell.layout import Layout
from physml.ops.cell.plan import ONE, Plan
from physml.ops.cell.program import Backward, Compiled, Forward, Program, Results
from physml.ops.cell.reference import Step
from physml.ops.cell.source import C
from physml.ops.cell.writer import code
from physml.ops.native import library, pool
from physml.ops.native.call import pointer
from physml.ops.native.library import of_this_run

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
COUNTS = ("out_width", "out_room", "n_weights", "n_numbers")
TABLES = ("at", "states", "inputs", "groups", "pieces", "backs", "numbers", "trained")
LISTS = ("u", "state", "d_last", "last", "d_first", "d_u")
ARRAYS = ("vec", "fixed", "weights", "path", "out", "d_out", "d_vec", "d_fixed", "d_weights", "scratch")
STAGES = ("forward_stage", "backward_stage")  # functions of the generated code

SOURCE = library.HEADERS / "cell.c"


class Call(ctypes.Structure):
    """`cell_call` of cell.h."""

    _fields_ = (
        *[(name, ctypes.c_int64) for name in (*SIZES, *LENGTHS, *COUNTS)],
        *[(name, ctypes.c_void_p) for name in (*TABLES, *LISTS, *ARRAYS)],
        *[(name, ctypes.c_int64) for name in ("d_batch", "d_step", "d_unit")],
        *[(name, ctypes.c_void_p) for name in STAGES],
    )


class CProgram(Program):
    """A step in C."""

    def __init__(self, plan: Plan, dtype: torch.dtype) -> None:
        super().__init__(plan, dtype)
        self.code = code(plan, C())
        self.stages = library.load_text("step", self.code.text, dtype)
        self.layout = layout = Layout(plan, self.code, int(self.library().cell_vector()))
        self.template = Call(  # what all calls have in common; the tables are kept by the layout
            n_states=len(layout.graph.states),
            n_inputs=len(layout.plan.inputs),
            n_groups=len(layout.groups),
            n_backs=len(self.code.backs),
            n_levels=max(layout.graph.levels) + 1,
            one=layout.at.get(("row", ONE), -1),
            out_width=layout.out_width,
            out_room=layout.room(layout.out_width),
            n_weights=layout.n_weights,
            n_numbers=self.code.n_numbers,
            **{name: getattr(layout, name) for name in LENGTHS},
            **{name: table.ctypes.data for name, table in layout.tables.items()},
            **{name: ctypes.cast(self.stages[name], ctypes.c_void_p) for name in STAGES},
        )

    def library(self) -> ctypes.CDLL:
        """In the precision of the run, of which the layout and the stages know nothing."""
        library = of_this_run(SOURCE, self.dtype)
        library.cell_room.restype = ctypes.c_size_t
        return library

    def forward(self, work: Forward, keep: bool) -> Results:
        layout, first = self.layout, work.inputs[0]
        n_batch, n_steps = work.n_batch, work.n_steps
        strides = [x.stride() for x in work.inputs]
        call, tables = _call(self, n_batch, n_steps, work.numbers, strides, keep)
        if keep:  # the last row says how many rows of the batch a group has, which orders the path
            work.path = pool.empty(((n_steps + 2) * n_batch + 1, layout.ld_row), first.dtype)
            work.path[-1, 0] = call.block_rows
        out = pool.empty((n_steps, n_batch, layout.room(layout.out_width)), first.dtype)
        last = [torch.empty_like(x) for x in work.states]
        lists = _point(call, u=work.parts(), state=work.states, last=last)
        for name in ("vec", "fixed", "weights", "path"):
            setattr(call, name, pointer(getattr(work, name)))
        call.out = pointer(out)
        _run(self, call, backward=False)
        del tables, lists
        return out[..., : layout.out_width].transpose(0, 1), last

    def backward(self, work: Backward, d_out: Tensor | None, d_last: Sequence[Tensor | None]) -> None:
        strides = [(0, 0, 0)] * work.n_inputs
        rows = int(work.path[-1, 0])
        call, tables = _call(self, work.n_batch, work.n_steps, work.numbers, strides, keep=True, rows=rows)
        trained = np.array(work.trained(), np.int64)
        call.trained = trained.ctypes.data
        d_last = [None if x is None else x.contiguous() for x in d_last]
        work.d_u = {
            v: pool.empty((work.n_steps, work.n_batch, self.graph.widths[v]), self.dtype)
            for v in self.code.inputs_written
        }
        d_u = [work.d_u.get(v) for v in self.plan.inputs]
        lists = _point(call, d_last=d_last, d_first=work.d_first, d_u=d_u)
        for name in ("path", "weights", "vec", "fixed", "d_weights", "d_vec", "d_fixed"):
            setattr(call, name, pointer(getattr(work, name)))
        if d_out is not None:
            call.d_out, (call.d_batch, call.d_step, call.d_unit) = pointer(d_out), d_out.stride()
        _run(self, call, backward=True)
        del tables, lists, trained


def _point(call: Call, **lists: Sequence[Tensor | None]) -> list[Any]:
    """Lists of tensors as arrays of pointers; the caller keeps them until the call is done."""
    kept = []
    for name, tensors in lists.items():
        pointers = (None if x is None else x.data_ptr() for x in tensors)
        kept.append((ctypes.c_void_p * max(1, len(tensors)))(*pointers))
        setattr(call, name, ctypes.addressof(kept[-1]))
    return kept


def _call(
    program: CProgram,
    n_batch: int,
    n_steps: int,
    numbers: tuple[float, ...],
    strides: Sequence[tuple[int, ...]],
    keep: bool,
    rows: int | None = None,
) -> tuple[Call, list[Any]]:
    """A call with its sizes, and its tables, which the caller keeps until the call is done.

    rows: of the batch in a group; None: as many as suit the number of threads.
    """
    layout = program.layout
    n_threads = torch.get_num_threads() if n_steps * n_batch * layout.n_weights >= MIN_WORK else 1
    near = layout.n_weights * program.dtype.itemsize <= NEAR
    block_rows = rows or min(-(-n_batch // n_threads), ROWS if near else MANY_ROWS)
    length = block_rows * (layout.ld_row + layout.ld_pre + layout.ld_in)
    call = Call.from_buffer_copy(program.template)
    call.n_batch, call.n_steps, call.block_rows, call.n_threads = n_batch, n_steps, block_rows, n_threads
    call.block_steps, call.keep = max(1, min(n_steps, BLOCK // length)), keep
    own = [layout.input_places(strides), np.array(numbers, np.float64)]
    call.inputs, call.numbers = (table.ctypes.data for table in own)
    return call, own


def _run(program: CProgram, call: Call, backward: bool) -> None:
    """One pass, with scratch memory that is warm already."""
    library = program.library()
    scratch = pool.empty((library.cell_room(ctypes.byref(call), int(backward)),), program.dtype)
    call.scratch = pointer(scratch)
    (library.cell_backward if backward else library.cell_forward)(ctypes.byref(call))


compiled = partial(programs.compiled, CProgram)


def refusal(*tensors: Tensor) -> str | None:
    """The reason why C can't compute with these tensors, but for what `compiled` says of the step."""
    if tensors[0].device.type != "cpu":
        return f"native code runs on a CPU; got a tensor on {tensors[0].device}"
    return None


def cell(*tensors: Tensor, step: Step, n_inputs: int, program: Compiled) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (B, T, n) and last states; differentiable once. `tensors`: inputs (B, T, D), states (B, H)."""
    return programs.computed(program.program, program.trace, n_inputs, *tensors, *program.trace.leaves)
