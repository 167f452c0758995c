"""Further baselines on graphs against dense loops in float64, and what they compute of a graph beforehand."""

import math

import numpy as np
import pytest
import small_graphs
import torch
from drawn_layers import numbers
from refusals import refuses
from small_graphs import (
    ODD,
    N,
    adjacency,
    close,
    far_from_start,
    parameters,
    received,
    relu,
    sigmoid,
    weights,
)
from torch import Tensor, nn
from torch_geometric.nn import ClusterGCNConv, JumpingKnowledge

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.config.build import check
from physml.config.load import read_yaml
from physml.graph import eigenvectors, latent, pagerank
from physml.models.graph.acm_gcn import ACMGCN, ChannelMixing
from physml.models.graph.directional import DirectionalConvolution
from physml.models.graph.f2gnn import F2GNN
from physml.models.graph.geniepath import GeniePath
from physml.models.graph.geom_gcn import GeometricConvolution, GeomGCN
from physml.models.graph.gnn import GNN
from physml.models.graph.graph_fusion import Fusion
from physml.models.graph.graph_layers import GraphConvolution
from physml.models.graph.graph_net import GraphNet
from physml.models.graph.jknet import JKNet
from physml.models.graph.link import LINK, LinkRegression
from physml.models.graph.pagerank_gnn import PageRankGNN
from physml.models.graph.pde_gcn import PDEGCN
from physml.models.graph.spline import SplineCNN, SplineConvolution
from physml.run.record import count_parameters

TAIL = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 1], [1, 2, 3, 3, 4, 4, 5, 5, 4]])  # connected, no symmetry
H = 4


def softmax(x: np.ndarray) -> np.ndarray:
    return np.exp(x) / np.exp(x).sum()


# ------------------------------------------------------------------------------------- what graphs are given
def test_places_have_the_distances_of_a_path_and_neighbours_of_the_plane_the_least_radius() -> None:
    path = torch.tensor([[0, 1, 3, 3], [1, 2, 2, 4]])  # 0 - 1 - 2 - 3 - 4
    place = latent.isomap(path, 5)
    np.testing.assert_allclose(np.abs(place[:, 0]), [1, 0.5, 0, 0.5, 1], atol=1e-9)
    np.testing.assert_allclose(place[:, 1], 0, atol=1e-7)
    order = np.array([3, 5, 0, 4, 1, 2])
    renamed = latent.isomap(torch.from_numpy(order)[TAIL], N)
    np.testing.assert_allclose(renamed[order], latent.isomap(TAIL, N), atol=1e-8)
    assert np.isfinite(latent.isomap(ODD, N)).all()
    assert latent.isomap(torch.zeros(2, 0, dtype=torch.long), 1).shape == (1, 2)
    place = np.array([[0.0, 0.0], [1.0, 0.0], [1.0, 0.5], [4.0, 4.0]])
    assert {*map(tuple, latent.neighbours_in_plane(place, 3).T)} == {(1, 2), (2, 1), (0, 1), (1, 0)}
    assert latent.neighbours_in_plane(place, 0).shape == (2, 0)
    assert latent.neighbours_in_plane(place, 99).shape == (2, 12)
    place = np.array([[0.0, 0.0], [-1.0, 1.0], [-1.0, -1.0], [1.0, 1.0], [1.0, -1.0], [0.0, 0.0]])
    assert latent.quadrants(place, np.array([[1, 2, 3, 4, 5], [0, 0, 0, 0, 0]])).tolist() == [0, 1, 2, 3, 2]


def test_pagerank_keeps_the_nearest_and_is_the_same_in_chunks(monkeypatch: pytest.MonkeyPatch):
    Pi = 0.2 * np.linalg.inv(np.eye(N) - 0.8 * small_graphs.looped(ODD.unique(dim=1)))
    least = np.sort(Pi, 1)[:, -2:-1]
    kept = {(j, i) for i, j in np.argwhere((Pi > 1e-13) & (Pi >= least - 1e-12)).tolist()}
    for _ in range(2):
        assert {tuple(e) for e in pagerank._edges(ODD, N, 0.2, 2).T.tolist()} == kept
        monkeypatch.setattr(pagerank, "DENSE", 0)
        monkeypatch.setattr(pagerank, "CHUNK", 4)


