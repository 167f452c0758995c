"""Solvers of ordinary differential equations for networks that are one. Axes: B batch, N components of x."""

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of, positive
from physml.base.errors import InputError, needed_by

Slope = Callable[[Tensor], Tensor]
Method = Literal["euler", "midpoint", "rk4", "dopri5"]


def euler(f: Slope, x: Tensor, dt: float) -> Tensor:
    r""":math:`x + \Delta t\, f(x)`."""
    return x + dt * f(x)


def midpoint(f: Slope, x: Tensor, dt: float) -> Tensor:
    r""":math:`x + \Delta t\, f(x + \tfrac{\Delta t}2 f(x))`."""
    return x + dt * f(x + dt / 2 * f(x))


def rk4(f: Slope, x: Tensor, dt: float) -> Tensor:
    """The classical scheme of Runge and Kutta, of fourth order."""
    k1 = f(x)
    k2 = f(x + dt / 2 * k1)
    k3 = f(x + dt / 2 * k2)
    k4 = f(x + dt * k3)
    return x + dt / 6 * (k1 + 2 * k2 + 2 * k3 + k4)


SCHEMES: dict[str, Callable[[Slope, Tensor, float], Tensor]] = {
    "euler": euler,
    "midpoint": midpoint,
    "rk4": rk4,
}
ADAPTIVE = ("dopri5",)


def stepped(scheme: str, f: Slope, x: Tensor, span: float, n_steps: int) -> Tensor:
    """x after the time `span`, in `n_steps` equal steps of a scheme."""
    step = SCHEMES[scheme]
    for _ in range(n_steps):
        x = step(f, x, span / n_steps)
    return x


class Field(nn.Module):
    """The right-hand side of x' = f(x), which counts how often it is evaluated.

    A subclass has `slope`. `evaluations` is the count, which anyone may set back to 0.
    """

    def __init__(self) -> None:
        super().__init__()
        self.evaluations = 0

    def slope(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def forward(self, t: Tensor | None, x: Tensor) -> Tensor:
        """f(x); the time is for solvers that hand it over."""
        self.evaluations += 1
        return self.slope(x)


class Solver:
    r"""Solves :math:`x' = f(x),\ x(0) = x_0` for :math:`x(T)`.

    Fixed steps (euler, midpoint, rk4) are plain torch, and gradients go back through the steps. "dopri5", of
    Dormand and Prince, chooses its steps by an error estimate and comes from torchdiffeq; it takes one step
    for all rows of a batch, so rows are not independent of each other beyond its tolerance. Its gradients go
    back through the steps, or with `adjoint` by a second ODE that is solved from T to 0, whose memory
    doesn't grow with the number of steps.

    Source of the adjoint: Chen et al., NeurIPS 2018, https://arxiv.org/abs/1806.07366; lecture of B. Wang
    (Utah, 2023), Theorem 1.

    Args:
        method: "euler", "midpoint", "rk4" or "dopri5".
        n_steps: of a fixed method; not of dopri5.
        rtol: relative tolerance of dopri5, also of its adjoint; not of fixed steps.
        atol: absolute tolerance, the same.
        adjoint: gradients by the adjoint ODE, with dopri5 alone.
    Errors: MissingExtra for dopri5 without torchdiffeq.
    """

    def __init__(
        self, method: Method, *, n_steps: int | None, rtol: float | None, atol: float | None, adjoint: bool
    ) -> None:
        one_of("method", method, (*SCHEMES, *ADAPTIVE))
        if method in SCHEMES:
            if n_steps is None:
                raise InputError(f"method={method} needs n_steps, such as 4; got null.")
            count("n_steps", n_steps)
            if rtol is not None or atol is not None or adjoint:
                raise InputError(
                    f"rtol, atol and adjoint are for method=dopri5; method={method} has fixed steps, and got "
                    f"rtol={rtol}, atol={atol}, adjoint={adjoint}. Set null, null and false."
                )
        else:
            if n_steps is not None:
                raise InputError(f"method={method} chooses its steps; set n_steps to null; got {n_steps}.")
            if rtol is None or atol is None:
                raise InputError(f"method={method} needs rtol and atol, such as 1e-5; got {rtol} and {atol}.")
            each(positive, rtol=rtol, atol=atol)
            # Its tables are tensors of the default device, which is torch's meta device in a rehearsal.
            with needed_by(f"method={method}"), torch.device("cpu"):
                import torchdiffeq  # noqa: F401
        self.method, self.n_steps, self.rtol, self.atol, self.adjoint = method, n_steps, rtol, atol, adjoint

    def __call__(self, field: Field, x: Tensor, span: float) -> Tensor:
        """x (B, N) after the time `span`."""
        if self.n_steps is not None:
            return stepped(self.method, lambda x: field(None, x), x, span, self.n_steps)
        from torchdiffeq import odeint, odeint_adjoint

        solve = odeint_adjoint if self.adjoint else odeint
        times = torch.tensor([0.0, span], dtype=x.dtype, device=x.device)
        return solve(field, x, times, method=self.method, rtol=self.rtol, atol=self.atol)[-1]
