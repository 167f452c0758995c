"""What the papers prove about coRNN, UnICORNN and LEM, for drawn weights, inputs and constants.

Numbers are those of the thesis. Beside a bound stands a case that breaks it where its assumption is broken: a
bound that nothing can break would show nothing.
"""

import math
from typing import Any

import torch
from drawn_layers import randomised
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN

drawn = settings(derandomize=True, deadline=None, max_examples=12)
seeds = st.integers(0, 2**31)
widths = st.integers(1, 6)
scales = st.floats(0.1, 20)
shares = st.floats(0.02, 0.999)
ROOM = 1 + 1e-9  # for rounding
DAMPINGS = ["explicit", "implicit"]


def signal(n_steps: int, d_in: int, seed: int, n_batch: int = 3) -> Tensor:
    rng = torch.Generator().manual_seed(seed + 1)
    return 3 * torch.randn(n_batch, n_steps, d_in, generator=rng, dtype=torch.double)


@torch.no_grad()
def states(layer: nn.Module, u: Tensor) -> Any:
    """The states after each step, time first."""
    state, path = None, []
    for n in range(u.shape[1]):
        _, state = layer(u[:, n : n + 1], state)
        path.append(state)
    return path


def energies(layer: CoRNN, u: Tensor, gamma: float = 1.0) -> Tensor:
    """y'y + z'z / gamma after each step, (T, B)."""
    return torch.stack([y.square().sum(1) + z.square().sum(1) / gamma for y, z in states(layer, u)])


def gaps(layer: CoRNN, first: Tensor, second: Tensor) -> Tensor:
    """The squared distance of the states (y, z) for two inputs after each step, (T, B)."""
    pairs = zip(states(layer, first), states(layer, second), strict=True)
    return torch.stack([sum((a - b).square().sum(1) for a, b in zip(x, y, strict=True)) for x, y in pairs])


def times(n_steps: int, dt: float) -> Tensor:
    return dt * torch.arange(1, n_steps + 1, dtype=torch.double)


@drawn
@given(seed=seeds, m=widths, scale=scales, dt=shares)
def test_2_2_4_energy_with_implicit_damping_and_2_2_5_two_inputs_part_at_most_linearly(seed, m, scale, dt):
    layer = randomised(CoRNN(2, m, dt=dt, gamma=1, epsilon=1, damping="implicit"), scale, seed)
    u, other, bound = signal(40, 2, seed), signal(40, 2, seed + 10), ROOM * m * times(40, dt)[:, None]
    assert (energies(layer, u) <= bound).all()
    assert (gaps(layer, u, other) <= 4 * bound).all()


def test_2_2_5_is_broken_by_a_step_that_is_too_large() -> None:
    """States part exponentially beyond dt = 1 + sqrt(5), where the undriven steps no longer are stable."""
    layer = randomised(CoRNN(2, 4, dt=4, gamma=1, epsilon=1, damping="implicit"), 1.0, 0)
    gap = gaps(layer, signal(40, 2, 0), signal(40, 2, 10))
    assert (gap[-1] > 1e3 * 4 * 4 * times(40, 4.0)[-1]).all()


def test_2_2_4_is_broken_by_a_step_that_is_too_large_and_2_2_9_beyond_condition_2_47() -> None:
    for dt, damping in ((3.0, "implicit"), (2.5, "explicit")):
        layer = randomised(CoRNN(2, 4, dt=dt, gamma=1, epsilon=1, damping=damping), 1.0, 0)
        assert (energies(layer, signal(40, 2, 0)) > 4 * times(40, dt)[:, None]).any(), damping


@drawn
@given(seeds, widths, scales, shares, st.floats(0.05, 50), st.floats(0.55, 10))
def test_2_2_9_energy_with_explicit_damping(seed: int, m: int, scale, share, gamma, epsilon) -> None:
    dt = share * (2 * epsilon - 1) / (gamma + epsilon**2)  # condition 2.47
    layer = randomised(CoRNN(2, m, dt=dt, gamma=gamma, epsilon=epsilon), scale, seed)
    energy = energies(layer, signal(40, 2, seed), gamma)
    assert (energy <= ROOM * m * times(40, dt)[:, None] / gamma).all()


