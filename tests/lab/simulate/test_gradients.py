"""Gradients by lag, length and depth for figures; the bound (7.40) of GraphCON, and a ring that breaks it."""

import functools
from typing import Any

import numpy as np
import pytest
import torch
from small_graphs import looped
from torch import Tensor

from physml.base.errors import InputError
from physml.graph.measures import grid
from physml.lab import experiments
from physml.lab.bounds import Graphcon
from physml.lab.simulate import gradients

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")

EXPERIMENT = "gradients/adding-cornn"
GIVEN: dict[str, Any] = {"experiment": EXPERIMENT, "seed": 0, "sequences": 2}
DRAWN: dict[str, Any] = {"n_layers": 5, "rows": 3, "columns": 4, "scale": 1.5}


def test_by_lag_goes_from_the_last_step_back() -> None:
    curve = gradients.by_lag(of="states", length=5, **GIVEN)
    norms = experiments.by_lag(EXPERIMENT, seed=0, sequences=2, length=5)["states"]
    np.testing.assert_array_equal(curve["x"], np.arange(1.0, 6.0))  # each is before a step
    np.testing.assert_array_equal(gradients.by_lag(of="inputs", length=5, **GIVEN)["x"], np.arange(5.0))
    np.testing.assert_array_equal(curve["y"], np.where(norms > 0, norms, np.nan))
    bound = gradients.by_lag(of="bound", length=5, **GIVEN)["y"]
    assert (bound > gradients.by_lag(of="entry", length=5, **GIVEN)["y"]).all()
    assert np.isnan(gradients.by_lag(of="long_term", length=5, **GIVEN)["y"]).all()  # nothing is printed
    jacobian = gradients.jacobians(experiment=EXPERIMENT, seed=0, length=5)
    np.testing.assert_array_equal(jacobian["x"], np.arange(1.0, 6.0))


def test_by_length_sums_what_by_lag_has() -> None:
    lengths = np.array([10, 30])
    whole = gradients.by_length(of="gradient", lengths=lengths, **GIVEN)
    early = gradients.by_length(of="early", lengths=lengths, **GIVEN)["y"]
    np.testing.assert_array_equal(whole["x"], lengths)
    for n, first, norm, share in zip((10, 30), (1, 3), whole["y"], early, strict=True):
        y = gradients.by_lag(of="gradient", length=n, **GIVEN)["y"]
        assert norm == pytest.approx(np.sqrt((y**2).sum()))
        assert share == pytest.approx(np.sqrt((y[n - first :] ** 2).sum() / (y**2).sum()))


def adjacency(edges: Tensor, nodes: int) -> tuple[Tensor, Tensor]:
    """D^(-1/2) (A + I) D^(-1/2) and the degrees with the loop, dense."""
    A = torch.from_numpy(looped(edges, nodes))
    return A, 1 / A.diagonal()


def graphcon(A: Tensor, x: Tensor, omega: Tensor, dt: float) -> tuple[Tensor, list[Tensor]]:
    """Equation 7.31 with alpha = gamma = 1 and Y^0 = X^0: X^N and X^0 to X^(N-1)."""
    X, Y, path = x, x, []
    for w in omega:
        path.append(X)
        Y = Y + dt * (torch.tanh(w * (A @ X)) - X - Y)
        X = X + dt * Y
    return X, path


def loss(X: Tensor, target: Tensor) -> Tensor:
    return 0.5 * (X - target).square().sum() / len(X)


def drawn(seed: int, nodes: int, n_layers: int, scale: float) -> tuple[Tensor, Tensor, Tensor]:
    rng = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(nodes, 1, dtype=torch.float64, generator=rng) - 1
    target = torch.randn(nodes, 1, dtype=torch.float64, generator=rng).sign()
    return x, target, scale * torch.randn(n_layers, dtype=torch.float64, generator=rng)