def test_eigenvectors_are_of_each_part_alone_with_a_sign_of_their_own(monkeypatch: pytest.MonkeyPatch):
    both = torch.cat([TAIL, TAIL + N], 1)
    phi = eigenvectors.laplacian_vectors(both, 2 * N + 1, 2).numpy()
    A = np.maximum(adjacency(TAIL), adjacency(TAIL).T)
    L = np.diag(A.sum(1)) - A
    for k in range(2):
        value = phi[:N, k] @ L @ phi[:N, k]
        np.testing.assert_allclose(L @ phi[:N, k], value * phi[:N, k], atol=1e-10)
        assert np.linalg.eigvalsh(L)[k + 1] == pytest.approx(value) and (phi[:N, k] ** 3).sum() > 1e-3
    np.testing.assert_allclose(phi[N : 2 * N], phi[:N], atol=1e-12)
    assert not phi[2 * N].any()
    eigenvectors._of_part.cache_clear()
    monkeypatch.setattr(eigenvectors, "DENSE", 1)
    np.testing.assert_allclose(eigenvectors._vectors(both, 2 * N + 1, 2).numpy(), phi, atol=1e-8)
    eigenvectors._of_part.cache_clear()


def test_link_is_a_regression_on_links_alone():
    net, x = far_from_start(LINK(H, N, d_hidden=3)), numbers(N, H)
    w = parameters(net)
    close(net(x, ODD), adjacency(ODD) @ w["of_links.lin.weight"].T + w["of_links.lin.bias"])
    torch.testing.assert_close(net(0 * x, ODD), net(x, ODD))
    whole = GraphNet(lambda d: LINK(d, N), 5, 3, "node", hidden=None, decoder="layer").double()
    assert isinstance(whole.decoder, LinkRegression) and count_parameters(whole) == 3 * (N + 1)
    w = parameters(whole)
    close(whole(numbers(N, 5), ODD), adjacency(ODD) @ w["decoder.lin.weight"].T + w["decoder.lin.bias"])
    refuses(InputError, "LINK has no d_out", GraphNet, lambda d: LINK(d, N), 5, 3, "node", hidden=None)
    with pytest.raises(InputError, match=r"needs model\.d_hidden=null"):
        GraphNet(lambda d: LINK(d, N, d_hidden=2), 5, 3, "node", hidden=None, decoder="layer")
    refuses(InputError, "knows one graph, of 6 nodes; got one of 7", net, numbers(7, H), ODD)
    refuses(InputError, "the task has many graphs", LINK, H, None, d_hidden=3)


@pytest.mark.parametrize("variant", [False, True])
def test_channels_are_mixed_for_each_node_against_a_loop(variant: bool):
    layer, x = far_from_start(ChannelMixing(H, 3, variant=variant)), numbers(N, H)
    w, X, js = weights(layer), x.numpy(), received(ODD)
    act = relu if variant else lambda z: z
    low, high, own = (act(X @ w[f"W_{c}"]) for c in "LHI")
    out = np.zeros((N, 3))
    for i in range(N):
        near = [i] + [j for j in js[i] if j != i]
        parts = [low[near].mean(0), high[i] - high[near].mean(0), own[i]]
        if not variant:
            parts = [relu(part) for part in parts]
        score = sigmoid(np.array([part @ w[f"v_{c}"] for part, c in zip(parts, "LHI", strict=True)]))
        out[i] = 3 * sum(a * part for a, part in zip(softmax(score @ w["M"] / 3), parts, strict=True))
    close(layer(x, ODD), out)


