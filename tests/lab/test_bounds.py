"""The papers' bounds on gradients for drawn weights, and networks within their assumptions that break them.

Numbers are those of the thesis. A bound whose proof takes more than its assumption is tested twice: where
what the proof takes is given, for any weights; and with a network that fulfils what is printed and breaks
the bound.
"""

import math
from typing import Any

import pytest
import torch
from drawn_layers import of_step, randomised
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.lab import bounds
from physml.lab.gradients import ByStep, gradient_by_step, jacobian_products, squared_error
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import LSTM
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")

drawn = settings(derandomize=True, deadline=None, max_examples=8)
seeds = st.integers(0, 2**31)
N = 20
ROOM = 1 + 1e-9  # for rounding


def zeros(layer: Any) -> Any:
    return randomised(layer, 0.0, 0)


def signal(n: int, d: int, seed: int) -> Tensor:
    rng = torch.Generator().manual_seed(seed + 1)
    return 2 * torch.rand(1, n, d, generator=rng, dtype=torch.double) - 1


def targets(m: int, Y: float, seed: int = 0) -> Tensor:
    rng = torch.Generator().manual_seed(seed + 2)
    return Y * torch.sign(torch.randn(1, m, generator=rng, dtype=torch.double))


def measured(layer: nn.Module, u: Tensor, target: Tensor) -> tuple[float, ByStep]:
    gradients = gradient_by_step(layer, u, squared_error(target))
    return max(float(g.abs().max()) for g in gradients.total.values()), gradients


def to_rows(W: Tensor, sum_: float) -> None:
    """Scales a matrix to a greatest row sum."""
    with torch.no_grad():
        W.mul_(sum_ / bounds.row_sum(W))


# ---------------------------------------------------------------------------- coRNN


def power(base: float, n: int) -> float:
    """base^n, infinite where it overflows."""
    try:
        return base**n
    except OverflowError:
        return math.inf


def cornn_2_17(m: int, Y: float) -> float:
    r"""Proposition 2.2.6, for implicit damping with gamma = epsilon = 1, (2.16) and N dt <= 1:

    .. math:: |\partial E/\partial\theta| \le \tfrac32 (m + Y \sqrt m)

    E is the mean of E_n over n = 1..N. The proof puts :math:`1 + 3(n-k)\Delta t^r` for
    :math:`(1 + 3\Delta t^r)^{n-k}`, which holds for r = 1 up to a constant, and not for r < 1.
    """
    return 1.5 * (m + Y * math.sqrt(m))


def cornn_jacobian_2_24(W: Tensor, Wcal: Tensor, dt: float, lag: int) -> float:
    r"""Bound in the proof of 2.2.6 before its expansion: :math:`\|\partial X_n/\partial X_k\|_\infty
    \le \max(1 + \Delta t(\delta + 2\eta), \delta + 2\eta)^{n-k}`. Implicit damping, gamma = epsilon = 1.
    """
    delta, eta = 1 / (1 + dt), bounds.eta_2_16(W, Wcal, dt)
    return power(max(1 + dt * (delta + 2 * eta), delta + 2 * eta), lag)


@drawn
@given(seed=seeds, m=st.integers(1, 4), Y=st.floats(0, 5))
def test_2_2_6_where_eta_is_at_most_dt(seed: int, m: int, Y: float) -> None:
    dt = 1 / N
    layer = randomised(CoRNN(2, m, dt=dt, gamma=1, epsilon=1, damping="implicit"), 1.0, seed)
    to_rows(layer.W, dt)
    to_rows(layer.Wcal, 1 + dt)
    assert bounds.eta_2_16(layer.W, layer.Wcal, dt) == pytest.approx(dt)
    assert bounds.holds(layer, N)
    greatest, gradients = measured(layer, signal(N, 2, seed), targets(m, Y, seed))
    assert greatest <= bounds.total(layer, Y, N)
    assert gradients.greatest.max() <= bounds.cornn_2_29(m, Y, dt)


