"""Message-passing layers against dense loops and PyG, and their gradients."""

import math

import numpy as np
import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from small_graphs import ODD, N, close, far_from_start, looped, received, weights
from torch import Tensor, nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from physml.base.errors import InputError
from physml.data import graphs
from physml.models.graph import graph_layers
from physml.models.graph.geniepath import GeniePath
from physml.models.graph.graph_layers import GraphConvolution, MeanConvolution, TransformerAttention
from physml.models.graph.graph_parts import call, copies, merge_heads, widths
from physml.models.graph.graph_powers import power


def layers(d_in: int = 4, d_out: int = 4) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    modules = {
        "gcn": GraphConvolution(d_in, d_out),
        "sage": MeanConvolution(d_in, d_out),
        "gat": graph_layers.GraphAttention(d_in, d_out, n_heads=2),
        "linear": graph_layers.NodeLinear(d_in, d_out),
        "tran": TransformerAttention(d_in, d_attention=6, n_heads=2),
        "tran-plus": TransformerAttention(
            d_in, d_attention=6, n_heads=3, normalize="sender", square_plus=True
        ),
        "tran-cosine": TransformerAttention(d_in, d_attention=6, n_heads=1, score="cosine"),
        "tran-kernel": TransformerAttention(d_in, d_attention=6, n_heads=2, score="exp_kernel"),
    }
    return {name: far_from_start(layer) for name, layer in modules.items()}


NAMES = list(layers())


def gcn_by_hand(layer: GraphConvolution, x: Tensor, edge_index: Tensor, weight: Tensor | None = None):
    own, A = weights(layer), np.eye(len(x))
    each = np.ones(edge_index.shape[1]) if weight is None else weight.numpy()
    for w, (j, i) in zip(each, edge_index.T.tolist(), strict=True):
        A[i, j] = w if i == j else A[i, j] + w
    scale = 1 / np.sqrt(A.sum(1))
    return scale[:, None] * A * scale @ x.numpy() @ own["W"] + own["b"]


@pytest.mark.parametrize(("d_in", "d_out"), [(4, 4), (2, 5), (5, 2)])
def test_a_convolution_is_equation_7_5(d_in: int, d_out: int):
    layer, x, weight = GraphConvolution(d_in, d_out).double(), numbers(N, d_in), numbers(8, seed=2).abs()
    nn.init.normal_(layer.bias)
    close(layer(x, ODD), gcn_by_hand(layer, x, ODD))
    for edge_weight in (weight, weight.clone().requires_grad_()):
        close(layer(x, ODD, edge_weight), gcn_by_hand(layer, x, ODD, weight))


def test_a_mean_convolution_and_attention_against_a_loop() -> None:
    layer, x = layers()["sage"], numbers(N, 4)
    w, X = weights(layer), x.numpy()
    means = np.stack([X[js].mean(0) if js else np.zeros(4) for js in received(ODD)])
    close(layer(x, ODD), means @ w["W_l"].T + w["b"] + X @ w["W_r"].T)
    layer, x = layers()["gat"], numbers(N, 4)
    W, a_s, a_r, b = weights(layer).values()
    h = (x.numpy() @ W.T).reshape(N, 2, 4)
    out = np.zeros((N, 2, 4))
    for i, js in enumerate(received(ODD)):
        senders = [j for j in js if j != i] + [i]
        for head in range(2):
            s = [a_r[0, head] @ h[i, head] + a_s[0, head] @ h[j, head] for j in senders]
            g = np.exp([v if v > 0 else 0.2 * v for v in s])
            out[i, head] = sum(w * h[j, head] for w, j in zip(g / g.sum(), senders, strict=True))
    close(layer(x, ODD), out.reshape(N, 8) + b)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("tran")])
def test_transformer_attention_against_a_loop(name: str):
    layer, x = layers()[name], numbers(N, 4)
    pairs = [(j, i) for j, i in ODD.T.tolist() if i != j] + [(i, i) for i in range(N)]
    sender, receiver = np.array(pairs).T
    u = layer.Q(x).detach().numpy().reshape(N, layer.n_heads, -1)[receiver]
    v = layer.K(x).detach().numpy().reshape(N, layer.n_heads, -1)[sender]
    s = (u * v).sum(2)
    if layer.score == "cosine":
        s = s / np.linalg.norm(u, axis=2) / np.linalg.norm(v, axis=2)
    elif layer.score == "exp_kernel":
        height, length = layer.height.item(), layer.length.item()
        s = height**2 * np.exp(-((u - v) ** 2).sum(2) / 2 / length**2)
    else:
        s = s / math.sqrt(u.shape[2])
    t = s - s.max()
    g = (t + np.sqrt(t**2 + 4)) / 2 if layer.square_plus else np.exp(s)
    own = receiver if layer.normalize == "receiver" else sender
    out = np.zeros((N, 4))
    for e, (j, i) in enumerate(pairs):
        out[i] += (g[e] / g[own == own[e]].sum(0)).mean() * x[j].numpy()
    np.testing.assert_allclose(layer(x, ODD).detach(), out, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 3])
def test_layers_equal_those_of_pyg(heads: int):
    x = numbers(N, 4)
    for mine, theirs in (
        (GraphConvolution(4, 5), GCNConv(4, 5)),
        (MeanConvolution(4, 5), SAGEConv(4, 5)),
        (graph_layers.GraphAttention(4, 5, n_heads=heads), GATConv(4, 5, heads=heads)),
    ):
        mine.double().load_state_dict(theirs.double().state_dict())
        torch.testing.assert_close(mine(x, ODD), theirs(x, ODD), rtol=1e-10, atol=1e-12)
        assert widths(theirs) == (4, mine.d_out) == widths(mine)


