"""Parts of graph networks. Axes: N nodes, E edges, H channels.

An edge list (2, E) holds a sender in row 0 and a receiver in row 1, as stored: nothing is made undirected,
merged or added unless a layer says so. The neighbours whose features a node sums are the senders of the
edges that it receives.
"""

import copy
import inspect
import warnings
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional as F

from physml.check import has_shape, one_of
from physml.errors import InputError
from physml.graphs import cached, check_graph

Aggregate = Literal["sum", "mean"]
Heads = Literal["mean", "official"]
CHUNK = 2**18  # numbers in a block of edge features: small enough to stay in the cache of a core
FLOOR = 1e-6  # slopes of |d|^p with p < 1 are those at this distance where they would grow beyond it


class Edges:
    """An edge list sorted both ways, so that sums over the edges of a node are sparse products."""

    def __init__(self, sender: Tensor, receiver: Tensor, n: int) -> None:
        self.sender, self.receiver, self.n = sender, receiver, n
        self._rows: dict[str, tuple[Tensor, Tensor, Tensor]] = {}

    def rows(self, of: Literal["sender", "receiver"]) -> tuple[Tensor, Tensor, Tensor]:
        """Where each node's run of edges starts, the other end of each edge, and the order of the edges."""
        if of not in self._rows:
            own, other = self.sender, self.receiver
            if of == "receiver":
                own, other = other, own
            order = torch.argsort(own, stable=True)
            self._rows[of] = _starts(own, self.n), other[order], order
        return self._rows[of]

    def matrix(self, weight: Tensor, of: Literal["sender", "receiver"]) -> Tensor:
        """Sparse (N, N): the weight of an edge at (its `of` end, its other end)."""
        start, other, order = self.rows(of)
        return csr(start, other, weight[order], (self.n, self.n))


