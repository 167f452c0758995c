"""The elementwise loops of a step as Triton kernels: one per level and width, a thread per row and unit.

If no product comes between two steps (`graph.through_time`), each kernel has a loop over time: at the level
of the states over all steps, states in registers, at others over a part of them. What it reads next is
fetched meanwhile; nothing is read that an earlier step of the same loop wrote.
"""

from collections.abc import Iterator, Mapping
from typing import ClassVar

from physml.ops.cell.writer import Code, Key, Loop

# The rows that kernels read and write, and the distance of a row of the batch to the next, by the layout.
ROWS = {
    **dict.fromkeys(("prev", "cur", "next"), "ld_row"),
    **dict.fromkeys(("out", "d_out"), "out_width"),
    **dict.fromkeys(("pre", "d_pre"), "ld_pre"),
    **dict.fromkeys(("d_new", "d_old"), "ld_state"),
    **dict.fromkeys(("fixed", "d_fixed"), "ld_fixed"),
    "d_state": "ld_state",
    "d_op": "ld_op",
    "d_in": "ld_in",
    "d_vec": "ld_vec",  # a sum per row of the batch
    "vecs": "",  # one row for the whole batch
}
# Rows that are the same at all steps, and which one of them a thread of a loop over time has.
STILL = {"vecs": "0", "fixed": "r", "d_state": "r", "d_vec": "sums", "d_fixed": "sums"}
HEAD = """\
import triton
import triton.language as tl

from physml.ops.triton.cell_functions import (
    pick, vec_abs, vec_cos, vec_erf, vec_erf_slope, vec_exp, vec_log, vec_sigmoid, vec_sin, vec_softplus,
    vec_sqrt, vec_tanh,
)
"""


class Triton:
    """Offsets and lengths are constants of a kernel, numbers and the size of the batch are passed."""

    words: ClassVar[Mapping[str, str]] = {"zero": "0.0", "one": "1.0", "half": "0.5"}

    def number(self, x: float) -> str:
        return f"tl.full((BLOCK,), {x}, tl.float32)"

    def define(self, name: str, expression: str) -> str:
        return f"{name} = {expression}"

    def load(self, place: str) -> str:
        return f"tl.load({place}, mask=live)"

    def store(self, place: str, value: str) -> str:
        return f"tl.store({place}, {value}, mask=live)"

    def cleared(self, value: str) -> str:
        return value

    def kept(self, statement: str) -> str:
        return f"if KEEP: {statement}"

    def text(self, code: Code) -> str:
        ways = {"forward": code.forward, "backward": code.backward}
        kernels = [
            _kernel(code, name_of(way, level, k), loop, way)
            for way, levels in ways.items()
            for level, loops in enumerate(levels)
            for k, loop in enumerate(loops)
        ]
        return "\n\n".join([HEAD, *kernels])


def name_of(way: str, level: int, k: int) -> str:
    """The name of the kernel of loop `k` of a level."""
    return f"{way}_{level}_{k}"


def rows(loop: Loop) -> list[str]:
    """The rows that a kernel takes, in the order of its arguments."""
    return [name for name in ROWS if loop.uses(name)]


def _kernel(code: Code, name: str, loop: Loop, way: str) -> str:
    constants = [*distances(loop), *offsets(code, loop), "WIDTH", "KEEP", "BLOCK"]
    sizes, how = ["n"], ""
    if code.through_time:
        sizes, how = ["n", "n_steps", "part"], '(do_not_specialize=["n_steps", "part"])'
        constants.append("AHEAD")
    return "\n".join(
        [
            f"@triton.jit{how}",
            f"def {name}(",
            f"    {', '.join([*rows(loop), *(f'c{k}' for k in sorted(loop.numbers)), *sizes])},",
            *(f"    {name}: tl.constexpr," for name in constants),
            "):",
            *(f"    {line}" for line in (_steps(loop, way) if code.through_time else _body(loop))),
            "",
        ]
    )


def distances(loop: Loop) -> list[str]:
    """The distances of rows that a kernel takes."""
    return list(dict.fromkeys(ROWS[name] for name in rows(loop) if ROWS[name]))


def offsets(code: Code, loop: Loop) -> dict[str, Key]:
    """The offsets that a kernel takes, by name."""
    return {f"o{code.place(*key)}": key for key in loop.offsets}


PLACES = (
    "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)",
    "live = i < n",
    "r = i // WIDTH",
    "j = i % WIDTH",
)


def _body(loop: Loop) -> Iterator[str]:
    yield from PLACES
    for name in rows(loop):
        if ROWS[name]:
            yield f"{name} += r * {ROWS[name]}"
    yield from loop.lines


def _steps(loop: Loop, way: str) -> Iterator[str]:
    """The body of a kernel with a loop over time: `part` steps of `n_steps`, backward the last one first."""
    yield from PLACES
    yield "n_rows = n // WIDTH"
    yield "begin = tl.program_id(1) * part"
    yield "end = tl.minimum(begin + part, n_steps)"
    yield f"first = ({'begin' if way == 'forward' else 'end - 1'}).to(tl.int64) * n_rows + r"
    yield "sums = tl.program_id(1) * n_rows + r"
    moving = [name for name in rows(loop) if name not in STILL]
    for name in rows(loop):
        if ROWS[name]:
            yield f"{name} += {STILL.get(name, 'first')} * {ROWS[name]}"
    once = [line for line in loop.lines if "tl.load(vecs + " in line or "tl.load(fixed + " in line]
    yield from once
    register = "s" if way == "forward" else "g"
    for k, place in loop.states.items():
        yield f"{register}{k} = tl.load({place}, mask=live)"
    for total in loop.sums:
        yield f"{total} = tl.zeros((BLOCK,), tl.float32)"
    yield "for _ in tl.range(begin, end, num_stages=AHEAD):"
    yield from (f"    {line}" for line in loop.lines if line not in once)
    ends = {name: value for name, value in loop.ends.items() if int(name[1:]) in loop.states}
    if ends:  # all at once, for states may change places; numbers become rows
        row = " + tl.zeros((BLOCK,), tl.float32)"
        yield f"    {', '.join(ends)} = {', '.join(x + row * (x[0] == 'c') for x in ends.values())}"
    for name in moving:
        yield f"    {name} {'+' if way == 'forward' else '-'}= n_rows * {ROWS[name]}"
    for total, place in loop.sums.items():
        yield f"tl.store({place}, tl.load({place}, mask=live) + {total}, mask=live)"
    if way == "backward":
        for k, place in loop.states.items():
            yield f"tl.store({place}, g{k}, mask=live)"
