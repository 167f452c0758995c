"""The elementwise loops of a step in C."""

from collections.abc import Iterable, Mapping, Sequence
from typing import ClassVar

from physml.ops.cell.writer import Code, Loop

FORWARD_ROWS = {
    **{name: f"real *{name} = f->{name} + r * c->ld_row;" for name in ("prev", "cur", "next")},
    "pre": "const real *pre = f->pre + r * c->ld_pre;",
    "out": "real *out = f->out + r * c->out_room;",
    "vecs": "const real *vecs = c->vec;",
    "fixed": "const real *fixed = f->fixed + r * c->ld_fixed;",
}
BACKWARD_ROWS = {
    **{name: f"const real *{name} = f->{name} + r * c->ld_row;" for name in ("prev", "cur", "next")},
    "vecs": "const real *vecs = c->vec;",
    "fixed": "const real *fixed = f->fixed + r * c->ld_fixed;",
    "d_out": "const real *d_out = f->d_out + r * (ptrdiff_t)f->ld_d_out;",
    "d_new": "const real *d_new = f->d_new + r * c->ld_state;",
    "d_old": "real *d_old = f->d_old + r * c->ld_state;",
    "d_op": "real *d_op = f->d_op + r * c->ld_op;",
    "d_in": "real *d_in = f->d_in + r * c->ld_in;",
    "d_pre": "real *d_pre = f->d_pre + r * c->ld_pre;",
    "d_vec": "real *d_vec = f->d_vec;",
    "d_fixed": "real *d_fixed = f->d_fixed + r * c->ld_fixed;",
}


class C:
    """The source that includes cell.h. Offsets are passed at run time: one source serves all sizes."""

    words: ClassVar[Mapping[str, str]] = {"zero": "(vec){0}", "one": "splat(1)", "half": "(real)0.5"}

    def number(self, x: float) -> str:
        return f"splat((real){x})"

    def define(self, name: str, expression: str) -> str:
        return f"const vec {name} = {expression};"

    def load(self, place: str) -> str:
        return f"load({place})"

    def store(self, place: str, value: str) -> str:
        return f"store({place}, {value});"

    def cleared(self, value: str) -> str:
        return f"cleared({value}, live)"

    def kept(self, statement: str) -> str:
        return f"if (keep) {statement}"

    def text(self, code: Code) -> str:
        return "".join(
            [
                '#include "cell.h"\n\n',
                *_functions(code, "forward", code.forward, FORWARD_ROWS),
                *_functions(code, "backward", code.backward, BACKWARD_ROWS),
            ]
        )


def _functions(code: Code, way: str, stages: Sequence[Sequence[Loop]], rows: dict[str, str]) -> Iterable[str]:
    keep = ", const int keep" if way == "forward" else ""
    for level, loops in enumerate(stages):
        yield f"INLINE void {way}_{level}(const frame *f{keep}) {{\n    const cell_call *c = f->call;\n"
        for loop in loops:
            yield _text(code, loop, rows)
        yield "}\n\n"
    parameter = ", int keep" if way == "forward" else ""
    yield f"void {way}_stage(int stage{parameter}, const frame *f) {{\n"
    if way == "forward":
        yield "    if (keep) switch (stage) {\n"
        yield "".join(f"        case {k}: forward_{k}(f, 1); return;\n" for k in range(len(stages)))
        yield "    }\n    else switch (stage) {\n"
        yield "".join(f"        case {k}: forward_{k}(f, 0); return;\n" for k in range(len(stages)))
    else:
        yield "    switch (stage) {\n"
        yield "".join(f"        case {k}: backward_{k}(f); return;\n" for k in range(len(stages)))
    yield "    }\n}\n\n"


def _text(code: Code, loop: Loop, rows: dict[str, str]) -> str:
    offsets = [f"o{code.place(*key)} = c->at[{code.place(*key)}]" for key in loop.offsets]
    sizes = [code.place("room", loop.width), code.place("width", loop.width)]
    lines = ["    {"]
    lines += [f"        const ptrdiff_t {', '.join(offsets)};"] if offsets else []
    lines += [f"        const int room = (int)c->at[{sizes[0]}], width = (int)c->at[{sizes[1]}];"]
    lines += [f"        const vec c{k} = splat(f->numbers[{k}]);" for k in sorted(loop.numbers)]
    lines += ["        for (int r = 0; r < f->n_rows; r++) {"]
    lines += [f"            {line}" for name, line in rows.items() if loop.uses(name)]
    lines += ["            for (int j = 0; j < room; j += VL) {"]
    lines += (
        ["                const mask live = lanes(width - j);"]
        if any("live" in line for line in loop.lines)
        else []
    )
    lines += [f"                {line}" for line in loop.lines]
    return "\n".join([*lines, "            }", "        }", "    }", ""])
