"""Untrained networks on a grid: what the papers claim of energies by depth, and what does not come out."""

import functools
from pathlib import Path
from typing import Any

import networkx
import numpy as np
import pytest
import torch
from refusals import refuses

from physml.base.errors import InputError
from physml.base.paths import CONF, share_compiled
from physml.lab.simulate.graphs import energy, molecule, moving, traffic
from physml.models.graph.graph_layers import GraphConvolution
from physml.report.figure import collect as figures
from physml.report.figure.spec import load_figure

NUMBERS: dict[str, dict[str, float]] = {
    "plain": {},
    "graphcon": {"dt": 1.0, "gamma": 1.0, "alpha": 0.5},
    "g2": {"p": 2.0},
}
COUPLINGS = ("gcn", "gat")
BOTH = pytest.mark.parametrize("coupling", COUPLINGS)
SHARED = pytest.mark.parametrize("shared", [True, False])


@functools.cache
def curve(model: str, coupling: str, seed: int, **changes: Any) -> np.ndarray:
    """The measure after each layer, (N,)."""
    arguments: dict[str, Any] = {"n_layers": 100, "rows": 10, "columns": 10, "width": 64}
    arguments |= {"activation": "relu", "measure": "dirichlet", "shared_weights": True}
    arguments |= NUMBERS.get(model, {}) | changes
    return energy(model=model, coupling=coupling, seed=seed, **arguments)["y"]


def slope(y: np.ndarray) -> tuple[float, float]:
    """Powers of ten per layer from layer 20 on, and the share of variance that a straight line leaves."""
    n, log = np.arange(20, len(y) + 1), np.log10(y[19:])
    line = np.polynomial.Polynomial.fit(n, log, 1).convert()
    return float(line.coef[1]), float((log - line(n)).var() / log.var())


