"""Trace a Python function on a row of the batch as a graph.

The function is called with stand-ins for its arguments. Whatever it computes from these is written down; what
it computes from weights alone is computed, by torch and with gradients, for it is the same at all steps.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from physml.ops.backend import bf16_products
from physml.ops.cell.outline import Node

IN_PLACE = "it changes a tensor in place: write x = x + y for x += y, x.relu() for x.relu_()"
RANDOM = "it draws random numbers: draw them for all steps and give them as inputs"


class NotExpressible(Exception):
    """The step does something that the compiler has no words for; the message is the reason, in one line."""


@dataclass
class Trace:
    """A step as a graph.

    Args:
        n_batch: B.
        like: a tensor with the dtype and the device of all others.
        words: the operations that are known, by their names in torch.
        nodes: operations, each after its arguments.
        widths: the length of each row.
        leaves: tensors from outside, such as weights, in the order of their first use.
        numbers: Python numbers of the step, in the order of their first use.
        outputs: indices of the nodes that are the output and the new states.
    """

    n_batch: int
    like: Tensor
    words: Mapping[str, Callable[..., Any]]
    nodes: list[Node] = field(default_factory=list)
    widths: list[int] = field(default_factory=list)
    leaves: list[Tensor] = field(default_factory=list)
    numbers: list[float] = field(default_factory=list)
    outputs: tuple[int, ...] = ()
    _known: dict[Node, int] = field(default_factory=dict)
    _gradients: bool = field(default_factory=torch.is_grad_enabled)
    _constants: dict[Any, Tensor] = field(default_factory=dict)
    _choices: dict[int, tuple["Rows", Tensor]] = field(default_factory=dict)

    def add(self, width: int, *node: Any) -> "Rows":
        """The row that `node` computes; the same node of the same width is written down once."""
        index = self._known.get((width, *node))
        if index is None:
            index = self._known[width, *node] = len(self.nodes)
            self.nodes.append(node)
            self.widths.append(width)
        return Rows(self, index, width)

    def apply(self, name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The operation of torch with this name."""
        if kwargs.get("inplace") or (name.endswith("_") and not name.endswith("__")):
            raise NotExpressible(IN_PLACE)
        if name not in self.words:
            raise NotExpressible(f"it uses {name}, which is not an operation that the compiler knows")
        if torch.is_grad_enabled() != self._gradients:
            raise NotExpressible("it turns gradients off for a part: use x.detach()")
        if any(isinstance(x, int) and not -(1 << 63) <= x < 1 << 63 for x in (*args, *kwargs.values())):
            raise NotExpressible("it has a whole number of more than 64 bits, which torch does not take")
        try:
            return self.words[name](*args, **kwargs)
        except TypeError as error:
            raise NotExpressible(
                f"it uses {name} in a way that the compiler does not know ({error})"
            ) from error

    def leaf(self, x: Tensor) -> int:
        """The place of a tensor from outside among the leaves."""
        if x.dtype != self.like.dtype or x.device != self.like.device:
            raise NotExpressible(
                f"it mixes {self.like.dtype} on {self.like.device} with {x.dtype} on {x.device}"
            )
        for k, known in enumerate(self.leaves):
            if known is x:
                return k
        self.leaves.append(x)
        return len(self.leaves) - 1

    def constant(self, key: tuple[Any, ...], make: Callable[[Tensor], Tensor]) -> Tensor:
        """The matrix that `make` gives for a tensor like all others; the same for the same key."""
        if bf16_products():
            raise NotExpressible(
                "it moves or sums units by products, which this precision rounds to bfloat16"
            )
        if key not in self._constants:
            self._constants[key] = make(self.like)
        return self._constants[key]

    def product(self, x: "Rows", weight: Tensor, *, chooses: bool = False) -> "Rows":
        """The row x times the transpose of a weight (n, x.width); a choice of units before it is part of it.

        Args:
            chooses: each unit of the result is one of x.
        """
        if x.index in self._choices:
            x, choice = self._choices[x.index]
            weight = weight @ choice
        product = self.add(len(weight), "linear", x.index, self.leaf(weight))
        if chooses:
            self._choices[product.index] = x, weight
        return product

    def changed(self, x: "Rows", change: Callable[[Tensor], Tensor]) -> "Rows | None":
        """A linear change of the units of x, as one of the weights and biases that give x.

        None where x is anything else than products and numbers per unit, added up.
        """
        name, *rest = self.nodes[x.index]
        if name == "linear":
            return self.product(Rows(self, rest[0], self.widths[rest[0]]), change(self.leaves[rest[1]]))
        if name == "vector":
            return self.row(change(self.leaves[rest[0]].flatten().expand(x.width)), x.width)
        if name != "add":
            return None
        first, second = (self.changed(Rows(self, part, x.width), change) for part in rest)
        return None if first is None or second is None else first + second

    def spread(self, x: "Rows", width: int) -> "Rows":
        """Each unit repeated for as many neighbours as fill `width`."""
        if x.width == width:
            return x
        return self.product(
            x, self.constant(("spread", width, x.width), lambda like: members(like, width, x.width))
        )

    def number(self, x: float, width: int) -> "Rows":
        """A Python number as a row; 0, 1, -1, 2, 1/2 are part of the graph, others are passed at run time."""
        for exact in (0.0, 1.0, -1.0, 2.0, 0.5):
            if x == exact and str(x) != "-0.0":  # x may be a symbol of torch.compile
                return self.add(width, "exactly", exact)
        if x not in self.numbers:
            self.numbers.append(x)
        return self.add(width, "number", self.numbers.index(x))

    def row(self, x: Any, width: int) -> "Rows":
        """An operand of an elementwise operation as a row of `width` units."""
        if isinstance(x, Rows):
            if x.width == 1 != width:
                return self.spread(x, width)
            if x.width != width:
                raise NotExpressible(f"it combines rows of {x.width} and of {width} units")
            return x
        if isinstance(x, Tensor):
            if not x.is_floating_point() and not x.is_complex():
                x = x.to(self.like.dtype)  # masks
            if x.numel() == 1 or x.shape in ((width,), (1, width)):
                return self.add(width, "vector", self.leaf(x))
            if x.shape == (self.n_batch, width):
                return self.add(width, "fixed", self.leaf(x))
            raise NotExpressible(f"it combines rows of {width} units with a tensor of shape {tuple(x.shape)}")
        if isinstance(x, int | float):
            return self.number(float(x), width)
        raise NotExpressible(f"it combines rows with {type(x).__name__}")


