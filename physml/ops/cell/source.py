"""The elementwise operations of a step in C, level by level: forward, and back by the chain rule.

Offsets are passed at run time, so that one source serves all sizes. What the backward pass needs is kept if
an operation is expensive or its arguments are gone, else computed again.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from physml.ops.cell.plan import Plan

Key = tuple[Any, ...]  # of an offset or a length that is passed at run time

KEPT = ("tanh", "sigmoid", "relu", "exp", "log", "sqrt", "sin", "cos", "erf", "softplus", "div")

FORWARD: dict[str, str] = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "maximum": "pick({0} < {1}, {1}, {0})",
    "minimum": "pick({0} > {1}, {1}, {0})",
    "greater": "pick({0} > {1}, splat(1), (vec){{0}})",
    "select": "pick({0} != 0, {1}, {2})",
    "relu": "pick({0} < 0, (vec){{0}}, {0})",
    "sign": "pick({0} > 0, splat(1), pick({0} < 0, splat(-1), (vec){{0}}))",
    "stop": "{0}",
    **{name: f"vec_{name}({{0}})" for name in ("tanh", "sigmoid", "exp", "log", "sqrt", "sin", "cos", "abs")},
    **{name: f"vec_{name}({{0}})" for name in ("erf", "softplus")},
}

# Of a result d, what reaches each argument; {v}: the result, {0}, {1}: arguments. None: nothing.
BACKWARD: dict[str, tuple[str | None, ...]] = {
    "add": ("{d}", "{d}"),
    "sub": ("{d}", "-{d}"),
    "mul": ("{d} * {1}", "{d} * {0}"),
    "div": ("{d} / {1}", "-({d} * {v}) / {1}"),
    "maximum": (
        "pick({0} > {1}, {d}, pick({0} == {1}, {d} * (real)0.5, (vec){{0}}))",
        "pick({1} > {0}, {d}, pick({0} == {1}, {d} * (real)0.5, (vec){{0}}))",
    ),
    "minimum": (
        "pick({0} < {1}, {d}, pick({0} == {1}, {d} * (real)0.5, (vec){{0}}))",
        "pick({1} < {0}, {d}, pick({0} == {1}, {d} * (real)0.5, (vec){{0}}))",
    ),
    "greater": (None, None),
    "select": (None, "pick({0} != 0, {d}, (vec){{0}})", "pick({0} != 0, (vec){{0}}, {d})"),
    "relu": ("pick({v} > 0, {d}, (vec){{0}})",),
    "sign": (None,),
    "stop": (None,),
    "tanh": ("{d} * (1 - {v} * {v})",),
    "sigmoid": ("{d} * ({v} * (1 - {v}))",),
    "exp": ("{d} * {v}",),
    "log": ("{d} / {0}",),
    "sqrt": ("{d} / ({v} * 2)",),
    "sin": ("{d} * vec_cos({0})",),
    "cos": ("-{d} * vec_sin({0})",),
    "abs": ("pick({0} > 0, {d}, pick({0} < 0, -{d}, (vec){{0}}))",),
    "erf": ("{d} * ((real)1.1283791670955126 * vec_exp(-{0} * {0}))",),
    "softplus": ("{d} * vec_sigmoid({0})",),
}


@dataclass
class Code:
    """C for a plan, and what must be known to call it.

    Args:
        text: the source.
        offsets: what `at` holds, in its order.
        saved: nodes that are kept in the row of a step, in their order.
        backs: per product that gives a gradient, in the order of the backward pass: group, operand, and
            whether it is added to what is there.
        spilled: nodes whose gradient is kept between levels.
        inputs_written: input nodes that get a gradient.
        states_written: old states that get a gradient.
    """

    text: str
    offsets: list[Key]
    saved: list[int]
    backs: list[tuple[int, int, bool]]
    spilled: list[int]
    inputs_written: list[int]
    states_written: set[int]


@dataclass
class _Loop:
    """One loop over rows and units, all rows of one width."""

    lines: list[str] = field(default_factory=list)
    names: dict[Key, str] = field(default_factory=dict)
    offsets: list[Key] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)

    def new(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(f"const vec {name} = {expression};")
        return name

    def do(self, statement: str) -> None:
        self.lines.append(statement)


class _Writer:
    """Writes all loops; the backward ones first, for they tell what must be kept."""

    def __init__(self, plan: Plan) -> None:
        self.plan, self.graph = plan, plan.graph
        self.levels = plan.graph.levels
        self.offsets: list[Key] = []
        self.saved: list[int] = []
        self.always: set[int] = set()  # saved without a backward pass too
        self.written: set[Key] = set()  # gradients that have a first part
        self.n_levels = max(self.levels) + 1
        self.home = self._homes()
        self.wanted = self._wanted()

    def _homes(self) -> dict[int, tuple[str, Key]]:
        """Where a node lies after the forward pass, if not among the saved: the row and the place in it."""
        plan = self.plan
        found: dict[int, tuple[str, Key]] = {}
        for k, v in enumerate(self.graph.states):
            if k not in plan.carried and self.graph.nodes[v][0] not in ("state", "input"):
                found[v] = ("next", ("state", k))
        for v, node in enumerate(self.graph.nodes):
            if node[0] == "state":
                k = node[1]
                found[v] = ("prev", ("row", plan.carried[k])) if k in plan.carried else ("cur", ("state", k))
            elif node[0] == "input" or v in plan.row:
                found[v] = ("cur", ("row", v))
        return found

    def _wanted(self) -> list[bool]:
        """Whether a node's gradient leads to one that is wanted."""
        found: list[bool] = []
        for v, (name, *rest) in enumerate(self.graph.nodes):
            if name in ("number", "exactly"):
                found.append(False)
            elif name == "input":
                found.append(self.plan.wanted[rest[0]])
            elif name in ("state", "vector", "fixed", "affine"):
                found.append(True)
            else:
                reached = zip(self.graph.arguments(v), BACKWARD[name], strict=True)
                found.append(any(found[x] for x, way in reached if way is not None))
        return found

    def at(self, loop: _Loop, *key: object) -> str:
        if key not in self.offsets:
            self.offsets.append(key)
        if key not in loop.offsets:
            loop.offsets.append(key)
        return f"o{self.offsets.index(key)} + j"

    def value(self, loop: _Loop, v: int, level: int, back: bool) -> str:
        """The name of a node's value in a loop at `level`."""
        key = ("value", v)
        if key not in loop.names:
            loop.names[key] = self._value(loop, v, level, back)
        return loop.names[key]

    def _value(self, loop: _Loop, v: int, level: int, back: bool) -> str:
        name, *rest = self.graph.nodes[v]
        here = self.levels[v] == level and not back
        if name == "number":
            loop.numbers.add(rest[0])
            return f"c{rest[0]}"
        if name == "exactly":
            return f"splat((real){rest[0]})"
        if name == "vector":
            return loop.new(f"load(vecs + {self.at(loop, 'vec', *rest, self.graph.widths[v])})")
        if name == "fixed":
            return loop.new(f"load(fixed + {self.at(loop, 'fixed', *rest)})")
        if name == "affine" and not back:
            return loop.new(f"load(pre + {self.at(loop, 'pre', v)})")
        if v in self.home and (name in ("state", "input") or not here):
            row, place = self.home[v]
            return loop.new(f"load({row} + {self.at(loop, *place)})")
        if not here and (name in KEPT or name == "affine" or v in self.saved):
            self.save(v, back)
            return loop.new(f"load(cur + {self.at(loop, 'saved', v)})")
        arguments = [self.value(loop, x, level, back) for x in self.graph.arguments(v)]
        return loop.new(FORWARD[name].format(*arguments))

    def save(self, v: int, back: bool) -> None:
        if v not in self.saved:
            self.saved.append(v)
        if not back:
            self.always.add(v)

    # ---- back ----

    def backward(self) -> tuple[list[list[tuple[int, _Loop]]], list[tuple[int, int, bool]]]:
        """Per level, from the last on, the loops and their widths; and the products behind them."""
        stages: list[list[tuple[int, _Loop]]] = [[] for _ in range(self.n_levels)]
        backs: list[tuple[int, int, bool]] = []
        for level in range(self.n_levels - 1, -1, -1):
            for width in self._widths(level):
                loop = self._back_loop(level, width)
                if loop.lines:
                    stages[level].append((width, loop))
            backs += [
                (g, x, not self._input(x) and self._added(self._gradient(x)))
                for g, group in enumerate(self.plan.groups)
                for x in group.operands
                if group.level == level and isinstance(x, int) and self.wanted[x]
            ]
        # Products to inputs come after all steps of a block, so after all elementwise parts.
        return stages, [(g, x, self._added(("d_in", x)) if self._input(x) else add) for g, x, add in backs]

    def _input(self, v: int) -> bool:
        return self.graph.nodes[v][0] == "input"

    def _widths(self, level: int) -> list[int]:
        graph = self.graph
        return list(
            dict.fromkeys(graph.widths[v] for v in range(len(graph.nodes)) if self.levels[v] == level)
        )

    def _gradient(self, v: int) -> Key:
        """The place where parts of a node's gradient are added up."""
        name, *rest = self.graph.nodes[v]
        if name == "state":
            return ("d_state", rest[0])
        return ("d_in", v) if name == "input" else ("d_op", v)

    def _added(self, key: Key) -> bool:
        """Whether this part of a gradient is added to others: all but the first are."""
        seen = key in self.written
        self.written.add(key)
        return seen

    def _back_loop(self, level: int, width: int) -> _Loop:
        graph, loop = self.graph, _Loop()
        gradient: dict[int, list[str]] = {}
        here = [v for v in range(len(graph.nodes)) if self.levels[v] == level and graph.widths[v] == width]
        for v in here:
            if graph.output == v:
                gradient.setdefault(v, []).append(loop.new("load(d_out + j)"))
            for k, new in enumerate(graph.states):
                if new == v:
                    gradient.setdefault(v, []).append(
                        loop.new(f"load(d_new + {self.at(loop, 'd_state', k)})")
                    )
        for v in reversed(here):
            name, *_ = graph.nodes[v]
            if not self.wanted[v]:
                continue
            inner = name not in ("state", "input", "vector", "fixed")
            if inner and self._gradient(v) in self.written:
                gradient.setdefault(v, []).append(loop.new(f"load(d_op + {self.at(loop, 'd_op', v)})"))
            parts = gradient.get(v, [])
            if not parts:
                if name == "affine":
                    loop.do(f"store(d_pre + {self.at(loop, 'pre', v)}, (vec){{0}});")
                continue
            d = parts[0] if len(parts) == 1 else loop.new(" + ".join(parts))
            if name == "affine":
                loop.do(f"store(d_pre + {self.at(loop, 'pre', v)}, cleared({d}, live));")
            elif inner:
                self._through(loop, v, d, level, gradient)
            else:
                self._to_leaf(loop, v, d)
        for v, parts in gradient.items():
            if self.levels[v] < level and self.wanted[v]:
                self._to_leaf(loop, v, " + ".join(parts))
        return loop

    def _through(self, loop: _Loop, v: int, d: str, level: int, gradient: dict[int, list[str]]) -> None:
        name, *_ = self.graph.nodes[v]
        arguments = self.graph.arguments(v)
        for x, way in zip(arguments, BACKWARD[name], strict=True):
            if way is None or not self.wanted[x]:
                continue
            names = {"d": d}
            if "{v}" in way:
                names["v"] = self.value(loop, v, level, back=True)
            values = [
                self.value(loop, y, level, back=True) if f"{{{k}}}" in way else ""
                for k, y in enumerate(arguments)
            ]
            part = d if way == "{d}" else loop.new(way.format(*values, **names))
            gradient.setdefault(x, []).append(part)

    def _to_leaf(self, loop: _Loop, v: int, d: str) -> None:
        """Add to the gradient of something that is not computed in this loop."""
        name, *rest = self.graph.nodes[v]
        if name in ("vector", "fixed"):
            if name == "vector":
                to = f"d_vec + {self.at(loop, 'vec', *rest, self.graph.widths[v])}"
            else:
                to = f"d_fixed + {self.at(loop, 'fixed', *rest)}"
            loop.do(f"store({to}, load({to}) + ({d}));")
            return
        key = self._gradient(v)
        array = {"d_state": "d_old", "d_in": "d_in", "d_op": "d_op"}[str(key[0])]
        to = f"{array} + {self.at(loop, *key)}"
        loop.do(f"store({to}, load({to}) + ({d}));" if self._added(key) else f"store({to}, {d});")

    # ---- forward ----

    def forward(self) -> list[list[tuple[int, _Loop]]]:
        """Per level, the loops and their widths; again if a level asks for what one before it must keep."""
        before = (-1, -1)
        while before != (len(self.saved), len(self.always)):
            before = (len(self.saved), len(self.always))
            stages = [
                [(width, loop) for width in self._widths(level) if (loop := self._loop(level, width)).lines]
                for level in range(self.n_levels)
            ]
        return stages

    def _loop(self, level: int, width: int) -> _Loop:
        graph, loop = self.graph, _Loop()
        for v in range(len(graph.nodes)):
            if self.levels[v] != level or graph.widths[v] != width:
                continue
            name = graph.nodes[v][0]
            if v in self.plan.row and name not in ("state", "input"):
                value = self.value(loop, v, level, back=False)
                loop.do(f"store(cur + {self.at(loop, 'row', v)}, cleared({value}, live));")
            for k, new in enumerate(graph.states):
                if new == v and k not in self.plan.carried:
                    value = self.value(loop, v, level, back=False)
                    loop.do(f"store(next + {self.at(loop, 'state', k)}, cleared({value}, live));")
            if graph.output == v:
                value = self.value(loop, v, level, back=False)
                loop.do(f"store(out + j, {value});")
            if v in self.saved:
                value = self.value(loop, v, level, back=False)
                condition = "" if v in self.always else "if (keep) "
                loop.do(f"{condition}store(cur + {self.at(loop, 'saved', v)}, {value});")
        return loop


