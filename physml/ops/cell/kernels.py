"""The elementwise loops of a step as Triton kernels: one per level and width, a thread per row and unit."""

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
    "d_op": "ld_op",
    "d_in": "ld_in",
    "d_vec": "ld_vec",  # a sum per row of the batch
    "vecs": "",  # one row for the whole batch
}
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
            _kernel(code, name_of(way, level, k), loop)
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


def _kernel(code: Code, name: str, loop: Loop) -> str:
    constants = [*distances(loop), *offsets(code, loop), "WIDTH", "KEEP", "BLOCK"]
    return "\n".join(
        [
            "@triton.jit",
            f"def {name}(",
            f"    {', '.join([*rows(loop), *(f'c{k}' for k in sorted(loop.numbers)), 'n'])},",
            *(f"    {name}: tl.constexpr," for name in constants),
            "):",
            *(f"    {line}" for line in _body(loop)),
            "",
        ]
    )


def distances(loop: Loop) -> list[str]:
    """The distances of rows that a kernel takes."""
    return list(dict.fromkeys(ROWS[name] for name in rows(loop) if ROWS[name]))


def offsets(code: Code, loop: Loop) -> dict[str, Key]:
    """The offsets that a kernel takes, by name."""
    return {f"o{code.place(*key)}": key for key in loop.offsets}


def _body(loop: Loop) -> Iterator[str]:
    yield "i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)"
    yield "live = i < n"
    yield "r = i // WIDTH"
    yield "j = i % WIDTH"
    for name in rows(loop):
        if ROWS[name]:
            yield f"{name} += r * {ROWS[name]}"
    yield from loop.lines