def test_one_layer_is_that_of_a_dense_sum_and_seeds_differ() -> None:
    # The same seed gives the features first, then the weights; the sum runs over neighbours, both ways.
    torch.manual_seed(3)
    x = torch.rand(6, 5, dtype=torch.float64).numpy()
    W = GraphConvolution(5, 5).double().symbols()["W"].detach().numpy()
    A = np.array(
        [[abs(a // 3 - b // 3) + abs(a % 3 - b % 3) == 1 for b in range(6)] for a in range(6)], float
    )
    scale = (A.sum(1) + 1) ** -0.5
    x = np.maximum(scale[:, None] * (A + np.eye(6)) * scale @ x @ W, 0)
    layer_energy = (A * ((x[:, None] - x) ** 2).sum(2)).sum() / 6
    got = curve("plain", "gcn", 3, rows=2, columns=3, width=5, n_layers=1)
    assert got == pytest.approx([layer_energy], rel=1e-12)
    torch.manual_seed(0)
    before = torch.random.get_rng_state()
    first = curve("plain", "gat", 0)
    assert torch.equal(torch.random.get_rng_state(), before)
    assert not np.array_equal(first, curve("plain", "gat", 1))
    curve.cache_clear()
    np.testing.assert_array_equal(first, curve("plain", "gat", 0))


@BOTH
@SHARED
def test_graphcon_with_all_numbers_1_is_the_plain_network(coupling: str, shared: bool) -> None:
    same: dict[str, Any] = {"shared_weights": shared, "n_layers": 8, "width": 6}
    oscillator = curve("graphcon", coupling, 0, dt=1.0, gamma=1.0, alpha=1.0, **same)
    np.testing.assert_allclose(oscillator, curve("plain", coupling, 0, **same), rtol=1e-9)


@BOTH
@SHARED
@pytest.mark.parametrize("seed", range(2))
def test_plain_networks_lose_energy_and_graphcon_keeps_it(coupling: str, shared: bool, seed: int) -> None:
    per_layer, left = slope(curve("plain", coupling, seed, shared_weights=shared))
    assert per_layer < -0.15 and left < 0.02
    assert curve("plain", coupling, seed, shared_weights=shared)[9] < 1e-2
    # With damping it settles after a decay; without, it grows, but slower than exponentially.
    damped = curve("graphcon", coupling, seed, shared_weights=shared, activation="tanh")
    assert damped.max() < 20 and damped.min() > 5e-3
    assert abs(slope(damped)[0]) < 0.02
    free = curve("graphcon", coupling, seed, shared_weights=shared, activation="tanh", alpha=0.0)
    assert free.min() > 5 and free.max() < 2e4
    assert np.log2(free[99] / free[49]) < 3.5  # no faster than n^3.5


@pytest.mark.parametrize("seed", range(2))
def test_a_plain_gcn_with_tanh_keeps_some_energy_for_its_nodes_are_parallel_and_not_equal(seed: int) -> None:
    tanh: dict[str, Any] = {"activation": "tanh", "shared_weights": False}
    assert curve("plain", "gcn", seed, **tanh)[-1] > 1e-4
    assert curve("plain", "gcn", seed, **tanh, measure="mad")[-1] < 1e-4
    assert curve("plain", "gat", seed, **tanh)[-1] < 1e-5


@BOTH
def test_graphcon_with_relu_loses_its_energy_or_blows_up(coupling: str) -> None:
    damped = curve("graphcon", coupling, 0, shared_weights=False)
    assert damped[-1] < 1e-10 and slope(damped)[0] < -0.09
    free = curve("graphcon", coupling, 0, shared_weights=False, alpha=0.0)
    assert free[-1] > 1e10


@pytest.mark.parametrize(("coupling", "n_layers"), [("gcn", 1000), ("gat", 300)])
def test_gradient_gating_keeps_energy_and_distance_over_many_layers(coupling: str, n_layers: int) -> None:
    y = curve("g2", coupling, 0, n_layers=n_layers)
    assert y.max() < 40 and y.min() > 10
    assert abs(slope(y)[0]) < 1e-3
    distance = curve("g2", coupling, 0, n_layers=n_layers, measure="mad")
    assert distance.max() < 0.3 and distance.min() > 0.1
    assert np.median([curve("plain", coupling, k, measure="mad")[-1] for k in range(3)]) < 1e-9


def test_gradient_gating_with_weights_of_each_layer_falls_and_rises_again() -> None:
    y = curve("g2", "gcn", 0, n_layers=1000, shared_weights=False)
    assert 0.5 < y.min() < 5 and y[-1] > 100


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model": "g3"}, "model must be one of"),
        ({"coupling": "sage"}, "coupling must be one of"),
        ({"measure": "mean"}, "measure must be one of"),
        ({"alpha": None}, r"model='graphcon' takes dt, gamma, alpha; got dt, gamma\."),
        ({"p": 2.0}, r"takes dt, gamma, alpha; got dt, gamma, alpha, p\."),
        ({"n_layers": 0}, "n_layers must be positive"),
        ({"activation": "sin"}, "activation must be one of"),
    ],
)
def test_what_is_wrong_is_said(changes: dict[str, Any], message: str) -> None:
    arguments = {"model": "graphcon", "coupling": "gcn", "seed": 0} | changes
    refuses(InputError, message, curve, **arguments)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_compiled(tmp_path / "cache")
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    molecule.cache_clear()


def moved(part: str, t: int, **changes: Any) -> dict[str, np.ndarray]:
    arguments: dict[str, Any] = {"data": "zinc_substitute", "number": 0, "fixtures": True, "weights": 0}
    arguments |= {"dt": 1.0, "gamma": 1.0, "alpha": 0.0, "activation": "tanh", "shared_weights": True}
    return moving(part=part, t=t, **(arguments | changes))


@pytest.mark.usefixtures("cache")
def test_a_molecule_starts_from_a_layout_in_which_bonds_are_alike() -> None:
    positions, bonds = molecule("zinc_substitute", 0, fixtures=True)
    assert np.abs(positions).max() <= 1 + 1e-9 and len(positions) == int(bonds.max()) + 1
    atoms = moved("atoms", 0)
    np.testing.assert_array_equal(np.stack([atoms["x"], atoms["y"]], 1), positions)
    lines = moved("bonds", 0)
    assert np.isnan(lines["x"]).sum() == bonds.shape[1] // 2
    ends = np.stack([lines["x"], lines["y"]], 1).reshape(-1, 3, 2)
    length = np.linalg.norm(ends[:, 0] - ends[:, 1], axis=1)
    assert length.max() / length.min() < 1.5
    graph = networkx.Graph(bonds.T.tolist())
    assert networkx.is_connected(graph) and graph.number_of_edges() == len(length)


@pytest.mark.usefixtures("cache")
def test_atoms_oscillate_each_with_the_frequency_of_the_scheme_where_stiffness_is_all() -> None:
    for atom in range(len(moved("atoms", 0)["x"])):
        path = moved("path", 20, atom=atom)
        assert path["x"].tolist() == list(range(21))
        assert path["y"][-1] == moved("atoms", 20)["x"][atom] == moved("atoms", 20, atom=atom)["x"][0]
        turns = np.diff(np.sign(np.diff(path["y"])))
        assert (turns != 0).sum() >= 4
    path = moved("path", 400, atom=0, dt=0.001, gamma=1e6)["y"]  # the force is at most a millionth of it
    frequency = 2 * np.arcsin(0.5)  # of the symplectic scheme at dt sqrt(gamma) = 1, in layers
    spectrum = np.abs(np.fft.rfft(path - path.mean()))
    assert np.argmax(spectrum) / len(path) == pytest.approx(frequency / (2 * np.pi), abs=1 / len(path))


@pytest.mark.usefixtures("cache")
def test_what_is_wrong_with_a_molecule_is_said() -> None:
    for part, t, changes, message in (
        ("atoms", 0, {"number": 8}, "number must be one of 8 test molecules, from 0; got 8"),
        ("path", 3, {}, "part 'path' needs an atom"),
        ("bonds", 3, {"atom": 0}, "and 'bonds' takes none; got 0"),
        ("path", 3, {"atom": 99}, "atom must be one of"),
        ("atoms", -1, {}, "t must be a number of layers, 0 or more; got -1"),
    ):
        refuses(InputError, message, moved, part, t, **changes)


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("graph", ["chameleon", "squirrel"])
def test_traffic_is_told_as_a_share_of_the_greatest(graph: str) -> None:
    values = traffic(graph=graph, fixtures=True)["values"]
    assert values.shape == (60,) and values.max() == 1 and values.min() >= 0


@pytest.mark.usefixtures("cache")
@pytest.mark.parametrize("name", ["graphcon-fig-1", "g2-fig-4"])
def test_a_figure_of_data_that_are_not_there_is_blocked(name: str) -> None:
    figure = figures.collect(load_figure(CONF / "figure" / f"{name}.yaml"), {}, [])
    states = [line.partition(": ")[2] for line in figures.state_lines(figure)]
    assert states[0].startswith("blocked: ")
    assert all(state.startswith("blocked: ") or state == "blocked, as above" for state in states)
