"""Arguments that no simulation of a figure can be made with."""

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import InputError
from physml.lab.simulate import frenkel_kontorova, gradients, graphs, linear, multiscale, universality

TAU = np.array([0.1])
SPECTRUM = partial(linear.spectrum, part="printed", beta=0.5, gamma=0.1, scale=1.0)
PATH = partial(linear.path, M=np.eye(2), beta=0.5, gamma=0.1, h0=np.ones(2), horizon=1.0)
BY_TAU = partial(multiscale.by_tau, of="euler", width=5, micro=0.1, micro_steps=2)
BY_WIDTH = partial(multiscale.by_width, of="psi", widths=TAU, micro=0.1, micro_steps=2, seed=0)
DRAWN = partial(universality.by_frequencies, of="inversion", counts=np.array([3.0]), delay=0.1, seed=0)
DEPTH = partial(gradients.by_depth, of="graphcon", rows=1, columns=2, scale=1.0, seed=0)
ENERGY = partial(graphs.energy, measure="mad", model="plain", coupling="gcn", rows=2, columns=2, seed=0)


@pytest.mark.parametrize(
    ("simulation", "arguments", "says"),
    [
        (linear.growth, {"scheme": "euler", "most": 2.0, "points": 0}, "points must be positive; got 0"),
        (linear.growth, {"scheme": "euler", "most": 2.0, "points": 2.5}, "points must be a whole number"),
        (linear.orbit, {"radius": 1.0, "angle": 1.0, "steps": 1.5}, "steps must be a whole number"),
        (SPECTRUM, {"units": 1.5, "seed": 0}, "units must be a whole number"),
        (SPECTRUM, {"units": 3, "seed": -1}, "seed must lie in"),
        (PATH, {"points": 0}, "points must be positive"),
        (
            frenkel_kontorova.one_way,
            {"epsilon": TAU, "n_layers": 2, "width": 2, "t_end": 0.0, "seed": 0},
            "t_end must be positive",
        ),
        (BY_TAU, {"tau": -TAU, "step": 0.1, "t_end": 1.0}, "the least tau must be positive; got -0.1"),
        (BY_TAU, {"tau": TAU, "step": 1.0, "t_end": 0.1}, "t_end must be at least step = 1.0; got 0.1"),
        (BY_WIDTH, {"step": 0.0, "t_end": 1.0}, "step must be positive"),
        (
            multiscale.by_scale,
            {"of": "slow", "tau": TAU, "n_steps": 0, "width": 5, "seed": 0},
            "n_steps must be positive",
        ),
        (DRAWN, {"dt": 5.0, "inputs": 2}, "dt must be above 0 and at most 0.25; got 5.0"),
        (DRAWN, {"dt": 0.1, "inputs": 0}, "inputs must be positive"),
        (DEPTH, {"n_layers": 1.5}, "n_layers must be a whole number"),
        (
            ENERGY,
            {"n_layers": 1.5, "width": 2, "activation": "tanh", "shared_weights": True},
            "n_layers must be a whole number",
        ),
    ],
)
def test_what_cannot_be_is_refused(
    simulation: Callable[..., Any], arguments: dict[str, Any], says: str
) -> None:
    refuses(InputError, says, simulation, **arguments)