@pytest.mark.parametrize("merge", ["cat", "mean", "sum"])
@pytest.mark.parametrize("edge_index", [ODD, TAIL], ids=["odd", "tail"])
def test_geometric_convolutions_against_a_loop(edge_index: Tensor, merge: str):
    layer, x = GeometricConvolution(H, 2, merge=merge).double(), numbers(N, H)
    w, X, A = weights(layer), x.numpy(), adjacency(edge_index)
    z = latent.isomap(edge_index, N)
    far = sorted(np.linalg.norm(z[i] - z[j]) for i in range(N) for j in range(N) if i != j)
    radius = far[int(A.sum()) - 1] + 1e-7

    def quadrant(i: int, j: int) -> int:  # of j as i sees it, by the paper's table
        left, up = z[i][0] > z[j][0], z[i][1] <= z[j][1]
        return {(True, True): 1, (True, False): 2, (False, True): 3, (False, False): 4}[left, up]

    near: list[list[tuple[int, int]]] = [[(i, 9)] for i in range(N)]
    for i, j in np.argwhere(1 - np.eye(N)):
        if A[i, j]:
            near[i].append((j, quadrant(i, j)))
        if np.linalg.norm(z[i] - z[j]) <= radius:
            near[i].append((j, 4 + quadrant(i, j)))
    parts = np.zeros((N, 9, 2))
    for i in range(N):
        for j, r in near[i]:
            parts[i, r - 1] += w[f"W_{r}"] @ X[j] / math.sqrt(len(near[i]) * len(near[j]))
    merged = {"cat": parts.reshape(N, 18), "mean": parts.mean(1), "sum": parts.sum(1)}[merge]
    assert len({r for row in near for _, r in row}) > 5
    close(layer(x, edge_index), merged)


def test_acm_gcn_and_geom_gcn_are_their_layers_with_heads_of_one_more_and_of_a_mean():
    net, x = far_from_start(ACMGCN(H, 3, 2)), numbers(N, H)
    torch.testing.assert_close(net(x, ODD), torch.relu(net.layers[1](torch.relu(net.layers[0](x, ODD)), ODD)))
    assert isinstance(net.head(5), ChannelMixing) and net.head(5).d_out == 5
    assert count_parameters(ChannelMixing(1703, 64)) == 3 * 1703 * 64 + 3 * 64 + 9
    net, x = far_from_start(GeomGCN(H, 2, 2)), numbers(N, H)
    first = torch.relu(net.layers[0](x, ODD))
    torch.testing.assert_close(net(x, ODD), torch.relu(net.layers[1](first, ODD)))
    head = net.head(5).double()
    assert first.shape == (N, 18) and (head.d_in, head.d_out, head.merge) == (18, 5, "mean")


def test_gat_on_pagerank_is_gat_on_the_edges_that_it_draws():
    net, x = PageRankGNN(H, 3, 2, alpha=0.2, k=2).double(), numbers(N, H)
    plain = GNN(H, 3, 2, kind="gat", activation="elu").double()
    plain.load_state_dict(net.state_dict())
    drawn = pagerank.pagerank_edges(ODD, N, 0.2, 2)
    torch.testing.assert_close(net(x, ODD), plain(x, drawn))
    assert not torch.allclose(net(x, ODD), plain(x, ODD))
    head = net.head(5).double()
    torch.testing.assert_close(head(net(x, ODD), ODD), head.layer(net(x, ODD), drawn))
    refuses(InputError, "above 0 and below 1", PageRankGNN, H, 3, 2, alpha=1.0)
    refuses(InputError, "takes no edge_weight", net, x, ODD, torch.ones(8).double())


def test_directional_aggregation_against_a_loop():
    kinds = ("mean", "max", "min", "av", "dx")
    layer = far_from_start(DirectionalConvolution(H, 3, delta=0.8, aggregations=kinds, n_directions=2))
    x = numbers(N, H)
    w, X, rows = weights(layer), x.numpy(), []
    phi = eigenvectors.laplacian_vectors(ODD, N, 2).numpy()
    for i, js in enumerate(received(ODD)):
        aggregates = [np.zeros(H)] * 7
        if js:
            M = np.array([w["U"] @ X[j] + w["V"] @ X[i] + w["c"] for j in js])
            aggregates, smooth, slope = [M.mean(0), M.max(0), M.min(0)], [], []
            for k in range(2):
                along = np.array([phi[j, k] - phi[i, k] for j in js])
                F = along / (np.abs(along).sum() + 1e-8)
                smooth.append(np.abs(F) @ M)
                slope.append(np.abs(F @ M - F.sum() * X[i]))
            aggregates = aggregates + smooth + slope
        m, scale = np.concatenate(aggregates), math.log(len(js) + 1) / 0.8
        rows.append(np.concatenate([X[i], m, scale * m, m / scale if js else m]))
    close(layer(x, ODD), np.stack(rows) @ w["W"].T + w["b"])
    refuses(InputError, "each once", DirectionalConvolution, H, 3, delta=1.0, aggregations=("mean", "mean"))