@pytest.mark.parametrize("dt, beyond", [(1e-2, 10), (2.5e-3, 1e4)])
def test_2_2_6_is_broken_by_weights_that_assumption_2_16_allows(dt: float, beyond: float) -> None:
    """With r = 1/2 a unit may push itself by 1/sqrt(dt), and its gradient grows like exp(t / sqrt(dt))."""
    n = round(1 / dt)
    layer = zeros(CoRNN(1, 1, dt=dt, gamma=1, epsilon=1, damping="implicit"))
    with torch.no_grad():
        layer.Wcal.fill_(0.999 * (1 + dt) / math.sqrt(dt))
    eta = bounds.eta_2_16(layer.W, layer.Wcal, dt)
    assert eta <= math.sqrt(dt) and bounds.holds(layer, n)
    greatest, _ = measured(layer, signal(n, 1, 0).mul(0), targets(1, 1.0))
    assert greatest > beyond * bounds.total(layer, 1.0, n)
    assert bounds.total(layer, 1.0, n) <= 2 * cornn_2_17(1, 1.0)


@drawn
@given(seed=seeds, m=st.integers(1, 4), scale=st.floats(0.1, 10), dt=st.floats(0.01, 0.9))
def test_2_24_without_its_expansion_holds_for_any_weights(seed: int, m: int, scale: float, dt: float) -> None:
    layer = randomised(CoRNN(2, m, dt=dt, gamma=1, epsilon=1, damping="implicit"), scale, seed)
    for lag, product in jacobian_products(layer, signal(N, 2, seed)):
        limit = cornn_jacobian_2_24(layer.W, layer.Wcal, dt, lag)
        assert bounds.row_sum(product) <= ROOM * limit


@drawn
@given(seed=seeds, m=st.integers(1, 4), gamma=st.floats(0.5, 5), epsilon=st.floats(1, 5), Y=st.floats(0, 5))
def test_2_2_10_for_weights_of_row_sum_one(seed: int, m: int, gamma: float, epsilon: float, Y: float) -> None:
    dt = min(1 / N, 0.9 * (2 * epsilon - 1) / (gamma + epsilon**2))
    layer = randomised(CoRNN(2, m, dt=dt, gamma=gamma, epsilon=epsilon), 1.0, seed)
    to_rows(layer.W, 1)
    to_rows(layer.Wcal, 1)
    greatest, _ = measured(layer, signal(N, 2, seed), targets(m, Y, seed))
    limit = bounds.total(layer, Y, N)
    assert limit is not None and greatest <= limit


def orders(layer: type, k: int, name: str, **constants: Any) -> float:
    """The exponent p of dE_n^(k)/dtheta ~ dt^p, for k fixed and t_n = 1/2, from dt and dt / 4."""
    norms = []
    for n in (30, 120):
        torch.manual_seed(0)
        network = layer(1, 2, dt=0.5 / n, **constants).double().eval()
        u = torch.ones(1, n, 1, dtype=torch.double)
        _, by_step = measured(network, u, targets(2, 1.0))
        norms.append(float(by_step.euclidean[name][k - 1]))
    return math.log(norms[0] / norms[1]) / math.log(4)


def test_2_2_7_the_order_of_long_term_gradients_from_rest() -> None:
    """(2.36) wants y_k of order sqrt(t_k). From rest |y_k| <= t_k^2, so W gets dt^3, not dt^(3/2); b dt."""
    constants = {"gamma": 1, "epsilon": 1, "damping": "implicit"}
    assert orders(CoRNN, 5, "W", **constants) == pytest.approx(3, abs=0.2)
    assert orders(CoRNN, 5, "b", **constants) == pytest.approx(1, abs=0.2)
    assert bounds.cornn_2_36(5, 0.01) / bounds.cornn_2_36(5, 0.0025) == pytest.approx(8, rel=0.1)  # dt^(3/2)


def test_2_2_11_the_order_of_long_term_gradients_from_rest() -> None:
    """As 2.2.7: (2.53) has dt^(3/2)."""
    assert orders(CoRNN, 5, "W", gamma=2, epsilon=1.5) == pytest.approx(3, abs=0.2)
    assert orders(CoRNN, 5, "b", gamma=2, epsilon=1.5) == pytest.approx(1, abs=0.2)


