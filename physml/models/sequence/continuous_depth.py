"""Networks that are a step of an integrator. Axes: B batch, T time, D components of x, H units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of, positive
from physml.models.sequence.ode import SCHEMES, stepped
from physml.ops.sequence import no_autocast, sequence

Scheme = Literal["euler", "midpoint", "rk4"]


class ContinuousDepth(nn.Module):
    r"""From the state at one point in time to that at the next, by the scheme of an integrator: ODE-net.

    .. math::
        x_{t+1} = x_t + \Delta t \cdot \mathrm{scheme}[\mathcal R, x_t, \Delta t], \qquad
        \mathcal R(x) = A_3 \tanh(A_2 \tanh(A_1 x + a_1) + a_2) + a_3

    With Euler's scheme and dt = 1 it is a residual unit. A network with a scheme of higher order, once it is
    trained, can be integrated with other schemes and other steps, as R is then near the right-hand side of
    the system; with Euler's it isn't (`advance`; see Figure talk-fig-odenet).

    Source: Queiruga et al., 2020, https://arxiv.org/abs/2008.02389; talk of M. Mahoney (January 2022),
    equations 1 to 3.
    Choices: two hidden layers of one width; weights are shared by all steps.

    Args:
        d_in: D, also the width of the output.
        d_hidden: H.
        scheme: "euler", "midpoint" or "rk4".
        dt: time from one input to the next.
        n_steps: steps of the scheme in it.
    Shapes: u (B, T, D) -> (B, T, D): of each point the next, from this point alone. There is no state: ().

    Example:
        >>> ContinuousDepth(d_in=2, d_hidden=8, scheme="rk4", dt=0.1)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 2])
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_hidden: int, *, scheme: Scheme, dt: float, n_steps: int = 1) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden)
        positive("dt", dt)
        one_of("scheme", scheme, SCHEMES)
        count("n_steps", n_steps)
        self.d_in = self.d_out = d_in
        self.scheme, self.dt, self.n_steps = scheme, float(dt), n_steps
        self.first, self.second = nn.Linear(d_in, d_hidden), nn.Linear(d_hidden, d_hidden)
        self.third = nn.Linear(d_hidden, d_in)

    def slope(self, x: Tensor) -> Tensor:
        """R(x), for x of shape (..., D)."""
        return self.third(torch.tanh(self.second(torch.tanh(self.first(x)))))

    def advance(self, x: Tensor, span: float, *, scheme: str, n_steps: int) -> Tensor:
        """x (..., D) after the time `span`, in steps of any scheme."""
        return stepped(scheme, self.slope, x, span, n_steps)

    def forward(self, u: Tensor, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        u = sequence(u, self.d_in, self.first.weight)
        with no_autocast(u):
            return self.advance(u, self.dt, scheme=self.scheme, n_steps=self.n_steps), ()
