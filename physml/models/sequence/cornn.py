"""Coupled oscillatory RNN. Axes: B batch, T time, D features, H hidden units."""

import math
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, non_negative, one_of, positive
from physml.base.errors import InputError
from physml.ops import cornn as ops
from physml.ops.backend import Backend
from physml.ops.sequence import initial_state, is_step, one_step, pair_of, sequence


class CoRNN(nn.Module):
    r"""A layer of H coupled, damped oscillators pushed by the input.

    .. math:: y' = z, \qquad z' = \tanh(W y + \mathcal{W} z + V u + b) - \gamma y - \epsilon z

    One step of size :math:`\Delta t` per input, velocity first:

    .. math::
        z_n &= z_{n-1} + \Delta t\,[\tanh(W y_{n-1} + \mathcal{W} z_{n-1} + V u_n + b)
               - \gamma y_{n-1} - \epsilon z_{\bar n}] \\
        y_n &= y_{n-1} + \Delta t\, z_n

    Source: Rusch and Mishra, ICLR 2021, https://arxiv.org/abs/2010.00951 (thesis 2.3, 2.9, 2.45).

    Args:
        d_in: D.
        d_hidden: H.
        dt: step size; the default, as those of gamma and epsilon, is the paper's for sequential MNIST.
        gamma: stiffness, pulls y to 0. 0 is for what the thesis says of undamped oscillators in Chapter 4,
            where coRNN with W_cal = 0 and gamma = epsilon = 0 is the neural oscillator (4.1); trained, it
            starts above 0.
        epsilon: damping, slows z; 0 as gamma.
        damping: "explicit", n-bar = n - 1, as in all published results; or "implicit", n-bar = n.
        trainable: learns dt, gamma and epsilon from the given values on: dt through a sigmoid, so it must
            start below 1, gamma and epsilon through a ReLU.
        init: weights and biases are uniform on [-k, k], and k depends on how the official scripts pack them:
            "joint", k = (D + 2H)^(-1/2) for all (adding, MNIST, HAR-2); "separate", D^(-1/2) for V and b,
            H^(-1/2) for W and Wcal (noise padded CIFAR-10); "imdb", D^(-1/2) and (2H)^(-1/2).
        backend: "auto", "native", "triton", "torch" or "reference"; the last one has second derivatives.
    Shapes: u (B, T, D) -> y (B, T, H). The state is a pair (y, z), each (B, H).

    Example:
        >>> layer = CoRNN(d_in=2, d_hidden=8, dt=0.05, gamma=2.0, epsilon=1.0)
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
        dt: float = 0.042,
        gamma: float = 2.7,
        epsilon: float = 4.7,
        damping: str = "explicit",
        trainable: bool = False,
        init: Literal["joint", "separate", "imdb"] = "joint",
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        each(positive if trainable else non_negative, gamma=gamma, epsilon=epsilon)
        one_of("damping", damping, ("explicit", "implicit"))
        one_of("init", init, ("joint", "separate", "imdb"))
        one_of("backend", backend, ("auto", *ops.BACKENDS))
        if trainable and not dt < 1:
            raise InputError(f"a trainable dt is a sigmoid and stays below 1; got a start of {dt}.")
        if trainable and backend not in ("auto", "reference"):
            raise InputError(
                f"backend={backend!r} can't train dt, gamma and epsilon. Use 'auto' or 'reference'."
            )
        self.d_in, self.d_out = d_in, d_hidden
        self.dt, self.gamma, self.epsilon = float(dt), float(gamma), float(epsilon)  # at the start
        self.damping, self.trainable, self.init, self.backend = damping, trainable, init, backend
        self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.Wcal = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        if trainable:
            self.raw_dt = nn.Parameter(torch.empty(()))
            self.raw_gamma = nn.Parameter(torch.empty(()))
            self.raw_epsilon = nn.Parameter(torch.empty(()))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        D, H = self.d_in, self.d_out
        from_input = D if self.init != "joint" else D + 2 * H
        from_state = {"joint": D + 2 * H, "separate": H, "imdb": 2 * H}[self.init]
        for p, fan_in in (
            (self.W, from_state),
            (self.Wcal, from_state),
            (self.V, from_input),
            (self.b, from_input),
        ):
            nn.init.uniform_(p, -(fan_in**-0.5), fan_in**-0.5)
        if self.trainable:
            nn.init.constant_(self.raw_dt, math.log(self.dt / (1 - self.dt)))
            nn.init.constant_(self.raw_gamma, self.gamma)
            nn.init.constant_(self.raw_epsilon, self.epsilon)

    def forward(
        self, u: Tensor, state: tuple[Tensor, Tensor] | None = None
    ) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        if is_step(u) and (done := self._step(u.squeeze(1), state)):
            return done[0].unsqueeze(1), done[1]
        u = sequence(u, self.d_in, self.V)
        y, z = initial_state(state, ("y", "z"), u, self.d_out)
        dt, gamma, epsilon = self.constants()
        outputs, y, z = ops.cornn(
            u,
            y,
            z,
            self.W,
            self.Wcal,
            self.V,
            self.b,
            dt=dt,
            gamma=gamma,
            epsilon=epsilon,
            damping=self.damping,
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
        if self.trainable or (pair := pair_of(state, u, self.d_out)) is None:
            return None
        done = ops.step(
            *(u, *pair, self.W, self.Wcal, self.V, self.b),
            dt=self.dt,
            gamma=self.gamma,
            epsilon=self.epsilon,
            damping=self.damping,
            backend=self.backend,
        )
        return None if done is None else (done[0], done[1:])

    def constants(self) -> tuple[float | Tensor, float | Tensor, float | Tensor]:
        """dt, gamma and epsilon as they act now."""
        if not self.trainable:
            return self.dt, self.gamma, self.epsilon
        return torch.sigmoid(self.raw_dt), torch.relu(self.raw_gamma), torch.relu(self.raw_epsilon)

    def symbols(self) -> dict[str, Tensor]:
        """The paper's weights by their names; Wcal is the calligraphic W, which acts on z."""
        return {"W": self.W, "Wcal": self.Wcal, "V": self.V, "b": self.b}

    def extra_repr(self) -> str:
        return (
            f"{self.d_in}, {self.d_out}, dt={self.dt}, gamma={self.gamma}, epsilon={self.epsilon}, "
            f"damping={self.damping}, trainable={self.trainable}"
        )