@pytest.mark.parametrize(("dt", "beyond"), [(1e-2, 2), (2.5e-3, 1e4)])
def test_2_2_10_is_broken_by_weights_that_assumption_2_51_allows(dt: float, beyond: float) -> None:
    """As 2.2.6, with r = 1/2: a unit that pushes itself by 1/sqrt(dt), gamma = epsilon = 1, constant 1."""
    layer = zeros(CoRNN(1, 1, dt=dt, gamma=1, epsilon=1))
    with torch.no_grad():
        layer.Wcal.fill_(0.999 / math.sqrt(dt))
    assert max(dt * 1.0, dt * float(layer.Wcal.detach())) <= dt**0.5  # (2.51)
    greatest, _ = measured(layer, signal(round(1 / dt), 1, 0).mul(0), targets(1, 1.0))
    assert greatest > beyond * 3 / 2 * (1 + 1.0)  # (2.52)


# ---------------------------------------------------------------------------- UnICORNN


@drawn
@given(
    seed=seeds, m=st.integers(1, 4), n_layers=st.integers(1, 3), alpha=st.floats(0.2, 3), Y=st.floats(0, 5)
)
def test_3_2_2_for_t_where_its_states_are_bounded(
    seed: int, m: int, n_layers: int, alpha: float, Y: float
) -> None:
    dt = 1.25 / (N * max(1 + 2 * alpha, 4 * alpha**2))
    layer = randomised(UnICORNN(2, m, n_layers=n_layers, dt=dt, alpha=alpha), 2.0, seed)
    assert bounds.holds(layer, N) or dt * N * 4 * alpha**2 > 1.2
    greatest, gradients = measured(layer, signal(N, 2, seed), targets(m, Y, seed))
    limits = bounds.Unicornn.of(layer, N)
    assert greatest <= limits.total_3_18(Y)
    top = [v for name, v in gradients.largest.items() if name.startswith(f"layers.{n_layers - 1}.")]
    assert torch.stack(top).max() <= limits.one_step_3_46(Y, n_layers)


def test_3_46_is_broken_by_the_lowest_of_three_layers() -> None:
    """The printed contribution of layer 1 is of order dt^3. A signal that rises step by step gives dt."""
    greatest, printed = [], []
    for dt in (2e-3, 5e-4):
        layer = zeros(UnICORNN(1, 1, n_layers=3, dt=dt, alpha=1.0))
        with torch.no_grad():
            for sublayer in layer.layers:
                sublayer.V.fill_(1.0)
                sublayer.c.fill_(5.0)
        n = round(0.3 / dt)
        assert bounds.holds(layer, n)
        _, by_step = measured(layer, signal(n, 1, 0).mul(0), targets(1, 100.0))
        greatest.append(float(by_step.largest["layers.0.b"].max()))
        printed.append(bounds.Unicornn.of(layer, n).one_step_3_46(100.0, 1))
    assert greatest[1] > 1.5 * printed[1]
    assert math.log(greatest[0] / greatest[1], 4) == pytest.approx(1, abs=0.1)
    assert math.log(printed[0] / printed[1], 4) == pytest.approx(3, abs=0.1)


def test_3_2_4_leaves_out_all_later_steps_of_the_layers_above() -> None:
    """(3.66) is of order dt^5 for a bias, (3.78) dt^(2L - 1): (3.69) lets a signal rise at step n alone.

    It may rise at every step: for a fixed t_n any number of layers gives dt, and (3.84) does not hold either.
    """
    for n_layers, skip in ((3, None), (4, 2)):
        constants = {"n_layers": n_layers, "residual_skip": skip, "alpha": 1.0}
        assert orders(UnICORNN, 5, "layers.0.b", **constants) == pytest.approx(1, abs=0.25)


