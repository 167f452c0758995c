"""GraphCON against thesis equation 7.4, its propositions, and the parameter counts of the official code."""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from couplings import NAMES, H, couplings
from drawn_layers import numbers, zeroed
from refusals import refuses
from small_graphs import ODD, Dense, N, attended, close, far_from_start, first_gradients, looped, weights
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv

from physml.base.errors import InputError
from physml.graph.measures import dirichlet_energy, grid
from physml.models.graph import graph_layers, graphcon
from physml.models.graph.graph_layers import GraphConvolution, NodeLinear, TransformerAttention
from physml.models.graph.graph_net import GraphNet
from physml.models.graph.graph_parts import merge_heads, times
from physml.models.graph.graphcon import CitationGraphCON, GraphCON
from physml.run.record import count_parameters

CONSTANTS = {"dt": 0.3, "gamma": 1.7, "alpha": 0.6, "activation": "tanh"}
PLAIN = {"dt": 1.0, "gamma": 1.0, "alpha": 1.0}  # a step is the coupling behind sigma
NONE = torch.zeros(2, 0, dtype=torch.long)


def by_hand(layer: GraphCON, x: Tensor, edge_index: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Equation 7.4 with the coupling 7.5 and the residual terms of the official code."""
    P, X = looped(edge_index, len(x)), x.numpy()
    Y, path = X, []
    for n in range(layer.n_layers):
        own = weights(layer.forces[0 if layer.shared_weights else n])
        inside = P @ X @ own["W"] + own["b"]
        if layer.forces[0].residual == "official-v1":
            inside = inside - (X @ own["W"] @ own["R"].T + own["r"])
        elif layer.forces[0].residual != "none":
            inside = inside + X @ own["R"].T + own["r"]
        if layer.forces[0].residual == "official-v2":
            inside = inside - X @ own["W"]
        Y = Y + layer.dt * (np.tanh(inside) - layer.gamma * X - layer.alpha * Y)
        X = X + layer.dt * Y
        path.append((X, Y))
    return path


@pytest.mark.parametrize("residual", ["none", "plus", "official-v1", "official-v2"])
@pytest.mark.parametrize("shared", [True, False])
def test_steps_are_equation_7_4(residual: str, shared: bool):
    layer = GraphCON(couplings()["gcn"], 5, **CONSTANTS, residual=residual, shared_weights=shared)
    layer, x = far_from_start(layer), numbers(N, H)
    path = list(layer.steps(x, ODD))
    for state, state_by_hand in zip(path, by_hand(layer, x, ODD), strict=True):
        close(torch.stack(state), np.stack(state_by_hand))
    assert torch.equal(layer(x, ODD), path[-1][0])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("heads", ["mean", "official"])
def test_any_coupling_fits_and_heads_are_merged_behind_sigma(name: str, heads: str):
    coupling, x = couplings()[name], numbers(N, H)
    layer = GraphCON(coupling, 2, **CONSTANTS, heads=heads)
    X, Y = x, x
    for _ in range(2):
        Y = Y + 0.3 * (merge_heads(torch.tanh(coupling(X, ODD)), H, heads) - 1.7 * X - 0.6 * Y)
        X = X + 0.3 * Y
    torch.testing.assert_close(layer(x, ODD), X)


@pytest.mark.parametrize("name", ["gcn", "gat"])
def test_with_dt_gamma_and_alpha_1_it_is_a_plain_network(name: str):
    """Then X^n = sigma(F(X^(n-1))), whatever the velocity: the setting that the text gives for citations."""
    coupling, x = couplings()[name], numbers(N, H)
    layer = GraphCON(coupling, 4, **PLAIN, activation="relu")
    plain = x
    for _ in range(4):
        plain = merge_heads(torch.relu(coupling(plain, ODD)), H, "mean")
    torch.testing.assert_close(layer(x, ODD, y=numbers(N, H, seed=9)), plain, rtol=1e-9, atol=1e-10)


def energies(dt: float, factor: float) -> tuple[float, float]:
    r"""sum |Y|^2 + factor sum_i sum_j A_ij |X_i - X_j|^2 on a ring: at the start, and its drift to t = 5."""
    eye = np.eye(8)
    A = (np.roll(eye, 1, 0) + np.roll(eye, -1, 0)) / 2  # symmetric, rows of unit sum
    layer = GraphCON(Dense(A), round(5 / dt), dt=dt, gamma=1.0, alpha=0.0, activation="identity")
    start = x, y = numbers(8, 3), numbers(8, 3, seed=2)
    totals = []
    for X, Y in [start, *layer.steps(x, torch.from_numpy(np.argwhere(A).T), y=y)]:
        pairs = (X[:, None] - X[None]).square().sum(-1)
        totals.append(float(Y.square().sum() + factor * (torch.from_numpy(A) * pairs).sum()))
    return totals[0], max(abs(total - totals[0]) for total in totals)


def test_the_energy_of_proposition_7_2_1_is_kept_with_half_the_coupling_term():
    (start, coarse), (_, half), (_, quarter) = (energies(dt, 0.5) for dt in (0.02, 0.01, 0.005))
    assert half < 0.02 * start
    assert coarse / half == pytest.approx(2, rel=0.1)  # of first order in dt
    assert half / quarter == pytest.approx(2, rel=0.1)
    start, printed = energies(0.005, 1.0)  # as printed: no step is small enough
    assert printed > 0.1 * start


def test_features_keep_below_the_bound_of_proposition_7_2_7():
    dt, gamma, alpha = 0.2, 1.0, 0.7
    layer = GraphCON(couplings()["gcn"], 200, dt=dt, gamma=gamma, alpha=alpha, activation="tanh")
    x = numbers(N, H)
    with torch.no_grad():
        for n, (X, _) in enumerate(layer.steps(x, ODD), 1):
            bound = (1 + 1 / gamma) * x.square().sum(1) + H * n * dt / (2 * gamma * (alpha - gamma * dt))
            assert (X.square().sum(1) <= bound).all()


@pytest.mark.parametrize(("dt", "gamma", "alpha"), [(2.2, 0.1, 1.0), (1.6, 1.0, 0.5)])
@torch.no_grad()
def test_7_2_7_is_broken_by_a_step_that_is_too_large(dt: float, gamma: float, alpha: float):
    """Features grow exponentially; one step is above 1 / alpha alone, the other above alpha / gamma."""
    assert (dt > 1 / alpha) != (dt > alpha / gamma)
    layer = GraphCON(couplings()["gcn"], 200, dt=dt, gamma=gamma, alpha=alpha, activation="tanh")
    x = numbers(N, H)
    bound = (1 + 1 / gamma) * x.square().sum(1) + H * 200 * dt / (2 * gamma * abs(alpha - gamma * dt))
    assert (layer(x, ODD).square().sum(1) > 1e6 * bound).all()


def test_7_39_in_the_proof_of_7_2_7_lacks_a_factor_of_two():
    """(7.38) is of half the energy, so what it adds must be doubled. Without Y, as in (7.36), it holds."""
    dt, gamma, alpha = 0.9, 0.1, 1.0
    force = zeroed(NodeLinear(1, 1).double())
    force.lin.bias.fill_(30.0)
    layer = GraphCON(force, 3, dt=dt, gamma=gamma, alpha=alpha, activation="tanh")
    at_rest = torch.zeros(1, 1, dtype=torch.double)
    for n, (X, Y) in enumerate(layer.steps(at_rest, NONE, y=at_rest), 1):
        printed, kept = n * dt / (2 * (alpha - gamma * dt)), float(gamma * X.square() + Y.square())
        assert (kept > 1.5 * printed) == (n == 1)
        assert kept <= 2 * printed and gamma * X.square() <= printed


def test_gradients_neither_vanish_nor_explode_with_depth_where_those_of_a_gcn_vanish():
    how = {"gamma": 1.0, "alpha": 0.5, "activation": "tanh"}
    deep = first_gradients(lambda coupling, n: GraphCON(coupling, n, dt=4 / n, **how))
    plain = first_gradients(lambda coupling, n: GraphCON(coupling, n, **how | PLAIN))
    assert all(0.2 < value / deep[0] < 5 for value in deep)
    assert plain[1] < 1e-2 * plain[0] and plain[2] < 1e-9 * plain[0]


@torch.no_grad()
def test_the_dirichlet_energy_of_a_plain_gcn_dies_and_that_of_graphcon_does_not():
    x, edge_index = torch.rand(100, 16), grid(10, 10)
    coupling = GraphConvolution(16, 16)

    def energy(**constants: float) -> float:
        layer = GraphCON(coupling, 100, **PLAIN | constants, activation="tanh")
        return float(dirichlet_energy(layer(x, edge_index), edge_index))

    assert energy(alpha=0.0) > 0.1 and energy() < 1e-6


def test_dropout_acts_on_position_and_velocity_each_with_its_own_mask():
    x = torch.ones(200, H, dtype=torch.double)
    force = zeroed(NodeLinear(H, H).double())
    layer = GraphCON(force, 1, dt=1.0, gamma=0.0, alpha=0.0, activation="relu", dropout=0.5)
    X, Y = next(layer.steps(x, NONE))
    # before the last mask X = a + b and Y = b, with a and b 0 or 2; the last mask doubles or clears
    assert {0.0, 4.0, 8.0} == set(X.unique().tolist()) and {0.0, 4.0} == set(Y.unique().tolist())
    kept = (X > 0) & (Y > 0)
    assert 4.0 in X[kept] and 8.0 in X[kept]
    X, Y = next(layer.eval().steps(x, NONE))
    assert (X == 2).all() and (Y == 1).all()


def test_symbols_name_the_weights_of_the_paper():
    coupling = couplings()["gcn"]
    shared = GraphCON(coupling, 3, **CONSTANTS, residual="plus")
    assert list(shared.symbols()) == ["W", "b", "R", "r"]
    assert shared.symbols()["b"] is coupling.bias
    own = GraphCON(coupling, 3, **CONSTANTS, shared_weights=False)
    assert list(own.symbols()) == ["W^1", "b^1", "W^2", "b^2", "W^3", "b^3"]
    assert next(iter(GraphCON(couplings()["pyg-sage"], 2, **CONSTANTS).symbols())) == "theta.lin_l.weight"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be positive"),
        ({"n_layers": 2.5}, "n_layers must be a whole number; got 2.5"),
        ({"dt": "abc"}, "dt must be a number; got 'abc'"),
        ({"coupling": "gcn"}, "coupling must be a message-passing layer.*got 'gcn'"),
        ({"coupling": GraphConvolution}, "coupling must be a message-passing layer"),
        ({"coupling": nn.Linear(4, 4)}, "called as coupling.x, edge_index.*got Linear"),
        ({"dropout": 1.5}, "dropout must lie in"),
        ({"coupling": GraphConvolution(4, 6)}, "makes 6 of 4"),
        ({"coupling": graph_layers.GraphAttention(4, 4, n_heads=2), "residual": "official-v1"}, "has none"),
        ({"coupling": Dense(np.eye(4)), "residual": "plus"}, "needs the widths"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    arguments = {"coupling": GraphConvolution(4, 4), "n_layers": 2, **CONSTANTS, **options}
    refuses(InputError, message, GraphCON, arguments.pop("coupling"), arguments.pop("n_layers"), **arguments)


def official(d_in: int, d_out: int, hidden: int, coupling: nn.Module, residual: str, pool=None) -> int:
    def layer(d: int) -> nn.Module:
        return GraphCON(coupling, 3, dt=1.0, gamma=0.5, alpha=0.5, activation="relu", residual=residual)

    readout = "graph" if pool else "node"
    return count_parameters(GraphNet(layer, d_in, d_out, readout, hidden=hidden, pool=pool))


@pytest.mark.parametrize(
    ("n_parameters", "count"),
    [
        (569_093, lambda: official(1703, 5, 256, GraphConvolution(256, 256), "official-v1")),
        (117_701, lambda: official(1703, 5, 64, GCNConv(64, 64), "official-v2")),
        (97_901, lambda: official(1, 1, 220, GraphConvolution(220, 220), "official-v2", "sum")),
        (135_178, lambda: official(3, 10, 256, GraphConvolution(256, 256), "plus", "sum")),
        (
            531_978,
            lambda: official(3, 10, 256, graph_layers.GraphAttention(256, 256, n_heads=4), "plus", "sum"),
        ),
        (531_978, lambda: official(3, 10, 256, GATConv(256, 256, heads=4), "plus", "sum")),
    ],
)
def test_as_many_parameters_as_the_official_code(n_parameters, count):
    assert count() == n_parameters


def citation(T: float, **options) -> CitationGraphCON:
    torch.manual_seed(0)
    return far_from_start(CitationGraphCON(TransformerAttention(H, d_attention=6, n_heads=2, **options), T=T))


def citation_loop(model: nn.Module, force: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    """To T = 3.25."""
    s_a, s_b, s_c = (torch.sigmoid(s) for s in (model.a, model.b, model.c))
    X, Y = x, x
    for h in (1, 1, 1, 0.25):
        Y = Y + h * ((1 - s_b) * (force(X) - Y - X) + s_b * x)
        X = X + h * ((1 - s_c) * s_a * Y + s_c * x)
    return X


def test_the_plain_and_the_coupled_citation_model_against_a_loop_and_steps_end_at_T_exactly() -> None:
    model, x = citation(3.25, normalize="sender", square_plus=True), numbers(N, H)
    A = torch.from_numpy(attended(model.attention, x))
    torch.testing.assert_close(model(x, ODD), citation_loop(model, lambda X: A @ X, x), rtol=0, atol=1e-10)
    assert [t for t, _, _ in model.steps(x, ODD, T=2.0)] == [1.0, 2.0]
    model, x = far_from_start(graphcon.CoupledCitationGraphCON(GraphConvolution(H, H), T=3.25)), numbers(N, H)
    torch.testing.assert_close(model(x, ODD), citation_loop(model, lambda X: model.coupling(X, ODD), x))
    assert [t for t, _, _ in model.steps(x, ODD, T=2.5)] == [1.0, 2.0, 2.5]
    assert list(model.symbols()) == ["a", "b", "c", "F.W", "F.b"]
    assert list(times(2.0)) == [(1.0, 1.0), (2.0, 1.0)]
    assert list(times(0.5)) == [(0.5, 0.5)]
    ends, sizes = zip(*times(18.2948), strict=True)
    assert len(ends) == 19 and ends[-1] == 18.2948 and sizes[-1] == pytest.approx(0.2948)


def test_the_late_citation_model_trains_to_T_and_is_read_at_all_times_beyond():
    model, x = citation(2.5), numbers(N, H)
    late = graphcon.LateCitationGraphCON(model.attention, T=2.5, T_test=4.0).double()
    late.load_state_dict(model.state_dict())
    torch.testing.assert_close(late.train()(x, ODD), model(x, ODD), rtol=0, atol=0)
    ends, positions, path = zip(*model.steps(x, ODD, T=4.0), strict=True)
    assert ends == (1.0, 2.0, 3.0, 4.0)
    torch.testing.assert_close(late.eval()(x, ODD), torch.stack([positions[-1], *path]), rtol=0, atol=0)
    with pytest.raises(InputError, match=r"T_test must not be before T, which is 2\.5; got 2\.0"):
        graphcon.LateCitationGraphCON(model.attention, T=2.5, T_test=2.0)


def test_the_source_of_the_citation_model_passes_no_gradient_and_its_scalars_are_trained():
    model, x = citation(2.0), numbers(N, H).requires_grad_()
    with torch.no_grad():
        model.b.fill_(40.0)  # all source in the velocity,
        model.c.fill_(40.0)  # and in the position: X = x0 + T x0 with x0 a constant where it is the source
    model(x, ODD).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))
    model = CitationGraphCON(TransformerAttention(H, d_attention=4, n_heads=2), T=2.0)
    assert torch.sigmoid(model.a) == torch.sigmoid(model.b) == torch.sigmoid(model.c) == 0.5
    assert (model.attention.Q.weight == 1e-5).all()
    model(torch.rand(N, H), ODD).square().sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in (model.a, model.b, model.c))
    assert list(model.symbols()) == ["a", "b", "c", "Q", "q", "K", "k"]


def test_what_cannot_be_run_and_foreign_times_heads_and_widths_are_refused():
    layer = GraphCON(couplings()["gcn"], 2, **CONSTANTS)
    refuses(InputError, r"floating-point numbers; got torch.int64", layer, numbers(N, H).long(), ODD)
    refuses(InputError, r"edge_index must be a tensor; got ndarray", layer, numbers(N, H), ODD.numpy())
    refuses(InputError, r"y must have shape \(6, 4\)", layer, numbers(N, H), ODD, y=numbers(N, 3))
    refuses(InputError, "T must be positive", citation, 0.0)
    refuses(InputError, "a multiple of n_heads", TransformerAttention, 4, d_attention=5, n_heads=2)
    with pytest.raises(InputError, match="as many channels as it gets; got 4 to 8"):
        graphcon.CoupledCitationGraphCON(GraphConvolution(4, 8), T=1.0)