def code(plan: Plan) -> Code:
    """The C of a plan."""
    writer = _Writer(plan)
    back, backs = writer.backward()
    ahead = writer.forward()
    n_numbers = 1 + max((n[1] for n in plan.graph.nodes if n[0] == "number"), default=-1)
    text = "".join(
        [
            '#include "cell.h"\n\n',
            *_functions(writer, "forward", ahead, FORWARD_ROWS),
            *_functions(writer, "backward", back, BACKWARD_ROWS),
            f"size_t cell_room(const cell_call *c, int b) {{ return cell_room_of(c, {n_numbers}, b); }}\n",
            f"void cell_forward(const cell_call *c) {{ cell_forward_all(c, {n_numbers}); }}\n",
            f"void cell_backward(const cell_call *c) {{ cell_backward_all(c, {n_numbers}); }}\n",
        ]
    )
    spilled = [v for kind, v in writer.written if kind == "d_op"]
    inputs, states = ([v for kind, v in writer.written if kind == name] for name in ("d_in", "d_state"))
    return Code(text, writer.offsets, writer.saved, backs, sorted(spilled), sorted(inputs), set(states))


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


def _functions(
    writer: _Writer, way: str, stages: list[list[tuple[int, _Loop]]], rows: dict[str, str]
) -> Iterable[str]:
    keep = ", const int keep" if way == "forward" else ""
    for level, loops in enumerate(stages):
        yield f"INLINE void {way}_{level}(const frame *f{keep}) {{\n    const cell_call *c = f->call;\n"
        for width, loop in loops:
            yield _text(writer, width, loop, rows)
        yield "}\n\n"
    given = ", int keep" if way == "forward" else ""
    yield f"static void {way}_stage(int stage{given}, const frame *f) {{\n"
    if way == "forward":
        yield "    if (keep) switch (stage) {\n"
        yield "".join(f"        case {k}: forward_{k}(f, 1); return;\n" for k in range(len(stages)))
        yield "    }\n    else switch (stage) {\n"
        yield "".join(f"        case {k}: forward_{k}(f, 0); return;\n" for k in range(len(stages)))
    else:
        yield "    switch (stage) {\n"
        yield "".join(f"        case {k}: backward_{k}(f); return;\n" for k in range(len(stages)))
    yield "    }\n}\n\n"