def test_of_a_multiple_eigenvalue_all_processors_choose_the_same_vector(monkeypatch: pytest.MonkeyPatch):
    """A star of five leaves has an eigenvalue four times; routines of linear algebra may give any basis."""
    star = torch.tensor([[0, 0, 0, 0, 0], [1, 2, 3, 4, 5]])
    vectors = []
    for seed in range(3):
        turn = np.linalg.qr(np.random.default_rng(seed).normal(size=(4, 4)))[0]

        def turned(L: np.ndarray, subset_by_index: list[int], turn: np.ndarray = turn):
            last = subset_by_index[1] + 1
            value, vector = np.linalg.eigh(L)
            return value[:last], np.hstack([vector[:, :1], vector[:, 1:5] @ turn, vector[:, 5:]])[:, :last]

        monkeypatch.setattr(eigenvectors, "eigh", turned)
        eigenvectors._of_part.cache_clear()
        vectors.append(eigenvectors._vectors(star, 6, 1).numpy())
    eigenvectors._of_part.cache_clear()
    assert np.linalg.norm(vectors[0]) == pytest.approx(1) and abs(vectors[0][0, 0]) < 1e-12
    np.testing.assert_allclose(vectors[1:], [vectors[0]] * 2, atol=1e-12)


def test_splines_against_a_loop_and_their_network_takes_places_from_features() -> None:
    layer, x = SplineConvolution(H, 3, n_knots=4).double(), numbers(N, H)
    nn.init.normal_(layer.b)
    u = torch.rand(8, 2, dtype=torch.double, generator=torch.Generator().manual_seed(2))
    u[0] = torch.tensor([0.0, 1.0])  # the ends
    w, X = weights(layer), x.numpy()
    out, degree = np.zeros((N, 3)), np.zeros(N)
    for (j, i), at in zip(ODD.T.tolist(), u.numpy(), strict=True):
        degree[i] += 1
        hats = np.maximum(0, 1 - np.abs(3 * at[:, None] - np.arange(4)))
        out[i] += X[j] @ np.tensordot(np.outer(*hats).ravel(), w["W"], 1)
    close(layer(x, u, ODD), out / np.maximum(degree, 1)[:, None] + X @ w["R"].T + w["b"])
    net = far_from_start(SplineCNN(H, 3, 2, places=(1, 3), reach=2.5, n_knots=3))
    x = numbers(N, H)
    place = x[:, [1, 3]]
    u = (0.5 + (place[ODD[0]] - place[ODD[1]]) / 5).clamp(0, 1)
    first = nn.functional.elu(net.layers[0](x[:, [0, 2]], u, ODD))
    torch.testing.assert_close(net(x, ODD), nn.functional.elu(net.layers[1](first, u, ODD)))
    torch.testing.assert_close(net(x + torch.tensor([0.0, 7.0, 0.0, -3.0]), ODD), net(x, ODD))
    refuses(InputError, r"features in \[0, 2\); got \[1, 2\]", SplineCNN, 2, 3, 1)
    refuses(InputError, "all 2 features are places", SplineCNN, 2, 3, 1, places=(0, 1))


@pytest.mark.parametrize("fuse", ["cat", "max", "lstm"])
def test_jumping_knowledge_is_that_of_pyg(fuse: str):
    layers = [numbers(N, H, seed=k) for k in range(3)]
    mine, theirs = Fusion(fuse, H, 3).double(), JumpingKnowledge(fuse, channels=H, num_layers=3).double()
    if fuse == "lstm":
        theirs.lstm.load_state_dict(mine.lstm.state_dict())
        theirs.att.load_state_dict(mine.score.state_dict())
    torch.testing.assert_close(mine(layers), theirs(layers))
    assert mine(layers).shape[1] == mine.d_out