def members(like: Tensor, width: int, groups: int) -> Tensor:
    """The matrix (width, groups) that is 1 where a unit belongs to a group of neighbours."""
    return torch.eye(groups, dtype=like.dtype, device=like.device).repeat_interleave(width // groups, 0)


def _name_of(function: Callable[..., Any]) -> str:
    if torch.compiler.is_dynamo_compiling():  # which knows functions, but not their names
        from physml.ops.untraced import name_of

        return name_of(function)
    return function.__name__


def _operator(name: str) -> Any:
    return lambda self, *args: self.trace.apply(name, (self, *args), {})


class Rows:
    """Stands for a tensor (B, n) while a step is traced."""

    __slots__ = ("index", "trace", "width")

    def __init__(self, trace: Trace, index: int, width: int) -> None:
        self.trace, self.index, self.width = trace, index, width

    shape = property(lambda self: torch.Size((self.trace.n_batch, self.width)))
    dtype = property(lambda self: self.trace.like.dtype)
    device = property(lambda self: self.trace.like.device)
    ndim = property(lambda self: 2)
    is_cuda = property(lambda self: self.trace.like.is_cuda)
    requires_grad = property(lambda self: False)

    def __len__(self) -> int:
        return self.trace.n_batch

    def __bool__(self) -> bool:
        raise NotExpressible("its course depends on numbers of the data")

    def __iter__(self) -> Any:
        raise NotExpressible("it takes rows of the batch apart")

    @classmethod
    def __torch_function__(
        cls, function: Callable[..., Any], _types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        flat = [
            y for x in (*args, *(kwargs or {}).values()) for y in (x if isinstance(x, tuple | list) else [x])
        ]
        trace = next(x.trace for x in flat if isinstance(x, Rows))
        return trace.apply(_name_of(function), args, kwargs or {})

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self.trace.apply(name, (self, *args), kwargs)

    def __getitem__(self, key: Any) -> "Rows":
        if isinstance(key, tuple) and any(part is None for part in key):
            raise NotExpressible(
                "it adds an axis to rows, which stay (B, n): sums keep theirs by keepdim=True"
            )
        if isinstance(key, tuple) and len(key) == 2 and (key[0] is Ellipsis or key[0] == slice(None)):
            key = key[1]
            if isinstance(key, slice):
                begin, end, by = key.indices(self.width)
                key = range(begin, end, by)
                if by == 1:
                    return self.narrow(1, begin, end - begin)
            if isinstance(key, Tensor) and key.ndim == 1 and key.dtype == torch.int64:
                return self.index_select(1, key)
            if isinstance(key, list | range) and not any(isinstance(i, bool) for i in key):
                return self.index_select(1, key)
        raise NotExpressible("it takes a part of a row other than by x[:, a:b] or x[:, list of units]")

    __add__ = __radd__ = _operator("add")
    __sub__, __rsub__ = _operator("sub"), _operator("rsub")
    __mul__ = __rmul__ = _operator("mul")
    __truediv__, __rtruediv__ = _operator("div"), _operator("__rtruediv__")
    __pow__, __neg__, __pos__, __abs__ = map(_operator, ("pow", "neg", "positive", "abs"))
    __gt__, __lt__, __ge__, __le__ = map(_operator, ("gt", "lt", "ge", "le"))
    __eq__, __ne__ = map(_operator, ("eq", "ne"))
    __hash__ = object.__hash__
    __matmul__ = _operator("matmul")
    __iadd__ = __isub__ = __imul__ = __itruediv__ = _operator("add_")
