"""torch's recurrent layers and two variants of the LSTM. Axes: B batch, T time, D features, H units."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import below_one, count, each, fraction, one_of, positive
from physml.base.errors import InputError
from physml.ops.backend import resolved
from physml.ops.cell import Step, recurrence
from physml.ops.derivatives import transformed
from physml.ops.sequence import initial_state, no_autocast, sequence


class TorchLayer(nn.RNNBase):
    """The weights of torch's LSTM, GRU or tanh layer under their names there, and the layer itself.

    `nn.LSTM` would do, but torch.compile refuses to look at its weights.

    Args:
        mode: "LSTM", "GRU" or "RNN_TANH".
        d_in: D.
        d_hidden: H.
        bidirectional: for two directions.
    """

    def __init__(self, mode: str, d_in: int, d_hidden: int, *, bidirectional: bool = False) -> None:
        super().__init__(mode, d_in, d_hidden, batch_first=True, bidirectional=bidirectional)

    def forward(self, u: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        """Outputs (B, T, H) and the last states, each (directions, B, H); without states from zeros."""
        if not state:
            zeros = u.new_zeros(1 + self.bidirectional, len(u), self.hidden_size)
            state = (zeros,) * (2 if self.mode == "LSTM" else 1)
        if torch.compiler.is_dynamo_compiling():  # torch's own layers are no part of its graphs
            from physml.ops.untraced import untraced

            return untraced(self._all_steps, u, *state)
        return self._all_steps(u, *state)

    def _all_steps(self, u: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        layer = {"LSTM": torch.lstm, "GRU": torch.gru, "RNN_TANH": torch.rnn_tanh}[self.mode]
        weights = [x for direction in self.all_weights for x in direction]
        before = state if self.mode == "LSTM" else state[0]
        sizes = True, 1, 0.0, in_training(self, u), self.bidirectional, True
        results: tuple[Tensor, ...] = layer(u, before, weights, *sizes)  # type: ignore[operator]
        return results


def in_training(layer: nn.Module, u: Tensor) -> bool:
    """The flag for torch's layers; without dropout it moves no number, and cuDNN needs it for gradients."""
    return layer.training or (u.is_cuda and torch.is_grad_enabled())


class LSTM(nn.Module):
    r"""Long short-term memory: torch's, with chrono initialisation and time-stepped gates as options.

    .. math::
        i, f, o &= \sigma(W_{i,f,o} h_{n-1} + V_{i,f,o} u_n + b_{i,f,o}), \qquad
        g = \tanh(W_g h_{n-1} + V_g u_n + b_g) \\
        c_n &= f \circ c_{n-1} + i \circ g, \qquad h_n = o \circ \tanh(c_n)

    With `dt` the gates are scaled: version 1 replaces f, i by :math:`\Delta t f, \Delta t\, i`; version 2 by
    :math:`(1 - \Delta t) f, \Delta t\, i`.

    Source: Hochreiter and Schmidhuber 1997. Chrono: Tallec and Ollivier, https://arxiv.org/abs/1804.11188.
    Time-stepped gates: LEM, https://arxiv.org/abs/2110.04744, Table 11.
    Choices: two biases per gate, as in torch; `symbols` gives their sum.
    Init: uniform on [-k, k], k = H^(-1/2). With `chrono`, b_f ~ log U[1, chrono - 1], b_i = -b_f, and all
    other biases 0.

    Args:
        d_in: D.
        d_hidden: H.
        chrono: the longest memory to expect, in steps; None: biases as in Init.
        dt: size of the step; None: the plain LSTM.
        dt_version: 1 or 2, with dt.
        state_dropout: probability of a zero in the mask on h where h enters W, in training: one mask per
            sequence and call, the same at all steps. None: no mask.
    Shapes: u (B, T, D) -> h (B, T, H). The state is a pair (h, c), each (B, H).
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        chrono: float | None = None,
        dt: float | None = None,
        dt_version: int | None = None,
        state_dropout: float | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        if chrono is not None and not chrono > 2:
            raise InputError(f"chrono must be more than 2 steps, or null; got {chrono}.")
        if (dt is None) != (dt_version is None):
            raise InputError(f"dt and dt_version go together; got dt={dt} and dt_version={dt_version}.")
        if dt is not None:
            positive("dt", dt)
            one_of("dt_version", str(dt_version), ("1", "2"))
            if dt_version == 2:
                fraction("dt", dt)
        below_one("state_dropout", state_dropout, null=True)
        self.d_in, self.d_out = d_in, d_hidden
        self.state_dropout = float(state_dropout or 0)
        self.chrono, self.dt, self.dt_version = chrono, dt, dt_version
        self.cell = TorchLayer("LSTM", d_in, d_hidden)
        if chrono is not None:
            self._chrono(chrono)

    @torch.no_grad()
    def _chrono(self, longest: float) -> None:
        b = weights_of(self.cell)[2:]
        for bias in b:
            nn.init.zeros_(bias)
        bi, bf, _, _ = b[0].chunk(4)
        bf.uniform_(1.0, longest - 1.0).log_()
        bi.copy_(-bf)

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on h, `V` on the input; gates i, f, g, o."""
        V, W, b, b2 = weights_of(self.cell)
        return by_gate("ifgo", W=W, V=V, b=b + b2)

    def forward(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, weights_of(self.cell)[0])
        h, c = initial_state(state, ("h", "c"), u, self.d_out)
        with no_autocast(u):
            mask = None
            if self.training and self.state_dropout:
                mask = F.dropout(torch.ones_like(h), self.state_dropout)
            if self.dt is None and mask is None:
                return lstm(self.cell, u, h, c)
            dt = 1.0 if self.dt is None else self.dt
            keep = 1.0 - dt if self.dt_version == 2 else dt
            path, (h, c) = recurrence(lstm_step(weights_of(self.cell), dt, keep, mask), u, (h, c))
        return path, (h, c)

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward


