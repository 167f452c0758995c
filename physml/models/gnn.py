"""Baselines on graphs, and the network around a stack.

Axes: N nodes, E edges, G graphs, D features, H channels, O outputs.
"""

import math
from collections.abc import Callable, Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.check import count, has_shape, non_negative, one_of, positive, within
from physml.errors import InputError
from physml.graph.checks import check_graph
from physml.models.graph_features import Features, dropped, linear
from physml.models.graph_layers import (
    GraphAttention,
    GraphConvolution,
    MeanConvolution,
    NodeLinear,
)
from physml.models.graph_parts import ACTIVATIONS, Heads, call, check_input, last, merge_heads, widths
from physml.models.graph_propagation import gcn_spread
from physml.ops.dropout import dropout

Pool = Literal["sum", "mean", "max"]

# Baselines ------------------------------------------------------------------------------------------------


def drop_edges(edge_index: Tensor, edge_weight: Tensor | None, rate: float) -> tuple[Tensor, Tensor | None]:
    """Each edge of the list is left out with probability `rate`, both ways of an edge on their own."""
    kept = torch.rand(edge_index.shape[1], device=edge_index.device) >= rate
    return edge_index[:, kept], None if edge_weight is None else edge_weight[kept]


class PairNorm(nn.Module):
    r"""Centred features, each node scaled to a mean square of :math:`s^2` over nodes.

    .. math:: \tilde X_i = X_i - \frac1v \sum_j X_j, \qquad
        X_i \mapsto s\, \tilde X_i \Big/ \sqrt{\tfrac1v \sum_j \|\tilde X_j\|^2}

    Source: Zhao and Akoglu, ICLR 2020, https://arxiv.org/abs/1909.12223.
    Args:
        scale: s.
    Shapes: (N, H) -> (N, H), all nodes as one graph.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True  # means over all nodes: a batch of graphs would mix them

    def __init__(self, *, scale: float = 1.0) -> None:
        super().__init__()
        positive("scale", scale)
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        x = x - x.mean(0)
        return self.scale * x / torch.sqrt(1e-6 + x.square().sum(1).mean())


class GNN(nn.Module):
    r"""A plain stack, :math:`X^n = \sigma(F_n(X^{n-1}))`: MLP, GCN, GAT or GraphSAGE.

    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N.
        kind: "mlp", which sees no edges, "gcn", "gat" or "sage".
        activation: sigma.
        dropout: on what enters each layer but the first; attention weights of "gat" too.
        n_heads: of "gat", each of H channels, merged after sigma by `heads`, see `merge_heads`.
        residual: adds what entered a layer to what leaves it, where widths agree (equation 8.1).
        pair_norm: s of `PairNorm` before sigma; None: none.
        drop_edge: share of the edges left out, drawn anew in each call in training, the same in all layers.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 2

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        kind: Literal["mlp", "gcn", "gat", "sage"],
        activation: str = "relu",
        dropout: float = 0.0,
        n_heads: int = 1,
        heads: Heads = "mean",
        residual: bool = False,
        pair_norm: float | None = None,
        drop_edge: float = 0.0,
    ) -> None:
        super().__init__()
        for name, size in {"d_in": d_in, "d_hidden": d_hidden, "n_layers": n_layers}.items():
            count(name, size)
        one_of("kind", kind, ("mlp", "gcn", "gat", "sage"))
        one_of("activation", activation, ACTIVATIONS)
        one_of("heads", heads, ("mean", "official"))
        within("dropout", dropout, 0.0, 1.0)
        within("drop_edge", drop_edge, 0.0, 1.0)
        if n_heads != 1 and kind != "gat":
            raise InputError(f"n_heads={n_heads} is for kind='gat'; got kind={kind!r}. Set it to 1.")
        self.d_in, self.d_hidden, self.d_out = d_in, d_hidden, d_hidden
        self.kind, self.activation, self.dropout, self.drop_edge = kind, activation, dropout, drop_edge
        self.n_heads, self.heads, self.residual = n_heads, heads, residual
        self.norm = None if pair_norm is None else PairNorm(scale=pair_norm)
        self.layers = nn.ModuleList(
            self._layer(d_in if n == 0 else d_hidden, d_hidden, n_heads) for n in range(n_layers)
        )

    def _layer(self, d_in: int, d_out: int, n_heads: int = 1) -> nn.Module:
        if self.kind == "gat":
            return GraphAttention(d_in, d_out, n_heads=n_heads, dropout=self.dropout)
        return {"mlp": NodeLinear, "gcn": GraphConvolution, "sage": MeanConvolution}[self.kind](d_in, d_out)

    def head(self, d_out: int) -> nn.Module:
        """One more layer of the same kind, for a read-out that passes messages; no activation follows it."""
        return self._layer(self.d_hidden, d_out)

    @property
    def takes_rows(self) -> bool:
        """Whether the first layer's input may be `Rows`: not where it is added to what leaves that layer."""
        return not (self.residual and self.d_in == self.d_hidden)

    def forward(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight))

    def steps(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Iterator[Tensor]:
        """X^n after each layer, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        if self.training and self.drop_edge:
            edge_index, edge_weight = drop_edges(edge_index, edge_weight, self.drop_edge)
        sigma = ACTIVATIONS[self.activation]
        for n, layer in enumerate(self.layers):
            given = dropout(x, self.dropout, self.training) if n > 0 and isinstance(x, Tensor) else x
            out = call(layer, given, edge_index, edge_weight)
            if self.norm is not None:
                out = self.norm(out)
            out = merge_heads(sigma(out), self.d_hidden, self.heads)
            x = x + out if self.residual and isinstance(x, Tensor) and x.shape == out.shape else out
            yield x


class GCNII(nn.Module):
    r"""Graph convolutions with a link to the start and weights close to the identity.

    .. math::
        X^n = \sigma\big(((1 - \alpha) P X^{n-1} + \alpha X^0)((1 - \beta_n) I + \beta_n W_n)\big), \qquad
        \beta_n = \log(\lambda / n + 1)

    with P the matrix of equation 7.5. With variant "star", GCNII*, propagated and initial features have
    weights of their own,

    .. math::
        X^n = \sigma\big((1 - \alpha) P X^{n-1} ((1 - \beta_n) I + \beta_n W_n)
              + \alpha X^0 ((1 - \beta_n) I + \beta_n V_n)\big)

    and with "star-official", as in the authors' code, what meets these weights has no factor 1 - alpha or
    alpha: :math:`(1 - \beta_n) ((1 - \alpha) P X^{n-1} + \alpha X^0) + \beta_n (P X^{n-1} W_n + X^0 V_n)`.

    Source: Chen et al., ICML 2020, https://arxiv.org/abs/2007.02133.
    Init: W and V uniform on [-k, k], k = H^(-1/2), as in the authors' code.
    Args:
        d_in: H.
        n_layers: N.
        alpha: share of the initial features.
        lam: lambda.
        dropout: on the input of each layer; X^0 is added as it is.
        variant: None, "star" or "star-official".
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        alpha: float = 0.1,
        lam: float = 0.5,
        dropout: float = 0.0,
        variant: Literal["star", "star-official"] | None = None,
    ) -> None:
        super().__init__()
        count("d_in", d_in)
        count("n_layers", n_layers)
        within("alpha", alpha, 0.0, 1.0)
        non_negative("lam", lam)
        within("dropout", dropout, 0.0, 1.0)
        if variant is not None:
            one_of("variant", variant, ("star", "star-official"))
        self.d_in = self.d_out = d_in
        self.alpha, self.lam, self.dropout, self.variant = alpha, lam, dropout, variant
        self.W = nn.ParameterList(nn.Parameter(torch.empty(d_in, d_in)) for _ in range(n_layers))
        self.V = nn.ParameterList(nn.Parameter(torch.empty_like(W)) for W in self.W if variant is not None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (*self.W, *self.V):
            nn.init.uniform_(weight, -(self.d_in**-0.5), self.d_in**-0.5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        spread, start = gcn_spread(x, edge_index, edge_weight), x
        for n, W in enumerate(self.W, 1):
            beta = math.log(self.lam / n + 1)
            x = dropout(x, self.dropout, self.training)
            spread_x = spread(x)
            mixed = (1 - self.alpha) * spread_x + self.alpha * start
            if self.variant is None:
                x = torch.relu(torch.addmm(mixed, mixed, W, beta=1 - beta, alpha=beta))
                continue
            of_spread, of_start = (1 - self.alpha, self.alpha) if self.variant == "star" else (1.0, 1.0)
            x = torch.addmm(mixed, spread_x, W, beta=1 - beta, alpha=beta * of_spread)
            x = torch.relu(torch.addmm(x, start, self.V[n - 1], alpha=beta * of_start))
        return x


# The network around a stack -------------------------------------------------------------------------------


class GraphModel(nn.Module):
    r"""Encoder of each node, a stack that passes messages, decoder of each node, and a sum over each graph.

    Args:
        encoder: of each node; None: none.
        stack: called as stack(x, edge_index), with edge_weight by name where the graph has weights.
        decoder: of each node; None: none.
        pool: "sum", "mean" or "max" of the decoder's outputs over the nodes of each graph; None: one output
            per node.
    Shapes: input (N, D), edge_index (2, E), edge_weight (E,), batch (N,) the graph of each node, None: one
    graph -> (N, O), or (G, O) with a pool.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a batch of several graphs if a layer's output depends on all nodes (`one_graph`).
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        encoder: nn.Module | None,
        stack: nn.Module,
        decoder: nn.Module | None,
        pool: Pool | None = None,
    ) -> None:
        super().__init__()
        if pool is not None:
            one_of("pool", pool, ("sum", "mean", "max"))
        self.encoder, self.stack, self.decoder, self.pool = encoder, stack, decoder, pool
        self._mixing = [type(m).__name__ for m in self.modules() if getattr(m, "one_graph", False)]

    def forward(
        self,
        input: Tensor,
        edge_index: Tensor,
        *,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        check_graph(input, edge_index, edge_weight)
        if self._mixing and batch is not None and bool((batch > 0).any()):
            raise InputError(
                f"{self._mixing[0]} looks at all nodes at once, so the graphs of a batch would change each "
                f"other's answers; got {int(batch.max()) + 1} graphs. Give it one graph at a time "
                "(trainer.batch_size=1 trainer.eval_batch_size=1), or leave "
                "it out (model.pair_norm=null, square_plus=false)."
            )
        x = call(self.stack, self.encode(input), edge_index, edge_weight)
        x = self.decode(x, edge_index, edge_weight)
        return x if self.pool is None else pooled(x, batch, self.pool)

    def encode(self, input: Tensor) -> Features:
        return input if self.encoder is None else self.encoder(input)

    def decode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        return x if self.decoder is None else self.decoder(x)


class GraphNet(GraphModel):
    r"""A `GraphModel` made for a task: linear encoder and decoder of its sizes.

    Dropout `input_dropout`, Linear to H, activation; the stack; activation, dropout, Linear to O, activation.
    Wide features that are mostly zeros are kept as sparse rows on a CPU, see `graph_features`.

    Args:
        layer: makes the stack from its number of channels.
        d_in: D.
        d_out: O.
        readout: "node" or "graph".
        hidden: H of the encoder; None: no encoder, the stack starts from the features.
        encoder_activation: after the encoder.
        input_dropout: on the features.
        decoder: "linear"; "layer", one more layer as those of the stack, which must have a `head`, as `GNN`
            has.
        decoder_activation: before the decoder.
        dropout: before the decoder, after its activation.
        output_activation: after the decoder.
        pool: over the nodes of a graph, for tasks with readout "graph".
        init: "default", torch's; "official-heterophilic", every weight, but not the biases, uniform on
            [-k, k] with k = H^(-1/2) for all, whatever it multiplies.
    """

    def __init__(
        self,
        layer: Callable[[int], nn.Module],
        d_in: int,
        d_out: int,
        readout: Literal["node", "graph"],
        *,
        hidden: int | None,
        encoder_activation: str = "identity",
        input_dropout: float = 0.0,
        decoder: Literal["linear", "layer"] = "linear",
        decoder_activation: str = "identity",
        dropout: float = 0.0,
        output_activation: str = "identity",
        pool: Pool | None = None,
        init: Literal["default", "official-heterophilic"] = "default",
    ) -> None:
        count("d_in", d_in)
        count("d_out", d_out)
        one_of("readout", readout, ("node", "graph"))
        one_of("decoder", decoder, ("linear", "layer"))
        one_of("init", init, ("default", "official-heterophilic"))
        within("input_dropout", input_dropout, 0.0, 1.0)
        within("dropout", dropout, 0.0, 1.0)
        for name, activation in {
            "encoder_activation": encoder_activation,
            "decoder_activation": decoder_activation,
            "output_activation": output_activation,
        }.items():
            one_of(name, activation, ACTIVATIONS)
        if (readout == "graph") != (pool is not None):
            wanted, net = ("a pool, such as sum", "graphs") if readout == "graph" else ("no pool", "graph")
            raise InputError(
                f"a task with one output per {readout} needs {wanted}; got pool={pool!r}. Set net={net}."
            )
        encoder = None
        if hidden is not None:
            count("hidden", hidden)
            encoder = nn.Linear(d_in, hidden)
        elif encoder_activation != "identity":
            raise InputError("encoder_activation acts behind an encoder, and hidden is null: there is none.")
        given = d_in if hidden is None else hidden
        stack = layer(given)
        taken, width = widths(stack)
        if taken not in (None, given):
            whose = "the features" if hidden is None else "hidden"
            raise InputError(
                f"{type(stack).__name__} takes {taken} channels per node; got {given}, the width of {whose}. "
                "Give its coupling the same width."
            )
        if width is None and (decoder == "linear" or init != "default"):
            raise InputError(f"{type(stack).__name__} has no d_out: the decoder can't know its width.")
        if decoder == "layer" and not hasattr(stack, "head"):
            raise InputError(
                f"decoder='layer' needs a stack of plain layers; {type(stack).__name__} has no head(). "
                "Set decoder to linear."
            )
        with_head = decoder == "layer" or width is None
        last = stack.head(d_out) if with_head else nn.Linear(width, d_out)  # type: ignore[operator, arg-type]
        super().__init__(encoder, stack, last, pool)
        self.d_in, self.d_out, self.message_decoder = d_in, d_out, decoder == "layer"
        self.input_dropout, self.dropout = input_dropout, dropout
        self.encoder_activation, self.decoder_activation = encoder_activation, decoder_activation
        self.output_activation = output_activation
        if init == "official-heterophilic":
            assert width is not None
            k = width**-0.5
            for name, p in self.named_parameters():
                if "weight" in name:
                    nn.init.uniform_(p, -k, k)

    def forward(
        self,
        input: Tensor,
        edge_index: Tensor,
        *,
        edge_weight: Tensor | None = None,
        batch: Tensor | None = None,
    ) -> Tensor:
        has_shape("input", input, ("N", self.d_in), hint="One row of features per node.")
        return super().forward(input, edge_index, edge_weight=edge_weight, batch=batch)

    def encode(self, input: Tensor) -> Features:
        if isinstance(self.encoder, nn.Linear):
            x = dropped(input, self.input_dropout, self.training)
            return ACTIVATIONS[self.encoder_activation](linear(x, self.encoder.weight, self.encoder.bias))
        if getattr(self.stack, "takes_rows", False):
            return dropped(input, self.input_dropout, self.training)
        return dropout(input, self.input_dropout, self.training)

    def decode(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None) -> Tensor:
        assert self.decoder is not None
        x = dropout(ACTIVATIONS[self.decoder_activation](x), self.dropout, self.training)
        x = call(self.decoder, x, edge_index, edge_weight) if self.message_decoder else self.decoder(x)
        return ACTIVATIONS[self.output_activation](x)


def pooled(x: Tensor, batch: Tensor | None, how: Pool) -> Tensor:
    """Sum, mean or maximum over the nodes of each graph: x (N, O), batch (N,) -> (G, O)."""
    if batch is None:
        batch = torch.zeros(len(x), dtype=torch.long, device=x.device)
    has_shape("batch", batch, (len(x),), hint="The graph of each node, from 0 on.")
    if batch.dtype != torch.long or int(batch.min()) < 0:
        raise InputError(
            f"batch must hold int64 numbers of graphs from 0 on; got {batch.dtype}, from {batch.min()}."
        )
    n = int(batch.max()) + 1
    count = torch.bincount(batch, minlength=n)
    if not bool(count.all()):
        empty = int((count == 0).nonzero()[0])
        raise InputError(f"graph {empty} of the batch has no node. Number the graphs without gaps.")
    if how == "max":
        index = batch[:, None].expand_as(x)
        return x.new_full((n, x.shape[1]), -torch.inf).scatter_reduce(0, index, x, "amax")
    total = x.new_zeros(n, x.shape[1]).index_add(0, batch, x)
    return total if how == "sum" else total / count[:, None]
