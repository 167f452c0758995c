"""Gradient gating against thesis equation 8.4, its propositions, and the official parameter counts."""

import numpy as np
import pytest
import torch
from couplings import NAMES, H, couplings
from drawn_layers import made, numbers
from each import each
from small_graphs import ODD, N, first_gradients
from torch import Tensor, nn
from torch_geometric.nn import GCNConv, SAGEConv

from physml.base.errors import InputError
from physml.graph.measures import dirichlet_energy, grid
from physml.models.graph.g2 import GradientGating
from physml.models.graph.graph_layers import GraphConvolution, MeanConvolution
from physml.models.graph.graph_net import GraphNet
from physml.models.graph.graph_parts import merge_heads
from physml.ops.backend import running
from physml.run.record import count_parameters


def by_hand(layer: GradientGating, x: Tensor, edge_index: Tensor) -> list[tuple[np.ndarray, np.ndarray]]:
    """Equations 8.4 and 8.26, one node after the other."""
    X, path = x.numpy(), []

    def sigma(coupling: nn.Module, X: np.ndarray) -> np.ndarray:
        """The couplings themselves are tested elsewhere."""
        force = torch.tanh(coupling(torch.from_numpy(X), edge_index)).detach()
        return merge_heads(force, H, layer.forces[0].heads).numpy()

    for n in range(layer.n_layers):
        k = 0 if layer.shared_weights else n
        new = sigma(layer.forces[k].coupling, X)
        q = new if layer.gates is None else sigma(layer.gates[k].coupling, X)
        tau = np.zeros((N, 1 if layer.single_rate else H))
        for i in range(N):
            terms = [np.abs(q[b] - q[i]) ** layer.p for a, b in edge_index.T.tolist() if a == i]
            if layer.single_rate:
                terms = [np.sum(term) ** (1 / layer.p) for term in terms]
            share = len(terms) if layer.aggregate == "mean" and terms else 1
            tau[i] = np.tanh(sum(terms) / share) ** layer.rate_exponent
        X = (1 - tau) * X + tau * new
        path.append((X, tau))
    return path


@each(
    "name, options",
    [
        *((name, {}) for name in NAMES),
        ("gcn", {"aggregate": "mean"}),
        ("gcn", {"p": 1.0}),
        ("gcn", {"p": 3.7, "shared_weights": False}),
        ("gcn", {"single_rate": True}),
        ("gcn", {"single_rate": True, "aggregate": "mean", "p": 2.0}),
        ("gcn", {"rate_exponent": 0.4}),
        *((name, {"heads": "official"}) for name in ("gat", "pyg-gat")),
    ],
)
def test_layers_are_equation_8_4(name: str, options):
    layer = GradientGating(couplings()[name], 3, **{"p": 2.5, "activation": "tanh", **options})
    x = numbers(N, H)
    path = list(layer.steps(x, ODD))
    for (X, tau), (X_hand, tau_hand) in zip(path, by_hand(layer, x, ODD), strict=True):
        np.testing.assert_allclose(X.detach(), X_hand, atol=1e-10)
        np.testing.assert_allclose(tau.detach(), tau_hand, atol=1e-10)
    assert torch.equal(layer(x, ODD), path[-1][0])


def test_a_gate_of_its_own_is_f_hat():
    x, how = numbers(N, H), {"p": 2.0, "activation": "tanh"}
    layer = GradientGating(couplings()["gcn"], 3, **how, gate_coupling=couplings()["sage"])
    assert list(layer.symbols()) == ["W", "b", "hat W_l", "hat b", "hat W_r"]
    own = GradientGating(couplings()["gcn"], 2, **how, gate_coupling=couplings()["gcn"], shared_weights=False)
    assert len(list(own.parameters())) == 2 * 2 * 2
    for net in (layer, own):
        np.testing.assert_allclose(net(x, ODD).detach(), by_hand(net, x, ODD)[-1][0], atol=1e-10)


@pytest.mark.parametrize("name", ["gcn", "pyg-gat"])
def test_a_rate_of_1_is_the_plain_layer(name: str):
    """tau^0 = 1, section 8.4: equation 8.5."""
    coupling, x = couplings()[name], numbers(N, H)
    layer = GradientGating(coupling, 3, p=2.0, activation="relu", rate_exponent=0.0)
    plain = x
    for _ in range(3):
        plain = merge_heads(torch.relu(coupling(plain, ODD)), H, "mean")
    assert torch.equal(layer(x, ODD), plain)


@pytest.mark.parametrize("single_rate", [False, True])
@pytest.mark.parametrize("name", ["sage", "gat", "tran"])
def test_a_constant_signal_has_rate_0_and_stays_where_rows_have_unit_sum(name: str, single_rate: bool):
    ring = torch.stack([torch.arange(N), (torch.arange(N) + 1) % N])  # everyone receives
    layer = GradientGating(couplings()[name], 4, p=2.0, activation="tanh", single_rate=single_rate)
    x = torch.tensor([0.3, -0.2, 0.9, 0.1], dtype=torch.double).repeat(N, 1).requires_grad_()
    for X, tau in layer.steps(x, ring):
        assert tau.abs().max() < 1e-12
        torch.testing.assert_close(X, x)
    layer(x, ring).sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x), rtol=0, atol=1e-6)