@pytest.mark.parametrize("t_n, relative", [(0.1, 0.1), (3.0, None)])
def test_3_2_3_holds_for_short_times_alone(t_n: float, relative: float | None) -> None:
    """(3.50) takes 1 + t C for the product of n steps, exp(t C): the factor t_n is sin(omega t) / omega."""
    n, alpha, k = 200, 4.0, 6
    layer = zeros(UnICORNN(1, 1, n_layers=1, dt=t_n / n, alpha=alpha))
    u = signal(n, 1, 0).mul(0)
    with torch.no_grad():
        for name, value in {"c": 50.0, "b": 0.5, "w": 0.3}.items():
            getattr(layer.layers[0], name).fill_(value)
        y = layer(u)[0][0, :, 0]
    _, gradients = measured(layer, u, targets(1, 1.0))
    slope = 1 - math.tanh(0.3 * float(y[k - 2]) + 0.5) ** 2
    gap = float(y[-1] - targets(1, 1.0)[0, 0])
    printed = abs(t_n / n * t_n * slope * float(y[k - 2]) * gap)
    measured_one = float(gradients.largest["layers.0.w"][k - 1])
    assert measured_one == pytest.approx(printed, rel=relative) if relative else measured_one < 0.2 * printed


# ---------------------------------------------------------------------------- LEM


@drawn
@given(seed=seeds, m=st.integers(1, 4), eta=st.floats(0.05, 1), Y=st.floats(0, 5))
def test_5_2_2_for_few_units(seed: int, m: int, eta: float, Y: float) -> None:
    dt = 0.1 / N
    layer = randomised(LEM(2, m, dt=dt), 1.0, seed)
    for name, weight in layer.symbols().items():
        if name.startswith("W"):
            to_rows(weight, eta)
    assert bounds.holds(layer, N)
    greatest, gradients = measured(layer, signal(N, 2, seed), targets(m, Y, seed))
    limits = bounds.Lem.of(layer)
    assert greatest <= limits.total_5_18(Y, N)
    for k in range(1, N + 1):
        assert gradients.largest["Wy"][k - 1] <= limits.one_step_5_34(Y, k, N)
    for lag, product in jacobian_products(layer, signal(N, 2, seed)):
        assert bounds.row_sum(product) <= power(1 + limits.Gamma / 2 * dt, lag) <= 1 + limits.Gamma * lag * dt
    assert limits.one_step_5_34(Y, 1, N) <= limits.one_step_5_37(Y, 1, N) * ROOM


def test_5_2_2_is_broken_by_one_unit_that_all_others_hear() -> None:
    """Row sums are 1 and one entry of a bias moves all m errors; the bound knows no m."""
    m, n = 300, 10
    layer = zeros(LEM(1, m, dt=0.01))
    s = layer.symbols()
    with torch.no_grad():
        for gate, weight in (("b1", "Wy"), ("b2", "Wz")):
            s[gate].fill_(10.0)
            s[weight][:, 0] = 1.0
    assert bounds.holds(layer, n)
    greatest, _ = measured(layer, signal(n, 1, 0).mul(0), torch.ones(1, m, dtype=torch.double))
    printed = bounds.total(layer, 1.0, n)
    assert printed is not None and 2 * printed < greatest < m * printed


def test_5_2_5_the_order_of_long_term_gradients_from_rest() -> None:
    """(5.45) says dt^(3/2), with z_k of order sqrt(dt). From rest z_k is of order dt, so Wy gets dt^2."""
    assert orders(LEM, 3, "Wy") == pytest.approx(2, abs=0.2)
    assert orders(LEM, 3, "b") == pytest.approx(1, abs=0.2)


@drawn
@given(alpha=st.floats(0.1, 5), share=st.floats(0.0, 1.0))
def test_3_19_lacks_the_root_of_two_of_3_43(alpha: float, share: float) -> None:
    """The entry of d+X_k/d(theta): 2 + max|z| + (2 + alpha) max|y|, with the bounds (3.11) on states."""
    beta = max(1 + 2 * alpha, 4 * alpha**2)
    n, T = 10, share * 1.25 / beta + 1e-6
    limits = bounds.Unicornn.of(UnICORNN(1, 2, n_layers=1, dt=T / n, alpha=alpha), n)
    y, z = math.sqrt(2 / alpha * (1 + 2 * beta * T)), math.sqrt(2 * (1 + 2 * beta * T))
    proved = 2 + z + (2 + alpha) * y
    assert limits.Delta == pytest.approx(proved - z + z / math.sqrt(2))
    assert 1.0 < proved / limits.Delta < 1.1


