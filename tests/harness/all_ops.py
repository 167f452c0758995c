"""Every op with a backward of its own, with arguments that fit it: what laws over all ops are tried on.

Axes: B batch, T time, D features, H units, N nodes, E edges, C channels.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from types import ModuleType
from typing import Any

import torch
from edge_lists import ODD, N, draw, edges, many
from torch import Tensor

from physml.graph.edges import Edges
from physml.graph.rows import Rows
from physml.ops.cell import recurrence
from physml.ops.cornn import cornn
from physml.ops.dropout import dropout
from physml.ops.elu import elu
from physml.ops.gate import gate
from physml.ops.gradient_sum import gradient_sum
from physml.ops.lem import lem
from physml.ops.linear import linear
from physml.ops.norm_sum import norm_sum
from physml.ops.rows_linear import rows_linear
from physml.ops.unicornn import unicornn
from physml.ops.weighted_sum import weighted_sum

NO_LOOPS = ODD[:, ODD[0] != ODD[1]]  # at a loop a norm has a kink


def many_without_loops() -> Edges:
    of = many()
    return edges(torch.stack([of.sender, of.receiver])[:, of.sender != of.receiver], of.n)


SMALL = {"B": 2, "T": 4, "D": 2, "H": 3, "N": N, "E": ODD.shape[1], "C": 3}
LARGE = {"B": 7, "T": 23, "D": 3, "H": 17, "N": 40, "E": 300, "C": 70}

SHARE = draw(LARGE["N"], 1, seed=4).abs()
SPARSE = draw(9, 11) * (draw(9, 11, seed=2) > 0.4)
ROWS = {dtype: Rows(SPARSE.to(dtype)) for dtype in (torch.float32, torch.float64)}


@dataclass(frozen=True)
class Op:
    """`call(*tensors, backend=...)`, and the shapes of its tensors: letters of SMALL and LARGE, or numbers.

    rows: the first axis of its first argument is one of rows that know nothing of each other.
    last: as many of its results, from the end, are the state that its arguments from the second on carry on.
    exact: the number of threads changes no bit; else it changes rounding alone.
    """

    name: str
    call: Callable[..., Any]
    shapes: tuple[str, ...]
    rows: bool = False
    last: int = 0
    exact: bool = True
    dtype: torch.dtype = torch.float64
    backends: tuple[str, ...] = ("torch", "native")

    def results(self, tensors: list[Tensor], backend: str) -> tuple[Tensor, ...]:
        outputs = self.call(*tensors, backend=backend)
        return outputs if isinstance(outputs, tuple) else (outputs,)

    def sizes(self, sizes: dict[str, int]) -> list[tuple[int, ...]]:
        return [tuple(number(word, sizes) for word in shape.split()) for shape in self.shapes]

    def arguments(self, sizes: dict[str, int], seed: int = 0) -> list[Tensor]:
        """Leaves, those with two axes small enough that states stay in bounds."""
        tensors = []
        for k, axes in enumerate(self.sizes(sizes)):
            scale = axes[-1] ** -0.5 if len(axes) == 2 and k > self.last else 1.0
            tensors.append((scale * draw(*axes, seed=seed + k)).to(self.dtype).requires_grad_())
        return tensors

    @property
    def native(self) -> ModuleType:
        return import_module(f"physml.ops.{self.name.partition(',')[0]}.native")


def number(word: str, sizes: dict[str, int]) -> int:
    """The length of an axis: `3H` is three times H."""
    digits = word.rstrip("BTDHNEC")
    return int(digits or 1) * sizes.get(word[len(digits) :], 1)


def over(x: Tensor, loops: bool = True) -> Edges:
    """The edges of a graph with as many nodes as x has rows."""
    if len(x) == N:
        return edges(ODD if loops else NO_LOOPS)
    return many() if loops else many_without_loops()


def share(x: Tensor) -> Tensor:
    """The factor of a gate's sums, a number a node."""
    return SHARE[: len(x)].to(x.dtype)


def stable_unicornn(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, backend: str) -> Any:
    return unicornn(push, y, z, w, step.sigmoid() / 2, alpha=1.5, backend=backend)


