"""Compiled cells on a GPU: products in cuBLAS, generated kernels between them, steps as CUDA graphs.

If no product comes between two steps (`graph.through_time`), products and kernels take all steps at once.

The backward pass collects the gradients of the results of products at all steps. After the loop the gradients
of weights and inputs are one product each. Sums over the batch come last too, so that no two threads write
to one place. Axes: B batch, T time, N steps of a block.
"""

import hashlib
import linecache
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from physml.ops.cell import program as programs
from physml.ops.cell.graph import through_time
from physml.ops.cell.kernels import Triton, distances, name_of, offsets, rows
from physml.ops.cell.layout import Layout
from physml.ops.cell.plan import Plan
from physml.ops.cell.program import Backward, Compiled, Forward, Program, Results
from physml.ops.cell.reference import Step
from physml.ops.cell.writer import Loop, code
from physml.ops.triton import graph
from physml.ops.triton.available import refusal as refusal
from physml.ops.triton.launch import FLAT, SHARED, blocks, on_device, scan_block

Numbers = tuple[float, ...]

PART = 64  # steps of a program where the state is not needed
AHEAD = 8  # steps whose numbers are on their way, if there is room for them


@dataclass(frozen=True)
class Kernel:
    """A generated kernel.

    Args:
        function: what Triton made of it.
        rows: names of the tensors that it takes.
        numbers: places of the numbers that it takes.
        width: units in a row.
        constants: offsets and lengths by name.
        n_loads: how many numbers a thread reads at a step.
    """

    function: Any
    rows: tuple[str, ...]
    numbers: tuple[int, ...]
    width: int
    constants: dict[str, int]
    n_loads: int