@drawn
@given(seed=seeds, m=widths, scale=scales, share=shares, alpha=st.floats(0.05, 10))
def test_3_2_1_states_of_unicornn(seed: int, m: int, scale: float, share: float, alpha: float) -> None:
    """For beta t_n <= 5/4: further on the proof's (1 + beta dt)^n <= 1 + 2 beta t_n does not hold."""
    beta = max(1 + 2 * alpha, 4 * alpha**2)
    dt = share * 1.25 / (60 * beta)
    layer = randomised(UnICORNN(2, m, n_layers=3, dt=dt, alpha=alpha), scale, seed)
    path = states(layer, signal(60, 2, seed))
    for t, state in zip(times(60, dt), path, strict=True):
        bound = 2 * (1 + 2 * beta * t)
        for y, z in state:
            assert y.abs().max() <= torch.sqrt(bound / alpha)
            assert z.abs().max() <= torch.sqrt(bound)


def test_3_2_1_does_not_hold_for_ever() -> None:
    """A unit without damping that is pushed in its own rhythm leaves every bound of order sqrt(t)."""
    layer = randomised(UnICORNN(1, 1, n_layers=1, dt=0.05, alpha=1.0), 0.0, 0)
    with torch.no_grad():
        layer.layers[0].V.fill_(100)
        layer.layers[0].c.fill_(100)
    t = times(4000, 0.05)
    outputs, _ = layer(torch.sin(t)[None, :, None])
    bound = torch.sqrt(2 * (1 + 2 * 4 * t))
    assert (outputs[0, :, 0].abs() > bound).any()
    assert (outputs[0, :, 0].abs() <= bound)[t <= 1.25 / 4].all()


@drawn
@given(seed=seeds, m=widths, scale=scales, dt=st.floats(0.01, 1.0))
def test_5_2_1_states_of_lem(seed: int, m: int, scale: float, dt: float) -> None:
    layer = randomised(LEM(2, m, dt=dt), scale, seed)
    path = states(layer, signal(40, 2, seed))
    slope = (1 + dt) / math.sqrt(2 - dt)
    for t, (y, z) in zip(times(40, dt), path, strict=True):
        bound = min(1.0, slope * math.sqrt(t))
        assert max(y.abs().max(), z.abs().max()) <= ROOM * bound


def test_5_2_1_is_broken_by_a_larger_step() -> None:
    layer = randomised(LEM(2, 4, dt=1.9), 5.0, 0)
    assert max(z.abs().max() for _, z in states(layer, signal(40, 2, 0))) > 1.2


def lstm_of(layer: LEM) -> nn.LSTM:
    """An LSTM with i = the step of z, f = 1 - i, o = 1 and the force of z; its gates are i, f, g, o."""
    m, lstm = layer.d_out, nn.LSTM(layer.V.shape[1], layer.d_out, batch_first=True).double()
    open_gate = torch.full((m,), 50.0, dtype=torch.double)
    force, step = slice(0, m), slice(m, 2 * m)
    with torch.no_grad():
        pairs = ((lstm.weight_hh_l0, layer.W), (lstm.weight_ih_l0, layer.V), (lstm.bias_ih_l0, layer.b))
        for to, of in pairs:
            last = open_gate if of is layer.b else torch.zeros_like(of[force])
            to.copy_(torch.cat([of[step], -of[step], of[force], last]))
        lstm.bias_hh_l0.zero_()
    return lstm


@drawn
@given(seed=seeds, m=widths)
def test_5_6_lem_is_an_lstm_with_coupled_gates(seed: int, m: int) -> None:
    """With dt = 1 and steps of y of 1, where y follows z alone: z is the cell state, y the hidden state."""
    layer = randomised(LEM(2, m, dt=1.0), 1.0, seed)
    with torch.no_grad():
        layer.Wy.copy_(torch.eye(m))
        layer.V[3 * m :] = layer.b[3 * m :] = 0
        layer.W[2 * m :] = layer.V[2 * m : 3 * m] = 0
        layer.b[2 * m : 3 * m] = 50.0  # the step of y is 1
        u = signal(30, 2, seed)
        hidden, (_, c) = lstm_of(layer)(u)
        path, (_, z) = layer(u)
        torch.testing.assert_close(path, hidden, rtol=0, atol=1e-12)
        torch.testing.assert_close(z, c[0], rtol=0, atol=1e-12)
        layer.b[2 * m : 3 * m] = 0.0  # a step of 1/2: y remembers, as no hidden state of an LSTM does
        assert (layer(u)[0] - hidden).abs().max() > 1e-3