def cell(u: Tensor, h: Tensor, W: Tensor, *, backend: str) -> tuple[Tensor, Tensor]:
    def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        h = torch.tanh(state[0] @ W + u)
        return h, (h,)

    path, (last,) = recurrence(step, u, (h,), backend=backend)
    return path, last


def seeded_dropout(x: Tensor, *, backend: str) -> Tensor:
    torch.manual_seed(0)
    return dropout(x, 0.5, True, backend=backend)


ONE_SCALE = ("B T D", "B H", "B H", "H H", "H H", "2H D", "2H")
GATED = ("B T D", "B H", "B H", "3H H", "H H", "4H D", "4H")
COUPLED = ("B T D", "B H", "B H", "H H", "H H", "H D", "H")
RECURRENT: dict[str, Any] = {"rows": True, "last": 2, "exact": False}
DAMPED = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6}
OPS = (
    Op("lem", partial(lem, dt=1.0), GATED, **RECURRENT),
    Op("lem, clipped", partial(lem, dt=1.3, clip=(0.5, 0.8)), GATED, **RECURRENT),
    Op("lem, no gates", partial(lem, dt=0.6), ONE_SCALE, **RECURRENT),
    Op("cornn", partial(cornn, **DAMPED), COUPLED, **RECURRENT),
    Op("cornn, implicit", partial(cornn, **DAMPED, damping="implicit"), COUPLED, **RECURRENT),
    Op("unicornn", stable_unicornn, ("B T H", "B H", "B H", "H", "H"), rows=True, last=2),
    Op("cell", cell, ("B T H", "B H", "H H"), rows=True, last=1, exact=False, backends=("native",)),
    Op("gradient_sum", lambda q, backend: gradient_sum(q, over(q), 2.5, backend=backend), ("N C",)),
    Op("norm_sum", lambda q, backend: norm_sum(q, over(q, loops=False), 2.5, backend=backend), ("N C",)),
    Op(
        "gate",
        lambda x, new, q, backend: gate(x, new, q, over(x), 2.5, share(x), backend=backend),
        ("N C", "N C", "N C"),
    ),
    Op("weighted_sum", lambda x, w, backend: weighted_sum(x, w, over(x), backend=backend), ("N 2 C", "E 2")),
    Op("rows_linear", lambda w, backend: rows_linear(w, ROWS[w.dtype], backend=backend), ("H 11",)),
    Op("linear", linear, ("B 16", "32 16", "32"), rows=True),
    Op("dropout", seeded_dropout, ("B H",), rows=True),
    Op("elu", elu, ("B H",), rows=True, dtype=torch.float32),
)


def weighed(results: tuple[Tensor, ...], use: tuple[int, ...] | None = None) -> Tensor:
    """A number that depends on the results of `use`, or on all."""
    parts = [
        (x * draw(*x.shape, seed=7 + k).to(x.dtype)).sum()
        for k, x in enumerate(results)
        if use is None or k in use
    ]
    return torch.stack(parts).sum()


def gradients(
    op: Op, backend: str, x: list[Tensor], use: tuple[int, ...] | None = None
) -> tuple[Tensor, ...]:
    trainable = [leaf for leaf in x if leaf.requires_grad]
    return torch.autograd.grad(weighed(op.results(x, backend), use), trainable, materialize_grads=True)


def everything(op: Op, backend: str, x: list[Tensor]) -> list[Tensor]:
    return [*(r.detach() for r in op.results(x, backend)), *gradients(op, backend, x)]


def same(ours: Sequence[Tensor], theirs: Sequence[Tensor], tolerance: float | None = None) -> None:
    """Relative to the largest number of each tensor; by default to the digits of its type."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.shape == b.shape and a.dtype == b.dtype
        worst = (a - b).abs().max().item() / (b.abs().max().item() + 1e-300)
        usual = 1e-10 if a.dtype == torch.float64 else 1e-5
        assert worst <= (tolerance or usual), f"tensor {k}: off by {worst:.1e}"
