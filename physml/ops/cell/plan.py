"""Plan of a step: the place of every value, and the products that are computed together.

A step has levels: level 0 needs no product, level n what n products after each other give. At each level
come first the elementwise operations, then all products whose operands are known. Products of the same
operands are one.

A row of the path holds, for one row of the batch and one step, what products read (states, inputs, a 1 for
biases, results that go into products) and what else the backward pass needs.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import permutations

from physml.ops.cell.graph import Graph

ONE = "one"
MOST_ORDERED = 6  # operands whose orders are all tried

Operand = int | str  # a node, or ONE


@dataclass
class Group:
    """Affine maps that read the same operands.

    Args:
        level: at which the results are known.
        members: the nodes.
        operands: what they read, in the order of the row; nodes, or ONE.
    """

    level: int
    members: list[int]
    operands: list[Operand]


@dataclass
class Plan:
    """The layout of a step's graph.

    Args:
        graph: what is computed.
        input_needs: for each input, whether its gradient is wanted.
        groups: products that are computed together, by their levels.
        row: the operands of products, in their order in a row of the path.
        carried: states that are not kept: the value that becomes the state is in the row of the step before.
    """

    graph: Graph
    input_needs: tuple[bool, ...]
    groups: list[Group] = field(default_factory=list)
    row: list[Operand] = field(default_factory=list)
    carried: dict[int, int] = field(default_factory=dict)

    @property
    def inputs(self) -> list[int]:
        return [v for v, node in enumerate(self.graph.nodes) if node[0] == "input"]

    def state_node(self, k: int) -> int | str:
        """The node of old state k; a word where the step does not read it."""
        return next((v for v, node in enumerate(self.graph.nodes) if node == ("state", k)), "unread")


def plan(graph: Graph, input_needs: tuple[bool, ...]) -> Plan:
    plan = Plan(graph, input_needs)
    affine = [v for v, node in enumerate(graph.nodes) if node[0] == "affine"]
    groups: dict[tuple[int, frozenset[int]], Group] = {}
    for v in affine:
        operands = frozenset(graph.operands(v))
        group = groups.setdefault((graph.levels[v], operands), Group(graph.levels[v], [], sorted(operands)))
        group.members.append(v)
        if graph.nodes[v][2] and ONE not in group.operands:
            group.operands.append(ONE)
    plan.groups = sorted(groups.values(), key=lambda group: group.level)
    plan.row = _ordered([set(group.operands) for group in plan.groups])
    for group in plan.groups:
        group.operands.sort(key=plan.row.index)
    for k, v in enumerate(graph.states):
        read = plan.state_node(k) in plan.row
        if not read and v in plan.row and graph.nodes[v][0] not in ("state", "input"):
            plan.carried[k] = v
    return plan


def _ordered(sets: list[set[Operand]]) -> list[Operand]:
    """All members in an order in which as many sets as possible are in one piece."""
    members = sorted({x for some in sets for x in some}, key=lambda x: (isinstance(x, str), str(x)))
    if len(members) > MOST_ORDERED:
        return members

    def n_pieces(order: Sequence[Operand]) -> int:
        return sum(len(pieces(order, some)) for some in sets)

    return min(map(list, permutations(members)), key=n_pieces)


def pieces(order: Sequence[Operand], members: set[Operand]) -> list[list[Operand]]:
    """The members of a set as runs of neighbours in the order."""
    runs: list[list[Operand]] = []
    before = -2
    for place, x in enumerate(order):
        if x not in members:
            continue
        if place == before + 1:
            runs[-1].append(x)
        else:
            runs.append([x])
        before = place
    return runs