def test_a_convolution_has_gradients_by_edge_weights_and_second_derivatives():
    layer, x, weight = layers()["gcn"], numbers(N, 4), (numbers(8, seed=3).abs() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: layer(x, ODD, w), (weight,))
    assert torch.autograd.gradgradcheck(lambda x: torch.tanh(layer(x, ODD)), (x.requires_grad_(),))


def test_no_node_is_too_few_and_a_nan_stays_within_one_step_of_its_node() -> None:
    for layer in layers().values():
        refuses(InputError, "at least one node", layer, numbers(0, 4), torch.zeros(2, 0, dtype=torch.long))
    for name, layer in layers().items():
        if name == "tran-plus":  # the largest score of the graph is everyone's
            continue
        x = numbers(N, 4)
        x[4] = torch.nan  # 4 sends to 2 alone
        bad = layer(x, ODD).isnan().any(1).nonzero().flatten().tolist()
        assert bad == ([4] if name == "linear" else [2, 4]), name


def test_edge_weights_go_in_by_name_and_are_refused_where_they_would_be_lost():
    x, weight = numbers(N, 4), numbers(8).abs()
    for layer in (GraphConvolution(4, 4).double(), GCNConv(4, 4).double()):
        torch.testing.assert_close(call(layer, x, ODD, weight), layer(x, ODD, edge_weight=weight))
    for layer in (GATConv(4, 4).double(), SAGEConv(4, 4).double(), layers()["gat"], layers()["sage"]):
        refuses(InputError, "takes no edge_weight", call, layer, x, ODD, weight)


@pytest.mark.parametrize("inference", [False, True])
def test_other_weights_and_changes_in_place_are_seen_in_inference_mode_too(inference: bool):
    layer = layers()["gcn"]
    with torch.inference_mode(inference):
        x, edge_index, weight = numbers(N, 4), ODD.clone(), numbers(8).abs()
        for _ in range(2):
            for edge_weight in (weight, weight.flip(0)):
                close(layer(x, edge_index, edge_weight), gcn_by_hand(layer, x, edge_index, edge_weight))
            weight.mul_(2)
            edge_index[0, 0] = 4


def test_heads_are_merged_over_heads_and_as_in_the_official_code_over_neighbours():
    x = torch.arange(8.0)[None]  # two heads of four channels: 0..3 and 4..7
    assert merge_heads(x, 4, "mean").tolist() == [[2, 3, 4, 5]]
    assert merge_heads(x, 4, "official").tolist() == [[0.5, 2.5, 4.5, 6.5]]
    assert merge_heads(x, 8, "official") is x
    refuses(InputError, "a multiple", merge_heads, x, 3, "mean")


def test_copies_start_anew_in_the_way_of_their_kind_and_need_one():
    first, second, third = copies(GraphConvolution(64, 64), 3)
    assert not torch.equal(first.lin.weight, second.lin.weight)
    assert not torch.equal(second.lin.weight, third.lin.weight)
    glorot, default = math.sqrt(6 / 128), 1 / 8
    assert default < second.lin.weight.abs().max() <= glorot
    assert (second.bias == 0).all()
    _, tran = copies(TransformerAttention(4, d_attention=4, n_heads=1), 2)
    assert (tran.Q.weight == 1e-5).all()
    genie = [stack.layers[0] for stack in copies(GeniePath(8, 1), 2)]
    assert not torch.equal(genie[0].v, genie[1].v) and genie[1].W.weight.abs().max() > 1 / math.sqrt(8)

    class Own(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.W = nn.Parameter(torch.randn(8, 8))

    refuses(InputError, "Own has parameters and no reset_parameters", copies, Own(), 2)


@pytest.mark.parametrize("p", [0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 2.3])
def test_powers_and_their_slopes_which_are_finite_where_features_agree_or_nearly(p: float):
    x = numbers(4, 3).abs()
    torch.testing.assert_close(power(x, p), x**p)
    assert torch.autograd.gradcheck(lambda x: power(x, p), (x.requires_grad_(),))
    for spread in (0.0, 1e-30, 1e-12):
        d = (torch.ones(4, 3) * spread).requires_grad_()
        power(d, p).sum().backward()
        assert torch.isfinite(d.grad).all()


# ------------------------------------------------------------ A[u, v] = 1 for a line "u v" on reversed edges

LINES = [(0, 1), (0, 2), (3, 0), (1, 4), (4, 2), (4, 0), (2, 2)]  # "u v": page u links to page v; 5 alone
STORED = np.array(LINES, np.int64).T


def test_reversing_twice_gives_the_stored_edges_and_convolution_is_a_product_with_their_matrix() -> None:
    once = graphs.directed(STORED, "reversed")
    assert not np.array_equal(once, STORED)
    assert np.array_equal(graphs.directed(once, "reversed"), STORED)
    assert np.array_equal(graphs.directed(STORED, "stored"), STORED)
    assert np.array_equal(graphs.directed(once, "undirected"), graphs.directed(STORED, "undirected"))
    # Each page receives from those that it links to.
    layer, x = GraphConvolution(4, 3).double(), numbers(6, 4)
    w, P = weights(layer), looped(torch.tensor([(v, u) for u, v in LINES]).T)
    expected = P @ x.numpy() @ w["W"] + w["b"]
    close(layer(x, torch.from_numpy(graphs.directed(STORED, "reversed"))), expected)
    assert not np.allclose(layer(x, torch.from_numpy(STORED)).detach(), expected)