def test_fusions_against_a_loop_and_jknet_fuses_the_layers_of_its_stack():
    layers = [numbers(N, H, seed=k) for k in range(3)]
    X = np.stack([x.numpy() for x in layers])
    close(Fusion("sum", H, 3)(layers), X.sum(0))
    close(Fusion("mean", H, 3)(layers), X.mean(0))
    att = Fusion("att", H, 3).double()
    w = parameters(att)
    fused = [softmax(X[:, i] @ w["score.weight"][0] + w["score.bias"]) @ X[:, i] for i in range(N)]
    close(att(layers), np.stack(fused))
    net = far_from_start(JKNet(GraphConvolution(H, H), 2, fuse="cat", activation="tanh"))
    x = numbers(N, H)
    first = torch.tanh(net.stack.layers[0](x, ODD))
    second = torch.tanh(net.stack.layers[1](first, ODD))
    torch.testing.assert_close(net(x, ODD), torch.cat([first, second], 1))


def test_geniepath_against_a_loop():
    net, x = far_from_start(GeniePath(H, 3)), numbers(N, H)
    X, C = x.numpy(), np.zeros((N, H))
    for n in range(3):
        w = parameters(net.layers[n])
        new, cell = np.zeros((N, H)), np.zeros((N, H))
        for i, js in enumerate(received(ODD)):
            near = [j for j in js if j != i] + [i]
            score = [w["v"][0] @ np.tanh(w["W_r.weight"] @ X[i] + w["W_s.weight"] @ X[j]) for j in near]
            S = np.tanh(w["W.weight"] @ (softmax(np.array(score)) @ X[near]))
            i_, f, o, c = np.split(w["V.weight"] @ S, 4)
            cell[i] = sigmoid(f) * C[i] + sigmoid(i_) * np.tanh(c)
            new[i] = sigmoid(o) * np.tanh(cell[i])
        X, C = new, cell
    close(net(x, ODD), X)


@pytest.mark.parametrize("kind", ["diffusion", "wave", "mixed"])
def test_pde_gcn_is_three_explicit_steps_against_dense_gradients(kind: str):
    net, x = far_from_start(PDEGCN(H, 3, kind=kind, h=0.3)), numbers(N, H)
    A = adjacency(ODD)
    d, pairs = 1 + A.sum(1), np.argwhere(A)
    G = np.zeros((len(pairs), N))
    for row, (i, j) in enumerate(pairs):
        G[row, i], G[row, j] = np.array([1, -1]) / math.sqrt(d[i] * d[j])
    before = X = x.numpy()
    s, h = sigmoid(net.mix.item()) if kind == "mixed" else None, 0.3
    for K in net.K:
        K = K.detach().numpy()
        L = G.T @ np.tanh(G @ X @ K.T) @ K
        if kind == "diffusion":
            new = X - h * L
        elif kind == "wave":
            new = 2 * X - before - h**2 * L
        else:
            new = (s * (2 * X - before) / h**2 + (1 - s) * X / h - L) / (s / h**2 + (1 - s) / h)
        X, before = new, X
    close(net(x, ODD), X)


def test_f2gnn_against_its_choices():
    fuse = ("sum", "cat", "att", "mean")
    net = far_from_start(F2GNN(GraphConvolution(H, H), "1 01 101 0111", fuse=fuse, activation="tanh"))
    x = numbers(N, H)
    w = parameters(net)

    def block(n: int, z: np.ndarray) -> np.ndarray:
        return relu(z) @ w[f"A.{n}.weight"].T + w[f"A.{n}.bias"]

    def layer(n: int, z: np.ndarray) -> np.ndarray:
        return np.tanh(net.layers[n](torch.from_numpy(z), ODD).detach().numpy())

    x0, zero = x.numpy(), np.zeros((N, H))
    x1 = layer(0, block(0, x0))
    x2 = layer(1, block(1, np.concatenate([zero, x1], 1)))
    heard = np.stack([x0, zero, x2])
    score = heard @ w["fusions.2.score.weight"][0] + w["fusions.2.score.bias"]
    x3 = layer(2, block(2, np.stack([softmax(score[:, i]) @ heard[:, i] for i in range(N)])))
    close(net(x, ODD), block(3, (x1 + x2 + x3) / 4))


