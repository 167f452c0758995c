"""LSTMs in both directions, behind a convolution. Axes: B batch, T time, D features, H units each way."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of
from physml.base.errors import InputError
from physml.models.sequence.gated import TorchLayer, by_gate, compiled, in_training, lstm_step
from physml.ops.cell import recurrence
from physml.ops.sequence import initial_state, no_autocast, reversed_within, sequence, zero_behind

Ends = tuple[Tensor, Tensor, Tensor, Tensor]


class BiLSTM(nn.Module):
    r"""A convolution along time, then one LSTM that reads forwards and one that reads backwards.

    .. math::
        x_n &= \sum_{j=0}^{k-1} C_j\, u_{n + j - (k-1)/2} + c \qquad (u = 0 \text{ outside of } 1..T) \\
        \overrightarrow{h}_n &= \text{LSTM}(\overrightarrow{h}_{n-1}, x_n), \qquad
        \overleftarrow{h}_n = \text{LSTM}(\overleftarrow{h}_{n+1}, x_n)

    With `order` "read" the output n is what either direction knows after n steps of its own,
    :math:`[\overrightarrow{h}_n, \overleftarrow{h}_{T+1-n}]`: the last one has seen the whole sequence twice,
    which a "last" read-out needs. With "time" both halves belong to input n, as in torch.nn.LSTM; its last
    output knows of the backward direction one step alone.

    Source: the row BiLSTM+1d-conv of LEM, https://arxiv.org/abs/2110.04744, Table 2, which is named there and
    not described; LSTM: Hochreiter and Schmidhuber 1997.
    Choices: the convolution comes first, keeps T and D, and has no nonlinearity behind it. With two biases
    per gate, as the other LSTMs of that table are counted, 22 units and 6 inputs make the printed 5.8k
    parameters for k = 7, 8 or 9; k = 7 is taken.
    Init: torch's: uniform on [-a, a], a = H^(-1/2) for the LSTMs, a = (D k)^(-1/2) for the convolution.

    Nothing can be carried from one piece of a sequence to the next: the backward half reads from the end.
    With `lengths` padding behind a shorter sequence counts as outside of it; without, as any other input.

    Args:
        d_in: D.
        d_hidden: H, of each direction.
        kernel: k, odd; None: no convolution.
        order: "read" or "time".
    Shapes: u (B, T, D), lengths (B,) -> (B, T, 2H). The state handed back is the last (h, c) of both
    directions, forward first, each (B, H).

    Example:
        >>> layer = BiLSTM(d_in=2, d_hidden=8, kernel=7, order="read")
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 16])
    """

    version: ClassVar[int] = 2

    def __init__(
        self, d_in: int, d_hidden: int, *, kernel: int | None = 7, order: Literal["read", "time"] = "read"
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        one_of("order", order, ("read", "time"))
        if kernel is not None and (kernel < 1 or kernel % 2 != 1):
            raise InputError(f"kernel must be odd, so that every step has a middle, or null; got {kernel}.")
        self.d_in, self.d_hidden, self.d_out = d_in, d_hidden, 2 * d_hidden
        self.kernel, self.order = kernel, order
        self.conv: nn.Conv1d | None = None
        if kernel is not None:
            self.conv = nn.Conv1d(d_in, d_in, kernel, padding=(kernel - 1) // 2)
        self.cell = TorchLayer("LSTM", d_in, d_hidden, bidirectional=True)

    def symbols(self) -> list[dict[str, Tensor]]:
        """Forward, backward: `W` acts on h, `V` on the input, `b` is the sum of both biases; gates ifgo."""
        return [by_gate("ifgo", W=W, V=V, b=b + b2) for V, W, b, b2 in self.cell.all_weights]

    def forward(self, u: Tensor, state: None = None, lengths: Tensor | None = None) -> tuple[Tensor, Ends]:
        if state is not None:
            raise InputError(
                "state must be None: a layer that reads a sequence from both ends can't go on from a state. "
                "Give whole sequences, or take the model lstm."
            )
        u = sequence(u, self.d_in, self.cell.all_weights[0][0])
        h0, c0 = initial_state(None, ("h", "c"), u, self.d_hidden)
        with no_autocast(u):
            if lengths is not None:
                u = zero_behind(u, lengths)
            x = u if self.conv is None else self.conv(u.transpose(1, 2)).transpose(1, 2)
            forwards, backwards, ends = self._both_ways(x, h0, c0, lengths)
        if self.order == "time":
            backwards = reversed_within(backwards, lengths)
        return torch.cat([forwards, backwards], 2), ends

    def _both_ways(
        self, x: Tensor, h0: Tensor, c0: Tensor, lengths: Tensor | None
    ) -> tuple[Tensor, Tensor, Ends]:
        """The outputs of both directions, in the order in which each of them reads, and the last states."""
        if compiled(x):
            forward_step, backward_step = (lstm_step(weights) for weights in self.cell.all_weights)
            forwards, (h, c) = recurrence(forward_step, x, (h0, c0))
            backwards, (k, d) = recurrence(backward_step, reversed_within(x, lengths), (h0, c0))
            return forwards, backwards, (h, c, k, d)
        if lengths is not None:
            (forwards, h, c), (backwards, k, d) = (
                torch.lstm(
                    y, (h0[None], c0[None]), [*weights], True, 1, 0.0, in_training(self, x), False, True
                )
                for y, weights in zip((x, reversed_within(x, lengths)), self.cell.all_weights, strict=True)
            )
            return forwards, backwards, (h[0], c[0], k[0], d[0])
        path, hs, cs = self.cell(x, torch.stack([h0, h0]), torch.stack([c0, c0]))
        forwards, backwards = path.split(self.d_hidden, 2)
        return forwards, backwards.flip(1), (hs[0], cs[0], hs[1], cs[1])
