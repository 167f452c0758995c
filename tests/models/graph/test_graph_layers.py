"""Message-passing layers against dense loops and PyG, and their gradients."""

import math
import warnings

import numpy as np
import pytest
import torch
from drawn_layers import numbers
from small_graphs import ODD
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.graph.graph_layers import (
    GraphAttention,
    GraphConvolution,
    MeanConvolution,
    NodeLinear,
    TransformerAttention,
)
from physml.models.graph.graph_parts import call, copies, merge_heads, widths
from physml.models.graph.graph_powers import power

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG calls torch.jit.script, which torch deprecates
    from torch_geometric.nn import GATConv, GCNConv, SAGEConv

# directed, with a loop at 1, 0 -> 2 twice, and node 5 on its own
N = 6


def layers(d_in: int = 4, d_out: int = 4) -> dict[str, nn.Module]:
    torch.manual_seed(0)
    modules: dict[str, nn.Module] = {
        "gcn": GraphConvolution(d_in, d_out),
        "sage": MeanConvolution(d_in, d_out),
        "gat": GraphAttention(d_in, d_out, n_heads=2),
        "linear": NodeLinear(d_in, d_out),
        "tran": TransformerAttention(d_in, d_attention=6, n_heads=2),
        "tran-plus": TransformerAttention(
            d_in, d_attention=6, n_heads=3, normalize="sender", square_plus=True
        ),
        "tran-cosine": TransformerAttention(d_in, d_attention=6, n_heads=1, score="cosine"),
        "tran-kernel": TransformerAttention(d_in, d_attention=6, n_heads=2, score="exp_kernel"),
    }
    for layer in modules.values():
        layer.double()
        for p in layer.parameters():
            nn.init.normal_(p)
    return modules


NAMES = list(layers())


def gcn_by_hand(layer: GraphConvolution, x: Tensor, edge_index: Tensor, weight: Tensor | None = None):
    W, X, n = layer.lin.weight.detach().numpy().T, x.numpy(), len(x)
    A, loop = np.zeros((n, n)), np.ones(n)
    for e, (j, i) in enumerate(edge_index.T.tolist()):
        w = 1.0 if weight is None else weight[e].item()
        if i == j:
            loop[i] = w
        else:
            A[i, j] += w
    A = A + np.diag(loop)
    scale = 1 / np.sqrt(A.sum(1))
    return scale[:, None] * A * scale @ X @ W + layer.bias.detach().numpy()


@pytest.mark.parametrize(("d_in", "d_out"), [(4, 4), (2, 5), (5, 2)])
def test_a_convolution_is_equation_7_5(d_in: int, d_out: int):
    torch.manual_seed(0)
    layer, x, weight = GraphConvolution(d_in, d_out).double(), numbers(N, d_in), numbers(8, seed=2).abs()
    nn.init.normal_(layer.bias)
    np.testing.assert_allclose(layer(x, ODD).detach(), gcn_by_hand(layer, x, ODD), atol=1e-12)
    np.testing.assert_allclose(layer(x, ODD, weight).detach(), gcn_by_hand(layer, x, ODD, weight), atol=1e-12)
    trained = weight.clone().requires_grad_()
    np.testing.assert_allclose(
        layer(x, ODD, trained).detach(), gcn_by_hand(layer, x, ODD, weight), atol=1e-12
    )


def test_a_mean_convolution_against_a_loop():
    layer, x = layers()["sage"], numbers(N, 4)
    out = np.zeros((N, 4))
    for i in range(N):
        senders = [j for j, k in ODD.T.tolist() if k == i]
        mean = np.mean([x[j].numpy() for j in senders], axis=0) if senders else np.zeros(4)
        out[i] = layer.lin_l.weight.detach().numpy() @ mean + layer.lin_l.bias.detach().numpy()
        out[i] += layer.lin_r.weight.detach().numpy() @ x[i].numpy()
    np.testing.assert_allclose(layer(x, ODD).detach(), out, atol=1e-12)