@pytest.mark.parametrize(("of", "dt"), [("graphcon", None), ("graphcon", 0.3), ("gcn", None)])
def test_by_depth_is_the_gradient_of_a_dense_loop(of: str, dt: float | None) -> None:
    A, _ = adjacency(grid(3, 4), 12)
    x, target, omega = drawn(3, 12, 5, 1.5)
    omega.requires_grad_()
    X = functools.reduce(lambda X, w: torch.tanh(w * (A @ X)), omega, x)
    if of == "graphcon":
        X, _ = graphcon(A, x, omega, dt or 1 / 5)
    loss(X, target).backward()
    assert omega.grad is not None
    curve = gradients.by_depth(of=of, seed=3, dt=dt, **DRAWN)
    np.testing.assert_allclose(curve["y"], omega.grad.abs().numpy(), rtol=1e-9)
    np.testing.assert_array_equal(curve["x"], np.arange(1.0, 6.0))


@pytest.mark.parametrize("seed", range(4))
def test_7_2_8_times_the_number_of_nodes(seed: int) -> None:
    """Where dt is as small as (7.44) assumes, for drawn weights, features and targets."""
    x, target, omega = drawn(seed, 12, 5, 1.5)
    _, d = adjacency(grid(3, 4), 12)
    limits = Graphcon.of(d, omega, 0.03)
    assert limits.is_small()
    settings = DRAWN | {"dt": 0.03, "seed": seed}
    greatest = gradients.by_depth(of="graphcon", **settings)["y"].max()
    printed = gradients.by_depth(of="bound", **settings)["y"]
    assert printed == pytest.approx([limits.total_7_40(x, x, target)] * 5)
    assert greatest < gradients.by_depth(of="times_v", **settings)["y"][0] == pytest.approx(12 * printed[0])


def test_7_2_8_as_printed_is_broken_by_many_nodes_that_agree() -> None:
    """Each of v nodes adds its own term of size 1 / v; the printed bound is that of one node."""
    nodes, n_layers, dt = 1000, 20, 0.01
    ring = torch.arange(nodes)
    edges = torch.stack([torch.cat([ring, ring.roll(1)]), torch.cat([ring.roll(1), ring])])
    A, d = adjacency(edges, nodes)
    x, omega = torch.ones(nodes, 1, dtype=torch.float64), torch.full((n_layers,), 0.1, dtype=torch.float64)
    limits = Graphcon.of(d, omega, dt)
    assert limits.is_small()
    omega.requires_grad_()
    loss(graphcon(A, x, omega, dt)[0], -x).backward()
    assert omega.grad is not None
    greatest, printed = float(omega.grad.abs().max()), limits.total_7_40(x, x, -x)
    assert 2 * printed < greatest < nodes * printed


def test_7_2_9_lacks_the_number_of_layers_above() -> None:
    """(7.51) has the step of X in layer l alone. Every later layer adds dt Y as much: N - l + 1 times."""
    A, _ = adjacency(grid(3, 4), 12)
    x, target, omega = drawn(1, 12, 4, 1.0)
    dt = 1e-4
    omega.requires_grad_()
    X, path = graphcon(A, x, omega, dt)
    loss(X, target).backward()
    assert omega.grad is not None
    for i, before in enumerate(path):  # layer l = i + 1
        slope = 1 - torch.tanh(omega[i] * (A @ before)) ** 2
        printed = dt**2 / 12 * (slope * (A @ before) * (X - target)).sum()
        assert float((omega.grad[i] / printed).detach()) == pytest.approx(4 - i, rel=0.01)


@pytest.mark.parametrize(
    ("changes", "message"),
    [({"of": "gat"}, "of"), ({"of": "gcn", "dt": 0.1}, "a GCN has no dt"), ({"n_layers": 0}, "n_layers")],
)
def test_what_by_depth_refuses(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        gradients.by_depth(**(DRAWN | {"of": "graphcon", "seed": 0} | changes))