class TritonProgram(Program):
    """A step as Triton kernels; `stages`: forward and backward, per level its kernels."""

    arranged = staticmethod(through_time)

    def __init__(self, plan: Plan, dtype: torch.dtype) -> None:
        super().__init__(plan, dtype)
        self.code = code(plan, Triton())
        self.layout = Layout(plan, self.code, lanes=1)
        kernels = functions(self.code.text)
        self.stages = {
            way: [
                [self._kernel(kernels[name_of(way, level, k)], loop) for k, loop in enumerate(loops)]
                for level, loops in enumerate(levels)
            ]
            for way, levels in (("forward", self.code.forward), ("backward", self.code.backward))
        }

    def _kernel(self, function: Any, loop: Loop) -> Kernel:
        known = {"WIDTH": loop.width}
        known |= {name: getattr(self.layout, name) for name in distances(loop)}
        known |= {name: self.layout.offset(key) for name, key in offsets(self.code, loop).items()}
        n_loads = sum("tl.load(" in line for line in loop.lines)
        return Kernel(function, tuple(rows(loop)), tuple(sorted(loop.numbers)), loop.width, known, n_loads)

    def launch(
        self,
        way: str,
        level: int,
        tensors: Mapping[str, Tensor],
        numbers: Numbers,
        sizes: tuple[int, int],
        keep: bool,
    ) -> None:
        """The kernels of a level; `sizes`: of the batch, and how many steps."""
        n_batch, n_steps = sizes
        for kernel in self.stages[way][level]:
            n = n_batch * kernel.width
            grid: tuple[int, ...] = (-(-n // FLAT),)
            counts: tuple[int, ...] = (n,)
            options = {"BLOCK": FLAT, **kernel.constants}
            if self.code.through_time:
                block, warps = scan_block(n_batch, kernel.width)
                part = n_steps if level == self.graph.start else PART
                ahead = SHARED // 4 // (4 * block * max(1, kernel.n_loads))
                grid, counts = (-(-n // block), -(-n_steps // part)), (n, n_steps, part)
                options |= {"BLOCK": block, "num_warps": warps, "AHEAD": max(1, min(AHEAD, ahead))}
            kernel.function[grid](
                *(tensors[row] for row in kernel.rows),
                *(numbers[c] for c in kernel.numbers),
                *counts,
                KEEP=keep,
                **options,
            )

    def spans(self, n_steps: int) -> list[tuple[int, int]]:
        """(begin, end) of the steps that kernels and products take at once."""
        size = n_steps if self.code.through_time else 1
        return [(n, n + size) for n in range(0, n_steps, size)]

    @property
    def keeps_state_gradients(self) -> bool:
        """True if the gradients of states at all steps are needed, not those of the step after alone."""
        loops = [loop for level in self.code.backward for loop in level]
        return any(to > 0 for *_, to, _, _ in self.layout.backs) or any(
            loop.uses(name) for loop in loops for name in ("d_old", "d_new")
        )

    def blocks(self, n_steps: int) -> list[tuple[int, int]]:
        """(begin, end) of the steps that are launched together."""
        return [(0, n_steps)] if self.code.through_time else list(blocks(n_steps))

    def run(
        self,
        launch: graph.Launch,
        inputs: list[Tensor],
        changed: list[Tensor],
        outputs: list[Tensor],
        constants: tuple[Any, ...],
    ) -> None:
        """`launch(inputs, changed, outputs, *constants)`, as a graph if it is many launches."""
        if self.code.through_time:
            launch(inputs, changed, outputs, *constants)
        else:
            graph.run(launch, inputs, changed, outputs, constants)

    def forward(self, work: Forward, keep: bool) -> Results:
        with on_device(work.weights):
            return _forward(self, work, keep)

    def backward(self, work: Backward, d_out: Tensor | None, d_last: Sequence[Tensor | None]) -> None:
        with on_device(work.weights):
            _backward(self, work, d_out, d_last)


def functions(text: str) -> dict[str, Any]:
    """The kernels of a generated source, by name.

    Triton reads a function's source as `inspect` does, by `linecache`, where the text is put: there is no
    file that somebody could change.
    """
    name = f"<physml cell {hashlib.sha256(text.encode()).hexdigest()[:20]}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"__name__": "physml.ops.cell.generated"}
    exec(compile(text, name, "exec"), namespace)
    return namespace


def _place(x: Tensor, at: int, n: int) -> Tensor:
    """n units of rows, from `at` on."""
    return x[..., at : at + n]


def _multiply(x: Tensor, w: Tensor, to: Tensor, add: bool) -> None:
    if add:
        to.addmm_(x, w)
    else:
        torch.mm(x, w, out=to)


def _weights(layout: Layout, joined: Tensor, g: int) -> Tensor:
    """The weights (n, length) of a group."""
    _, n, _, _, _, begin, length = layout.groups[g]
    return joined[begin : begin + n * length].view(n, length)


def _state_place(layout: Layout, path: Tensor, k: int) -> Tensor:
    """Place of state k, given the rows of the step before and of its own."""
    width, at, before, _, _ = layout.states[k]
    return _place(path[0 if before else 1], at, width)


# ---- forward ----


def _forward(program: TritonProgram, work: Forward, keep: bool) -> Results:
    layout, like = program.layout, work.weights
    n_batch, n_steps = work.n_batch, work.n_steps
    out = like.new_empty(n_steps, n_batch, layout.out_width)
    parts = [x.transpose(0, 1) for x in work.parts()]
    if keep:
        work.path = like.new_empty(n_steps + 2, n_batch, layout.ld_row)
    carried = like.new_empty(2, n_batch, layout.ld_row)  # the rows of the step before and the next one
    for k, x in enumerate(work.states):
        _state_place(layout, carried, k).copy_(x)
    for begin, end in program.blocks(n_steps):
        path = work.path[begin : end + 2] if keep else like.new_empty(end - begin + 2, *carried.shape[1:])
        path[:2] = carried
        inside = path[1:-1]
        for v, x in zip(layout.plan.inputs, parts, strict=True):
            _place(inside, layout.at["row", v], x.shape[2]).copy_(x[begin:end])
        if ("row", "one") in layout.at:
            inside[..., layout.at["row", "one"]] = 1
        inputs, constants = [work.weights, work.vec, work.fixed], (program, work.numbers, keep)
        program.run(_steps, inputs, [path], [out[begin:end]], constants)
        carried = path[-2:]
    last = [_state_place(layout, carried, k).clone() for k in range(len(work.states))]
    return out.transpose(0, 1), last


def _steps(
    inputs: list[Tensor],
    changed: list[Tensor],
    outputs: list[Tensor],
    program: TritonProgram,
    numbers: Numbers,
    keep: bool,
) -> None:
    """The steps of a block; `path` (N + 2, B, ..) begins with the step before."""
    weights, vec, fixed = inputs
    (path,), (out,), layout = changed, outputs, program.layout
    joined = [_weights(layout, weights, g) for g in range(len(layout.groups))]
    spans = program.spans(len(out))
    pre = path.new_empty(spans[0][1] * path.shape[1], layout.ld_pre)
    for n, m in spans:
        prev, cur, following = (path[n + k : m + k].flatten(0, 1) for k in range(3))
        tensors = {"prev": prev, "cur": cur, "next": following, "pre": pre, "out": out[n:m]}
        tensors |= {"vecs": vec, "fixed": fixed}
        for level in range(len(program.code.forward)):
            program.launch("forward", level, tensors, numbers, (path.shape[1], m - n), keep)
            for g, (after, width, at, first, n_pieces, _, _) in enumerate(layout.groups):
                for p, (begin, k, column) in enumerate(layout.pieces[first : first + n_pieces]):
                    if after == level + 1:
                        w = _place(joined[g], column, k).t()
                        _multiply(_place(cur, begin, k), w, _place(pre, at, width), p > 0)


# ---- backward ----


def _backward(
    program: TritonProgram, work: Backward, d_out: Tensor | None, d_last: Sequence[Tensor | None]
) -> None:
    layout, like = program.layout, work.weights
    n_batch, n_steps = work.n_batch, work.n_steps
    d_pre = like.new_empty(n_steps, n_batch, layout.ld_pre)
    d_in = like.new_empty(n_steps, n_batch, layout.ld_in)
    n_parts = -(-n_steps // PART) if program.code.through_time else 1
    d_state, d_vec = like.new_zeros(n_batch, layout.ld_state), like.new_zeros(n_parts, n_batch, layout.ld_vec)
    d_fixed = like.new_zeros(n_parts, n_batch, layout.ld_fixed)
    for (width, _, _, at, _), x in zip(layout.states, d_last, strict=True):
        if x is not None:
            _place(d_state, at, width).copy_(x)
    for begin, end in reversed(program.blocks(n_steps)):
        d_block = like.new_zeros(end - begin, n_batch, layout.out_width)
        if d_out is not None:
            d_block.copy_(d_out[:, begin:end].transpose(0, 1))
        inputs = [work.weights, work.vec, work.fixed, work.path[begin : end + 2], d_block]
        changed = [d_state, d_vec, d_fixed]
        program.run(
            _steps_back, inputs, changed, [d_pre[begin:end], d_in[begin:end]], (program, work.numbers)
        )
    for (width, _, _, at, _), x in zip(layout.states, work.d_first, strict=True):
        x.copy_(_place(d_state, at, width))
    torch.sum(d_vec, (0, 1), out=work.d_vec)
    torch.sum(d_fixed, 0, out=work.d_fixed)
    _after_all(program, work, d_pre.flatten(0, 1), d_in)


def _after_all(program: TritonProgram, work: Backward, d_pre: Tensor, d_in: Tensor) -> None:
    """The products of all steps at once: gradients of weights and of inputs."""
    layout = program.layout
    path, to_input = work.path[1:-1].flatten(0, 1), d_in.flatten(0, 1)
    for g, (_, n, at, first, n_pieces, _, _) in enumerate(layout.groups):
        d_weights = _weights(layout, work.d_weights, g)
        for begin, k, column in layout.pieces[first : first + n_pieces]:
            _multiply(_place(d_pre, at, n).t(), _place(path, begin, k), _place(d_weights, column, k), False)
    for g, column, k, to, at, add in layout.backs:
        if to < 0:
            _, n, pre, *_ = layout.groups[g]
            w = _place(_weights(layout, work.weights, g), column, k)
            _multiply(_place(d_pre, pre, n), w, _place(to_input, at, k), bool(add))
    for v in program.code.inputs_written:
        work.d_u[v] = _place(d_in, layout.at["d_in", v], program.graph.widths[v])


def _steps_back(
    inputs: list[Tensor],
    changed: list[Tensor],
    outputs: list[Tensor],
    program: TritonProgram,
    numbers: Numbers,
) -> None:
    """The steps of a block, the last one first."""
    weights, vec, fixed, path, d_out = inputs
    (d_state, d_vec, d_fixed), (d_pre, d_in), layout = changed, outputs, program.layout
    joined = [_weights(layout, weights, g) for g in range(len(layout.groups))]
    spans, kept = program.spans(len(d_out)), program.keeps_state_gradients
    # A state that nothing reads keeps zero.
    d_states = d_state.new_zeros(len(d_out) + 1 if kept else 1, *d_state.shape)
    d_states[-1] = d_state
    d_op = d_state.new_empty(spans[0][1] * len(d_state), layout.ld_op)
    tensors = {
        "vecs": vec,
        "fixed": fixed,
        "d_vec": d_vec,
        "d_fixed": d_fixed,
        "d_state": d_state,
        "d_op": d_op,
    }
    for n, m in reversed(spans):
        prev, cur, following = (path[n + k : m + k].flatten(0, 1) for k in range(3))
        d_old, d_new = (d_states[n + k : m + k].flatten(0, 1) for k in range(2))
        d_now = d_pre[n:m].flatten(0, 1)
        tensors |= {"prev": prev, "cur": cur, "next": following, "d_old": d_old, "d_new": d_new}
        tensors |= {"d_out": d_out[n:m], "d_pre": d_now, "d_in": d_in[n:m]}
        for level in reversed(range(len(program.code.backward))):
            program.launch("backward", level, tensors, numbers, (len(d_state), m - n), keep=True)
            for g, column, k, to, at, add in layout.backs:
                after, width, pre, *_ = layout.groups[g]
                if after == level and to >= 0:
                    target = _place(d_old if to else d_op, at, k)
                    _multiply(_place(d_now, pre, width), _place(joined[g], column, k), target, bool(add))
    for k, (width, _, _, at, _) in enumerate(layout.states):
        if k not in program.graph.inside:
            _place(d_state, at, width).copy_(_place(d_states[0], at, width))


# ---- the backend ----


compiled = partial(programs.compiled, TritonProgram)


def cell(*tensors: Tensor, step: Step, n_inputs: int, program: Compiled) -> tuple[Tensor, tuple[Tensor, ...]]:
    """Outputs (B, T, n) and last states; differentiable once. `tensors`: inputs (B, T, D), states (B, H).

    Half precision is computed in float32, and rounded at the end.
    """
    in_float32 = (x.float() for x in (*tensors, *program.trace.leaves))
    output, last = programs.computed(program.program, program.trace, n_inputs, *in_float32)
    return output.to(tensors[0].dtype), tuple(x.to(tensors[0].dtype) for x in last)
