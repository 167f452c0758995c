"""The neurons of Figure 6 of the coRNN paper: exact solutions, the layer itself, the claims of the figure."""

from functools import cache
from typing import Any

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.lab.simulate.oscillators import response, signal
from physml.models.sequence.cornn import CoRNN
from physml.report.figure import collect as figures
from physml.report.figure.spec import load_figure

STEPS = [[2.0, 1.0], [5.0, 0.0], [8.0, -1.0]]
FREE: dict[str, Any] = {**dict.fromkeys(("W", "Wcal", "V", "b", "epsilon"), 0.0), "gamma": 1.0}
FREE |= {"activation": "identity"}
CONTROLLED: dict[str, Any] = {"W": -2.0, "Wcal": 0.75, "V": 2.0, "b": 0.25, "gamma": 1.0, "epsilon": 0.25}
START = {"y0": 0.0, "z0": 1.0, "neuron": 1}


def path(dt: float = 0.01, horizon: float = 10.0, **changes: Any) -> tuple[np.ndarray, np.ndarray]:
    t, y = response(**{"frequency": 4.0, "dt": dt, "horizon": horizon, **START, **changes})[0].T
    return t, y


@pytest.mark.parametrize("activation", ["identity", "tanh"])
def test_a_controlled_neuron_against_another_solver(activation: str) -> None:
    def slope(t: float, s: np.ndarray) -> list[float]:
        y, z = s
        force = -2 * y + 0.75 * z + 2 * np.cos(4 * t) + 0.25
        return [z, (np.tanh(force) if activation == "tanh" else force) - y - 0.25 * z]

    t, y = path(0.001, 8.0, **CONTROLLED, activation=activation)
    exact = solve_ivp(slope, (0.0, 8.0), [0.0, 1.0], t_eval=t, rtol=1e-10, atol=1e-12, method="DOP853").y[0]
    np.testing.assert_allclose(y, exact, atol=0.01 * np.abs(exact).max())


@pytest.mark.parametrize("neuron", [1, 2])
def test_with_tanh_it_is_the_layer(neuron: int) -> None:
    weights = {"W": [[-2.0, 1.0], [3.0, -2.0]], "Wcal": [[0.75, 0.3], [-1.0, 0.75]], "b": [0.25, -0.5]}
    V = [2.0, 1.0]
    layer = CoRNN(1, 2, dt=0.05, gamma=1.5, epsilon=0.25, backend="reference").double()
    with torch.no_grad():
        for name, value in {**weights, "V": [[v] for v in V]}.items():
            getattr(layer, name).copy_(torch.tensor(value, dtype=torch.float64))
        u = torch.tensor(signal(dt=0.05, horizon=5.0, frequency=4.0)[:, :, 1:])
        start = tuple(torch.full((1, 2), v, dtype=torch.float64) for v in (0.2, -0.3))
        outputs = layer(u, start)[0][0, :, neuron - 1].numpy()
    arrays = {name: np.array(value) for name, value in {**weights, "V": V}.items()}
    settings = {"gamma": 1.5, "epsilon": 0.25, "activation": "tanh", "y0": 0.2, "z0": -0.3, "neuron": neuron}
    np.testing.assert_allclose(path(0.05, 5.0, **arrays, **settings)[1], outputs, rtol=1e-9)


def test_the_cosine_and_a_path_that_blows_up_ends_without_a_warning() -> None:
    inputs = signal(dt=0.5, horizon=2.0, frequency=4.0)
    np.testing.assert_allclose(inputs, [[[t, np.cos(4 * t)] for t in (0.5, 1.0, 1.5, 2.0)]])
    t, y = path(horizon=20.0, **CONTROLLED, activation="duffing")
    ended = np.isnan(y)
    assert ended[-1] and not ended[0] and (np.diff(ended.astype(int)) >= 0).all()
    assert np.isfinite(t).all() and 100 < np.nanmax(np.abs(y)) <= 1000


