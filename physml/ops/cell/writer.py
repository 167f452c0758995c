"""The elementwise loops of a step, level by level: forward, and back by the chain rule.

In which language is for a `Language` to say. What the backward pass needs is kept if an operation is
expensive or its arguments are gone, else computed again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, Protocol

from physml.ops.cell.operations import BACKWARD, FORWARD, KEPT
from physml.ops.cell.plan import Plan

Key = tuple[Any, ...]  # of an offset or a length, known only when the sizes are


class Language(Protocol):
    """How a language writes what loops are made of."""

    words: ClassVar[Mapping[str, str]]  # zero, one and half

    def number(self, x: float) -> str: ...

    def define(self, name: str, expression: str) -> str: ...

    def load(self, place: str) -> str: ...

    def store(self, place: str, value: str) -> str: ...

    def cleared(self, value: str) -> str:
        """The value with zero beyond the width of the row, for a product to read."""
        ...

    def kept(self, statement: str) -> str:
        """The statement, done only if a backward pass follows."""
        ...

    def text(self, code: "Code") -> str:
        """The whole source."""
        ...


@dataclass
class Code:
    """The loops of a plan, and what must be known to call them.

    Args:
        forward: per level, its loops.
        backward: likewise.
        offsets: those that the loops name by their place here, and other lengths.
        saved: nodes that are kept in the row of a step, in their order.
        backs: per product that gives a gradient, in the order of the backward pass: group, operand, and
            whether it is added to what is there.
        spilled: nodes whose gradient is kept between levels.
        inputs_written: input nodes that get a gradient.
        states_written: old states that get a gradient.
        through_time: whether loops over time are inside, see `graph.through_time`.
    """

    forward: list[list["Loop"]]
    backward: list[list["Loop"]]
    offsets: list[Key]
    saved: list[int]
    backs: list[tuple[int, int, bool]]
    spilled: list[int]
    inputs_written: list[int]
    states_written: set[int]
    n_numbers: int
    through_time: bool
    text: str = ""

    def place(self, *key: object) -> int:
        """The place of an offset or a length among all."""
        if key not in self.offsets:
            self.offsets.append(key)
        return self.offsets.index(key)


@dataclass
class Loop:
    """One loop over rows and units, all rows of one width.

    Args:
        states: old states that stay in registers, and where the first one is; they are named s0, s1, ...
        ends: what a state, or its gradient g0, g1, ..., is after a step.
        sums: gradients that are summed over all steps, and where they go; they are named a0, a1, ...
    """

    language: Language
    width: int
    states: dict[int, str] = field(default_factory=dict)
    ends: dict[str, str] = field(default_factory=dict)
    sums: dict[str, str] = field(default_factory=dict)
    lines: list[str] = field(default_factory=list)
    names: dict[Key, str] = field(default_factory=dict)
    offsets: list[Key] = field(default_factory=list)
    numbers: set[int] = field(default_factory=set)

    def new(self, expression: str) -> str:
        name = f"v{len(self.lines)}"
        self.lines.append(self.language.define(name, expression))
        return name

    def load(self, place: str) -> str:
        return self.new(self.language.load(place))

    def store(self, place: str, value: str) -> None:
        self.lines.append(self.language.store(place, value))

    def uses(self, name: str) -> bool:
        """True if the row with this name is read or written."""
        places = (*self.lines, *(f"({place}" for place in (*self.states.values(), *self.sums.values())))
        return any(f"({name} + " in line for line in places)


class Writer:
    """Writes the backward loops first, for they tell what must be kept."""

    def __init__(self, plan: Plan, language: Language) -> None:
        self.plan, self.graph, self.language = plan, plan.graph, language
        self.levels = plan.graph.levels
        self.offsets: list[Key] = []
        self.saved: list[int] = []
        self.always: set[int] = set()  # saved without a backward pass too
        self.written: set[Key] = set()  # gradients that have a first part
        self.n_levels = max(self.levels) + 1
        self.home = self._homes()
        self.needed = self._needed()
        self.inside = plan.graph.inside

    def _homes(self) -> dict[int, tuple[str, Key]]:
        """Row, and place in it, of each node after the forward pass, if it is not among the saved."""
        plan = self.plan
        homes: dict[int, tuple[str, Key]] = {}
        for k, v in enumerate(self.graph.states):
            if k not in plan.carried and self.graph.nodes[v][0] not in ("state", "input"):
                homes[v] = ("next", ("state", k))
        for v, node in enumerate(self.graph.nodes):
            if node[0] == "state":
                k = node[1]
                homes[v] = ("prev", ("row", plan.carried[k])) if k in plan.carried else ("cur", ("state", k))
            elif node[0] == "input" or v in plan.row:
                homes[v] = ("cur", ("row", v))
        return homes

    def _needed(self) -> list[bool]:
        """For each node, True if its gradient leads to one that is wanted."""
        needed: list[bool] = []
        for v, (name, *rest) in enumerate(self.graph.nodes):
            if name in ("number", "exactly"):
                needed.append(False)
            elif name == "input":
                needed.append(self.plan.input_needs[rest[0]])
            elif name in ("state", "vector", "fixed", "affine"):
                needed.append(True)
            else:
                reached = zip(self.graph.arguments(v), BACKWARD[name], strict=True)
                needed.append(any(needed[x] for x, way in reached if way is not None))
        return needed

    def at(self, loop: Loop, *key: object) -> str:
        if key not in self.offsets:
            self.offsets.append(key)
        if key not in loop.offsets:
            loop.offsets.append(key)
        return f"o{self.offsets.index(key)} + j"

    def value(self, loop: Loop, v: int, level: int, backward: bool) -> str:
        """The name of a node's value in a loop at `level`."""
        key = ("value", v)
        if key not in loop.names:
            loop.names[key] = self._value(loop, v, level, backward)
        return loop.names[key]

    def _value(self, loop: Loop, v: int, level: int, backward: bool) -> str:
        name, *rest = self.graph.nodes[v]
        here = self.levels[v] == level and not backward
        if name == "number":
            loop.numbers.add(rest[0])
            return f"c{rest[0]}"
        if name == "exactly":
            return self.language.number(rest[0])
        if name == "vector":
            return loop.load(f"vecs + {self.at(loop, 'vec', *rest, self.graph.widths[v])}")
        if name == "fixed":
            return loop.load(f"fixed + {self.at(loop, 'fixed', *rest)}")
        if name == "affine" and not backward:
            return loop.load(f"pre + {self.at(loop, 'pre', v)}")
        if v in self.home and (name in ("state", "input") or not here):
            row, place = self.home[v]
            if here and name == "state" and rest[0] in self.inside:
                loop.states[rest[0]] = f"{row} + {self.at(loop, *place)}"
                return f"s{rest[0]}"
            return loop.load(f"{row} + {self.at(loop, *place)}")
        if not here and (name in KEPT or name == "affine" or v in self.saved):
            self.save(v, backward)
            return loop.load(f"cur + {self.at(loop, 'saved', v)}")
        arguments = [self.value(loop, x, level, backward) for x in self.graph.arguments(v)]
        return loop.new(FORWARD[name].format(*arguments, **self.language.words))

    def save(self, v: int, backward: bool) -> None:
        if v not in self.saved:
            self.saved.append(v)
        if not backward:
            self.always.add(v)

    # ---- back ----

    def backward(self) -> tuple[list[list[Loop]], list[tuple[int, int, bool]]]:
        """Per level the loops, written from the last level on; and the products behind them."""
        stages: list[list[Loop]] = [[] for _ in range(self.n_levels)]
        backs: list[tuple[int, int, bool]] = []
        for level in range(self.n_levels - 1, -1, -1):
            for width in self._widths(level):
                loop = self._back_loop(level, width)
                if loop.lines:
                    stages[level].append(loop)
            backs += [
                (g, x, not self._input(x) and self._added(self._gradient(x)))
                for g, group in enumerate(self.plan.groups)
                for x in group.operands
                if group.level == level and isinstance(x, int) and self.needed[x]
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
        """True if this part of a gradient is added to others: all but the first are."""
        seen = key in self.written
        self.written.add(key)
        return seen

    def _back_loop(self, level: int, width: int) -> Loop:
        graph, loop = self.graph, Loop(self.language, width)
        here = [v for v in range(len(graph.nodes)) if self.levels[v] == level and graph.widths[v] == width]
        gradient = self._incoming(loop, here)
        for v in reversed(here):
            name, *_ = graph.nodes[v]
            if not self.needed[v]:
                continue
            inner = name not in ("state", "input", "vector", "fixed")
            if inner and self._gradient(v) in self.written:
                gradient.setdefault(v, []).append(loop.load(f"d_op + {self.at(loop, 'd_op', v)}"))
            parts = gradient.get(v, [])
            if not parts:
                if name == "affine":
                    loop.store(f"d_pre + {self.at(loop, 'pre', v)}", self.language.words["zero"])
                continue
            d = parts[0] if len(parts) == 1 else loop.new(" + ".join(parts))
            if name == "affine":
                loop.store(f"d_pre + {self.at(loop, 'pre', v)}", self.language.cleared(d))
            elif inner:
                self._through(loop, v, d, level, gradient)
            else:
                self._to_leaf(loop, v, d, level)
        for v, parts in gradient.items():
            if self.levels[v] < level and self.needed[v]:
                self._to_leaf(loop, v, " + ".join(parts), level)
        for k in loop.states:  # a state that this loop does not read may still enter a product
            if f"g{k}" not in loop.ends:
                key, zero = ("d_state", k), self.language.number(0.0)
                place = f"d_old + {self.at(loop, *key)}"
                loop.ends[f"g{k}"] = loop.load(place) if key in self.written else zero
        return loop

    def _incoming(self, loop: Loop, here: list[int]) -> dict[int, list[str]]:
        """Gradients of the output and of new states, by node, as lists of parts."""
        gradient: dict[int, list[str]] = {}
        for v in here:
            if self.graph.output == v:
                gradient.setdefault(v, []).append(loop.load("d_out + j"))
            for k in (k for k, new in enumerate(self.graph.states) if new == v):
                place = self.at(loop, "d_state", k)
                if k in self.inside:
                    loop.states[k] = f"d_state + {place}"
                part = f"g{k}" if k in self.inside else loop.load(f"d_new + {place}")
                gradient.setdefault(v, []).append(part)
        return gradient

    def _through(self, loop: Loop, v: int, d: str, level: int, gradient: dict[int, list[str]]) -> None:
        name, *_ = self.graph.nodes[v]
        arguments = self.graph.arguments(v)
        for x, way in zip(arguments, BACKWARD[name], strict=True):
            if way is None or not self.needed[x]:
                continue
            names = {"d": d}
            if "{v}" in way:
                names["v"] = self.value(loop, v, level, backward=True)
            values = [
                self.value(loop, y, level, backward=True) if f"{{{k}}}" in way else ""
                for k, y in enumerate(arguments)
            ]
            part = d if way == "{d}" else loop.new(way.format(*values, **names, **self.language.words))
            gradient.setdefault(x, []).append(part)

    def _to_leaf(self, loop: Loop, v: int, d: str, level: int) -> None:
        """Add to the gradient of something that is not computed in this loop."""
        name, *rest = self.graph.nodes[v]
        if name in ("vector", "fixed"):
            if name == "vector":
                to = f"d_vec + {self.at(loop, 'vec', *rest, self.graph.widths[v])}"
            else:
                to = f"d_fixed + {self.at(loop, 'fixed', *rest)}"
            if self.graph.start is None:
                loop.store(to, f"{self.language.load(to)} + ({d})")
            else:
                total = f"a{len(loop.sums)}"
                loop.sums[total] = to
                loop.lines.append(f"{total} += {d}")
            return
        key = self._gradient(v)
        array = {"d_state": "d_old", "d_in": "d_in", "d_op": "d_op"}[str(key[0])]
        to = f"{array} + {self.at(loop, *key)}"
        whole = f"{self.language.load(to)} + ({d})" if self._added(key) else d
        if name == "state" and level == self.graph.start and rest[0] in self.inside:
            loop.ends[f"g{rest[0]}"] = loop.new(whole)
        else:
            loop.store(to, whole)

    # ---- forward ----

    def forward(self) -> list[list[Loop]]:
        """Per level the loops, one per width; again if a level asks for what one before it must keep."""
        before = (-1, -1)
        while before != (len(self.saved), len(self.always)):
            before = (len(self.saved), len(self.always))
            stages = [
                [loop for width in self._widths(level) if (loop := self._loop(level, width)).lines]
                for level in range(self.n_levels)
            ]
        return stages

    def _loop(self, level: int, width: int) -> Loop:
        graph, loop = self.graph, Loop(self.language, width)
        for v in range(len(graph.nodes)):
            if self.levels[v] != level or graph.widths[v] != width:
                continue
            name = graph.nodes[v][0]
            if v in self.plan.row and name not in ("state", "input"):
                value = self.value(loop, v, level, backward=False)
                loop.store(f"cur + {self.at(loop, 'row', v)}", self.language.cleared(value))
            for k, new in enumerate(graph.states):
                if new != v or (k in self.plan.carried and k not in self.inside):
                    continue
                value = self.value(loop, v, level, backward=False)
                if k in self.inside:
                    loop.ends[f"s{k}"] = value
                if k not in self.plan.carried:
                    loop.store(f"next + {self.at(loop, 'state', k)}", self.language.cleared(value))
            if graph.output == v:
                value = self.value(loop, v, level, backward=False)
                loop.store("out + j", value)
            if v in self.saved:
                value = self.value(loop, v, level, backward=False)
                loop.store(f"cur + {self.at(loop, 'saved', v)}", value)
                if v not in self.always:
                    loop.lines[-1] = self.language.kept(loop.lines[-1])
        return loop


def code(plan: Plan, language: Language) -> Code:
    """The loops of a plan, and their source."""
    writer = Writer(plan, language)
    backward, backs = writer.backward()
    forward = writer.forward()
    spilled, inputs, states = (
        sorted(v for kind, v in writer.written if kind == name) for name in ("d_op", "d_in", "d_state")
    )
    n_numbers = 1 + max((n[1] for n in plan.graph.nodes if n[0] == "number"), default=-1)
    code = Code(
        *(forward, backward, writer.offsets, writer.saved, backs, spilled, inputs, set(states), n_numbers),
        through_time=plan.graph.start is not None,
    )
    code.text = language.text(code)
    return code
