"""Linear oscillatory state-space models. Axes: B batch, T time, D features, H of a layer, P oscillators."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import one_of, positive
from physml.base.errors import InputError
from physml.models.sequence.state_space import StateSpace, StateSpaceStack, parts, real_part
from physml.ops.cell import recurrence

Scheme = Literal["im", "imex", "damped"]
Matrix = tuple[Tensor, Tensor, Tensor, Tensor]  # M11, M12, M21, M22, each (P,)


class Oscillators(StateSpace):
    """P forced linear oscillators with complex input and output; see `LinOSS`."""

    def __init__(
        self,
        d_hidden: int,
        d_state: int,
        scheme: Scheme,
        init: Literal["official"] | None,
        a_max: float,
        r_min: float,
        r_max: float,
    ) -> None:
        super().__init__()
        self.d_hidden, self.scheme, self.widths = d_hidden, scheme, (2 * d_state, 2 * d_state)
        self.A = nn.Parameter(a_max * torch.rand(d_state))
        # "damped" is of another code, whose step sizes start normal.
        uniform = init == "official" and scheme != "damped"
        self.dt = nn.Parameter(torch.rand(d_state) if uniform else torch.randn(d_state))
        self.B = nn.Parameter((2 * torch.rand(2, d_state, d_hidden) - 1) * d_hidden**-0.5)
        self.C = nn.Parameter((2 * torch.rand(2, d_hidden, d_state) - 1) * d_state**-0.5)
        self.D = nn.Parameter(torch.randn(d_hidden))
        if scheme == "damped":
            self.G = nn.Parameter(torch.empty(d_state))
            self._ring(r_min, r_max)

    @torch.no_grad()
    def _ring(self, r_min: float, r_max: float) -> None:
        """A and G so that the eigenvalues of a step lie between two circles: M has determinant r^2."""
        squared = r_min**2 + torch.rand_like(self.A) * (r_max**2 - r_min**2)
        cos, dt = torch.cos(math.pi * torch.rand_like(self.A)), torch.sigmoid(self.dt)
        self.G.copy_((1 / squared - 1) / dt)
        self.A.copy_((squared + 1 - 2 * squared.sqrt() * cos) / (dt**2 * squared))

    def constants(self) -> tuple[Tensor, Tensor, Tensor]:
        """A, G and the step sizes as they act: A >= 0, G >= 0, 0 < dt < 1."""
        dt = torch.sigmoid(self.dt)
        if self.scheme != "damped":
            return torch.relu(self.A), torch.zeros_like(dt), dt
        G = torch.relu(self.G)
        # Where the eigenvalues of a step are a complex pair, so that none leaves the unit circle.
        middle, reach = 2 + dt * G, 2 * torch.sqrt(1 + dt * G)
        return torch.clamp(self.A, (middle - reach) / dt**2, (middle + reach) / dt**2), G, dt

    def matrix(self) -> tuple[Matrix, tuple[Tensor, Tensor]]:
        """M of a step (z, y) -> M (z, y) + F B u, and F."""
        A, G, dt = self.constants()
        S = 1 / (1 + dt * G + (dt**2 * A if self.scheme == "im" else 0))
        last = S if self.scheme == "im" else 1 - dt**2 * S * A
        return (S, -dt * S * A, dt * S, last), (dt * S, dt**2 * S)

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        M, pushes = self.matrix()
        m11, m12, m21, m22, f1, f2 = (x.repeat(2) for x in (*M, *pushes))

        def step(push: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
            z, y = state
            z, y = m11 * z + m12 * y + f1 * push, m21 * z + m22 * y + f2 * push
            return y, (z, y)

        y, last = recurrence(step, F.linear(u, parts(*self.B)), state)
        return F.linear(y, real_part(*self.C)) + self.D * u, last


class LinOSS(StateSpaceStack):
    r"""Blocks of forced linear oscillators, in stable or energy-preserving steps.

    .. math::
        y'' = -A y - G y' + B u, \qquad x = \mathrm{Re}(C y) + D \circ u

    with diagonal :math:`A, G \ge 0` and complex y. One step of size :math:`\Delta t` per input, z = y':

    .. math::
        \text{im:}\quad z_n &= z_{n-1} + \Delta t\,(-A y_n + B u_n), \qquad & y_n = y_{n-1} + \Delta t\, z_n
        \\ \text{imex:}\quad z_n &= z_{n-1} + \Delta t\,(-A y_{n-1} + B u_n), & y_n = y_{n-1} + \Delta t\,
        z_n \\ \text{damped:}\quad z_n &= z_{n-1} + \Delta t\,(-A y_{n-1} - G z_n + B u_n), & y_n = y_{n-1} +
        \Delta t\, z_n

    G = 0 but for "damped", D-LinOSS. IM loses energy: all eigenvalues of a step lie in the unit circle. IMEX
    is symplectic: a step has determinant 1, and its eigenvalues lie on the circle while
    :math:`\Delta t^2 A \le 4`. D-LinOSS has eigenvalues of modulus :math:`(1 + \Delta t\, G)^{-1/2}`, since
    A is kept where they are a complex pair. A = relu(.), G = relu(.), :math:`\Delta t = \sigma(.)`, one each
    per oscillator. The blocks around the oscillators are those of `StateSpaceStack`.

    Source: Rusch and Rus, ICLR 2025, https://arxiv.org/abs/2410.03943; D-LinOSS: Boyer et al. 2025,
    https://arxiv.org/abs/2505.12171; the official codes.
    Init: A uniform on [0, a_max]; step sizes the sigmoid of normal numbers, as in the code of D-LinOSS, or,
    but for "damped", with init "official" of numbers uniform on [0, 1], as in that of LinOSS; B and C uniform
    on [-k, k], k = H^(-1/2) and P^(-1/2), D normal. D-LinOSS: A and G from eigenvalues uniform in area
    between the circles r_min and r_max.

    Args:
        d_in: D.
        d_hidden: H.
        d_state: P.
        n_layers: number of blocks.
        scheme: "im", "imex" or "damped".
        dropout: behind GELU and GLU.
        init: "official", see Init; or null.
        a_max: see Init; of "im" and "imex".
        r_min: see Init; of "damped".
        r_max: see Init; of "damped".
    Shapes: u (B, T, D) -> (B, T, H). The state has z and y of each block, (B, 2P), real parts before
    imaginary ones.

    Example:
        >>> LinOSS(d_in=2, d_hidden=8, d_state=4, n_layers=2, scheme="imex")(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        d_state: int,
        n_layers: int,
        scheme: Scheme = "im",
        dropout: float = 0.0,
        init: Literal["official"] | None = None,
        a_max: float = 1.0,
        r_min: float = 0.9,
        r_max: float = 1.0,
    ) -> None:
        one_of("scheme", scheme, ("im", "imex", "damped"))
        positive("a_max", a_max)
        one_of("init", init, ("official",), null=True)
        if not 0 < r_min <= r_max <= 1:
            raise InputError(f"r_min and r_max need 0 < r_min <= r_max <= 1; got {r_min} and {r_max}.")
        make = partial(Oscillators, scheme=scheme, init=init, a_max=a_max, r_min=r_min, r_max=r_max)
        super().__init__(make, d_in, d_hidden, d_state=d_state, n_layers=n_layers, dropout=dropout)