@pytest.mark.parametrize("exponent", [0.5, 2.0])
def test_rates_have_second_derivatives_by_the_reference_and_else_a_refusal(exponent: float):
    layer = made(lambda: GradientGating(MeanConvolution(H, H), 1, p=2.0, rate_exponent=exponent))

    def rates(x: Tensor) -> Tensor:
        return next(iter(layer.steps(x, ODD)))[1]

    x = numbers(N, H).requires_grad_()
    with running("reference"):
        assert torch.autograd.gradgradcheck(lambda x: rates(x)[rates(x) > 1e-3].sum(), x)
    with running("torch"), pytest.raises(InputError, match="second derivatives"):
        torch.autograd.grad(rates(x).sum(), x, create_graph=True)


@each(
    "p, options",
    [
        *((p, {"single_rate": single}) for p in (0.5, 1.0, 2.0, 2.5, 3.0, 4.2) for single in (False, True)),
        *((p, option) for p in (0.5, 2.0) for option in ({"rate_exponent": 0.5}, {"aggregate": "mean"})),
    ],
)
def test_gradients_are_finite_at_rate_0(p: float, options):
    layer = GradientGating(MeanConvolution(H, H), 4, p=p, activation="relu", **options)
    for x in (torch.zeros(N, H), torch.ones(N, H), torch.ones(N, H) + 1e-7 * torch.rand(N, H)):
        x.requires_grad_()
        layer.zero_grad()
        layer(x, ODD).square().sum().backward()
        assert torch.isfinite(x.grad).all()
        assert all(torch.isfinite(w.grad).all() for w in layer.parameters())


@pytest.mark.parametrize(("activation", "low"), [("tanh", -1.0), ("sigmoid", 0.0)])
@pytest.mark.parametrize("name", ["gcn", "sage", "gat"])
def test_features_keep_to_the_bounds_of_proposition_8_2_1(name: str, activation: str, low: float):
    """For features that start in them: the proposition does not say so, and fails for others."""
    coupling = couplings()[name]
    with torch.no_grad():
        for p in coupling.parameters():
            p.mul_(20)
        x = numbers(N, H).clamp(-1, 1)
        for X, tau in GradientGating(coupling, 30, p=2.0, activation=activation).steps(x, ODD):
            assert (tau >= 0).all() and (tau <= 1).all() and (min(-1.0, low) <= X).all() and (X <= 1).all()
        far, _ = next(GradientGating(coupling, 1, p=2.0, activation=activation).steps(5 * x.abs() + 2, ODD))
        assert far[5].min() >= 2  # a node that sends to no one never moves


def test_energies_after_1000_layers():
    x, edge_index = torch.rand(100, 16), grid(10, 10)
    coupling = GraphConvolution(16, 16)
    with torch.no_grad():
        gated = GradientGating(coupling, 1000, p=2.0, activation="relu")(x, edge_index)
        plain = GradientGating(coupling, 1000, p=2.0, activation="relu", rate_exponent=0.0)(x, edge_index)
        start = dirichlet_energy(x, edge_index)
        assert dirichlet_energy(gated, edge_index) > 1e-3 * start
        assert dirichlet_energy(plain, edge_index) < 1e-12 * start


def test_gradients_reach_the_start_of_deep_stacks_where_those_of_the_plain_one_vanish():
    how = {"p": 2.0, "activation": "tanh"}
    gated = first_gradients(lambda coupling, n: GradientGating(coupling, n, **how))
    plain = first_gradients(lambda coupling, n: GradientGating(coupling, n, **how, rate_exponent=0.0))
    assert all(0.05 < value / gated[0] < 20 for value in gated)
    assert plain[2] < 1e-9 * plain[0]


OURS = GraphConvolution(4, 4)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"p": 0.0}, "p must be positive"),
        ({"coupling": GraphConvolution(4, 6)}, "makes 6 of 4"),
        ({"gate_coupling": OURS}, "leave it out"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    with pytest.raises(InputError, match=message):
        GradientGating(**{"coupling": OURS, "n_layers": 2, "p": 2.0, "activation": "relu", **options})


@pytest.mark.parametrize(
    ("n_parameters", "d_in", "d_out", "hidden", "coupling"),
    [
        (568_837, 1703, 5, 256, MeanConvolution),
        (568_837, 1703, 5, 256, SAGEConv),
        (205_761, 3148, 1, 64, GraphConvolution),
        (200_967, 1433, 7, 128, GCNConv),
    ],
)
def test_as_many_parameters_as_the_official_code(n_parameters, d_in, d_out, hidden, coupling):
    def layer(d: int) -> nn.Module:
        return GradientGating(coupling(d, d), 6, p=2.5, activation="relu", aggregate="mean")

    assert count_parameters(GraphNet(layer, d_in, d_out, "node", hidden=hidden)) == n_parameters