def _text(writer: _Writer, width: int, loop: _Loop, rows: dict[str, str]) -> str:
    body = "\n".join(loop.lines)
    offsets = [f"o{writer.offsets.index(key)} = c->at[{writer.offsets.index(key)}]" for key in loop.offsets]
    sizes = [_size(writer, "room", width), _size(writer, "width", width)]
    lines = ["    {"]
    lines += [f"        const ptrdiff_t {', '.join(offsets)};"] if offsets else []
    lines += [f"        const int room = (int)c->at[{sizes[0]}], width = (int)c->at[{sizes[1]}];"]
    lines += [f"        const vec c{k} = splat(f->numbers[{k}]);" for k in sorted(loop.numbers)]
    lines += ["        for (int r = 0; r < f->n_rows; r++) {"]
    lines += [f"            {line}" for name, line in rows.items() if _uses(body, name)]
    lines += ["            for (int j = 0; j < room; j += VL) {"]
    lines += ["                const mask live = lanes(width - j);"] if "live" in body else []
    lines += [f"                {line}" for line in loop.lines]
    return "\n".join([*lines, "            }", "        }", "    }", ""])


def _size(writer: _Writer, *key: object) -> int:
    if key not in writer.offsets:
        writer.offsets.append(key)
    return writer.offsets.index(key)


def _uses(body: str, name: str) -> bool:
    return f"({name} + " in body