def test_what_is_printed_for_small_k_layers_without_a_bound_and_steps_that_differ() -> None:
    unit = CoRNN(2, 3, dt=0.02, gamma=1, epsilon=1, damping="implicit")
    assert bounds.long_term(unit, 1.0, 4, 50) == bounds.cornn_2_36(4, 0.02)
    lem = LEM(2, 3, dt=0.02)
    assert bounds.long_term(lem, 1.0, 4, 50) == bounds.Lem.of(lem).one_step_5_37(1.0, 4, 50)
    for other in (CoRNN(2, 3, dt=0.02, gamma=1, epsilon=1), UnICORNN(2, 3, n_layers=1, dt=0.1, alpha=1.0)):
        assert bounds.long_term(other, 1.0, 4, 50) is None
    plain = CoRNN(1, 1, gamma=2, epsilon=1, dt=0.1, damping="implicit")
    uneven = UnICORNN(1, 1, n_layers=2, dt=[0.1, 0.2], alpha=1.0)
    for layer in (LSTM(1, 1), plain, uneven, CoRNN(1, 1, gamma=0, epsilon=0, dt=0.1)):
        assert bounds.total(layer, 1.0, 5) is bounds.holds(layer, 5) is None
    with pytest.raises(InputError, match="one dt for all layers"):
        bounds.Unicornn.of(uneven, 5)
    assert bounds.holds(CoRNN(1, 1, gamma=1, epsilon=1, dt=1.0, damping="implicit"), 1) is not None
    assert bounds.holds(LEM(1, 1, dt=2.0), 5) is False


@pytest.mark.parametrize("sign, order", [(-1, 3), (+1, 2)])
def test_5_2_4_needs_a_minus_before_its_last_term(sign: int, order: int) -> None:
    """(5.39) has a plus there, its proof (5.42) a minus; only the minus leaves a rest of order dt^3."""
    n, k, m = 4, 2, 3
    rests = []
    for dt in (0.04, 0.01):
        torch.manual_seed(0)
        layer = LEM(2, m, dt=dt).double().eval()
        u, target = signal(n, 2, 3), targets(m, 1.0)
        s = {name: value.detach() for name, value in layer.symbols().items()}
        y, z, path = torch.zeros(m).double(), torch.zeros(m).double(), []
        for x in u[0]:
            A, B = (torch.sigmoid(s[f"W{i}"] @ y + s[f"V{i}"] @ x + s[f"b{i}"]) for i in "12")
            z = (1 - dt * A) * z + dt * A * torch.tanh(s["Wz"] @ y + s["Vz"] @ x + s["bz"])
            D = torch.tanh(s["Wy"] @ z + s["Vy"] @ x + s["by"])
            path.append({"B": B, "D": D, "z": z, "before": y})
            y = (1 - dt * B) * y + dt * B * D
        error, at = y - target[0], path[k - 1]
        ahead = path[k:]
        straight = sum(step["B"] for step in ahead) * error
        moved = sum(step["B"] * (1 - step["B"]) * (step["D"] - step["before"]) for step in ahead)
        crossed = s["W2"].t() @ (error * moved)
        rows = dt * at["B"] * (1 - at["D"] ** 2) * (error + dt * (crossed + sign * straight))
        printed = rows[:, None] * at["z"][None]
        assert torch.allclose(layer(u)[0][0, -1], y)
        gradient = of_step(layer, u, squared_error(target), k)["Wy"]
        rests.append(float((gradient - printed).norm()) / float(at["z"].norm()))
    assert math.log(rests[0] / rests[1], 4) == pytest.approx(order, abs=0.25)
