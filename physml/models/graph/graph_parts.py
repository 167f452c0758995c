"""Parts of graph networks: calling a coupling, merging heads, forces. Axes: N nodes, H channels."""

import contextlib
import copy
import inspect
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import has_shape, one_of
from physml.base.errors import InputError
from physml.graph.checks import check_graph
from physml.models.graph.graph_features import Features, linear
from physml.ops.elu import elu

Heads = Literal["mean", "official"]

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "leaky_relu": F.leaky_relu,
    "tanh": torch.tanh,
    "elu": elu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


def call(layer: nn.Module, x: Features, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """The output of a message-passing layer; edge weights go in by name, if the layer takes them."""
    if edge_weight is None:
        return layer(x, edge_index)
    takes = inspect.signature(layer.forward).parameters
    if "edge_weight" not in takes:
        raise InputError(
            f"{type(layer).__name__} takes no edge_weight, and the graph has weights. Use a layer that does, "
            "such as GraphConvolution, or leave the weights out."
        )
    return layer(x, edge_index, edge_weight=edge_weight)


def widths(coupling: nn.Module) -> tuple[int | None, int | None]:
    """Channels in and out of one of our layers or of a PyG convolution; None where it doesn't say."""
    d_in, d_out = getattr(coupling, "d_in", None), getattr(coupling, "d_out", None)
    if d_in is None and isinstance(getattr(coupling, "in_channels", None), int):
        d_in = coupling.in_channels
        d_out = getattr(coupling, "out_channels", None)
        if d_out is not None and getattr(coupling, "concat", False):
            d_out = int(d_out) * int(coupling.heads)  # type: ignore[arg-type]
    return d_in, d_out


def checked_widths(coupling: nn.Module, *, heads: bool = False) -> tuple[int, int]:
    """`widths` of a coupling from H to H channels, with `heads` to a multiple. InputError for any other."""
    d_in, d_out = widths(coupling)
    if d_in is None or d_out is None or (d_out % d_in if heads else d_out != d_in):
        several = ", or a multiple for several heads" if heads else ""
        raise InputError(
            f"a coupling gives back as many channels as it gets{several}; {type(coupling).__name__} makes "
            f"{d_out} of {d_in}."
        )
    return d_in, d_out


def known_nodes(model: str, n_nodes: int | None) -> int:
    """The nodes of the one graph that a model has weights for. InputError where the task has many graphs."""
    if n_nodes is None:
        raise InputError(f"{model} has weights for each node of one graph, and the task has many graphs.")
    return n_nodes


def check_nodes(model: str, x: Features, n_nodes: int) -> None:
    """InputError for a graph of another size."""
    if len(x) != n_nodes:
        raise InputError(
            f"{model} knows one graph, of {n_nodes} nodes; got one of {len(x)}. Make another for it."
        )


def merge_heads(x: Tensor, d: int, heads: Heads) -> Tensor:
    """(N, heads x d), one head after the other, to (N, d).

    "mean": the mean over heads. "official": as in the authors' code, the mean over neighbouring channels of
    the same head, so that channel k comes from head k // (d / heads) alone.
    """
    if x.shape[1] == d:
        return x
    if x.shape[1] % d:
        raise InputError(
            f"the coupling must give back {d} channels per node, or a multiple for several heads; "
            f"got {x.shape[1]}."
        )
    n_heads = x.shape[1] // d
    if heads == "official":
        return x.view(len(x), d, n_heads).mean(-1)
    return x.view(len(x), n_heads, d).mean(1)


def copies(module: nn.Module, n: int) -> nn.ModuleList:
    """The module itself and n - 1 more of its kind, each with a start of its own, by `reset_parameters`."""
    layers = [module]
    for _ in range(n - 1):
        layer = copy.deepcopy(module)
        for part in reversed(list(layer.modules())):  # a whole after its parts: it has the last word
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()  # type: ignore[operator]
            elif any(weight is not None for weight in part._parameters.values()):
                raise InputError(
                    f"{type(part).__name__} has parameters and no reset_parameters, so that each layer could "
                    "have a start of its own. Add it, or set shared_weights=true."
                )
        layers.append(layer)
    return nn.ModuleList(layers)


class Force(nn.Module):
    r"""One message, :math:`\sigma(F(X))`, with the terms that the official code adds inside :math:`\sigma`.

    residual: "none"; "plus", :math:`\sigma(F(X) + R X + r)`; "official-v1",
    :math:`\sigma(F(X) - R W X - r)`; "official-v2", :math:`\sigma(F(X) + R X + r - W X)`, where W is the
    weight of the coupling itself. heads: see `merge_heads`; heads are merged after :math:`\sigma`.
    Shapes: (N, H) -> (N, H).
    """

    def __init__(
        self, coupling: nn.Module, *, activation: str, residual: str = "none", heads: Heads = "mean"
    ) -> None:
        super().__init__()
        one_of("activation", activation, ACTIVATIONS)
        one_of("residual", residual, ("none", "plus", "official-v1", "official-v2"))
        one_of("heads", heads, ("mean", "official"))
        _check_called_on_edges(coupling)
        d_in, d_out = widths(coupling)
        if d_in is not None and d_out is not None:
            checked_widths(coupling, heads=True)
        self.coupling, self.activation, self.residual, self.heads = coupling, activation, residual, heads
        self.R: nn.Linear | None = None
        if residual != "none":
            if d_in is None or d_out is None:
                raise InputError(
                    f"residual={residual!r} needs the widths of the coupling; {type(coupling).__name__} has "
                    "neither d_in and d_out nor in_channels and out_channels."
                )
            if residual != "plus" and (d_in != d_out or not isinstance(self._own(), nn.Module)):
                raise InputError(
                    f"residual={residual!r} uses the coupling's own weight, `lin`, of {d_in} to {d_in} "
                    f"channels, as a graph convolution has it; {type(coupling).__name__} has none."
                )
            self.R = nn.Linear(d_in, d_out)

    def _own(self) -> Any:
        return getattr(self.coupling, "lin", None)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        if self.R is None:
            total = call(self.coupling, x, edge_index, edge_weight)
        elif self.residual == "plus":
            total = call(self.coupling, x, edge_index, edge_weight) + self._mixed(x)
        else:
            own = self._own()
            mixed = linear(x, own.weight, own.bias) if isinstance(own, nn.Linear) else own(x)  # X W
            of_mixed = getattr(self.coupling, "of_mixed", None)  # a layer that needs X W too
            if of_mixed is None:
                total = call(self.coupling, x, edge_index, edge_weight)
            else:
                total = of_mixed(mixed, edge_index, edge_weight)
            v1 = self.residual == "official-v1"
            total = total - self._mixed(mixed) if v1 else total + self._mixed(x) - mixed
        return merge_heads(ACTIVATIONS[self.activation](total), x.shape[1], self.heads)

    def _mixed(self, x: Tensor) -> Tensor:
        """R X + r."""
        assert self.R is not None
        return linear(x, self.R.weight, self.R.bias)

    def symbols(self) -> dict[str, Tensor]:
        """The coupling's symbols, theta where it has no names for them; R and r of the residual term."""
        own = getattr(self.coupling, "symbols", None)
        symbols = own() if own else {f"theta.{name}": p for name, p in self.coupling.named_parameters()}
        if self.R is not None:
            symbols = {**symbols, "R": self.R.weight, "r": self.R.bias}
        return symbols


def _check_called_on_edges(coupling: object) -> None:
    if isinstance(coupling, nn.Module):
        with contextlib.suppress(TypeError):
            inspect.signature(coupling.forward).bind("x", "edge_index")
            return
    raise InputError(
        "coupling must be a message-passing layer, called as coupling(x, edge_index), such as "
        f"GraphConvolution(8, 8) or a convolution of torch_geometric.nn; got {coupling!r}."
    )


def numbered(forces: nn.ModuleList) -> dict[str, Tensor]:
    """Symbols of all layers: W where one force serves all, else W^1, W^2, ..."""
    if len(forces) == 1:
        return forces[0].symbols()  # type: ignore[operator]
    return {
        f"{name}^{n}": value
        for n, force in enumerate(forces, 1)
        for name, value in force.symbols().items()  # type: ignore[operator]
    }


def check_input(x: Features, edge_index: Tensor, edge_weight: Tensor | None, d: int | None) -> None:
    """`check_graph`, and d channels where the layer knows how many it takes."""
    check_graph(x, edge_index, edge_weight)
    if d is not None:
        has_shape("x", x, ("N", d), hint="One row of channels per node.")
    if not x.dtype.is_floating_point:
        raise InputError(f"x must hold floating-point numbers; got {x.dtype}. Use x.float().")


def last(steps: Iterator[Any]) -> Any:
    """The last of some steps; those before are not kept."""
    return deque(steps, maxlen=1)[0]


def times(T: float) -> Iterator[tuple[float, float]]:
    """Ends and sizes of steps of size 1 up to T, the last one shorter where T is no whole number."""
    t = 0.0
    while t < T:
        h = min(1.0, T - t)
        t += h
        yield t, h
