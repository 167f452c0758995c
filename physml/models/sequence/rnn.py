"""From any recurrent layer to a network. Axes: B batch, T time, D features, H units of a layer, O outputs."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, ClassVar, Literal, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, fraction, has_shape, one_of
from physml.base.errors import InputError
from physml.models.sequence.layer_contract import (
    check_output,
    check_signature,
    last_output,
    on_padded,
    outputs_and_state,
    refuse_mixer_of_rows,
    refuse_reader_of_padding,
    width_of,
)
from physml.models.start import truncated_normal


class SequenceModel(nn.Module):
    r"""Embedding or encoder, a stack of recurrent layers with dropout, and a linear read-out.

    .. math:: o = R\, y^L_{T} + r \quad\text{("last")}, \qquad o_n = R\, y^L_n + r \quad\text{("every")}

    With pool "mean", the read-out of one answer per sequence takes the mean of :math:`y^L` over all steps, as
    the codes of LinOSS, LRU, S5 and S4 do for classes; over the true steps of a padded sequence with
    `lengths`.

    Dropout acts on the output of every layer, so between layers and before the read-out. Kind "step" draws
    each entry anew, "variational" draws one mask per sequence, the same at all steps. `embedding_dropout`
    removes whole words, the same in all sequences of a batch. `input_dropout` acts on each entry of what
    enters the encoder or the first layer, drawn anew at each step.

    Tied softmax: R is the table of embeddings E itself, so the score of id i is E_i y + r_i.

    A layer may name the place of its last output in its state, as indices: `output_in_state = (0,)` where
    h_T is the first tensor. The "last" read-out then takes it from there: its backward pass is faster.

    With `lengths=True` the "last" read-out of a padded sequence is taken at its own last step, and padding
    does not reach the answer: layers that look ahead are given the lengths, and layers of others that read
    padding are refused. With `lengths=False` padding is read as any other input, and the read-out is taken at
    the padded end. The state that is handed back is always that of the padded end.

    Args:
        layer: makes a recurrent layer from its number of input features; may be a torch.nn.LSTM/GRU/RNN with
            batch_first=True.
        d_in: D, or the number of ids where `tokens`.
        d_out: O.
        readout: "last" or "every", as the task needs it.
        tokens: whether the input is ids.
        n_layers: layers of the stack, each with its own weights.
        embedding: width of the vectors that stand for ids.
        encoder: width of a Linear before the first layer.
        readout_init: "kaiming_normal" (std (2/H)^(1/2), as in the official LEM and UnICORNN code), "fan_in"
            (truncated normal of variance 1/H, as in lamb) or torch's default.
        readout_bias_init: "zeros" (UnICORNN) or torch's default.
        vectors: (D, width), given vectors of the ids, from the task.
        embedding_init: "vectors", the given ones, "fan_out", truncated normal of variance 1/width, or null,
            N(0, 1).
        embedding_trained: false keeps the table as it starts.
        padding: the id whose vector is zero at the start and is never trained.
        tied: true for the tied softmax.
        pool: "mean", see above; null: the last step.
        bare: true leaves the read-out away: what the last layer hands on is the answer, and is d_out wide.
    Shapes: input (B, T, D), or ids (B, T); lengths (B,) -> output (B, O) or (B, T, O), and the states of all
    layers, a tuple. None as state is rest.

    Example:
        >>> def layer(d_in: int) -> nn.Module:
        ...     return nn.GRU(d_in, 8, batch_first=True)
        >>> model = SequenceModel(layer, d_in=2, d_out=3, readout="last", tokens=False)
        >>> model(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 3])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        layer: Callable[[int], nn.Module],
        d_in: int,
        d_out: int,
        readout: Literal["last", "every"],
        tokens: bool,
        *,
        n_layers: int = 1,
        dropout: float = 0.0,
        dropout_kind: Literal["step", "variational"] = "step",
        embedding: int | None = None,
        embedding_dropout: float = 0.0,
        input_dropout: float = 0.0,
        encoder: int | None = None,
        lengths: bool = True,
        readout_init: Literal["default", "kaiming_normal", "fan_in"] = "default",
        readout_bias_init: Literal["default", "zeros"] = "default",
        vectors: Tensor | None = None,
        embedding_init: Literal["vectors", "fan_out"] | None = None,
        embedding_trained: bool | None = None,
        padding: int | None = None,
        tied: bool | None = None,
        bare: bool | None = None,
        pool: Literal["mean"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out, n_layers=n_layers)
        each(fraction, dropout=dropout, embedding_dropout=embedding_dropout, input_dropout=input_dropout)
        one_of("readout", readout, ("last", "every"))
        one_of("dropout_kind", dropout_kind, ("step", "variational"))
        one_of("readout_init", readout_init, ("default", "kaiming_normal", "fan_in"))
        one_of("readout_bias_init", readout_bias_init, ("default", "zeros"))
        if tokens and embedding is None:
            raise InputError("embedding must be a width: the inputs are ids. Set net.embedding, such as 100.")
        if not tokens and (embedding is not None or embedding_dropout):
            raise InputError(
                f"embedding={embedding} and embedding_dropout={embedding_dropout} are for ids; the inputs "
                "of this task are numbers. Set embedding to null and embedding_dropout to 0, or use encoder."
            )
        of_ids = {
            "embedding_init": embedding_init,
            "embedding_trained": embedding_trained,
            "padding": padding,
            "tied": tied,
        }
        if not tokens and (id_only := [name for name, value in of_ids.items() if value is not None]):
            raise InputError(f"{id_only[0]} is for ids; the inputs of this task are numbers. Set it to null.")
        self.d_in, self.d_out, self.readout_at, self.tokens = d_in, d_out, readout, tokens
        self.dropout, self.dropout_kind = dropout, dropout_kind
        self.embedding_dropout, self.input_dropout = embedding_dropout, input_dropout
        self.lengths, self.pool = lengths, pool
        self._padding_checked = self._rows_checked = False  # of layers of others
        one_of("pool", pool, ("mean",), null=True)
        if pool is not None and readout != "last":
            raise InputError(
                "pool=mean is for one answer per sequence; this task wants one per step. Set null."
            )

        width = d_in
        self.embedding: nn.Embedding | None = None
        if embedding is not None:
            count("embedding", embedding)
            self.embedding, width = nn.Embedding(d_in, embedding), embedding
            _start_embedding(self.embedding, embedding_init, vectors, padding)
            self.embedding.weight.requires_grad_(embedding_trained is not False)
        self.encoder: nn.Linear | None = None
        if encoder is not None:
            count("encoder", encoder)
            self.encoder, width = nn.Linear(width, encoder), encoder
        layers = []
        self._widths = []
        for _ in range(n_layers):
            layers.append(layer(width))
            width = width_of(layers[-1])
            check_signature(layers[-1])
            self._widths.append(width)
        self.layers = nn.ModuleList(layers)
        if bare:
            self.readout: nn.Module = _no_readout(width, d_out, readout_init, readout_bias_init, tied)
            return
        self.readout = nn.Linear(width, d_out)
        if tied:
            self._tie(readout_init)
        elif readout_init == "kaiming_normal":
            nn.init.kaiming_normal_(self.readout.weight)
        elif readout_init == "fan_in":
            truncated_normal(self.readout.weight, width)
        if readout_bias_init == "zeros":
            nn.init.zeros_(self.readout.bias)

    def _tie(self, readout_init: str) -> None:
        """One table for ids that come in and ids that go out."""
        assert self.embedding is not None and isinstance(self.readout, nn.Linear)
        if readout_init != "default":
            raise InputError(
                f"with tied=true the read-out starts as the embedding; readout_init={readout_init} has no "
                "effect. Set it to default, and embedding_init instead."
            )
        table, weight = self.embedding.weight, self.readout.weight
        if table.shape != weight.shape:
            raise InputError(
                f"tied=true needs an embedding of shape {tuple(weight.shape)}, that of the read-out; got "
                f"{tuple(table.shape)}. Set net.embedding to the width of the last layer, {weight.shape[1]}, "
                "for a task that predicts its own ids."
            )
        self.readout.weight = table

    def forward(
        self, input: Tensor, lengths: Tensor | None = None, state: tuple[Any, ...] | None = None
    ) -> tuple[Tensor, tuple[Any, ...]]:
        if lengths is not None:
            has_shape("lengths", lengths, (input.shape[0],), hint="One true length per sequence.")
            if lengths.dtype not in (torch.int64, torch.int32):
                raise InputError(f"lengths must hold int64 or int32 numbers; got {lengths.dtype}.")
            if not torch.compiler.is_exporting():  # which knows no values
                _check_lengths(lengths, input.shape[1])
        unequal = self._unequal(lengths, input.shape[1])
        self._check_state(state)
        y = self._features(input)
        states = []
        for i, layer in enumerate(self.layers):
            before = None if state is None else state[i]
            if unequal is None:
                outputs, carried = outputs_and_state(layer, layer(y, before))
            else:
                if not self._padding_checked:
                    refuse_reader_of_padding(layer, y, unequal)
                outputs, carried = on_padded(layer, y, before, unequal)
            check_output(layer, y, outputs, self._widths[i])
            if self.training and not (self._rows_checked or torch.compiler.is_compiling()):
                refuse_mixer_of_rows(layer, y)
            y = self._drop(outputs)
            states.append(carried)
        self._padding_checked |= unequal is not None
        self._rows_checked |= self.training and input.shape[0] > 1
        if self.pool == "mean":
            y = _mean(y, lengths if self.lengths else None)
        elif self.readout_at == "last":
            if lengths is not None and self.lengths:
                y = y[torch.arange(y.shape[0], device=y.device), lengths.to(y.device) - 1]
            elif y is outputs:  # nothing was dropped
                y = last_output(layer, outputs, states[-1])
            else:
                y = y[:, -1]
        return self._answer(y), tuple(states)

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    def _unequal(self, lengths: Tensor | None, n_steps: int) -> Tensor | None:
        """The lengths that layers must know: None where there is no padding, or where it is read."""
        if lengths is None or not self.lengths:
            return None
        known = not torch.compiler.is_exporting()
        return None if known and int(lengths.min()) == n_steps else lengths

    def step(self, input: Tensor, state: tuple[Any, ...] | None = None) -> tuple[Tensor, tuple[Any, ...]]:
        """`forward` for one input, the fastest way along a sequence that comes in live.

        Args:
            input: (B, D), or ids (B,).
            state: the tuple that the last call returned; None is rest.
        Returns: the output (B, O), and the states of all layers.
        Errors: InputError if a layer has no `step`, as torch's own.
        """
        if self.pool:
            raise InputError(
                "pool=mean answers for whole sequences. Call the model with one, or set pool to null."
            )
        for layer in self.layers:
            if not hasattr(layer, "step"):
                raise InputError(
                    f"{type(layer).__name__} has no method step. Call the model with a sequence of one step "
                    "instead, input.unsqueeze(1)."
                )
        self._check_state(state)
        has_shape("input", input, ("B",) if self.tokens else ("B", self.d_in), hint="One step of a batch.")
        y = self._features(input.unsqueeze(1)).squeeze(1)
        states = []
        for i, layer in enumerate(self.layers):
            y, carried = cast(Any, layer).step(y, None if state is None else state[i])
            y = self._drop(y.unsqueeze(1)).squeeze(1)
            states.append(carried)
        return self._answer(y), tuple(states)

    def _answer(self, y: Tensor) -> Tensor:
        """The read-out; of a table that ids come in by too, without the row of the padding, which is 0."""
        table, readout = self.embedding, self.readout
        if table is None or table.padding_idx is None or not isinstance(readout, nn.Linear):
            return readout(y)
        if readout.weight is not table.weight:
            return readout(y)
        padding = torch.tensor([table.padding_idx], device=y.device)
        return F.linear(y, table.weight.index_fill(0, padding, 0.0), readout.bias)

    def _check_state(self, state: tuple[Any, ...] | None) -> None:
        if state is not None and len(state) != len(self.layers):
            raise InputError(f"state must hold one entry per layer, {len(self.layers)}; got {len(state)}.")

    def _features(self, input: Tensor) -> Tensor:
        if self.embedding is None:
            has_shape("input", input, ("B", "T", self.d_in), hint="Batch comes first, then time.")
            x = input
        else:
            has_shape("input", input, ("B", "T"), hint="Ids, batch first, then time.")
            table = self.embedding.weight
            if self.training and self.embedding_dropout:
                table = table * F.dropout(table.new_ones(len(table), 1), self.embedding_dropout)
            try:
                x = F.embedding(input, table, self.embedding.padding_idx)
            except IndexError as error:
                raise InputError(
                    f"input must hold ids in [0, {self.d_in}); got {input.min()} to {input.max()}."
                ) from error
        x = F.dropout(x, self.input_dropout, self.training)
        return x if self.encoder is None else self.encoder(x)

    def _drop(self, y: Tensor) -> Tensor:
        if not (self.training and self.dropout):
            return y
        if self.dropout_kind == "step":
            return F.dropout(y, self.dropout)
        return y * F.dropout(y.new_ones(y.shape[0], 1, y.shape[2]), self.dropout)


