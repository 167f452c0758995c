"""Baselines on graphs against dense loops in float64: of whole graphs, and layers of stacks."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import small_graphs
import torch
from drawn_layers import numbers
from refusals import refuses
from small_graphs import ODD, N, adjacency, close, far_from_start, looped, parameters, received, relu, weights
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.graph import graph_convolutions as convolutions
from physml.models.graph.adgn import ADGN
from physml.models.graph.appnp import APPNP
from physml.models.graph.cgnn import CGNN
from physml.models.graph.fagcn import FAGCN
from physml.models.graph.ggcn import GGCN, SignedConvolution
from physml.models.graph.glognn import GloGNN
from physml.models.graph.gprgnn import GPRGNN
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, MeanConvolution
from physml.models.graph.graph_transformer import GraphTransformer
from physml.models.graph.h2gcn import H2GCN
from physml.models.graph.linkx import LINKX
from physml.models.graph.mixhop import MixHop
from physml.models.graph.mpnn import MPNN
from physml.models.graph.multirate import MultiRate

BOTH = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0, 3, 4], [1, 0, 2, 1, 3, 2, 0, 3, 4, 3]])  # a ring and a tail
DIRECTED = pytest.mark.parametrize("edge_index", [ODD, BOTH], ids=["odd", "both"])
H = 4


def both_ends(A: np.ndarray) -> np.ndarray:
    """Over the roots of what the receiver receives and what the sender sends."""
    got, sent = A.sum(1, keepdims=True), A.sum(0, keepdims=True)
    return np.where(A > 0, A / np.sqrt(np.where(A > 0, got * sent, 1)), 0)


@DIRECTED
def test_a_sum_takes_each_neighbour_once(edge_index: Tensor):
    layer, x = far_from_start(convolutions.SumConvolution(H, 3)), numbers(N, H)
    close(layer(x, edge_index), adjacency(edge_index) @ x.numpy() @ weights(layer)["W"].T)


@DIRECTED
def test_h2gcn_keeps_one_and_two_steps_apart(edge_index: Tensor):
    A, x, net = adjacency(edge_index), numbers(N, H), H2GCN(H, 2)
    far = ((A @ A > 0) & (A == 0) & ~np.eye(N, dtype=bool)).astype(float)
    assert far.sum() > 0
    rounds = [x.numpy()]
    for _ in range(2):
        rounds.append(np.concatenate([both_ends(A) @ rounds[-1], both_ends(far) @ rounds[-1]], 1))
    assert net.d_out == 7 * H and not list(net.parameters())
    close(net(x, edge_index), np.concatenate(rounds, 1))


def test_appnp_iterates_to_personalised_pagerank_and_gprgnn_is_a_polynomial_that_starts_as_it() -> None:
    x, P = numbers(N, H), looped(ODD)
    z = x.numpy()
    for _ in range(3):
        z = 0.8 * P @ z + 0.2 * x.numpy()
    close(APPNP(H, K=3, alpha=0.2)(x, ODD), z)
    net, x, P = far_from_start(GPRGNN(H, K=3, alpha=0.2)), numbers(N, H), looped(ODD)
    gamma = weights(net)["gamma"]
    close(net(x, ODD), sum(gamma[k] * np.linalg.matrix_power(P, k) @ x.numpy() for k in range(4)))
    net.reset_parameters()
    torch.testing.assert_close(net(x, ODD), APPNP(H, K=3, alpha=0.2)(x, ODD))
    assert net.gamma.sum().item() == pytest.approx(1)


@pytest.mark.parametrize("bias", [None, "official"])
def test_fagcn_against_a_loop(bias: str | None):
    net, x, A = far_from_start(FAGCN(H, 2, epsilon=0.3, bias=bias)), numbers(N, H), adjacency(ODD)
    w, start = weights(net), x.numpy()
    before = start
    for n in (1, 2):
        after = 0.3 * start
        c = w["c"][n - 1] if bias else 0.0
        for i, j in np.argwhere(A):
            gate = math.tanh(w[f"g_r^{n}"] @ before[i] + w[f"g_s^{n}"] @ before[j] + c)
            after[i] = after[i] + gate * before[j] / math.sqrt(A[i].sum() * A[:, j].sum())
        before = after
    close(net(x, ODD), before)


def test_mixhop_against_dense_powers():
    net = far_from_start(MixHop(H, 3, 2, powers=(0, 1, 3), activation="tanh"))
    x, P = numbers(N, H), looped(ODD)
    w, before = weights(net), x.numpy()
    for n in (1, 2):
        powers = {j: np.linalg.matrix_power(P, j) @ before for j in (0, 1, 3)}
        parts = [power @ w[f"W_{j}^{n}"].T + w[f"b_{j}^{n}"] for j, power in powers.items()]
        before = np.tanh(np.concatenate(parts, 1))
    close(net(x, ODD), before)


def test_linkx_reads_links_and_features_and_knows_one_graph():
    net, x, A = far_from_start(LINKX(H, N, d_hidden=3, n_layers=2)), numbers(N, H), adjacency(ODD)
    w = parameters(net)
    h_A = A @ w["of_links.weight"].T + w["of_links.bias"]
    h_X = x.numpy() @ w["of_features.weight"].T + w["of_features.bias"]
    h = relu(np.concatenate([h_A, h_X], 1) @ w["joined.weight"].T + w["joined.bias"] + h_A + h_X)
    close(net(x, ODD), relu(h @ w["layers.0.weight"].T + w["layers.0.bias"]))
    refuses(InputError, "knows one graph, of 6 nodes; got one of 7", net, numbers(7, H), ODD)
    refuses(InputError, "the task has many graphs", LINKX, H, None, d_hidden=3)


def test_signed_convolutions_against_a_loop_and_ggcn_adds_its_layers_with_decay() -> None:
    layer, x, A = far_from_start(SignedConvolution(H, 3)), numbers(N, H), adjacency(ODD)
    w = weights(layer)
    Z, d, beta = x.numpy() @ w["W"].T + w["b"], 1 + A.sum(1), np.exp(w["a"]) / np.exp(w["a"]).sum()
    out, signs = beta[2] * Z, set()
    for i, j in np.argwhere(A):
        cosine = Z[i] @ Z[j] / np.linalg.norm(Z[i]) / np.linalg.norm(Z[j])
        ratio = np.log1p(np.exp(w["c"][0] * (math.sqrt(d[j] / d[i]) - 1) + w["c"][1]))
        signs.add(cosine > 0)
        out[i] += beta[0 if cosine > 0 else 1] * cosine * ratio / math.sqrt(d[i] * d[j]) * Z[j]
    assert signs == {True, False}
    close(layer(x, ODD), np.log1p(np.exp(w["s"])) * out)
    net, x = far_from_start(GGCN(H, 3, 2, decay=0.7, exponent=2.0)), numbers(N, H)
    first = nn.functional.elu(net.own(x)) + nn.functional.elu(net.layers[0](x, ODD))
    second = first + math.log(0.7 / 3**2 + 1) * nn.functional.elu(net.layers[1](first, ODD))
    torch.testing.assert_close(net(x, ODD), second)
    assert isinstance(net.head(5), SignedConvolution) and net.head(5).d_out == 5
    fresh = SignedConvolution(H, 3)
    assert (fresh.a.tolist(), fresh.s.tolist(), fresh.c.tolist()) == ([0, 0, 0], [2], [0.5, 0])


@pytest.mark.parametrize("official", [{}, {"matrix": "official", "n_classes": 2}], ids=["paper", "official"])
def test_glognn_mixes_all_nodes_by_the_least_squares_that_it_says(official: dict[str, Any]):
    """Against the minimiser with dense matrices, which has a vanishing slope and no smaller neighbour."""
    shares = {"alpha": 0.3, "beta": 0.7, "gamma": 0.4, "delta": 0.2}
    net = far_from_start(GloGNN(H, N, d_hidden=3, n_layers=2, **shares, **official))
    x, A, P = numbers(N, H), torch.from_numpy(adjacency(ODD)), torch.from_numpy(looped(ODD))
    if official:
        A = A + torch.eye(N)
        A[1, 1] += 1  # the loop of ODD
        A = P = A / A.sum(1, keepdim=True)
    h_A, h_X = A @ net.of_links.weight.T + net.of_links.bias, net.of_features(x)
    X = start = torch.relu(0.2 * h_X + 0.8 * h_A).detach()
    if net.scores is not None:
        X = start = net.scores(start).detach()
        assert net.head(2)(start, ODD) is start
    S = (net.lam[0] * P + net.lam[1] * P @ P).detach()

    def cost(Z: Tensor, X: Tensor) -> Tensor:
        miss = X - 0.6 * Z @ X - 0.4 * start
        return miss.square().sum() + 0.3 * Z.square().sum() + 0.7 * (Z - S).square().sum()

    for _ in range(2):
        inside = 0.36 * X @ X.T + torch.eye(N)
        Z = torch.linalg.solve(inside, (0.6 * (X - 0.4 * start) @ X.T + 0.7 * S), left=False).requires_grad_()
        (slope,) = torch.autograd.grad(cost(Z, X), Z)
        assert slope.abs().max() < 1e-12
        assert cost(Z + 0.01 * numbers(N, N), X) > cost(Z, X)
        X = (0.6 * Z @ X + 0.4 * start).detach()
    torch.testing.assert_close(net(x, ODD), X)
    refuses(InputError, "knows one graph, of 6 nodes; got one of 7", net, numbers(7, H), ODD)
    refuses(InputError, r"Set model\.n_classes=5", net.head, 5)
    refuses(InputError, r"alpha \+ beta must be positive", GloGNN, H, N, d_hidden=3, alpha=0.0, beta=0.0)


def test_gin_against_a_loop():
    layer, x = far_from_start(convolutions.IsomorphismConvolution(H, 3)), numbers(N, H)
    total = np.stack([sum((x[j].numpy() for j in js), np.zeros(H)) for js in received(ODD)])
    w = parameters(layer)
    hidden = relu(((1 + w["epsilon"]) * x.numpy() + total) @ w["lin_1.weight"].T + w["lin_1.bias"])
    close(layer(x, ODD), hidden @ w["lin_2.weight"].T + w["lin_2.bias"])


@pytest.mark.parametrize("normalized", [True, False])
def test_gates_of_each_edge_and_channel_against_a_loop(normalized: bool):
    layer, x = far_from_start(convolutions.GatedConvolution(H, 3, normalized=normalized)), numbers(N, H)
    w, X = weights(layer), x.numpy()
    out = X @ w["U"].T + w["b"]
    for i, js in enumerate(received(ODD)):
        eta = [small_graphs.sigmoid(w["A"] @ X[i] + w["B"] @ X[j] + w["c"]) for j in js]
        total = sum(eta, np.zeros(3)) + 1e-6 if normalized else 1
        out[i] += sum((g / total * (w["V"] @ X[j]) for g, j in zip(eta, js, strict=True)), np.zeros(3))
    close(layer(x, ODD), out)


def test_pna_against_a_loop():
    layer, x = far_from_start(convolutions.PrincipalConvolution(H, 3, delta=0.8)), numbers(N, H)
    w, X, rows = weights(layer), x.numpy(), []
    for i, js in enumerate(received(ODD)):
        statistics, d = np.zeros(4 * H), len(js)
        if js:
            sent = X[js]
            statistics = np.concatenate([sent.mean(0), sent.max(0), sent.min(0), np.sqrt(sent.var(0) + 1e-5)])
        scale = math.log(d + 1) / 0.8
        down = statistics / scale if d else statistics
        rows.append(np.concatenate([X[i], statistics, scale * statistics, down]))
    close(layer(x, ODD), np.stack(rows) @ w["W"].T + w["b"])


def test_monet_against_a_loop():
    layer, x = far_from_start(convolutions.MixtureConvolution(H, 3, n_kernels=2, d_place=3)), numbers(N, H)
    w, X, js = weights(layer), x.numpy(), received(ODD)
    kernels, out = w["W"].reshape(2, 3, H), np.zeros((N, 3)) + w["b"]
    for i in range(N):
        for j in js[i]:
            u = np.tanh(w["A"] @ [(len(js[j]) + 1) ** -0.5, (len(js[i]) + 1) ** -0.5] + w["a"])
            for k in range(2):
                out[i] += math.exp(-0.5 * ((w["s"][k] * (u - w["mu"][k])) ** 2).sum()) * kernels[k] @ X[j]
    close(layer(x, ODD), out)


def test_a_stack_is_its_layers_plain_or_by_steps_and_batch_norm_is_over_nodes_before_sigma():
    x = numbers(N, H)
    for step in (None, 1.0, 0.1):
        net = MPNN(GraphConvolution(H, H), 3, activation="tanh", step=step).double()
        state = x
        for layer in net.layers:
            new = torch.tanh(layer(state, ODD))
            state = new if step is None else state + step * new
        torch.testing.assert_close(net(x, ODD), state)
    heads = MPNN(GraphAttention(H, H, n_heads=2), 1, activation="tanh").double()
    torch.testing.assert_close(heads(x, ODD), torch.tanh(heads.layers[0](x, ODD)).view(N, 2, H).mean(1))
    refuses(InputError, "GraphConvolution makes 3 of 4", MPNN, GraphConvolution(4, 3), 2)
    net, x = MPNN(MeanConvolution(H, H), 1, activation="relu", batch_norm=True).double(), numbers(N, H)
    out = net.layers[0](x, ODD)
    normalised = torch.relu((out - out.mean(0)) / torch.sqrt(out.var(0, unbiased=False) + 1e-5))
    torch.testing.assert_close(net(x, ODD), normalised)


def test_rates_without_gradients_are_equations_8_2_and_8_3():
    net = far_from_start(MultiRate(GraphConvolution(H, H), MeanConvolution(H, H), 2, activation="tanh"))
    x = numbers(N, H)
    F, hat, before = net.forces[0].coupling, net.gates[0].coupling, x
    for state, rate in net.steps(x, ODD):
        tau = torch.sigmoid(hat(before, ODD))
        before = (1 - tau) * before + tau * torch.tanh(F(before, ODD))
        torch.testing.assert_close(rate, tau)
        torch.testing.assert_close(state, before)
    refuses(InputError, "a layer of their own", MultiRate, F, F, 2)


def test_adgn_against_a_loop():
    net, x = far_from_start(ADGN(GraphConvolution(H, H, bias=False), 3)), numbers(N, H)
    w, V, P, before = weights(net), net.coupling.lin.weight.detach().numpy(), looped(ODD), x.numpy()
    for _ in range(3):
        own = (w["W"] - w["W"].T - 0.1 * np.eye(H)) @ before.T
        before = before + 0.1 * np.tanh(own.T + P @ before @ V.T + w["b"])
    close(net(x, ODD), before)


def test_cgnn_is_a_flow_from_its_start_to_its_resolvent():
    """Against the exact solution; a step half as long has a sixteenth of the error."""
    x, P = numbers(N, H), torch.from_numpy(looped(ODD))
    A = torch.sigmoid(torch.tensor(0.4, dtype=torch.double)) / 2 * (torch.eye(N) + P)
    rest = torch.linalg.solve(torch.eye(N).double() - A, x)
    exact = rest + torch.linalg.matrix_exp(2 * (A - torch.eye(N))) @ (x - rest)

    def made(T: float, n_steps: int) -> CGNN:
        net = CGNN(H, T=T, n_steps=n_steps).double().requires_grad_(False)
        net.a.fill_(0.4)
        return net

    errors = [float((made(2.0, n)(x, ODD) - exact).abs().max()) for n in (8, 16)]
    assert errors[0] < 1e-3 and errors[0] / errors[1] == pytest.approx(16, rel=0.2)
    torch.testing.assert_close(made(200.0, 400)(x, ODD), rest)


def transformer_block(
    net: GraphTransformer, x: np.ndarray, norm: Callable[[np.ndarray, str], np.ndarray]
) -> np.ndarray:
    """On ODD, with two heads; norm makes of features and the name of a norm what is scaled and shifted."""
    w = {name.removeprefix("blocks.0."): p for name, p in parameters(net).items()}

    def normed(x: np.ndarray, name: str) -> np.ndarray:
        return norm(x, name) * w[f"{name}.weight"] + w[f"{name}.bias"]

    q, k, v = ((x @ w[f"{name}.weight"].T).reshape(N, 2, 2) for name in "QKV")
    gathered = np.zeros((N, 2, 2))
    for i, js in enumerate(received(ODD)):
        for a in range(2):
            score = np.exp([q[i, a] @ k[j, a] / math.sqrt(2) for j in js])
            for j, s in zip(js, score, strict=True):
                gathered[i, a] += s / score.sum() * v[j, a]
    z = normed(x + gathered.reshape(N, H) @ w["O.weight"].T + w["O.bias"], "norm_1")
    hidden = relu(z @ w["W_1.weight"].T + w["W_1.bias"])
    return normed(z + hidden @ w["W_2.weight"].T + w["W_2.bias"], "norm_2")


def test_a_transformer_block_against_a_loop():
    net, x = far_from_start(GraphTransformer(H, 1, n_heads=2)), numbers(N, H)

    def norm(x: np.ndarray, _: str) -> np.ndarray:
        return (x - x.mean(1, keepdims=True)) / np.sqrt(x.var(1, keepdims=True) + 1e-5)

    close(net(x, ODD), transformer_block(net, x.numpy(), norm))
    refuses(InputError, "n_heads must divide the width, 4; got 3", GraphTransformer, H, 1, n_heads=3)


def test_a_transformer_block_with_batch_norms_against_a_loop():
    """In training by mean and variance over the nodes, in evaluation by what two passes have left of them."""
    net = far_from_start(GraphTransformer(H, 1, n_heads=2, norm="batch"))
    kept = {name: (np.zeros(H), np.ones(H)) for name in ("norm_1", "norm_2")}

    def training(x: np.ndarray, name: str) -> np.ndarray:
        mean, variance = kept[name]
        kept[name] = 0.9 * mean + 0.1 * x.mean(0), 0.9 * variance + 0.1 * x.var(0, ddof=1)
        return (x - x.mean(0)) / np.sqrt(x.var(0) + 1e-5)

    def evaluation(x: np.ndarray, name: str) -> np.ndarray:
        mean, variance = kept[name]
        return (x - mean) / np.sqrt(variance + 1e-5)

    for seed in (1, 2):
        x = numbers(N, H, seed=seed)
        close(net(x, ODD), transformer_block(net, x.numpy(), training))
    x = numbers(N, H, seed=3)
    close(net.eval()(x, ODD), transformer_block(net, x.numpy(), evaluation))
