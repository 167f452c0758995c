"""Graph networks with random weights, and data of graphs, for figures that need no training.

Axes: V nodes, E edges, H channels, N layers. All numbers are float64.

Sources: Rusch et al., GraphCON, ICML 2022, https://arxiv.org/abs/2202.02296, Figures 1 and 2; Rusch et al.,
Gradient Gating, ICLR 2023, https://arxiv.org/abs/2210.00513, Figures 2, 4 and 9.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of
from physml.base.errors import InputError, needed_by
from physml.data import graphs as graph_data
from physml.data.readers import musae, zinc
from physml.data.store import Store
from physml.graph.measures import dirichlet_energy, grid, mean_average_distance
from physml.lab.experiments import one_thread
from physml.models.graph.g2 import GradientGating
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution
from physml.models.graph.graph_parts import Force, copies
from physml.models.graph.graphcon import GraphCON

Arrays = dict[str, np.ndarray]

MEASURES = {"dirichlet": dirichlet_energy, "mad": mean_average_distance}
COUPLINGS = {"gcn": GraphConvolution, "gat": GraphAttention}
NEEDS: dict[str, tuple[str, ...]] = {"plain": (), "graphcon": ("dt", "gamma", "alpha"), "g2": ("p",)}
SETS = {"zinc": zinc.ZINC, "zinc_substitute": zinc.ZINC_SUBSTITUTE}
PAGES = {"chameleon": musae.CHAMELEON, "squirrel": musae.SQUIRREL}


@contextmanager
def _drawn_from(seed: int) -> Iterator[None]:
    """Random numbers of a seed, no gradients, and one thread: several wait for each other at these sizes."""
    with one_thread(), torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(seed)
        yield


# --- measures by depth


def energy(
    *,
    measure: str,
    model: str,
    coupling: str,
    n_layers: int,
    rows: int,
    columns: int,
    width: int,
    activation: str,
    shared_weights: bool,
    seed: int,
    dt: float | None = None,
    gamma: float | None = None,
    alpha: float | None = None,
    p: float | None = None,
) -> Arrays:
    r"""How much neighbours on a grid differ after each layer n of an untrained network.

    .. math:: n \mapsto \mathcal D(X^n), \qquad X^0 \sim U[0, 1]^{V \times H}

    measure: "dirichlet", equation 6.2 of the thesis, or "mad", in the form of Chen et al.
    model: "plain", :math:`X^n = \sigma(F(X^{n-1}))`; "graphcon", equation 7.4 with Y^0 = X^0, which needs dt,
    gamma and alpha; "g2", equations 8.2-8.4 with one F for features and rates, which needs p.
    coupling: F, "gcn" or "gat" with one head, weights Glorot uniform, biases 0.
    shared_weights: one F for all layers, else each its own. seed: of features, then weights: networks of one
    width and seed start from the same features.

    Shapes: x (N,) layers from 1 on, y (N,) the measure after each.
    Errors: InputError for a name that is not known, or a number that the model doesn't take, or lacks.
    """
    one_of("measure", measure, MEASURES)
    one_of("coupling", coupling, COUPLINGS)
    each(count, n_layers=n_layers, width=width)
    edges = grid(rows, columns)
    numbers = _numbers(model, {"dt": dt, "gamma": gamma, "alpha": alpha, "p": p})
    with _drawn_from(seed):
        x = torch.rand(rows * columns, width, dtype=torch.float64)
        layer = COUPLINGS[coupling](width, width)
        around = {"activation": activation, "shared_weights": shared_weights, **numbers}
        states = _states(model, layer, n_layers, x, edges, **around)
        values = [MEASURES[measure](state, edges).item() for state in states]
    return {"x": np.arange(1.0, n_layers + 1), "y": np.array(values)}


def _numbers(model: str, values: dict[str, float | None]) -> dict[str, float]:
    """The numbers that a model needs, of all that were given."""
    one_of("model", model, NEEDS)
    needs = NEEDS[model]
    numbers = {name: value for name, value in values.items() if value is not None}
    if set(numbers) != set(needs):
        raise InputError(
            f"model={model!r} takes {', '.join(needs) or 'none of dt, gamma, alpha, p'}; "
            f"got {', '.join(numbers) or 'none'}."
        )
    return numbers


class _Plain(nn.Module):
    """Layers without anything around them: the same weights for all, or not."""

    def __init__(self, coupling: nn.Module, n_layers: int, *, activation: str, shared_weights: bool) -> None:
        super().__init__()
        self.n_layers = n_layers
        self.forces = copies(Force(coupling, activation=activation), 1 if shared_weights else n_layers)

    def steps(self, x: Tensor, edge_index: Tensor) -> Iterator[tuple[Tensor]]:
        for n in range(self.n_layers):
            x = self.forces[n % len(self.forces)](x, edge_index)
            yield (x,)


def _states(
    model: str, layer: nn.Module, n_layers: int, x: Tensor, edge_index: Tensor, **arguments: Any
) -> list[Tensor]:
    """The features after each layer."""
    kinds = {"plain": _Plain, "graphcon": GraphCON, "g2": GradientGating}
    network = kinds[model](layer, n_layers, **arguments).double()
    return [state for state, *_ in network.steps(x, edge_index)]


# --- a molecule whose atoms move


@lru_cache(maxsize=8)
def molecule(data: str, number: int, fixtures: bool = False) -> tuple[np.ndarray, Tensor]:
    """Positions (V, 2) in [-1, 1] and bonds (2, E), each both ways, of a test molecule of ZINC.

    data: "zinc", or "zinc_substitute", whose test molecules are the same. The files say nothing of positions:
    they come from the layout of Kamada and Kawai, which wants distances in the plane to be those along bonds.

    Errors: DataError where the files are not there.
    """
    with needed_by("the layout of a molecule"):
        import networkx

    one_of("data", data, SETS)
    arrays = Store.from_env(fixtures=fixtures).read(SETS[data])
    first = int(arrays["n_graphs"][:2].sum())
    if not 0 <= number < arrays["n_graphs"][2]:
        raise InputError(
            f"number must be one of {arrays['n_graphs'][2]} test molecules, from 0; got {number}."
        )
    graph_arrays = graph_data.one(arrays, first + number)
    bonds = torch.from_numpy(graph_arrays["edge_index"])
    graph = networkx.Graph()
    graph.add_nodes_from(range(len(graph_arrays["x"])))
    graph.add_edges_from(bonds.T.tolist())
    layout = networkx.kamada_kawai_layout(graph)
    return np.stack([layout[atom] for atom in range(len(layout))]), bonds


def moving(
    *,
    part: str,
    data: str,
    number: int,
    t: int,
    dt: float,
    gamma: float,
    alpha: float,
    activation: str,
    shared_weights: bool,
    weights: int,
    fixtures: bool,
    atom: int | None = None,
) -> Arrays:
    r"""A molecule whose atoms' positions are the features of GraphCON-GCN, equation 7.4, without training.

    X^0 are the positions of `molecule`, Y^0 = X^0. W is Glorot uniform, of the seed `weights`; b is 0.
    part: "atoms", all of them or one, or "bonds", after t layers; "path", the first coordinate of one atom
    up to then.

    Shapes: x, y: (V,) or (1,) atoms; (3E / 2,) both ends of each bond and a gap, NaN; (t + 1,) layers from 0.
    Errors: InputError for a part, atom or number that is not there; DataError where the files are not.
    """
    one_of("part", part, ("atoms", "bonds", "path"))
    start, bonds = molecule(data, number, fixtures)
    if atom is not None and not 0 <= atom < len(start):
        raise InputError(f"atom must be one of {len(start)}, from 0; got {atom}.")
    if part == ("bonds" if atom is not None else "path"):
        raise InputError(f"part 'path' needs an atom, and 'bonds' takes none; got {atom} for {part!r}.")
    if t < 0:
        raise InputError(f"t must be a number of layers, 0 or more; got {t}.")
    around = {"activation": activation, "shared_weights": shared_weights, "dt": dt, "gamma": gamma}
    states = [torch.from_numpy(start)]
    with _drawn_from(weights):
        if t:
            layer = GraphConvolution(2, 2)
            states += _states("graphcon", layer, t, states[0], bonds, alpha=alpha, **around)
    path = torch.stack(states).numpy()  # (t + 1, V, 2)
    if part == "path":
        return {"x": np.arange(t + 1.0), "y": path[:, atom, 0]}
    at = path[-1]
    if part == "atoms":
        chosen = at if atom is None else at[atom : atom + 1]
        return {"x": chosen[:, 0], "y": chosen[:, 1]}
    ends = at[bonds.numpy()[:, bonds[0] < bonds[1]].T]  # (E / 2, 2, 2)
    lines = np.concatenate([ends, np.full((len(ends), 1, 2), np.nan)], 1).reshape(-1, 2)
    return {"x": lines[:, 0], "y": lines[:, 1]}


# --- targets of regression


def traffic(*, graph: str, fixtures: bool) -> Arrays:
    """Mean monthly traffic of the pages of a graph, over the greatest: what node regression is about.

    graph: "chameleon" or "squirrel", in the files of MUSAE.
    Shapes: values (V,), in [0, 1]. Errors: DataError where the files are not there.
    """
    one_of("graph", graph, PAGES)
    y = Store.from_env(fixtures=fixtures).read(PAGES[graph])["y"]
    return {"values": y / y.max()}