def compiled(u: Tensor) -> bool:
    """True if a step is compiled; on a GPU, and under the transforms of torch, its own layer is used."""
    if u.device.type != "cpu":
        return False
    if torch.compiler.is_exporting():
        return resolved("auto") not in ("reference", "torch")
    return resolved("auto") != "torch" and not transformed(u)


def lstm_step(
    weights: Sequence[Tensor], dt: float = 1.0, keep: float = 1.0, mask: Tensor | None = None
) -> Step:
    r"""A step of the LSTM, with the gates f and i times `keep` and `dt`.

    Args:
        weights: V, W and a bias for each, with gates i, f, g, o.
        dt: as in `LSTM`.
        keep: what f is multiplied with.
        mask: (B, H), what h is multiplied with where it enters W.
    """
    V, W, b, b2 = weights

    def step(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        h = h if mask is None else h * mask
        i, f, g, o = (F.linear(u, V, b) + F.linear(h, W, b2)).chunk(4, 1)
        c = keep * torch.sigmoid(f) * c + dt * torch.sigmoid(i) * torch.tanh(g)
        h = torch.sigmoid(o) * torch.tanh(c)
        return h, (h, c)

    return step


def lstm(cell: TorchLayer, u: Tensor, h: Tensor, c: Tensor) -> tuple[Tensor, tuple[Tensor, ...]]:
    """All steps of the plain LSTM, compiled or torch's own."""
    if compiled(u):
        return recurrence(lstm_step(weights_of(cell)), u, (h, c))
    path, h, c = cell(u, h[None], c[None])
    return path, (h[0], c[0])


class _OneState(nn.Module):
    """A layer with the state (h,), compiled from its `_step` or torch's own.

    Args:
        d_in: D.
        d_hidden: H.
    """

    mode: ClassVar[str]  # of `TorchLayer`

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        self.d_in, self.d_out = d_in, d_hidden
        self.cell = TorchLayer(self.mode, d_in, d_hidden)

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, weights_of(self.cell)[0])
        (h,) = initial_state(state, ("h",), u, self.d_out)
        with no_autocast(u):
            if compiled(u):
                return recurrence(self._step, u, (h,))
            path, h = self.cell(u, h[None])
        return path, (h[0],)

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    def _step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        raise NotImplementedError


class GRU(_OneState):
    r"""Gated recurrent unit, torch's.

    .. math::
        r, z &= \sigma(W_{r,z} h_{n-1} + V_{r,z} u_n + b_{r,z}), \qquad
        k = \tanh(V_k u_n + b_k + r \circ (W_k h_{n-1} + c_k)) \\
        h_n &= (1 - z) \circ k + z \circ h_{n-1}

    Source: Cho et al., https://arxiv.org/abs/1406.1078.
    Choices: the reset gate acts after the product with W, as in torch and cuDNN.
    Init: uniform on [-k, k], k = H^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    mode = "GRU"

    def symbols(self) -> dict[str, Tensor]:
        """`W` acts on h, `V` on the input; gates r, z, candidate k; `ck` is the bias behind the gate r."""
        V, W, b, c = weights_of(self.cell)
        (br, bz, bk), (cr, cz, ck) = b.chunk(3), c.chunk(3)
        return {**by_gate("rzk", W=W, V=V), "br": br + cr, "bz": bz + cz, "bk": bk, "ck": ck}

    def _step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        V, W, b, c = weights_of(self.cell)
        (h,) = state
        (Vr, Vz, Vk), (Wr, Wz, Wk) = F.linear(u, V, b).chunk(3, 1), F.linear(h, W, c).chunk(3, 1)
        r, z = torch.sigmoid(Vr + Wr), torch.sigmoid(Vz + Wz)
        k = torch.tanh(Vk + r * Wk)
        h = (1 - z) * k + z * h
        return h, (h,)


class TanhRNN(_OneState):
    r"""The plain recurrent layer, torch's.

    .. math:: h_n = \tanh(W h_{n-1} + V u_n + b)

    Source: Elman 1990.
    Choices: two biases, as in torch; `symbols` gives their sum.
    Init: uniform on [-k, k], k = H^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    mode = "RNN_TANH"

    def symbols(self) -> dict[str, Tensor]:
        V, W, b, b2 = weights_of(self.cell)
        return {"W": W, "V": V, "b": b + b2}

    def _step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        V, W, b, c = weights_of(self.cell)
        h = torch.tanh(F.linear(u, V, b) + F.linear(state[0], W, c))
        return h, (h,)


def weights_of(cell: nn.RNNBase) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """On the input, on h, and the bias of each, with all gates packed."""
    V, W, b, b2 = cell.all_weights[0]
    return V, W, b, b2


def by_gate(gates: str, **packed: Tensor | Sequence[Tensor]) -> dict[str, Tensor]:
    """Weights by their letter and gate, Wi, Wf, Wg and Wo of W, (4H, H) or four matrices, for "ifgo"."""
    return {
        letter + gate: part
        for letter, whole in packed.items()
        for gate, part in zip(
            gates, whole.chunk(len(gates)) if isinstance(whole, Tensor) else whole, strict=True
        )
    }
