r"""The bounds of the papers on gradients, evaluated for given weights. Equation numbers are those of the
thesis.

All are for :math:`E_n = \tfrac12\|y_n - \bar y_n\|_2^2`, for a single entry theta of the parameters, from
rest. :math:`\|\cdot\|_\infty` of a matrix is the greatest row sum of absolute values. m: units; L: layers;
N: steps; :math:`t_n = n\,\Delta t`; Y: the greatest absolute entry of the targets.

They are given as printed. Where a proof takes more than its assumption, the docstring says so, and
`tests/lab/test_bounds.py`, of GraphCON `tests/lab/simulate/test_gradients.py`, has a network that breaks the
bound; docs/gradients.md has the list.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN


def row_sum(W: Tensor) -> float:
    r""":math:`\|W\|_\infty`, the greatest row sum of absolute values; of a vector the greatest entry."""
    return float(W.detach().abs().sum(1).max() if W.dim() == 2 else W.detach().abs().max())


def _linear(growth: float, n: int) -> bool:
    """True if (1 + growth / 2)^n <= 1 + n growth."""
    return n * math.log1p(growth / 2) <= math.log1p(n * growth)


# ---------------------------------------------------------------------------- coRNN


def eta_2_16(W: Tensor, Wcal: Tensor, dt: float) -> float:
    r"""Left side of assumption (2.16), to be at most :math:`\Delta t^r`, 1/2 <= r <= 1; gamma = epsilon = 1.

    .. math:: \eta = \max\Bigl\{\frac{\Delta t (1 + \|W\|_\infty)}{1 + \Delta t},
        \frac{\Delta t \|\mathcal W\|_\infty}{1 + \Delta t}\Bigr\}
    """
    return dt / (1 + dt) * max(1 + row_sum(W), row_sum(Wcal))


def eta_2_51(W: Tensor, Wcal: Tensor, dt: float, gamma: float) -> float:
    r"""The same for explicit damping: :math:`\max\{\Delta t (\gamma + \|W\|_\infty), \Delta t \|\mathcal
    W\|_\infty\}`, at most :math:`\tilde C \Delta t^r` by (2.51).
    """
    return dt * max(gamma + row_sum(W), row_sum(Wcal))


def cornn_2_29(m: int, Y: float, dt: float) -> float:
    r"""(2.29), implicit damping with gamma = epsilon = 1: one step, whatever k.

    .. math:: |\partial E_n^{(k)}/\partial\theta| \le 3\delta\Delta t (m + \sqrt m\,Y), \qquad
        \delta = 1/(1 + \Delta t)
    """
    return 3 * dt / (1 + dt) * (m + Y * math.sqrt(m))


def cornn_2_36(k: int, dt: float) -> float:
    r"""The leading order of Proposition 2.2.7 for long-term dependencies, without its constants:

    .. math:: \hat c\,\delta\,\Delta t^{3/2}, \qquad
        \hat c = \operatorname{sech}^2\bigl(\sqrt{k\Delta t}\,(1 + \Delta t)\bigr)
    """
    return dt**1.5 / (1 + dt) / math.cosh(math.sqrt(k * dt) * (1 + dt)) ** 2


def cornn_2_52(m: int, Y: float, gamma: float, C: float) -> float:
    r"""Proposition 2.2.10, for explicit damping: :math:`3 \tilde C (m + Y \sqrt m) / (2\gamma)`, with C of
    (2.51).
    """
    return 1.5 * C * (m + Y * math.sqrt(m)) / gamma


# ---------------------------------------------------------------------------- UnICORNN


@dataclass(frozen=True)
class Unicornn:
    r"""The quantities of (3.19) for a network and a horizon T = N dt.

    .. math::
        \gamma &= \mu + \mu^2/2, \quad \mu = \max(2, \|w^L\|_\infty + \alpha), \qquad
        \bar V = \prod_q \max\{1, \|V^q\|_\infty\} \\
        F &= \sqrt{\tfrac2\alpha (1 + 2\beta T)}, \quad \beta = \max\{1 + 2\alpha, 4\alpha^2\}, \qquad
        \Delta = 2 + \sqrt{1 + 2\beta T} + (2 + \alpha) F

    The proof, (3.43), has :math:`\sqrt{2 (1 + 2\beta T)}` in Delta, the bound (3.11) on z.
    """

    gamma: float
    V: float
    F: float
    Delta: float
    T: float
    dt: float
    n_layers: int

    @classmethod
    def of(cls, layer: UnICORNN, n: int) -> "Unicornn":
        """Errors: InputError for alpha = 0, or steps that differ between the layers."""
        if not layer.alpha > 0 or len(set(layer.dt)) > 1:
            raise InputError(
                "the bounds of UnICORNN are for alpha > 0 and one dt for all layers; "
                f"got alpha = {layer.alpha} and dt = {layer.dt}."
            )
        symbols, T = layer.symbols(), n * layer.dt[0]
        mu = max(2.0, row_sum(symbols[-1]["w"]) + layer.alpha)
        beta = max(1 + 2 * layer.alpha, 4 * layer.alpha**2)
        F = math.sqrt(2 / layer.alpha * (1 + 2 * beta * T))
        return cls(
            gamma=mu + mu**2 / 2,
            V=math.prod(max(1.0, row_sum(of_layer["V"])) for of_layer in symbols),
            F=F,
            Delta=2 + math.sqrt(1 + 2 * beta * T) + (2 + layer.alpha) * F,
            T=T,
            dt=layer.dt[0],
            n_layers=layer.n_layers,
        )

    def total_3_18(self, Y: float) -> float:
        r"""Proposition 3.2.2, also (3.47) for each E_n:

        .. math:: |\partial E/\partial\theta| \le \frac{1 - \Delta t^L}{1 - \Delta t}
            T (1 + 2\gamma T)\,\bar V\,(Y + F)\,\Delta
        """
        sum_ = sum(self.dt**q for q in range(self.n_layers))
        return sum_ * self.T * (1 + 2 * self.gamma * self.T) * self.V * (Y + self.F) * self.Delta

    def one_step_3_46(self, Y: float, layer: int) -> float:
        r"""(3.46), what step k of layer l, from 1, adds:
        :math:`\Delta t^{L-l+1} (1 + 2\gamma T) \bar V (Y + F) \Delta`.

        The proof lets a signal go up all layers at step k alone, (3.23). It can go up at any later step, so
        the contribution is of order dt for every l.
        """
        first = self.dt ** (self.n_layers - layer + 1)
        return first * (1 + 2 * self.gamma * self.T) * self.V * (Y + self.F) * self.Delta


# ---------------------------------------------------------------------------- LEM


@dataclass(frozen=True)
class Lem:
    r"""The quantities of (5.18): :math:`\eta` the greatest :math:`\|\cdot\|_\infty` of W1, W2, Wz, Wy,
    :math:`\Gamma = 2(1 + \eta)(1 + 3\eta)`.
    """

    eta: float
    dt: float

    @classmethod
    def of(cls, layer: LEM) -> "Lem":
        weights = [value for name, value in layer.symbols().items() if name.startswith("W")]
        return cls(max(map(row_sum, weights)), layer.dt)

    @property
    def Gamma(self) -> float:
        return 2 * (1 + self.eta) * (1 + 3 * self.eta)

    @property
    def Delta(self) -> float:
        r""":math:`\bar\Delta = (1 + \Delta t)/\sqrt{2 - \Delta t}`."""
        return (1 + self.dt) / math.sqrt(2 - self.dt) if self.dt < 2 else math.inf

    def state(self, n: int) -> float:
        r"""(5.9): :math:`\min(1, \bar\Delta \sqrt{t_n})`."""
        return min(1.0, self.Delta * math.sqrt(n * self.dt))

    def total_5_18(self, Y: float, n: int) -> float:
        r"""Proposition 5.2.2: :math:`|\partial E_n/\partial\theta| \le (1 + Y) t_n + (1 + Y) \Gamma t_n^2`.

        For dt so small that (5.28) holds. The proof takes :math:`\|\partial E_n/\partial X_n\|_\infty`
        where the chain of row-sum norms needs the sum over all units, up to m times as much.
        """
        t = n * self.dt
        return (1 + Y) * t * (1 + self.Gamma * t)

    def one_step_5_34(self, Y: float, k: int, n: int) -> float:
        r"""(5.34), what step k adds, for an entry of Wy:

        .. math:: \Delta t \min(1, \bar\Delta\sqrt{t_k})\,(Y + \min(1, \bar\Delta\sqrt{t_n}))\,
            (1 + \Gamma (n-k) \Delta t)
        """
        grown = 1 + self.Gamma * (n - k) * self.dt
        return self.dt * self.state(k) * (Y + self.state(n)) * grown

    def one_step_5_37(self, Y: float, k: int, n: int) -> float:
        r"""(5.37), for k much smaller than n, the upper side of the order (5.45):
        :math:`\Delta t^{3/2} \bar\Delta \sqrt k\,(1 + Y)(1 + \Gamma t_n)`.
        """
        return self.dt**1.5 * self.Delta * math.sqrt(k) * (1 + Y) * (1 + self.Gamma * n * self.dt)

    def is_small(self, n: int) -> bool:
        r"""True if dt is as small as (5.28) assumes: :math:`(1 + \tfrac\Gamma2\Delta t)^{n} \le 1 + \Gamma
        n\Delta t`, which holds for all shorter spans too, since the left side is convex.
        """
        return _linear(self.Gamma * self.dt, n)


# ---------------------------------------------------------------------------- GraphCON


@dataclass(frozen=True)
class Graphcon:
    r"""The quantities of (7.41), for GraphCON-GCN with one channel, alpha = gamma = 1, and tanh.

    .. math:: \beta = \beta' = 1, \quad \hat d = \max_i d_i, \quad
        \hat D = \max_{i,j} (d_i d_j)^{-1/2}, \quad
        \Gamma = 6 + 4\beta' \hat D \max_n |\omega^n|

    d_i: the degree of node i with its loop, as (7.31) divides by it.
    """

    d: float
    D: float
    Gamma: float
    dt: float
    n_layers: int
    n_nodes: int

    @classmethod
    def of(cls, degrees: Tensor, omega: Sequence[float] | Tensor, dt: float) -> "Graphcon":
        values = [abs(float(w)) for w in omega]
        D = 1 / float(degrees.min())
        return cls(float(degrees.max()), D, 6 + 4 * D * max(values), dt, len(values), len(degrees))

    def total_7_40(self, X0: Tensor, Y0: Tensor, target: Tensor) -> float:
        r"""Proposition 7.2.8, for :math:`J = \tfrac1{2v}\sum_i |X_i^N - \bar X_i|^2` and any layer l:

        .. math:: \Bigl|\frac{\partial J}{\partial\omega^l}\Bigr| \le
            \frac{\beta' \hat D (\hat d + 1) \Delta t (1 + \Gamma N \Delta t)}{v}
            \Bigl(\max_i(|X_i^0| + |Y_i^0|) + \max_i |\bar X_i| + \beta\sqrt{N\Delta t}\Bigr)^2

        For dt so small that (7.44) holds. The factor 1/v belongs to each node; the sum over nodes is missing.
        """
        N = self.n_layers
        size = float((X0.abs() + Y0.abs()).max()) + float(target.abs().max()) + math.sqrt(N * self.dt)
        factor = self.D * (self.d + 1) * self.dt * (1 + self.Gamma * N * self.dt) / self.n_nodes
        return factor * size**2

    def is_small(self) -> bool:
        r"""True if dt is as small as (7.44) assumes."""
        return _linear(self.Gamma * self.dt, self.n_layers)


# ---------------------------------------------------------------------------- of a layer


def _is_bounded(layer: nn.Module) -> bool:
    """True if a paper has a bound for a layer as it is."""
    if isinstance(layer, CoRNN) and not layer.trainable:
        return layer.gamma == layer.epsilon == 1 if layer.damping == "implicit" else layer.gamma > 0
    if isinstance(layer, UnICORNN):
        return layer.alpha > 0 and len(set(layer.dt)) == 1
    return isinstance(layer, LEM) and layer.multiscale


def one_step(layer: nn.Module, Y: float, k: int, n: int) -> float | None:
    """The printed bound on an entry of dE_n^(k)/dtheta for a layer as it is; None where no paper has one.

    coRNN: (2.29) with implicit damping, which is printed for gamma = epsilon = 1; with explicit damping
    3 C dt (m + sqrt(m) Y) / gamma, which is inferred from (2.52): its proof, "completely analogous", is not
    printed.
    UnICORNN: (3.46) for the last layer, whose bound is the greatest. LEM: (5.34).
    """
    if not _is_bounded(layer):
        return None
    if isinstance(layer, CoRNN):
        if layer.damping == "implicit":
            return cornn_2_29(layer.d_out, Y, layer.dt)
        return 2 * layer.dt * cornn_2_52(layer.d_out, Y, layer.gamma, constant_2_51(layer))
    if isinstance(layer, UnICORNN):
        return Unicornn.of(layer, n).one_step_3_46(Y, layer.n_layers)
    assert isinstance(layer, LEM)
    return Lem.of(layer).one_step_5_34(Y, k, n)


def long_term(layer: nn.Module, Y: float, k: int, n: int) -> float | None:
    """Size of dE_n^(k)/dtheta by the papers, for k much smaller than n; None if no paper has one.

    coRNN with implicit damping and gamma = epsilon = 1: the leading order (2.36), with the constant 1. LEM:
    (5.37), the upper side of the order (5.45).
    """
    if isinstance(layer, CoRNN) and _is_bounded(layer) and layer.damping == "implicit":
        return cornn_2_36(k, layer.dt)
    return Lem.of(layer).one_step_5_37(Y, k, n) if isinstance(layer, LEM) and layer.multiscale else None


def total(layer: nn.Module, Y: float, n: int) -> float | None:
    """The printed bound on an entry of dE_n/dtheta for a layer as it is; None where no paper has one.

    coRNN: (2.30), 3 delta t_n (m + sqrt(m) Y), the step of the proof before the mean over n, whose mean for
    N dt = 1 is (2.17); with explicit damping 3 C t_n (m + sqrt(m) Y) / gamma. UnICORNN: (3.47). LEM: (5.18).
    """
    bound = one_step(layer, Y, n, n)
    if bound is None or isinstance(layer, CoRNN):
        return bound and n * bound
    if isinstance(layer, UnICORNN):
        return Unicornn.of(layer, n).total_3_18(Y)
    assert isinstance(layer, LEM)
    return Lem.of(layer).total_5_18(Y, n)


def constant_2_51(layer: CoRNN) -> float:
    r"""C of (2.51) with r = 1/2: :math:`\eta / \sqrt{\Delta t}`."""
    return eta_2_51(layer.W, layer.Wcal, layer.dt, layer.gamma) / math.sqrt(layer.dt)


def holds(layer: nn.Module, n: int) -> bool | None:
    """True if these weights and n steps meet the assumption of the bound of `total`; None without a bound.

    coRNN: (2.16) with r >= 1/2 and n dt <= 1; with explicit damping (2.47), whose C is free, and n dt <= 1.
    UnICORNN: dt small, taken as beta T <= 5/4 as for 3.2.1. LEM: dt <= 1 and (5.28).
    """
    if not _is_bounded(layer):
        return None
    if isinstance(layer, CoRNN):
        if n * layer.dt > 1 + 1e-9:
            return False
        if layer.damping == "implicit":
            return eta_2_16(layer.W, layer.Wcal, layer.dt) <= math.sqrt(layer.dt)
        return layer.dt < (2 * layer.epsilon - 1) / (layer.gamma + layer.epsilon**2)
    if isinstance(layer, UnICORNN):
        beta = max(1 + 2 * layer.alpha, 4 * layer.alpha**2)
        return beta * n * max(layer.dt) <= 1.25
    assert isinstance(layer, LEM)
    return layer.dt <= 1 and Lem.of(layer).is_small(n)
