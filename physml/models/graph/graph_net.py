"""The network around a stack of graph layers: encoder, decoder and pool.

Axes: N nodes, E edges, G graphs, D features, H channels, O outputs.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, has_shape, one_of
from physml.base.errors import InputError
from physml.graph.checks import check_graph
from physml.models.graph.graph_features import Features, dropped, linear
from physml.models.graph.graph_parts import ACTIVATIONS, call, widths
from physml.ops.dropout import dropout

Pool = Literal["sum", "mean", "max"]


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
        one_of("pool", pool, ("sum", "mean", "max"), null=True)
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

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

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
        decoder: "linear"; "perceptron", Linear to H // 2, LeakyReLU, Linear to O; "layer", one more layer as
            those of the stack, which must have a `head`, as `GNN` has.
        decoder_activation: before the decoder.
        dropout: before the decoder, after its activation.
        output_activation: after the decoder.
        pool: over the nodes of a graph, for tasks with readout "graph".
        init: "default", torch's; "official-heterophilic", every weight, but not the biases, uniform on
            [-k, k] with k = H^(-1/2) for all, whatever it multiplies; "official-fagcn", the weights of linear
            encoder and decoder Glorot normal, widened by 1.414.
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
        decoder: Literal["linear", "perceptron", "layer"] = "linear",
        decoder_activation: str = "identity",
        dropout: float = 0.0,
        output_activation: str = "identity",
        pool: Pool | None = None,
        init: Literal["default", "official-heterophilic", "official-fagcn"] = "default",
    ) -> None:
        each(count, d_in=d_in, d_out=d_out)
        one_of("readout", readout, ("node", "graph"))
        one_of("decoder", decoder, ("linear", "perceptron", "layer"))
        one_of("init", init, ("default", "official-heterophilic", "official-fagcn"))
        each(fraction, input_dropout=input_dropout, dropout=dropout)
        for name, activation in {
            "encoder_activation": encoder_activation,
            "decoder_activation": decoder_activation,
            "output_activation": output_activation,
        }.items():
            one_of(name, activation, ACTIVATIONS)
        if (readout == "graph") != (pool is not None):
            needed, net = ("a pool, such as sum", "graphs") if readout == "graph" else ("no pool", "graph")
            raise InputError(
                f"a task with one output per {readout} needs {needed}; got pool={pool!r}. Set net={net}."
            )
        encoder = None
        if hidden is not None:
            count("hidden", hidden)
            encoder = nn.Linear(d_in, hidden)
        elif encoder_activation != "identity":
            raise InputError("encoder_activation acts behind an encoder, and hidden is null: there is none.")
        stack_d_in = d_in if hidden is None else hidden
        stack = layer(stack_d_in)
        taken, width = widths(stack)
        if taken not in (None, stack_d_in):
            whose = "the features" if hidden is None else "hidden"
            raise InputError(
                f"{type(stack).__name__} takes {taken} channels per node; got {stack_d_in}, the width of "
                f"{whose}. Give its coupling the same width."
            )
        if width is None and (decoder != "layer" or init != "default"):
            raise InputError(f"{type(stack).__name__} has no d_out: the decoder can't know its width.")
        if decoder == "layer" and not hasattr(stack, "head"):
            raise InputError(
                f"decoder='layer' needs a stack of plain layers; {type(stack).__name__} has no head(). "
                "Set decoder to linear."
            )
        last: nn.Module
        if decoder == "layer" or width is None:
            last = stack.head(d_out)  # type: ignore[operator]
        elif decoder == "perceptron":
            count("hidden // 2", width // 2)
            last = nn.Sequential(nn.Linear(width, width // 2), nn.LeakyReLU(), nn.Linear(width // 2, d_out))
        else:
            last = nn.Linear(width, d_out)
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
        for part in (encoder, last) if init == "official-fagcn" else ():
            if isinstance(part, nn.Linear):
                nn.init.xavier_normal_(part.weight, gain=1.414)

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
