"""Long Expressive Memory. Axes: B batch, T time, D features, H hidden units."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import below_one, count, each, one_of, positive, within
from physml.base.errors import InputError
from physml.models.start import truncated_normal
from physml.ops import lem as ops
from physml.ops.backend import Backend
from physml.ops.sequence import initial_state, is_step, no_autocast, one_step, pair_of, sequence


class LEM(nn.Module):
    r"""Two states per unit, each with its own time step that is learned from input and state.

    .. math::
        \Delta t_n &= \Delta t\,\hat\sigma(W_1 y_{n-1} + V_1 u_n + b_1) \\
        \overline{\Delta t}_n &= \Delta t\,\hat\sigma(W_2 y_{n-1} + V_2 u_n + b_2) \\
        z_n &= (1 - \Delta t_n) z_{n-1} + \Delta t_n \tanh(W_z y_{n-1} + V_z u_n + b_z) \\
        y_n &= (1 - \overline{\Delta t}_n) y_{n-1} + \overline{\Delta t}_n \tanh(W_y z_n + V_y u_n + b_y)

    Source: Rusch, Mishra, Erichson and Mahoney, ICLR 2022, https://arxiv.org/abs/2110.04744, equation 3
    (thesis 5.3).
    Choices: with dt > 1 a weight 1 - step may be negative; nothing is clamped, as in the official code.
    Init: all weights and biases uniform on [-k, k]; k = H^(-1/2) in the paper and in the official code,
    which adds two biases of this law where we have one.

    Args:
        d_in: D.
        d_hidden: H.
        dt: the largest step, in (0, 2].
        multiscale: False sets both steps to dt, without gates and their parameters (thesis Table 5.9).
        clip: (low, high), the range both step vectors are clipped to, in training and after it: a network
            that was trained with clipped steps is tested with them (thesis Figure 5.6: [2^-i, 1]).
        chrono: T_max, the longest dependency, for the initialisation of thesis Table 5.10:
            b1 ~ -log U[1, T_max dt - 1], all other biases 0.
        biases: per gate, 1 as in the paper, or 2, whose sum acts, as in the official code and in nn.LSTM.
        init: "official", k = H^(-1/2) as published; "fan_in", k = (D + H)^(-1/2), from what a unit takes in;
            "lamb", as the published code for Penn Treebank starts it: truncated normals of variance
            1 / (D + H) for weights and 1 / H for biases, b1 around 1.
        state_dropout: probability of a zero in the mask on y where y enters W, one mask per sequence and
            call, the same at all steps; the y that is carried on is whole. None or 0: no mask. In training
            this needs the plain loop, backend "reference".
        backend: "auto", "native", "triton", "torch" or "reference"; the last one has second derivatives.
    Shapes: u (B, T, D) -> y (B, T, H). The state is a pair (y, z), each (B, H).
    Storage: W, V and b hold the gates row after row, [z, 1, 2, y]; `symbols` gives each by its name.

    Example:
        >>> layer = LEM(d_in=2, d_hidden=8, dt=1.0)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        dt: float = 1.0,
        multiscale: bool = True,
        clip: Sequence[float] | None = None,
        chrono: float | None = None,
        biases: int = 1,
        init: Literal["official", "fan_in", "lamb"] = "official",
        state_dropout: float | None = None,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        within("dt", dt, 0, 2)
        one_of("init", init, ("official", "fan_in", "lamb"))
        one_of("backend", backend, ("auto", *ops.BACKENDS))
        if biases not in (1, 2):
            raise InputError(
                f"biases must be 1 (as in the paper) or 2 (as in the official code); got {biases}."
            )
        if not multiscale and (clip is not None or chrono is not None):
            raise InputError("clip and chrono act on the learned steps; they need multiscale=True.")
        if clip is not None and (len(clip) != 2 or not 0 <= clip[0] <= clip[1]):
            raise InputError(f"clip must be a pair (low, high) with 0 <= low <= high; got {list(clip)}.")
        if chrono is not None and not chrono * dt > 2:
            raise InputError(
                f"chrono * dt must be more than 2, since b1 is drawn from -log U[1, chrono * dt - 1]; "
                f"got {chrono} * {dt}."
            )
        below_one("state_dropout", state_dropout, null=True)
        if init == "lamb" and (not multiscale or chrono is not None):
            raise InputError("init='lamb' starts b1 around 1; it needs multiscale=True and chrono=null.")
        self.d_in, self.d_out = d_in, d_hidden
        self.state_dropout = float(state_dropout or 0)
        self.dt, self.multiscale, self.chrono, self.biases = float(dt), multiscale, chrono, biases
        self.clip = None if clip is None else (float(clip[0]), float(clip[1]))
        self.init, self.backend = init, backend
        n_first = 3 * d_hidden if multiscale else d_hidden  # rows that act on y
        self.W = nn.Parameter(torch.empty(n_first, d_hidden))
        self.Wy = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.V = nn.Parameter(torch.empty(n_first + d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(n_first + d_hidden))
        if biases == 2:
            self.b_state = nn.Parameter(torch.empty(n_first + d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        if self.init == "lamb":
            return self._start_as_lamb()
        k = (self.d_out if self.init == "official" else self.d_in + self.d_out) ** -0.5
        for p in self.parameters():
            nn.init.uniform_(p, -k, k)
        if self.chrono is not None:
            with torch.no_grad():
                for name, p in self.named_parameters():
                    if name.startswith("b"):
                        p.zero_()
                b1 = self.b[self.d_out : 2 * self.d_out]
                b1.uniform_(1, self.chrono * self.dt - 1).log_().neg_()

    @torch.no_grad()
    def _start_as_lamb(self) -> None:
        for name, p in self.named_parameters():
            truncated_normal(p, self.d_out if name.startswith("b") else self.d_in + self.d_out)
        self.b[self.d_out : 2 * self.d_out] += 1

    def forward(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if is_step(u) and (done := self._step(u.squeeze(1), state)):
            return done[0].unsqueeze(1), done[1]
        u = sequence(u, self.d_in, self.V)
        y, z = initial_state(state, ("y", "z"), u, self.d_out)
        mask = None
        if self.training and self.state_dropout:
            mask = F.dropout(torch.ones_like(y), self.state_dropout)
        outputs, y, z = ops.lem(
            *(u, y, z, self.W, self.Wy, self.V, self._bias()),
            dt=self.dt,
            clip=self.clip,
            mask=mask,
            backend=self.backend,
        )
        return outputs, (y, z)

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    def step(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        """`forward` for one input, the fastest way along a sequence that comes in live.

        Shapes: u (B, D) -> y (B, H). The state is that of `forward`; None is rest. With gradients, dropout or
        a GPU this calls `forward`.
        """
        return self._step(u, state) or one_step(self, self.d_in, u, state)

    def _step(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]] | None:
        """In C and without gradients; None where `forward` has to do it."""
        if (self.training and self.state_dropout) or (pair := pair_of(state, u, self.d_out)) is None:
            return None
        bias = self.b if self.biases == 1 else self._bias()
        done = ops.step(
            *(u, *pair, self.W, self.Wy, self.V, bias), dt=self.dt, clip=self.clip, backend=self.backend
        )
        return None if done is None else (done[0], done[1:])

    def time_scales(self, u: Tensor, state: tuple[Tensor, Tensor] | None = None) -> tuple[Tensor, Tensor]:
        r"""The steps :math:`\Delta t_n` of z and :math:`\overline{\Delta t}_n` of y, each (B, T, H).

        Errors: InputError in training with state dropout, whose masks are drawn anew.
        """
        if self.training and self.state_dropout:
            raise InputError(
                "the steps of a LEM with state_dropout are those of evaluation: call eval() first."
            )
        outputs, _ = self(u, state)
        if not self.multiscale:
            return torch.full_like(outputs, self.dt), torch.full_like(outputs, self.dt)
        u = sequence(u, self.d_in, self.V)
        y, _ = initial_state(state, ("y", "z"), u, self.d_out)
        before = torch.cat([y.unsqueeze(1), outputs[:, :-1]], 1)
        s = self.symbols()
        with no_autocast(u):
            steps = [
                self.dt * torch.sigmoid(F.linear(before, s[f"W{i}"]) + F.linear(u, s[f"V{i}"], s[f"b{i}"]))
                for i in "12"
            ]
        if self.clip is not None:
            steps = [step.clamp(*self.clip) for step in steps]
        return steps[0], steps[1]

    def symbols(self) -> dict[str, Tensor]:
        """The paper's weights by their names: views, except b with two biases, their sum."""
        names = ("z", "1", "2", "y") if self.multiscale else ("z", "y")
        V, b = self.V.split(self.d_out), self._bias().split(self.d_out)
        return {
            **{f"W{i}": w for i, w in zip(names, (*self.W.split(self.d_out), self.Wy), strict=True)},
            **{f"V{i}": v for i, v in zip(names, V, strict=True)},
            **{f"b{i}": v for i, v in zip(names, b, strict=True)},
        }

    def _bias(self) -> Tensor:
        return self.b if self.biases == 1 else self.b + self.b_state

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, dt={self.dt}, multiscale={self.multiscale}, biases={self.biases}"
