r"""Recurrent layers that flow along an ODE between two inputs: NODE, HBNODE, GHBNODE.

Axes: B batch, T time, D features, H hidden units, W width of f.
"""

import math
from collections.abc import Callable
from functools import partial
from typing import ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, positive
from physml.base.errors import InputError
from physml.models.sequence.ode import Field, Method, Solver
from physml.ops.sequence import initial_state, no_autocast, sequence


class Perceptron(nn.Module):
    r""":math:`f(h) = \theta_2 \tanh(\theta_1 h + b_1) + b_2`, the network of the lecture, with biases.

    Shapes: h (B, H) -> (B, H).
    """

    def __init__(self, d_hidden: int, width: int) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(d_hidden, width), nn.Linear(width, d_hidden)

    def forward(self, h: Tensor) -> Tensor:
        return self.second(torch.tanh(self.first(h)))


class FirstOrder(Field):
    """h' = f(h)."""

    def __init__(self, d_hidden: int, width: int) -> None:
        super().__init__()
        self.f = Perceptron(d_hidden, width)

    def slope(self, x: Tensor) -> Tensor:
        return self.f(x)


class HeavyBall(Field):
    r"""Equation 13; with `xi` the generalised one. x = (h, m), one after the other."""

    def __init__(self, d_hidden: int, width: int, gamma: float, xi: float | None, trained: bool) -> None:
        super().__init__()
        self.f = Perceptron(d_hidden, width)
        self.trained, self.generalised = trained, xi is not None
        if trained:  # through functions that keep gamma in (0, 1) and xi positive
            self.raw_gamma = nn.Parameter(torch.tensor(math.log(gamma / (1 - gamma))))
            if xi is not None:
                self.raw_xi = nn.Parameter(torch.tensor(math.log(math.expm1(xi))))
        else:
            self.constants = (gamma, xi or 0.0)

    def gamma_xi(self) -> tuple[Tensor | float, Tensor | float]:
        """Damping and spring."""
        if not self.trained:
            return self.constants
        return torch.sigmoid(self.raw_gamma), F.softplus(self.raw_xi) if self.generalised else 0.0

    def slope(self, x: Tensor) -> Tensor:
        h, m = x.chunk(2, -1)
        gamma, xi = self.gamma_xi()
        if self.generalised:
            return torch.cat([torch.tanh(m), self.f(h) - gamma * m - xi * h], -1)
        return torch.cat([m, self.f(h) - gamma * m], -1)


