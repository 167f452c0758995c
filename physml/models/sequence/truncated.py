"""An LSTM that learns from the end of a sequence alone. Axes: B batch, T time, D features, H units."""

from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each
from physml.base.errors import InputError
from physml.models.sequence.gated import TorchLayer, by_gate, lstm, weights_of
from physml.ops.sequence import initial_state, no_autocast, sequence


class TruncatedLSTM(nn.Module):
    r"""Truncated backpropagation through time: all steps move the state, the last ones teach the weights.

    .. math::
        (h_n, c_n) = \text{LSTM}(h_{n-1}, c_{n-1}, u_n), \qquad
        \frac{\partial (h_n, c_n)}{\partial (h_{n-1}, c_{n-1})} := 0 \quad\text{at } n = T - k + 1

    Outputs are those of the LSTM. The first T - k of them, and the input at those steps, get no gradient: so
    for a "last" read-out, only the last k steps teach the weights. With k >= T this is the LSTM. The last
    steps are counted from the padded end, so training on unequal lengths is refused where T > k.

    Source: UnICORNN, https://arxiv.org/abs/2103.05487 (thesis, section 3.4): an LSTM whose BPTT "is truncated
    after the last 500 time points"; LEM, https://arxiv.org/abs/2110.04744, Table 11.
    Choices: the text can also mean that the first steps are not read at all; here they are, without gradient.
    Init: torch's, uniform on [-a, a], a = H^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        last: k, the steps that gradients go back.
    Shapes: u (B, T, D) -> h (B, T, H). The state is a pair (h, c), each (B, H).

    Example:
        >>> layer = TruncatedLSTM(d_in=2, d_hidden=8, last=3)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(self, d_in: int, d_hidden: int, *, last: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, last=last)
        self.d_in, self.d_out, self.last = d_in, d_hidden, last
        self.cell = TorchLayer("LSTM", d_in, d_hidden)

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on h, `V` on the input, `b` is the sum of both biases; gates i, f, g, o."""
        V, W, b, b2 = weights_of(self.cell)
        return by_gate("ifgo", W=W, V=V, b=b + b2)

    def forward(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, weights_of(self.cell)[0])
        h, c = initial_state(state, ("h", "c"), u, self.d_out)
        early = u.shape[1] - self.last
        if lengths is not None and early > 0 and self.training:
            raise InputError(
                f"sequences must be equally long, without padding, to learn from their last {self.last} "
                f"steps; got {int(lengths.min())} to {int(lengths.max())} steps, padded to {u.shape[1]}. Set "
                f"model.last to {u.shape[1]} or more, or take the model lstm."
            )
        with no_autocast(u):
            if early <= 0:
                return lstm(self.cell, u, h, c)
            with torch.no_grad():
                before, (h, c) = lstm(self.cell, u[:, :early], h, c)
            path, last = lstm(self.cell, u[:, early:], h, c)
        return torch.cat([before, path], 1), last