@drawn
@given(seed=seeds, m=widths, scale=st.floats(0.1, 3), dt=st.floats(0.01, 1.0), alpha=st.floats(0, 5))
def test_3_7_the_inverse_undoes_every_step(seed: int, m: int, scale: float, dt: float, alpha: float) -> None:
    layer = randomised(UnICORNN(2, m, n_layers=3, dt=dt / (1 + alpha), alpha=alpha), scale, seed)
    u = signal(25, 2, seed)
    path = states(layer, u)
    recovered = layer.invert(u, path[-1])
    for k in range(3):
        for part in (0, 1):
            forth = torch.stack([torch.zeros_like(path[0][k][part]), *(s[k][part] for s in path)], 1)
            torch.testing.assert_close(recovered[k][part].detach(), forth, rtol=1e-7, atol=1e-7)


def jacobian(layer: nn.Module, u: Tensor, state: Tensor, pack: Any) -> Tensor:
    """Of one step: all numbers of the new state by all numbers of the old."""

    def step(x: Tensor) -> Tensor:
        new = layer(u, pack(x))[1]
        flat = [y for pair in new for y in pair] if isinstance(new[0], tuple) else list(new)
        return torch.cat([y.flatten() for y in flat])

    return torch.autograd.functional.jacobian(step, state)


@drawn
@given(seed=seeds, m=widths, scale=scales, dt=st.floats(0.01, 2.0), alpha=st.floats(0, 30))
def test_unicornn_keeps_phase_space_volume(seed: int, m: int, scale: float, dt: float, alpha: float) -> None:
    layer = randomised(UnICORNN(2, m, n_layers=2, dt=dt, alpha=alpha), scale, seed)
    state = signal(1, 4 * m, seed, n_batch=1).flatten()
    map_ = jacobian(
        layer,
        signal(1, 2, seed, n_batch=1),
        state,
        lambda x: tuple((pair[:m][None], pair[m:][None]) for pair in x.split(2 * m)),
    )
    torch.testing.assert_close(torch.linalg.det(map_), torch.ones((), dtype=torch.double), rtol=1e-7, atol=0)


@drawn
@given(seeds, widths, st.floats(0.1, 5), st.floats(0.01, 0.9), st.floats(0.1, 10), st.sampled_from(DAMPINGS))
def test_cornn_shrinks_phase_space_volume(seed: int, m: int, scale, dt, epsilon, damping: str) -> None:
    """Where Wcal is 0, by 1 - dt epsilon, or 1 / (1 + dt epsilon), per unit, for any W, V, b and gamma."""
    layer = randomised(CoRNN(2, m, dt=dt, gamma=1.3, epsilon=epsilon, damping=damping), scale, seed)
    u, state = signal(1, 2, seed, n_batch=1), signal(1, 2 * m, seed, n_batch=1).flatten()
    y, z = state[:m], state[m:]
    s = {name: value.detach() for name, value in layer.symbols().items()}
    slope = 1 - torch.tanh(s["W"] @ y + s["Wcal"] @ z + s["V"] @ u[0, 0] + s["b"]) ** 2
    push, eye = dt * slope[:, None] * s["Wcal"], torch.eye(m, dtype=torch.double)

    def volume() -> Tensor:
        return torch.linalg.det(jacobian(layer, u, state, lambda x: (x[:m][None], x[m:][None])))

    if damping == "explicit":
        expected, undriven = torch.linalg.det((1 - dt * epsilon) * eye + push), (1 - dt * epsilon) ** m
    else:
        expected, undriven = torch.linalg.det(eye + push) / (1 + dt * epsilon) ** m, (1 + dt * epsilon) ** -m
    torch.testing.assert_close(volume(), expected, rtol=1e-7, atol=1e-10)
    with torch.no_grad():
        layer.Wcal.zero_()
    torch.testing.assert_close(volume(), torch.tensor(undriven, dtype=torch.double), rtol=1e-7, atol=1e-10)