def test_attention_against_a_loop():
    layer, x = layers()["gat"], numbers(N, 4)
    W, a_s, a_r, b = (p.detach().numpy() for p in layer.symbols().values())
    h = (x.numpy() @ W.T).reshape(N, 2, 4)
    out = np.zeros((N, 2, 4))
    for i in range(N):
        senders = [j for j, k in ODD.T.tolist() if k == i and j != k] + [i]
        for head in range(2):
            s = [a_r[0, head] @ h[i, head] + a_s[0, head] @ h[j, head] for j in senders]
            g = np.exp([v if v > 0 else 0.2 * v for v in s])
            out[i, head] = sum(w * h[j, head] for w, j in zip(g / g.sum(), senders, strict=True))
    np.testing.assert_allclose(layer(x, ODD).detach(), out.reshape(N, 8) + b, atol=1e-12)


@pytest.mark.parametrize("name", [n for n in NAMES if n.startswith("tran")])
def test_transformer_attention_against_a_loop(name: str):
    layer, x = layers()[name], numbers(N, 4)
    heads = layer.n_heads
    q = layer.Q(x).detach().numpy().reshape(N, heads, -1)
    k = layer.K(x).detach().numpy().reshape(N, heads, -1)
    pairs = [(j, i) for j, i in ODD.T.tolist() if i != j] + [(i, i) for i in range(N)]
    s = np.zeros((len(pairs), heads))
    for e, (j, i) in enumerate(pairs):
        for h in range(heads):
            u, v = q[i, h], k[j, h]
            if layer.score == "cosine":
                s[e, h] = u @ v / np.linalg.norm(u) / np.linalg.norm(v)
            elif layer.score == "exp_kernel":
                s[e, h] = layer.height.item() ** 2 * math.exp(
                    -((u - v) ** 2).sum() / 2 / layer.length.item() ** 2
                )
            else:
                s[e, h] = u @ v / math.sqrt(len(u))
    if layer.square_plus:
        t = s - s.max()
        g = (t + np.sqrt(t**2 + 4)) / 2
    else:
        g = np.exp(s)
    own = [i if layer.normalize == "receiver" else j for j, i in pairs]
    out = np.zeros((N, 4))
    for e, (j, i) in enumerate(pairs):
        total = sum(g[f] for f in range(len(pairs)) if own[f] == own[e])
        out[i] += (g[e] / total).mean() * x[j].numpy()
    np.testing.assert_allclose(layer(x, ODD).detach(), out, atol=1e-10)


@pytest.mark.parametrize("heads", [1, 3])
def test_layers_equal_those_of_pyg(heads: int):
    x, pairs = numbers(N, 4), []
    mine: nn.Module = GraphConvolution(4, 5)
    theirs: nn.Module = GCNConv(4, 5)
    pairs.append((mine, theirs))
    pairs.append((MeanConvolution(4, 5), SAGEConv(4, 5)))
    pairs.append((GraphAttention(4, 5, n_heads=heads), GATConv(4, 5, heads=heads)))
    for mine, theirs in pairs:
        assert sum(p.numel() for p in mine.parameters()) == sum(p.numel() for p in theirs.parameters())
        mine.double().load_state_dict(theirs.double().state_dict())
        torch.testing.assert_close(mine(x, ODD), theirs(x, ODD), rtol=1e-10, atol=1e-12)
        assert widths(theirs) == (4, mine.d_out) == widths(mine)


def test_gradients_with_respect_to_edge_weights():
    layer, x, weight = layers()["gcn"], numbers(N, 4), (numbers(8, seed=3).abs() + 0.1).requires_grad_()
    assert torch.autograd.gradcheck(lambda w: layer(x, ODD, w), (weight,))


def test_a_convolution_has_second_derivatives():
    layer, x = layers()["gcn"], numbers(N, 4).requires_grad_()
    assert torch.autograd.gradgradcheck(lambda x: torch.tanh(layer(x, ODD)), (x,))


def test_no_node_is_too_few():
    for layer in layers().values():
        with pytest.raises(InputError, match="at least one node"):
            layer(numbers(0, 4), torch.zeros(2, 0, dtype=torch.long))