class _Flowing(nn.Module):
    """An input changes h at once; h, and m where there is one, then flow for the time `span`."""

    names: ClassVar[tuple[str, ...]]  # of the parts of the state

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        width: int,
        make: Callable[[int, int], Field],
        span: float,
        solver: Solver,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, width=width)
        positive("span", span)
        self.d_in, self.d_out, self.span = d_in, d_hidden, float(span)
        self.solver, field = solver, make(d_hidden, width)
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.W = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.field = field
        k = d_hidden**-0.5
        for p in (self.V, self.W, self.b):
            nn.init.uniform_(p, -k, k)

    def symbols(self) -> dict[str, Tensor]:
        f = cast(Perceptron, self.field.f)
        return {
            "V": self.V,
            "W": self.W,
            "b": self.b,
            "theta1": f.first.weight,
            "b1": f.first.bias,
            "theta2": f.second.weight,
            "b2": f.second.bias,
        }

    def enter(self, u: Tensor, state: tuple[Tensor, ...]) -> Tensor:
        """Start x of the flow after an input u (B, D): the parts of the state, one after the other."""
        h, *others = state
        h = torch.tanh(F.linear(h, self.W) + F.linear(u, self.V, self.b))
        return torch.cat([h, *others], -1)

    def forward(
        self, u: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        u = sequence(u, self.d_in, self.V)
        parts = initial_state(state, self.names, u, self.d_out)
        path = []
        with no_autocast(u):
            for u_n in u.unbind(1):
                x = self.solver(self.field, self.enter(u_n, parts), self.span)
                parts = x.chunk(len(self.names), -1)
                path.append(parts[0])
        return torch.stack(path, 1), parts


class NeuralODE(_Flowing):
    r"""A recurrent layer whose state flows along a neural ODE after each input.

    .. math::
        h_n^+ = \tanh(W h_{n-1} + V u_n + b), \qquad
        h_n = h(\tau) \ \text{with}\ h' = f(h),\ h(0) = h_n^+, \qquad
        f(h) = \theta_2 \tanh(\theta_1 h + b_1) + b_2

    On one input, such as a whole image, it is the ODE-net of the lecture; on a sequence an ODE-RNN.

    Source: Chen et al., NeurIPS 2018, https://arxiv.org/abs/1806.07366; of sequences Rubanova et al., NeurIPS
    2019, https://arxiv.org/abs/1907.03907; lecture of B. Wang (Utah, 2023), "Neural ODEs".
    Choices: f knows no time, as in the lecture's example; the flow comes after the input, so that one input
    alone is an ODE-net, where Rubanova et al. have it before.
    Init: V, W and b uniform on [-k, k], k = H^(-1/2); f as torch has it.

    Args:
        d_in: D.
        d_hidden: H.
        width: W, of f.
        span: tau, the time from one input to the next.
        method: "euler", "midpoint" or "rk4" with `n_steps`, or "dopri5" with `rtol` and `atol`, which needs
            the extra `ode`.
        n_steps: steps in one span.
        rtol: relative tolerance.
        atol: absolute tolerance.
        adjoint: gradients of dopri5 by the adjoint ODE, in place of those of its steps.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> NeuralODE(d_in=2, d_hidden=8, width=16)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    names = ("h",)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        width: int,
        span: float = 1.0,
        method: Method = "rk4",
        n_steps: int | None = 2,
        rtol: float | None = None,
        atol: float | None = None,
        adjoint: bool = False,
    ) -> None:
        solver = Solver(method, n_steps=n_steps, rtol=rtol, atol=atol, adjoint=adjoint)
        super().__init__(d_in, d_hidden, width, FirstOrder, span, solver)


class HeavyBallNODE(_Flowing):
    r"""A recurrent layer that flows along a heavy-ball ODE after each input: HBNODE.

    .. math:: h'' + \gamma h' = f(h), \qquad\text{so}\quad h' = m, \quad m' = -\gamma m + f(h)

    After an input h starts at :math:`\tanh(W h_{n-1} + V u_n + b)` and m where the last flow has left it, at
    first 0. f is that of `NeuralODE`.

    Source: Xia et al., NeurIPS 2021, https://arxiv.org/abs/2110.04840; lecture of B. Wang (Utah, 2023),
    equations 12 and 13.
    Init: as `NeuralODE`.

    Args:
        d_in: D.
        d_hidden: H.
        width: W, of f.
        gamma: damping, 0 or more; between 0 and 1 where it is trained.
        trained: whether gamma is trained, as the sigmoid of a parameter, as the authors' code does.
        span: the time from one input to the next.
        method: see `NeuralODE`.
        n_steps: see `NeuralODE`.
        rtol: see `NeuralODE`.
        atol: see `NeuralODE`.
        adjoint: see `NeuralODE`.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, m), each (B, H).

    Example:
        >>> HeavyBallNODE(d_in=2, d_hidden=8, width=16, gamma=0.5)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    names = ("h", "m")

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        width: int,
        gamma: float,
        trained: bool = False,
        span: float = 1.0,
        method: Method = "rk4",
        n_steps: int | None = 2,
        rtol: float | None = None,
        atol: float | None = None,
        adjoint: bool = False,
    ) -> None:
        _check_gamma(gamma, trained)
        make = partial(HeavyBall, gamma=gamma, xi=None, trained=trained)
        solver = Solver(method, n_steps=n_steps, rtol=rtol, atol=atol, adjoint=adjoint)
        super().__init__(d_in, d_hidden, width, make, span, solver)


class GeneralisedHeavyBallNODE(_Flowing):
    r"""A heavy-ball ODE with a bounded speed and a spring, after each input: GHBNODE.

    .. math:: h' = \tanh(m), \qquad m' = -\gamma m + f(h) - \xi h

    h so moves by at most the time that passes, and does not blow up in it. All else is as in
    `HeavyBallNODE`.

    Source: Xia et al., NeurIPS 2021, https://arxiv.org/abs/2110.04840.
    Init: as `NeuralODE`.

    Args:
        d_in: D.
        d_hidden: H.
        width: W, of f.
        gamma: damping, 0 or more; between 0 and 1 where it is trained.
        xi: spring, positive.
        trained: whether gamma and xi are trained, as sigmoid and softplus of a parameter each.
        span: the time from one input to the next.
        method: see `NeuralODE`.
        n_steps: see `NeuralODE`.
        rtol: see `NeuralODE`.
        atol: see `NeuralODE`.
        adjoint: see `NeuralODE`.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, m), each (B, H).

    Example:
        >>> GeneralisedHeavyBallNODE(d_in=2, d_hidden=8, width=16, gamma=0.5, xi=1.0).d_out
        8
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)
    names = ("h", "m")

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        width: int,
        gamma: float,
        xi: float,
        trained: bool = False,
        span: float = 1.0,
        method: Method = "rk4",
        n_steps: int | None = 2,
        rtol: float | None = None,
        atol: float | None = None,
        adjoint: bool = False,
    ) -> None:
        positive("xi", xi)
        _check_gamma(gamma, trained)
        make = partial(HeavyBall, gamma=gamma, xi=xi, trained=trained)
        solver = Solver(method, n_steps=n_steps, rtol=rtol, atol=atol, adjoint=adjoint)
        super().__init__(d_in, d_hidden, width, make, span, solver)


def _check_gamma(gamma: float, trained: bool) -> None:
    non_negative("gamma", gamma)
    if trained and not 0 < gamma < 1:
        raise InputError(f"gamma must lie between 0 and 1 where it is trained, as a sigmoid; got {gamma}.")
