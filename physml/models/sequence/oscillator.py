"""Neural oscillators, without damping. Axes: B batch, T time, D features, H units of a layer."""

from collections.abc import Callable
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of, positive
from physml.ops.cell import recurrence, recurrent
from physml.ops.sequence import initial_state, no_autocast, one_step, sequence

Activation = Literal["tanh", "sin", "identity", "relu", "sigmoid", "softplus"]
Function = Callable[[Tensor], Tensor]  # of each number
ACTIVATIONS: dict[str, Function] = {
    "tanh": torch.tanh,
    "sin": torch.sin,
    "identity": lambda x: x,
    "relu": torch.relu,
    "sigmoid": torch.sigmoid,
    "softplus": F.softplus,
}


def activation_of(activation: Activation | Function) -> Function:
    """The function of this name, or the function itself. Errors: InputError for an unknown name."""
    if callable(activation):
        return activation
    one_of("activation", activation, ACTIVATIONS)
    return ACTIVATIONS[activation]


@recurrent("y", "z")
class NeuralOscillator(nn.Module):
    r"""Oscillators coupled and forced inside one nonlinearity.

    .. math:: y'' = \sigma(W y + V u + b)

    One step of size :math:`\Delta t` per input, velocity z first:

    .. math::
        z_n &= z_{n-1} + \Delta t\, \sigma(W y_{n-1} + V u_n + b) \\
        y_n &= y_{n-1} + \Delta t\, z_n

    H = 1, W = -omega^2, V = 1, b = 0 and the identity are a forced harmonic oscillator, whose y is the
    time-windowed sine transform of u over omega.

    Source: Lanthaler, Rusch and Mishra, NeurIPS 2023, https://arxiv.org/abs/2305.08753; thesis, equation 4.1.
    Choices: the texts leave steps and start open. Steps are those of coRNN; it has equation 4.1 as its
    special case Wcal = 0, gamma = epsilon = 0.
    Init: W = -I plus numbers uniform on [-k, k], V and b uniform on [-k, k], k = (D + H)^(-1/2).

    Args:
        d_in: D.
        d_hidden: H.
        dt: step size.
        activation: sigma: "tanh", "sin", "identity", "relu", "sigmoid", "softplus", or a function of each
            number.
    Shapes: u (B, T, D) -> y (B, T, H). The state is (y, z), each (B, H).

    Example:
        >>> NeuralOscillator(d_in=2, d_hidden=8, dt=0.1, activation="sin")(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self, d_in: int, d_hidden: int, *, dt: float, activation: Activation | Function = "tanh"
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        activation_of(activation)
        self.d_in, self.d_out, self.dt, self.activation = d_in, d_hidden, float(dt), activation
        self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        k = (self.d_in + self.d_out) ** -0.5
        for p in self.parameters():
            nn.init.uniform_(p, -k, k)
        with torch.no_grad():
            self.W.diagonal().sub_(1.0)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.W, "V": self.V, "b": self.b}

    def step(self, u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y, z = state
        z = z + self.dt * activation_of(self.activation)(F.linear(y, self.W) + F.linear(u, self.V, self.b))
        y = y + self.dt * z
        return y, (y, z)


class MultilayerOscillator(nn.Module):
    r"""Layers of oscillators that do not hear their neighbours, each layer forced by the one below.

    .. math:: \ddot y^\ell = \sigma(w^\ell \odot y^\ell + V^\ell y^{\ell-1} + b^\ell), \qquad y^0 = u

    in the steps of `NeuralOscillator`, of which this is the case of a matrix W with the blocks w and V above
    (thesis 4.3): layer l hears :math:`y^{\ell-1}_{n-1}`, layer 1 hears u_n. Three layers approximate every
    causal continuous operator (thesis, Theorem 4.2.1).

    Source: Lanthaler, Rusch and Mishra, NeurIPS 2023, https://arxiv.org/abs/2305.08753; thesis, equation 4.2.
    Choices: all layers have H units; steps and start as in `NeuralOscillator`.
    Init: w uniform on [-1, 0]; V and b uniform on [-k, k], k the inverse root of the number of inputs.

    Args:
        d_in: D.
        d_hidden: H.
        n_layers: L.
        dt: step size.
        activation: sigma: "tanh", "sin", "identity", "relu", "sigmoid", "softplus", or a function of each
            number.
    Shapes: u (B, T, D) -> y^L (B, T, H). The state is (y^1, ..., y^L, z^1, ..., z^L), each (B, H).

    Example:
        >>> layer = MultilayerOscillator(d_in=2, d_hidden=8, n_layers=3, dt=0.1)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        n_layers: int,
        dt: float,
        activation: Activation | Function = "tanh",
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        count("n_layers", n_layers)
        activation_of(activation)
        self.d_in, self.d_out, self.n_layers = d_in, d_hidden, n_layers
        self.dt, self.activation = float(dt), activation
        widths = [d_in, *[d_hidden] * (n_layers - 1)]
        self.w = nn.ParameterList([nn.Parameter(torch.empty(d_hidden)) for _ in widths])
        self.V = nn.ParameterList([nn.Parameter(torch.empty(d_hidden, width)) for width in widths])
        self.b = nn.ParameterList([nn.Parameter(torch.empty(d_hidden)) for _ in widths])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for w, V, b in zip(self.w, self.V, self.b, strict=True):
            k = V.shape[1] ** -0.5
            nn.init.uniform_(w, -1.0, 0.0)
            nn.init.uniform_(V, -k, k)
            nn.init.uniform_(b, -k, k)

    @property
    def output_in_state(self) -> tuple[int, ...]:
        return (self.n_layers - 1,)

    def symbols(self) -> list[dict[str, Tensor]]:
        return [{"w": w, "V": V, "b": b} for w, V, b in zip(self.w, self.V, self.b, strict=True)]

    def forward(
        self, u: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V[0])
        names = tuple(f"{letter} of layer {k + 1}" for letter in "yz" for k in range(self.n_layers))
        before = initial_state(state, names, u, self.d_out)
        with no_autocast(u):
            return recurrence(self._step, u, before)

    def step(self, u: Tensor, state: tuple[Tensor, ...] | None = None) -> tuple[Tensor, tuple[Tensor, ...]]:
        """`forward` for one input u (B, D) of a sequence that comes in live."""
        return one_step(self, self.d_in, u, state)

    def _step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        ys, zs = state[: self.n_layers], state[self.n_layers :]
        sigma, below = activation_of(self.activation), (u, *ys)
        layers = zip(ys, zs, below[:-1], self.w, self.V, self.b, strict=True)
        zs = tuple(z + self.dt * sigma(w * y + F.linear(x, V, b)) for y, z, x, w, V, b in layers)
        ys = tuple(y + self.dt * z for y, z in zip(ys, zs, strict=True))
        return ys[-1], (*ys, *zs)