def _mean(y: Tensor, lengths: Tensor | None) -> Tensor:
    """The mean (B, H) of outputs (B, T, H) over their steps, or over the first `lengths` of them."""
    if lengths is None:
        return y.mean(1)
    n = lengths.to(y.device).unsqueeze(1)
    true = torch.arange(y.shape[1], device=y.device) < n
    return torch.where(true.unsqueeze(2), y, 0).sum(1) / n


def _no_readout(width: int, d_out: int, init: str, bias_init: str, tied: bool | None) -> nn.Module:
    if width != d_out:
        raise InputError(
            f"with bare=true the last layer gives the answer, so it must be {d_out} wide, as the task has "
            f"it; got {width}. Set bare to null for a linear read-out."
        )
    if tied or (init, bias_init) != ("default", "default"):
        raise InputError(
            "bare=true has no read-out to start or to tie. Set tied to null, both inits to default."
        )
    return nn.Identity()


def _check_lengths(lengths: Tensor, n_steps: int) -> None:
    if not 0 < int(lengths.min()) <= int(lengths.max()) <= n_steps:
        raise InputError(
            f"lengths must lie in [1, {n_steps}], the padded length; got {int(lengths.min())} to "
            f"{int(lengths.max())}."
        )


def _start_embedding(
    embedding: nn.Embedding, init: str | None, vectors: Tensor | None, padding: int | None
) -> None:
    n_ids, width = embedding.weight.shape
    if init is not None:
        one_of("embedding_init", init, ("vectors", "fan_out"))
    if init == "fan_out":
        truncated_normal(embedding.weight, width)
    if init == "vectors":
        if vectors is None:
            raise InputError("this task knows no vectors for its ids. Set embedding_init to null or fan_out.")
        has_shape("vectors", vectors, (n_ids, width), hint="One row per id; set net.embedding to its width.")
        with torch.no_grad():
            embedding.weight.copy_(vectors)
    if padding is not None:
        if not 0 <= padding < n_ids:
            raise InputError(f"padding must be an id in [0, {n_ids}); got {padding}.")
        embedding.padding_idx = padding
        with torch.no_grad():
            embedding.weight[padding] = 0