@pytest.mark.parametrize("dt", [0.1, 0.01, 0.005])  # of which no multiple of 0.1 is exactly 2, 5 or 8
def test_steps_hold_from_their_time_on(dt: float) -> None:
    t, u = signal(dt=dt, horizon=10.0, steps=np.array(STEPS))[0].T
    number = np.arange(1, len(t) + 1)
    at = [round(time / dt) for time, _ in STEPS]
    levels = np.select([number >= at[2], number >= at[1], number >= at[0]], [-1.0, 0.0, 1.0], 0.0)
    np.testing.assert_array_equal(u, levels)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"steps": STEPS}, "either frequency or steps"),
        ({"frequency": None}, "either frequency or steps"),
        ({"frequency": None, "steps": [[2, 1], [1, 0]]}, "steps must be pairs of a time and a value"),
        ({"frequency": None, "steps": [1, 2]}, "steps must be pairs of a time and a value"),
        ({"dt": 0.0}, "dt must be positive; got 0.0"),
        ({"horizon": 0.001}, "horizon must be at least dt = 0.01; got 0.001"),
        ({"activation": "tan"}, "activation must be one of.*Did you mean tanh"),
        ({"neuron": 2}, r"neuron must lie in \[1, 1\]; got 2"),
        ({"V": np.ones(2)}, r"W, Wcal, V and b must have shapes .*got \(1, 1\), \(1, 1\), \(2,\), \(1,\)"),
    ],
)
def test_what_can_not_be_is_told(change: dict[str, Any], says: str) -> None:
    with pytest.raises(InputError, match=says):
        path(**FREE | change)


@cache
def drawn() -> dict[tuple[str, str], np.ndarray]:
    """The paths of the figure, by panel and label."""
    figure = figures.collect(load_figure(CONF / "figure" / "cornn-fig-6.yaml"), {}, [])
    return {(panel.title, c.label): c.y for panel, curves in figure.panels for c in curves if c.y is not None}


COSINE, JUMPS = "one neuron, input cos(4t)", "one neuron, input step functions"
FIRST, SECOND = "two neurons, input cos(4t): first", "two neurons, input cos(4t): second"


def largest(panel: str, label: str) -> float:
    return float(np.nanmax(np.abs(drawn()[panel, label])))


@pytest.mark.parametrize("panel", [COSINE, JUMPS])
def test_damping_shrinks_a_bounded_activation_keeps_bounded_and_that_of_duffing_blows_up(panel: str) -> None:
    assert largest(panel, "FDO") < largest(panel, "FHO")
    assert np.abs(drawn()[COSINE, "FDO"][-1000:]).max() < 0.25 * largest(COSINE, "FHO")
    assert largest(panel, "CFDO") > 50  # grows as exp(t/4)
    assert largest(panel, "coRNN") < 2
    y = drawn()[panel, "DUFF"]
    assert 3.0 < 0.005 * np.flatnonzero(np.abs(y) > 10)[0] < 6.0
    assert np.isnan(y[-1])


def test_forcing_by_steps_is_a_large_change_and_ordered_coupling_one_of_the_second_neuron_alone() -> None:
    assert np.abs(drawn()[COSINE, "FHO"] - drawn()[COSINE, "SHO"]).max() < 0.14
    assert largest(JUMPS, "FHO") > 1.5 * largest(JUMPS, "SHO")
    np.testing.assert_array_equal(drawn()[FIRST, "Ord"], drawn()[FIRST, "UC"])
    np.testing.assert_array_equal(drawn()[FIRST, "UC"], drawn()[COSINE, "coRNN"])
    assert np.abs(drawn()[SECOND, "Ord"] - drawn()[SECOND, "UC"]).max() > 1
    assert np.abs(drawn()[FIRST, "FC"] - drawn()[FIRST, "UC"]).max() > 0.1
