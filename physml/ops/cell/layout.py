"""Layout of a step in memory: offsets and lengths, and the tables that the C is called with."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from physml.ops.cell.plan import ONE, Operand, Plan, pieces
from physml.ops.cell.writer import Code, Key


@dataclass(frozen=True)
class Part:
    """A part of a leaf in the joined weights: `rows` and `columns` of a matrix, or `rows` of a vector.

    Args:
        leaf: which tensor from outside.
        shape: of the part, (n, k), or (n,) for a bias.
        at: where it begins.
        strides: of rows and columns there.
    """

    leaf: int
    rows: slice
    columns: slice | None
    shape: tuple[int, ...]
    at: int
    strides: tuple[int, ...]


class Layout:
    """Offsets and lengths, in numbers, for vectors of `lanes` numbers.

    A row of the path: operands of products in the plan's order, other inputs and states, then what is saved.
    On a GPU `lanes` is 1, and nothing is filled up.
    """

    def __init__(self, plan: Plan, code: Code, lanes: int) -> None:
        self.lanes, self.plan, self.code, self.graph = lanes, plan, code, plan.graph
        widths = self.graph.widths
        self.at: dict[Key, int] = {}
        end = self._row()
        self.ld_pre = self.apart(
            self._line([("pre", v) for g in self.plan.groups for v in g.members], lambda key: widths[key[1]])
        )
        states = [("d_state", k) for k in range(len(self.graph.states))]
        self.ld_state = self._line(states, lambda key: widths[self.graph.states[key[1]]])
        self.ld_op = self._line([("d_op", v) for v in code.spilled], lambda key: widths[key[1]])
        self.ld_in = self._line([("d_in", v) for v in code.inputs_written], lambda key: widths[key[1]])
        nodes = list(zip(self.graph.nodes, widths, strict=True))
        self.vectors: list[Any] = [("vec", *n[1:], width) for n, width in nodes if n[0] == "vector"]
        self.fixed: list[Any] = [("fixed", *n[1:]) for n, _ in nodes if n[0] == "fixed"]
        self.ld_vec = self._line(self.vectors, lambda key: key[4])
        self.ld_fixed = self._line(self.fixed, lambda key: key[3] - key[2])
        self.out_width = widths[self.graph.output]
        self.columns: dict[tuple[int, Operand], int] = {}
        self.groups: list[tuple[int, ...]] = []
        self.pieces: list[tuple[int, int, int]] = []
        self.n_weights = 0
        for g in range(len(self.plan.groups)):
            self._group(g)
        parts = [self._parts(g) for g in range(len(self.plan.groups))]
        self.parts = [part for group_parts in parts for part in group_parts]
        self.leaves = [{part.leaf for part in group_parts} for group_parts in parts]  # of each group
        # Products read whole vectors of a piece.
        self.ld_row = self.apart(max([end, *(begin + self.room(k) for begin, k, _ in self.pieces)]))
        self.states = [self._state(k) for k in range(len(self.graph.states))]
        self.backs = [self._back(*product) for product in code.backs]
        self.tables = {
            "at": self._table([self.offset(key) for key in code.offsets]),
            "states": self._table(self.states),
            "groups": self._table(self.groups),
            "pieces": self._table(self.pieces),
            "backs": self._table(self.backs),
        }

    def room(self, n: int) -> int:
        """n in whole vectors."""
        return -(-n // self.lanes) * self.lanes

    def apart(self, n: int) -> int:
        """The distance of rows of n numbers.

        On a CPU an odd number of vectors: rows a multiple of 4 KiB apart would share few lines of a cache.
        On a GPU whole blocks of 16 bytes, as cuBLAS likes them.
        """
        return (self.room(n) // self.lanes | 1) * self.lanes if self.lanes > 1 else -(-n // 4) * 4

    def input_places(self, strides: Sequence[tuple[int, ...]]) -> Any:
        """The table of inputs, for inputs of these strides (batch, step, unit)."""
        rows = []
        for v in self.plan.inputs:
            _, k, begin, end = self.graph.nodes[v]
            d_at = self.at.get(("d_in", v), -1)
            rows.append((end - begin, self.input_room[v], self.at["row", v], d_at, *strides[k]))
        return self._table(rows)

    @staticmethod
    def _table(rows: Sequence[Any]) -> Any:
        return np.array(rows, np.int64)

    def _line(self, keys: Sequence[Any], width: Callable[[Any], int]) -> int:
        """Places one after the other; returns where they end."""
        end = 0
        for key in keys:
            self.at[key] = end
            end += self.room(width(key))
        return end

    def _row(self) -> int:
        """The places in a row of the path; returns where they end."""
        graph, plan, end = self.graph, self.plan, 0
        read = {x for v in range(len(graph.nodes)) for x in graph.arguments(v)} | {
            graph.output,
            *graph.states,
        }
        self.input_room = {
            v: self.room(graph.widths[v]) if v in read else graph.widths[v] for v in plan.inputs
        }
        for x in [*plan.row, *(v for v in plan.inputs if v not in plan.row)]:
            self.at["row", x] = end
            if isinstance(x, int) and graph.nodes[x][0] == "state":
                self.at["state", graph.nodes[x][1]] = end
            end += self._length(x)
        for k, v in enumerate(graph.states):
            if k not in plan.carried and ("state", k) not in self.at:
                self.at["state", k] = end = self.room(end)
                end += self.room(graph.widths[v])
        end = self.room(end)
        for v in self.code.saved:
            self.at["saved", v] = end
            end += self.room(graph.widths[v])
        return end

    def _length(self, x: Operand) -> int:
        """Length of an operand in the row: an input read only by products is not padded to whole vectors."""
        if isinstance(x, str):
            return 1
        return self.input_room[x] if x in self.input_room else self.room(self.graph.widths[x])

    def offset(self, key: Key) -> int:
        """The number that a generated loop is given for `key`."""
        if key[0] == "room":
            return self.room(key[1])
        return int(key[1]) if key[0] == "width" else self.at[key]

    def _group(self, g: int) -> None:
        """The rows of a group in the tables of products."""
        group, column, first = self.plan.groups[g], 0, len(self.pieces)
        n = sum(self.room(self.graph.widths[v]) for v in group.members)
        for run in pieces(self.plan.row, set(group.operands)):
            begin = self.at["row", run[0]]
            for x in run:
                self.columns[g, x] = column + self.at["row", x] - begin
            k = self.at["row", run[-1]] + self._length(run[-1]) - begin
            self.pieces.append((begin, k, column))
            column += self.room(k)
        pre, n_pieces = self.at["pre", group.members[0]], len(self.pieces) - first
        length = column if self.lanes > 1 else self.apart(column)
        self.groups.append((group.level, n, pre, first, n_pieces, self.n_weights, length))
        self.n_weights += n * length

    def _parts(self, g: int) -> list[Part]:
        """Parts of the joined weights of a group."""
        begin, length = self.groups[g][-2:]
        parts, row = [], 0
        for v in self.plan.groups[g].members:
            (_, terms, biases), n = self.graph.nodes[v], self.graph.widths[v]
            at = begin + row * length
            for t in terms:
                shape = (n, t.columns[1] - t.columns[0])
                place = at + self.columns[g, t.operand]
                parts.append(Part(t.weight, slice(*t.rows), slice(*t.columns), shape, place, (length, 1)))
            for leaf, a, b in biases:
                parts.append(Part(leaf, slice(a, b), None, (n,), at + self.columns[g, ONE], (length,)))
            row += self.room(n)
        return parts

    def _state(self, k: int) -> tuple[int, ...]:
        v, carried = self.graph.states[k], self.plan.carried.get(k)
        at = self.at["state", k] if carried is None else self.at["row", carried]
        written = k in self.code.states_written
        return self.graph.widths[v], at, int(carried is not None), self.at["d_state", k], int(written)

    def _back(self, g: int, x: int, added: bool) -> tuple[int, ...]:
        name, *rest = self.graph.nodes[x]
        to = {"state": (1, ("d_state", *rest[:1])), "input": (-1, ("d_in", x))}.get(name, (0, ("d_op", x)))
        return g, self.columns[g, x], self.graph.widths[x], to[0], self.at[to[1]], int(added)