def csr(start: Tensor, column: Tensor, value: Tensor, shape: tuple[int, int]) -> Tensor:
    """A sparse matrix of rows; torch calls the layout a beta in a warning, which is for us to know."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "Sparse CSR tensor support is in beta state")
        return torch.sparse_csr_tensor(start, column, value, shape, check_invariants=False)


def edges(edge_index: Tensor, n: int) -> Edges:
    """The edges as stored, sorted once per edge list."""
    return cached("edges", edge_index, (n,), lambda: Edges(edge_index[0], edge_index[1], n))


def looped(edge_index: Tensor, n: int) -> Edges:
    """One loop at each node in place of those that are stored, after all other edges."""
    return cached("looped", edge_index, (n,), lambda: _with_loops(edge_index, n))


def _with_loops(edge_index: Tensor, n: int) -> Edges:
    kept = edge_index[:, edge_index[0] != edge_index[1]]
    every = torch.arange(n, device=edge_index.device)
    return Edges(torch.cat([kept[0], every]), torch.cat([kept[1], every]), n)


class Spread:
    r"""A fixed matrix of edge weights, ready for products: :math:`A X` and, backwards, :math:`A^\top G`."""

    def __init__(self, of: Edges, weight: Tensor) -> None:
        self.edges, self.weight = of, weight
        self._there = of.matrix(weight, "receiver")
        self._back: Tensor | None = None

    def __call__(self, x: Tensor) -> Tensor:
        return _Product.apply(x, self, False)

    def times(self, x: Tensor, transposed: bool) -> Tensor:
        if not transposed:
            return self._there @ x
        if self._back is None:
            self._back = self.edges.matrix(self.weight, "sender")
        return self._back @ x


class _Product(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, spread: Spread, transposed: bool) -> Tensor:
        ctx.spread, ctx.transposed = spread, transposed
        return spread.times(x, transposed)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        return _Product.apply(grad, ctx.spread, not ctx.transposed), None, None


def gcn_spread(
    x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None
) -> Callable[[Tensor], Tensor]:
    r""":math:`\hat D^{-1/2} \hat A \hat D^{-1/2}` with :math:`\hat A = A + I` (equation 7.5), as a product.

    Degrees count what a node receives. A stored self-loop keeps its weight and gets no second one.
    Made once per graph, unless the weights are trained or changes of theirs would not be seen.
    """
    n, dtype = len(x), x.dtype
    if edge_weight is None:
        return cached(
            "gcn", edge_index, (n, dtype), lambda: Spread(*_gcn_weights(edge_index, n, None, dtype))
        )
    if edge_weight.requires_grad or edge_weight.is_inference():
        of, weight = _gcn_weights(edge_index, n, edge_weight, dtype)
        return lambda y: weighted_sum(y, weight, of)
    key = (n, dtype, id(edge_weight), edge_weight._version)
    kept = cached(
        "gcn",
        edge_index,
        key,
        lambda: (edge_weight, Spread(*_gcn_weights(edge_index, n, edge_weight, dtype))),
    )  # the weights are kept too, so that their id stays theirs
    return kept[1]


def _gcn_weights(
    edge_index: Tensor, n: int, edge_weight: Tensor | None, dtype: torch.dtype
) -> tuple[Edges, Tensor]:
    of = looped(edge_index, n)
    loop = torch.ones(n, dtype=dtype, device=edge_index.device)
    if edge_weight is None:
        weight = torch.ones(len(of.sender), dtype=dtype, device=edge_index.device)
    else:
        own = edge_index[0] == edge_index[1]
        loop = loop.index_put((edge_index[0, own],), edge_weight[own].to(dtype))
        weight = torch.cat([edge_weight[~own].to(dtype), loop])
    degree = torch.zeros(n, dtype=dtype, device=weight.device).index_add(0, of.receiver, weight)
    scale = torch.where(degree > 0, degree, 1).rsqrt() * (degree > 0)
    return of, scale[of.sender] * weight * scale[of.receiver]


def mean_spread(x: Tensor, edge_index: Tensor) -> Spread:
    """The mean over the senders of the edges that a node receives; 0 at a node that receives none."""
    n, dtype = len(x), x.dtype

    def make() -> Spread:
        of = edges(edge_index, n)
        count = torch.bincount(of.receiver, minlength=n).to(dtype)
        return Spread(of, (1 / count)[of.receiver])

    return cached("mean", edge_index, (n, dtype), make)


# Sums with weights that are trained -----------------------------------------------------------------------


def weighted_sum(x: Tensor, weight: Tensor, of: Edges) -> Tensor:
    r""":math:`\sum_{e \to i} w_e X_{\mathrm{sender}(e)}`, (N, H), differentiable in x and in w (E,)."""
    return _WeightedSum.apply(x, weight, of)


class _WeightedSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, weight: Tensor, of: Edges) -> Tensor:
        ctx.save_for_backward(x, weight)
        ctx.edges = of
        return of.matrix(weight, "receiver") @ x

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, Tensor | None, None]:
        (x, weight), of = ctx.saved_tensors, ctx.edges
        to_x = to_weight = None
        if ctx.needs_input_grad[0]:
            to_x = of.matrix(weight, "sender") @ grad
        if ctx.needs_input_grad[1]:
            step = max(1, CHUNK // x.shape[1])
            pairs = zip(of.sender.split(step), of.receiver.split(step), strict=True)
            to_weight = torch.cat([(x[j] * grad[i]).sum(1) for j, i in pairs])
        return to_x, to_weight, None


def softmax_over(score: Tensor, node: Tensor, n: int) -> Tensor:
    """Softmax of scores (E, heads) among the edges of the same node."""
    index = node[:, None].expand_as(score)
    top = score.new_full((n, score.shape[1]), -torch.inf).scatter_reduce(0, index, score.detach(), "amax")
    weight = torch.exp(score - top[node])
    return weight / torch.zeros_like(top).index_add(0, node, weight)[node]


# Features that are mostly zeros ---------------------------------------------------------------------------

SPARSE_WIDTH, SPARSE_SHARE = 256, 0.1  # worth it from so many features on, up to this share of non-zeros


class Rows:
    """The entries of features (N, D) that are not 0, row after row and column after column."""

    def __init__(self, x: Tensor) -> None:
        row, column = x.nonzero(as_tuple=True)
        self.value, self.shape = x[row, column], (x.shape[0], x.shape[1])
        self.order = torch.argsort(column, stable=True)
        self._there = _starts(row, x.shape[0]), column
        self._back = _starts(column, x.shape[1]), row[self.order]

    def matrix(self, value: Tensor) -> Tensor:
        return csr(*self._there, value, self.shape)

    def transposed(self, value: Tensor) -> Tensor:
        return csr(*self._back, value[self.order], self.shape[::-1])


def _starts(sorted_by: Tensor, n: int) -> Tensor:
    start = torch.zeros(n + 1, dtype=torch.long, device=sorted_by.device)
    torch.cumsum(torch.bincount(sorted_by, minlength=n), 0, out=start[1:])
    return start


def sparse_rows(x: Tensor) -> Rows | None:
    """Features on a CPU that are wide, given and mostly zeros, as rows, made once per tensor; else None."""
    if x.device.type != "cpu" or x.requires_grad or x.shape[1] < SPARSE_WIDTH:
        return None

    def make() -> Rows | None:
        few = int(torch.count_nonzero(x)) <= SPARSE_SHARE * x.numel()
        return Rows(x) if few and bool(torch.isfinite(x).all()) else None

    return cached("rows", x, (), make)


def dropped_linear(x: Tensor, p: float, training: bool, layer: nn.Linear) -> Tensor:
    """`layer` of x behind dropout; where x is mostly zeros, masks are drawn for the other entries alone."""
    rows = sparse_rows(x)
    if rows is None:
        return layer(F.dropout(x, p, training))
    out: Tensor = _RowsTimes.apply(layer.weight, F.dropout(rows.value, p, training), rows)
    return out if layer.bias is None else out + layer.bias


class _RowsTimes(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, weight: Tensor, value: Tensor, rows: Rows) -> Tensor:
        ctx.save_for_backward(value)
        ctx.rows = rows
        return rows.matrix(value) @ weight.T

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (value,) = ctx.saved_tensors
        return (ctx.rows.transposed(value) @ grad).T, None, None


# Powers and gates ----------------------------------------------------------------------------------------


def powers(d: Tensor, p: float) -> Tensor:
    """d^p in place of d >= 0, without a slow power where p is a half of a small whole number; 0^0 = 1."""
    if p == 0:
        return d.fill_(1.0)
    if p == 1:
        return d
    if 2 * p != int(2 * p) or p > 8:
        return d.pow_(p)
    whole, half = int(p), p != int(p)
    root = d.sqrt() if half else None
    if whole == 0:
        return d.sqrt_()
    base = d.clone() if whole > 2 or (whole == 2 and half) else d
    if whole == 2 and not half:
        return d.mul_(d)
    for _ in range(whole - 1):
        d.mul_(base)
    return d if root is None else d.mul_(root)


def slopes(d: Tensor, p: float, floor: float = FLOOR) -> Tensor:
    """p |d|^(p-1), in place of d >= 0; 0 at d = 0, and for p < 1 nowhere steeper than at `floor`."""
    if p > 1:
        return powers(d, p - 1).mul_(p)
    zero = d == 0
    if p == 1:
        return d.fill_(1.0).masked_fill_(zero, 0.0)
    return d.clamp_(min=floor).pow_(p - 1).mul_(p).masked_fill_(zero, 0.0)


def power(x: Tensor, p: float, floor: float = FLOOR) -> Tensor:
    """x^p of x >= 0, with slopes that stay finite at 0, where they are set to 0."""
    return _Power.apply(x, p, floor)


class _Power(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor, p: float, floor: float) -> Tensor:
        ctx.save_for_backward(x)
        ctx.p, ctx.floor = p, floor
        return powers(x.clone(), p)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (x,) = ctx.saved_tensors
        return grad * slopes(x.clone(), ctx.p, ctx.floor), None, None


def p_norm(d: Tensor, p: float) -> Tensor:
    r""":math:`\|d\|_p` of each row of d (E, H), with slope 0 where the row is 0."""
    return _PNorm.apply(d, p)


class _PNorm(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, d: Tensor, p: float) -> Tensor:
        top = d.abs().amax(1, keepdim=True)  # the powers of what is scaled by it can't run out of range
        safe = torch.where(top > 0, top, 1)
        norm = (top * powers((d / safe).abs_(), p).sum(1, keepdim=True) ** (1 / p)).squeeze(1)
        ctx.save_for_backward(d, norm)
        ctx.p = p
        return norm

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
        (d, norm), p = ctx.saved_tensors, ctx.p
        share = (d / torch.where(norm > 0, norm, 1)[:, None]).abs_()  # (|d| / norm)^(p-1) follows
        return grad[:, None] * d.sign() * slopes(share, p) / p, None


def gradient_sum(q: Tensor, of: Edges, p: float) -> Tensor:
    r""":math:`\sum_{e: i \to j} |q_j - q_i|^p`, (N, H), over the edges that i sends, channel by channel.

    Edges are taken in blocks, so that no (E, H) array is written to memory.
    """
    return _GradientSum.apply(q, of, p)


class _GradientSum(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, q: Tensor, of: Edges, p: float) -> Tensor:
        ctx.save_for_backward(q)
        ctx.edges, ctx.p = of, p
        total = torch.zeros_like(q)
        for i, j, block in _blocks(q, of):
            total.index_add_(0, i, powers(_difference(q, i, j, block).abs_(), p))
        return total

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None, None]:
        (q,), p = ctx.saved_tensors, ctx.p
        to_q = torch.zeros_like(q)
        for i, j, block in _blocks(q, ctx.edges):
            d = _difference(q, i, j, block)
            sign = d.sign()
            push = slopes(d.abs_(), p).mul_(sign)
            push.mul_(torch.index_select(grad, 0, i, out=block[1]))
            to_q.index_add_(0, j, push)
            to_q.index_add_(0, i, push, alpha=-1)
        return to_q, None, None


def _blocks(q: Tensor, of: Edges) -> Any:
    """Ends i, j of the edges, those of one sender together, with room for their differences."""
    _, j, order = of.rows("sender")
    i = of.sender[order]
    step = max(1, CHUNK // q.shape[1]) if q.device.type == "cpu" else max(1, len(i))
    room = q.new_empty(2, min(step, len(i)), q.shape[1])
    for one, other in zip(i.split(step), j.split(step), strict=True):
        yield one, other, room[:, : len(one)]


def _difference(q: Tensor, i: Tensor, j: Tensor, block: Tensor) -> Tensor:
    torch.index_select(q, 0, j, out=block[0])
    torch.index_select(q, 0, i, out=block[1])
    return block[0].sub_(block[1])


# Around a coupling ---------------------------------------------------------------------------------------

ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "elu": F.elu,
    "sigmoid": torch.sigmoid,
    "identity": lambda x: x,
}


def call(layer: nn.Module, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
    """A message-passing layer's answer; edge weights go in by name, and only where the layer takes them."""
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
    """The module itself and n - 1 more of its kind, each with a start of its own."""
    layers = [module]
    for _ in range(n - 1):
        layer = copy.deepcopy(module)
        for part in reversed(list(layer.modules())):  # a whole after its parts: it has the last word
            if hasattr(part, "reset_parameters"):
                part.reset_parameters()  # type: ignore[operator]
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
        d_in, d_out = widths(coupling)
        if d_in is not None and d_out is not None and d_out % d_in:
            raise InputError(
                f"a coupling gives back as many channels as it gets, or a multiple for several heads; "
                f"{type(coupling).__name__} makes {d_out} of {d_in}."
            )
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
        total = call(self.coupling, x, edge_index, edge_weight)
        if self.R is not None:
            added = -self.R(self._own()(x)) if self.residual == "official-v1" else self.R(x)
            total = total + added
            if self.residual == "official-v2":
                total = total - self._own()(x)
        return merge_heads(ACTIVATIONS[self.activation](total), x.shape[1], self.heads)

    def symbols(self) -> dict[str, Tensor]:
        """The coupling's symbols, theta where it has no names for them; R and r of the residual term."""
        own = getattr(self.coupling, "symbols", None)
        found = own() if own else {f"theta.{name}": p for name, p in self.coupling.named_parameters()}
        if self.R is not None:
            found = {**found, "R": self.R.weight, "r": self.R.bias}
        return found


def numbered(forces: nn.ModuleList) -> dict[str, Tensor]:
    """Symbols of all layers: W where one force serves all, else W^1, W^2, ..."""
    if len(forces) == 1:
        return forces[0].symbols()  # type: ignore[operator]
    return {
        f"{name}^{n}": value
        for n, force in enumerate(forces, 1)
        for name, value in force.symbols().items()  # type: ignore[operator]
    }


def check_input(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None, d: int | None) -> None:
    """`check_graph`, and d channels where the layer knows how many it takes."""
    check_graph(x, edge_index, edge_weight)
    if d is not None:
        has_shape("x", x, ("N", d), hint="One row of channels per node.")


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