@pytest.mark.parametrize(
    ("select", "fuse", "says"),
    [
        ("1 2", "sum", "word 2 of select needs 2 digits, 0 or 1, for what its block hears; got '2'"),
        ("1", "sum", "a word for each block and one for the end"),
        ("1 11", ["sum"], "one name, or 2"),
        ("1 11", "product", "fuse must be one of"),
    ],
)
def test_impossible_choices_are_refused(select: str, fuse: str, says: str):
    refuses(InputError, says, F2GNN, GraphConvolution(H, H), select, fuse=fuse)


def test_cluster_gcn_adds_to_the_diagonal():
    """PyG's layer against equations 10 and 11 of Cluster-GCN, with the second weight that PyG adds."""
    layer, x = ClusterGCNConv(H, 3, diag_lambda=1.0).double(), numbers(N, H)
    A = adjacency(TAIL) + np.eye(N)
    P = A / A.sum(1, keepdims=True)
    w = parameters(layer)
    propagated = (P + np.diag(np.diag(P))) @ x.numpy() @ w["lin_out.weight"].T + w["lin_out.bias"]
    expected = propagated + x.numpy() @ w["lin_root.weight"].T
    np.testing.assert_allclose(layer(x, TAIL).detach(), expected, atol=1e-6)  # float32 inside


def stack_of_conf(name: str) -> nn.Module:
    """A file of conf/model with a convolution of PyG, of H channels."""
    node = read_yaml(CONF / "model" / f"{name}.yaml")
    node["coupling"] |= {"in_channels": H, "out_channels": H}
    torch.manual_seed(0)
    return far_from_start(check(node, "model").make())


@pytest.mark.parametrize("edge_index", [torch.cat([TAIL, TAIL.flip(0)], 1), ODD], ids=["both ways", "odd"])
def test_chebnet_is_three_chebyshev_polynomials_of_the_scaled_laplacian(edge_index: Tensor):
    """Degrees are of senders and an edge that is there twice counts twice; loops are left out.

    L is scaled by the greatest eigenvalue that any graph can have, 2, to 2 L / 2 - I.
    """
    net, x = stack_of_conf("chebnet"), numbers(N, H)
    A = np.zeros((N, N))
    for j, i in edge_index.T.tolist():
        A[i, j] += i != j
    sent, L = A.sum(0), np.eye(N)
    for i, j in np.argwhere(A):
        if sent[i]:
            L[i, j] -= A[i, j] / math.sqrt(sent[i] * sent[j])
    S = 2 * L / 2 - np.eye(N)
    T = [np.eye(N), S, 2 * S @ S - np.eye(N)]
    outputs, X = list(net.steps(x, edge_index)), x.numpy()
    assert len(outputs) == 2
    for n, out in enumerate(outputs):
        w = parameters(net.layers[n])
        assert sum(name.startswith("lins.") for name in w) == len(T)
        X = relu(sum(T[k] @ X @ w[f"lins.{k}.weight"].T for k in range(3)) + w["bias"])
        assert (X > 0).mean() > 0.3
        close(out, X)


def test_sage_max_takes_the_greatest_of_what_neighbours_send_behind_a_layer():
    """Channel by channel along the edges as stored, loops with them; nodes 4 and 5 receive nothing: 0."""
    net, x = stack_of_conf("sage_max"), numbers(N, H)
    assert [i for i, js in enumerate(received(ODD)) if not js] == [4, 5]
    outputs, X = list(net.steps(x, ODD)), x.numpy()
    assert len(outputs) == 2
    for n, out in enumerate(outputs):
        w, new = parameters(net.layers[n]), np.zeros((N, H))
        sent = relu(X @ w["lin.weight"].T + w["lin.bias"])
        for i, js in enumerate(received(ODD)):
            greatest = np.array([max([sent[j, c] for j in js], default=0.0) for c in range(H)])
            new[i] = w["lin_l.weight"] @ greatest + w["lin_l.bias"] + w["lin_r.weight"] @ X[i]
        X = relu(new)
        assert (X > 0).mean() > 0.3
        close(out, X)