def test_a_nan_stays_within_one_step_of_its_node():
    for name, layer in layers().items():
        if name == "tran-plus":  # the largest score of the graph is everyone's
            continue
        x = numbers(N, 4)
        x[4] = torch.nan  # 4 sends to 2 alone
        bad = layer(x, ODD).isnan().any(1)
        if name == "linear":
            assert bad.tolist() == [False, False, False, False, True, False]
        elif name == "sage":
            assert bad.tolist() == [False, False, True, False, True, False]
        else:
            assert bad.tolist() == [False, False, True, False, True, False], name


def test_edge_weights_go_in_by_name_and_are_refused_where_they_would_be_lost():
    x, weight = numbers(N, 4), numbers(8).abs()
    for layer in (GraphConvolution(4, 4).double(), GCNConv(4, 4).double()):
        torch.testing.assert_close(call(layer, x, ODD, weight), layer(x, ODD, edge_weight=weight))
    for layer in (GATConv(4, 4).double(), SAGEConv(4, 4).double(), layers()["gat"], layers()["sage"]):
        with pytest.raises(InputError, match="takes no edge_weight"):
            call(layer, x, ODD, weight)


def test_other_weights_of_the_same_graph_are_seen():
    layer, x, weight = layers()["gcn"], numbers(N, 4), numbers(8).abs()
    first = layer(x, ODD, weight)
    second = layer(x, ODD, weight.flip(0))
    weight.mul_(3)
    third = layer(x, ODD, weight)
    np.testing.assert_allclose(third.detach(), gcn_by_hand(layer, x, ODD, weight), atol=1e-12)
    assert not torch.allclose(first, second) and not torch.allclose(first, third)


def test_layers_run_in_inference_mode_and_see_changes_there():
    layer = layers()["gcn"]
    with torch.inference_mode():
        x, edge_index, weight = numbers(N, 4), ODD.clone(), numbers(8).abs()
        for _ in range(2):
            np.testing.assert_allclose(
                layer(x, edge_index, weight), gcn_by_hand(layer, x, edge_index, weight), atol=1e-12
            )
            weight.mul_(2)
            edge_index[0, 0] = 4


def test_heads_are_merged_over_heads_and_as_in_the_official_code_over_neighbours():
    x = torch.arange(8.0)[None]  # two heads of four channels: 0..3 and 4..7
    assert merge_heads(x, 4, "mean").tolist() == [[2, 3, 4, 5]]
    assert merge_heads(x, 4, "official").tolist() == [[0.5, 2.5, 4.5, 6.5]]
    assert merge_heads(x, 8, "official") is x
    with pytest.raises(InputError, match="a multiple"):
        merge_heads(x, 3, "mean")


def test_copies_start_anew_in_the_way_of_their_kind():
    torch.manual_seed(0)
    first, second, third = copies(GraphConvolution(64, 64), 3)
    assert not torch.equal(first.lin.weight, second.lin.weight)
    assert not torch.equal(second.lin.weight, third.lin.weight)
    glorot, default = math.sqrt(6 / 128), 1 / 8
    assert default < second.lin.weight.abs().max() <= glorot
    assert (second.bias == 0).all()
    _, tran = copies(TransformerAttention(4, d_attention=4, n_heads=1), 2)
    assert (tran.Q.weight == 1e-5).all()


POWERS = [0.0, 0.3, 0.5, 1.0, 1.5, 2.0, 2.5, 3.0, 3.5, 4.0, 5.0, 2.3]


@pytest.mark.parametrize("p", POWERS)
def test_powers_and_their_slopes(p: float):
    x = numbers(4, 3).abs()
    torch.testing.assert_close(power(x, p), x**p)
    assert torch.autograd.gradcheck(lambda x: power(x, p), (x.requires_grad_(),))


@pytest.mark.parametrize("p", POWERS)
def test_slopes_are_finite_where_features_agree_or_nearly(p: float):
    for spread in (0.0, 1e-30, 1e-12):
        d = (torch.ones(4, 3) * spread).requires_grad_()
        power(d, p).sum().backward()
        assert torch.isfinite(d.grad).all()
