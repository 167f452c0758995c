"""The trace of a step as what is computed: elementwise operations, and products joined into affine maps."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from physml.ops.cell.outline import Node
from physml.ops.cell.rows import NotExpressible

LEAVES = ("state", "input", "vector", "fixed", "number", "exactly")


@dataclass(frozen=True)
class Term:
    """A product in an affine map: rows and columns of leaf `weight` that act on an operand."""

    operand: int
    weight: int
    rows: tuple[int, int]
    columns: tuple[int, int]


@dataclass
class Graph:
    """The nodes of a step, each after its arguments.

    A node is one of
        ("state", k), ("input", k, begin, end): what comes in; inputs may be taken in parts;
        ("vector", leaf, begin, end), ("fixed", leaf, begin, end): numbers per unit, or per row and unit;
        ("number", k), ("exactly", x);
        ("affine", terms, biases): sum of products and of vectors (leaf, begin, end);
        (operation, arguments...), elementwise.
    """

    nodes: list[Node] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    output: int = -1
    states: tuple[int, ...] = ()  # the new ones
    start: int | None = None  # the level of the loop over time, where that loop is inside; see `through_time`
    _known: dict[Node, int] = field(default_factory=dict)

    def add(self, width: int, *node: Any) -> int:
        key = (width, *node)
        if key not in self._known:
            self._known[key] = len(self.nodes)
            self.nodes.append(node)
            self.widths.append(width)
        return self._known[key]

    def arguments(self, v: int) -> tuple[int, ...]:
        """The rows that an elementwise operation takes; none for leaves and affine maps."""
        name, *rest = self.nodes[v]
        return () if name in LEAVES or name == "affine" else tuple(rest)

    def operands(self, v: int) -> tuple[int, ...]:
        """The rows that an affine map multiplies."""
        return tuple(term.operand for term in self.nodes[v][1]) if self.nodes[v][0] == "affine" else ()

    @cached_property
    def levels(self) -> list[int]:
        """How many products in a row must be known before a row is; old states are at `start`."""
        levels: list[int] = []
        for v, (name, *_) in enumerate(self.nodes):
            after = [levels[x] + 1 for x in self.operands(v)]
            first = (self.start or 0) if name == "state" else 0
            levels.append(max([first, *after, *(levels[x] for x in self.arguments(v))]))
        return levels

    @property
    def inside(self) -> set[int]:
        """The states that a loop over time keeps in registers: those that a step computes at its level."""
        return {k for k, v in enumerate(self.states) if self.levels[v] == self.start}

    @cached_property
    def moving(self) -> list[bool]:
        """For each node, whether it depends on an old state."""
        moving: list[bool] = []
        for v, (name, *_) in enumerate(self.nodes):
            reads = (*self.arguments(v), *self.operands(v))
            moving.append(name == "state" or any(moving[x] for x in reads))
        return moving


def graph(
    nodes: Sequence[Node], widths: Sequence[int], outputs: Sequence[int], single: Sequence[bool]
) -> Graph:
    """Graph of a trace: parts and joins of rows are gone, sums of products are one affine map.

    Args:
        nodes: those of the trace, as are `widths` and `outputs`.
        widths: of the nodes.
        outputs: the nodes that are the output and the new states.
        single: for each leaf, whether it is one number, which then serves all units.
    Errors: NotExpressible.
    """
    graph = Graph()
    lowered = _Lowered(nodes, widths, single, graph)
    graph.output = lowered.row(outputs[0])
    graph.states = tuple(lowered.row(x) for x in outputs[1:])
    return _merged(graph)


def through_time(graph: Graph) -> Graph:
    """The graph with one level at which all steps are taken, if no product comes between two of them.

    Products of inputs then come before that level, products of states, which only the output reads, behind
    it, each for all steps at once. Else the graph as it is.
    """
    multiplied: list[bool] = []  # by node, whether a product of something that depends on a state is in it
    for v in range(len(graph.nodes)):
        reads = any(multiplied[x] for x in (*graph.arguments(v), *graph.operands(v)))
        multiplied.append(reads or any(graph.moving[x] for x in graph.operands(v)))
    if any(multiplied[v] for v in graph.states):
        return graph
    still = [v for v, node in enumerate(graph.nodes) if node[0] == "affine" and not graph.moving[v]]
    return replace(graph, start=max((graph.levels[v] for v in still), default=0))


class _Lowered:
    """Parts of rows, pushed through operations to where the row comes from."""

    def __init__(
        self, nodes: Sequence[Node], widths: Sequence[int], single: Sequence[bool], graph: Graph
    ) -> None:
        self.nodes, self.widths, self.single, self.graph = nodes, widths, single, graph
        self.known: dict[tuple[int, int, int], int] = {}

    def row(self, v: int) -> int:
        return self.part(v, 0, self.widths[v])

    def part(self, v: int, begin: int, end: int) -> int:
        """The node that computes the units from `begin` to before `end` of row `v` of the trace."""
        key = (v, begin, end)
        if key not in self.known:
            self.known[key] = self._part(v, begin, end)
        return self.known[key]

    def _part(self, v: int, begin: int, end: int) -> int:
        (name, *rest), width = self.nodes[v], self.widths[v]
        add = self.graph.add
        if name == "state":
            if (begin, end) != (0, width):
                raise NotExpressible("it takes a state apart: return the parts as states of their own")
            return add(width, name, *rest)
        if name in ("input", "vector", "fixed"):
            if name == "vector" and self.single[rest[0]]:
                return add(end - begin, name, rest[0], 0, 1)
            return add(end - begin, name, rest[0], begin, end)
        if name in ("number", "exactly"):
            return add(end - begin, name, *rest)
        if name == "slice":
            return self.part(rest[0], rest[1] + begin, rest[1] + end)
        if name == "cat":
            return self._of_join(rest, begin, end)
        if name == "linear":
            terms = tuple(self._terms(rest[0], rest[1], (begin, end), 0))
            return add(end - begin, "affine", terms, ())
        return add(end - begin, name, *(self.part(x, begin, end) for x in rest))

    def _of_join(self, parts: list[int], begin: int, end: int) -> int:
        at = 0
        for x in parts:
            if at <= begin and end <= at + self.widths[x]:
                return self.part(x, begin - at, end - at)
            at += self.widths[x]
        raise NotExpressible(
            "it joins rows other than for a product: return the parts as states of their own"
        )

    def _terms(self, x: int, weight: int, rows: tuple[int, int], column: int) -> list[Term]:
        """The products of a weight with a row, which may be joined from others."""
        name, *rest = self.nodes[x]
        if name != "cat":
            return [Term(self.row(x), weight, rows, (column, column + self.widths[x]))]
        terms = []
        for part in rest:
            terms += self._terms(part, weight, rows, column)
            column += self.widths[part]
        return terms


def _merged(old: Graph) -> Graph:
    """The graph with sums of affine maps, and of these and vectors, as one map if nobody else uses them."""
    uses = Counter([old.output, *old.states])
    for v in range(len(old.nodes)):
        uses.update(old.arguments(v))
        uses.update(old.operands(v))
    merged, place = Graph(), dict[int, int]()
    for v, (name, *rest) in enumerate(old.nodes):
        if not uses[v]:
            continue
        if name == "affine":
            rest = [tuple(Term(place[t.operand], t.weight, t.rows, t.columns) for t in rest[0]), rest[1]]
        elif name not in LEAVES:
            rest = [place[x] for x in rest]
            if name == "add" and (joined := _joined(merged, old, v, rest, uses)):
                place[v] = merged.add(old.widths[v], *joined)
                continue
        place[v] = merged.add(old.widths[v], name, *rest)
    merged.output, merged.states = place[old.output], tuple(place[v] for v in old.states)
    return _reachable(merged)


def _joined(merged: Graph, old: Graph, v: int, rest: list[int], uses: Counter[int]) -> Node | None:
    """A sum as an affine map, if its parts are affine maps used here alone, or one of them is a vector."""
    terms: tuple[Term, ...] = ()
    biases: tuple[Any, ...] = ()
    for before, now in zip(old.arguments(v), rest, strict=True):
        name, *parts = merged.nodes[now]
        if name == "affine" and uses[before] == 1:
            terms, biases = (*terms, *parts[0]), (*biases, *parts[1])
        elif name == "vector":
            biases = (*biases, tuple(parts))
        else:
            return None
    return ("affine", terms, biases) if terms else None


def _reachable(old: Graph) -> Graph:
    """The graph without what no result needs."""
    needed, todo = set(), [old.output, *old.states]
    while todo:
        v = todo.pop()
        if v not in needed:
            needed.add(v)
            todo += [*old.arguments(v), *old.operands(v)]
    reachable, place = Graph(), dict[int, int]()
    for v in sorted(needed):
        name, *rest = old.nodes[v]
        if name == "affine":
            rest = [tuple(Term(place[t.operand], t.weight, t.rows, t.columns) for t in rest[0]), rest[1]]
        elif name not in LEAVES:
            rest = [place[x] for x in rest]
        place[v] = reachable.add(old.widths[v], name, *rest)
    reachable.output, reachable.states = place[old.output], tuple(place[v] for v in old.states)
    return reachable
