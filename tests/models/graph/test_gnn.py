"""Baselines against their formulas, and the network around a stack."""

import itertools
import math

import numpy as np
import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from small_graphs import ODD, N, attended, close, far_from_start, looped, relu, sigmoid
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.graph.measures import dirichlet_energy, grid
from physml.graph.rows import Rows, sparse_rows
from physml.models.graph import graph_layers
from physml.models.graph.diffusion import Diffusion, LateDiffusion
from physml.models.graph.fagcn import FAGCN
from physml.models.graph.gcnii import GCNII
from physml.models.graph.ggcn import GGCN
from physml.models.graph.gnn import GNN, PairNorm, drop_edges
from physml.models.graph.graph_features import dropped, linear
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, MeanConvolution, NodeLinear
from physml.models.graph.graph_net import GraphModel, GraphNet, pooled
from physml.models.graph.graphcon import GraphCON
from physml.run.record import count_parameters

D, H, C = 5, 4, 3
NONE = torch.zeros(2, 0, dtype=torch.long)


def attention(d: int) -> graph_layers.TransformerAttention:
    return far_from_start(graph_layers.TransformerAttention(d, d_attention=4, n_heads=2))


def stack(name: str, d: int = H) -> nn.Module:
    oscillator = {"dt": 0.5, "gamma": 1.0, "alpha": 0.5, "activation": "tanh"}
    builders = {
        "gcn": lambda: GNN(d, H, 2, kind="gcn"),
        "gat": lambda: GNN(d, H, 2, kind="gat", n_heads=2),
        "graphcon": lambda: GraphCON(GraphConvolution(d, d), 3, **oscillator, residual="official-v2"),
    }
    torch.manual_seed(0)
    return builders[name]().double()


def network(name: str, readout: str = "node", pool: str | None = None, **options) -> GraphNet:
    torch.manual_seed(0)
    return GraphNet(lambda d: stack(name, d), D, C, readout, hidden=H, pool=pool, **options).double()


def test_a_plain_stack_is_its_layers_one_after_the_other_of_the_kind_asked_for() -> None:
    for kind, residual in itertools.product(("mlp", "gcn", "sage"), (False, True)):
        net = GNN(D, H, 3, kind=kind, activation="tanh", residual=residual).double()
        x = numbers(N, D)
        state = x
        for layer in net.layers:
            new = torch.tanh(layer(state, ODD))
            state = state + new if residual and state.shape == new.shape else new
        torch.testing.assert_close(net(x, ODD), state)
        assert len(list(net.steps(x, ODD))) == 3
    kinds = {"mlp": NodeLinear, "gcn": GraphConvolution, "gat": GraphAttention, "sage": MeanConvolution}
    for kind, layer_type in kinds.items():
        net = GNN(D, H, 2, kind=kind)
        assert [type(layer) for layer in net.layers] == [layer_type, layer_type]
        assert type(net.head(C)) is layer_type and net.head(C).d_out == C


def test_pair_norm_centres_and_keeps_the_mean_square():
    out = PairNorm(scale=1.5)(numbers(7, 3) * 5 + 2)
    torch.testing.assert_close(out.mean(0), torch.zeros(3, dtype=torch.double), rtol=0, atol=1e-12)
    assert out.square().sum(1).mean().item() == pytest.approx(1.5**2, rel=1e-6)
    torch.manual_seed(0)
    features, edge_index = torch.rand(25, 8), grid(5, 5)
    plain, normed = GNN(8, 8, 64, kind="gcn"), GNN(8, 8, 64, kind="gcn", pair_norm=1.0)
    normed.load_state_dict(plain.state_dict())
    with torch.no_grad():
        assert dirichlet_energy(plain(features, edge_index), edge_index) < 1e-9
        assert dirichlet_energy(normed(features, edge_index), edge_index) > 1e-2


def gcnii_in_a_loop(net: GCNII, x: Tensor) -> np.ndarray:
    """With dense matrices; in the official code the weights of GCNII* meet bare features."""
    P, X, start = looped(ODD), x.numpy(), x.numpy()
    a, b = (1.0, 1.0) if net.variant == "star-official" else (1 - net.alpha, net.alpha)
    for n, weight in enumerate(net.W, 1):
        beta, W = math.log(net.lam / n + 1), weight.detach().numpy()
        V = W if net.variant is None else net.V[n - 1].detach().numpy()
        plain = (1 - net.alpha) * P @ X + net.alpha * start
        X = relu((1 - beta) * plain + beta * (a * P @ X @ W + b * start @ V))
    return X


@pytest.mark.parametrize(
    ("variant", "alpha", "lam"),
    [(None, 0.3, 1.5), ("star", 0.3, 1.5), ("star-official", 0.3, 1.5), (None, 1.0, 0.0)],
)
def test_gcnii_against_a_loop(variant: str | None, alpha: float, lam: float):
    net, x = GCNII(H, 3, alpha=alpha, lam=lam, variant=variant).double(), numbers(N, H)
    reference = gcnii_in_a_loop(net, x)
    assert (reference > 0).any()
    close(net(x, ODD), reference)


@pytest.mark.parametrize("variant", ["star", "star-official"])
def test_gcnii_star_has_twice_the_weights(variant: str):
    net = GCNII(H, 2, variant=variant)
    assert count_parameters(net) == 2 * count_parameters(GCNII(H, 2))
    assert all(0 < weight.abs().max() <= H**-0.5 for weight in net.parameters())


@pytest.mark.parametrize("kind", ["sage", "gcnii", "gcnii-star"])
def test_dropout_between_layers_is_of_training_alone_and_keeps_the_mean(kind):
    """Two layers with weights that make them sums of non-negative numbers, so that sigma does nothing and
    the output is linear in what is dropped: its mean over many draws is the output without dropout.
    """
    options = {"variant": "star" if kind == "gcnii-star" else None, "alpha": 0.3, "lam": 0.5}
    stack = GNN(H, H, 2, kind="sage", dropout=0.4) if kind == "sage" else GCNII(H, 2, dropout=0.4, **options)
    net, x = stack.double(), numbers(N, H).abs()
    with torch.no_grad():
        for n, p in enumerate(net.parameters()):
            p.copy_(numbers(*p.shape, seed=n).abs())
        torch.manual_seed(0)
        draws = torch.stack([net(x, ODD) for _ in range(400)])
        undropped = net.eval()(x, ODD)
        net.dropout = 0.0
        assert torch.equal(net.train()(x, ODD), undropped)
    assert draws.std(0).max() > 0.1 * undropped.max()
    assert ((draws.mean(0) - undropped).abs() <= 5 * (draws.std(0) / math.sqrt(len(draws))) + 1e-12).all()


def test_diffusion_against_a_loop():
    net, x = Diffusion(attention(H), T=2.5).double(), numbers(N, H)
    nn.init.constant_(net.a, 0.3)
    nn.init.constant_(net.b, -0.2)
    A, X = attended(net.attention, x), x.numpy()
    for h in (1, 1, 0.5):
        X = X + h * (sigmoid(0.3) * (A @ X - X) - 0.2 * x.numpy())
    close(net(x, ODD), X)


def test_drop_edge_leaves_out_about_its_share_and_only_in_training():
    edge_index, weight = torch.randint(0, 50, (2, 4000)), torch.rand(4000)
    kept, kept_weight = drop_edges(edge_index, weight, 0.3)
    assert kept.shape[1] == len(kept_weight) == pytest.approx(2800, abs=120)
    known = {(*e, w) for *e, w in zip(*edge_index.tolist(), weight.tolist(), strict=True)}
    assert all((*e, w) in known for *e, w in zip(*kept.tolist(), kept_weight.tolist(), strict=True))
    net, x = GNN(D, H, 2, kind="gcn", drop_edge=0.5).double(), numbers(N, D)
    assert not torch.equal(net(x, ODD), net(x, ODD))
    plain = GNN(D, H, 2, kind="gcn").double()
    plain.load_state_dict(net.state_dict())
    assert torch.equal(net.eval()(x, ODD), plain(x, ODD))
    assert GNN(D, H, 1, kind="gcn", drop_edge=1.0).double()(x, ODD).isfinite().all()


def test_a_batch_of_graphs_equals_its_graphs_one_by_one():
    net = network("gat", "graph", "sum")
    parts = ODD, torch.tensor([[0, 1], [1, 2]]), NONE
    xs = [numbers(n, D, seed=n) for n in (N, 3, 1)]
    edge_index = torch.cat([ODD, parts[1] + N], 1)
    together = net(torch.cat(xs), edge_index, batch=torch.tensor([0] * N + [1, 1, 1, 2]))
    alone = torch.cat([net(x, e) for x, e in zip(xs, parts, strict=True)])
    assert together.shape == (3, C)
    torch.testing.assert_close(together, alone, rtol=1e-9, atol=1e-10)


@pytest.mark.parametrize("mixing", ["PairNorm", "TransformerAttention"])
def test_what_looks_at_all_nodes_at_once_takes_no_batch_of_graphs(mixing: str):
    def layer(d: int) -> nn.Module:
        if mixing == "PairNorm":
            return GNN(d, H, 2, kind="gcn", pair_norm=1.0)
        attention = graph_layers.TransformerAttention(d, d_attention=4, n_heads=2, square_plus=True)
        return Diffusion(attention, T=2.0)

    x = numbers(N, D)
    for readout, pool in (("graph", "sum"), ("node", None)):
        net = GraphNet(layer, D, C, readout, hidden=H, pool=pool).double()
        torch.testing.assert_close(net(x, ODD, batch=torch.zeros(N, dtype=torch.long)), net(x, ODD))
        with pytest.raises(InputError, match=f"{mixing} looks at all nodes at once.*got 2 graphs"):
            net(x, ODD, batch=torch.tensor([0, 0, 0, 0, 0, 1]))


def test_pools():
    x, batch = numbers(5, 2), torch.tensor([1, 0, 1, 1, 0])
    for how, of_graph in (("sum", torch.sum), ("mean", torch.mean), ("max", torch.amax)):
        expected = torch.stack([of_graph(x[nodes], 0) for nodes in ([1, 4], [0, 2, 3])])
        torch.testing.assert_close(pooled(x, batch, how), expected)
    torch.testing.assert_close(pooled(x, None, "sum"), x.sum(0, keepdim=True))
    for wrong, says in (
        ([0, 0, 2, 2, 2], "graph 1 of the batch has no node"),
        ([0, 0, 1], r"batch must have shape \(5\)"),
        ([-1, 0, 0, 0, 0], "from 0 on"),
    ):
        refuses(InputError, says, pooled, x, torch.tensor(wrong), "sum")


def test_a_model_of_given_parts_is_encoder_stack_decoder_and_pool():
    encoder, middle, decoder = nn.Linear(D, H).double(), stack("gcn"), nn.Linear(H, C).double()
    x = numbers(N, D)
    per_node = decoder(middle(encoder(x), ODD))
    torch.testing.assert_close(GraphModel(encoder, middle, decoder)(x, ODD), per_node)
    torch.testing.assert_close(GraphModel(encoder, middle, decoder, "sum")(x, ODD), per_node.sum(0)[None])
    torch.testing.assert_close(GraphModel(None, stack("gcn", D), None)(x, ODD), stack("gcn", D)(x, ODD))


def test_a_network_is_what_its_docstring_says_and_the_classical_one_has_two_convolutions() -> None:
    net = network("gcn", encoder_activation="relu", decoder_activation="elu", output_activation="sigmoid")
    x, weight = numbers(N, D), torch.linspace(0.1, 3, 8, dtype=torch.double)
    expected = net.decoder(nn.functional.elu(net.stack(torch.relu(net.encoder(x)), ODD, weight))).sigmoid()
    torch.testing.assert_close(net(x, ODD, edge_weight=weight), expected)
    assert not torch.allclose(net(x, ODD), expected)
    net, x = network("gcn", decoder="perceptron", output_activation="leaky_relu"), numbers(N, D)
    first, _, second = net.decoder
    width = net.stack.d_out
    assert (first.in_features, first.out_features, second.out_features) == (width, width // 2, C)
    hidden = nn.functional.leaky_relu(first(net.stack(net.encoder(x), ODD)), 0.01)
    torch.testing.assert_close(net(x, ODD), nn.functional.leaky_relu(second(hidden), 0.01))
    # Without an encoder and with a last layer that passes messages: F to H to C channels.
    net = GraphNet(lambda d: GNN(d, 16, 1, kind="gcn"), D, C, "node", hidden=None, decoder="layer").double()
    assert count_parameters(net) == D * 16 + 16 + 16 * C + C
    x, weight = numbers(N, D), numbers(8).abs()
    expected = net.decoder(torch.relu(net.stack.layers[0](x, ODD, weight)), ODD, weight)
    torch.testing.assert_close(net(x, ODD, edge_weight=weight), expected)


def test_dropout_is_off_in_evaluation_and_on_in_training():
    net, x = network("graphcon", input_dropout=0.5, dropout=0.5), numbers(N, D)
    assert not torch.equal(net(x, ODD), net(x, ODD))
    net.eval()
    assert torch.equal(net(x, ODD), net(x, ODD)) and torch.allclose(net(x, ODD), network("graphcon")(x, ODD))


def test_the_starts_of_the_official_heterophilic_code_and_of_fagcn():
    def layer(d: int) -> nn.Module:
        return GraphCON(
            GraphConvolution(d, d), 1, dt=1.0, gamma=0.0, alpha=0.0, activation="relu", residual="official-v1"
        )

    net = GraphNet(layer, 1703, 5, "node", hidden=64, init="official-heterophilic")
    k = 1 / 8
    for name, p in net.named_parameters():
        if p.dim() == 2:
            assert 0.95 * k < p.abs().max() <= k, name
            assert p.std().item() == pytest.approx(k / math.sqrt(3), rel=0.1)
    assert net.encoder.bias.abs().max() <= 1703**-0.5
    assert (net.stack.forces[0].coupling.bias == 0).all()
    net = GraphNet(lambda d: FAGCN(d, 1, bias="official"), 900, 90, "node", hidden=64, init="official-fagcn")
    for part in (net.encoder, net.decoder):
        glorot = (2 / sum(part.weight.shape)) ** 0.5
        assert part.weight.std().item() == pytest.approx(1.414 * glorot, rel=0.05)
        assert part.weight.abs().max() > 2.5 * part.weight.std()  # normal, not uniform
    assert net.encoder.bias.abs().max() <= 900**-0.5
    assert 0 < net.stack.c.abs().max() <= 128**-0.5


OSCILLATOR = {"layer": lambda d: stack("graphcon")}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"readout": "every"}, "'node', 'graph'"),
        ({"readout": "graph"}, "needs a pool.*Set net=graphs"),
        ({"pool": "sum"}, r"needs no pool.*Set net=graph\."),
        ({"hidden": 0}, "hidden must be positive"),
        ({"hidden": None, "encoder_activation": "relu"}, "there is none"),
        ({"input_dropout": 1.5}, "input_dropout must lie in"),
        ({"decoder_activation": "gelu"}, "decoder_activation must be one of"),
        ({"layer": lambda d: GCNII(d, 2, alpha=0.1, lam=0.5), "decoder": "layer"}, r"has no head\(\)"),
        ({"layer": lambda d: nn.Identity()}, "has no d_out"),
        ({"init": "uniform"}, "official-heterophilic"),
        (OSCILLATOR | {"hidden": 7}, "GraphCON takes 4 channels per node; got 7, the width of hidden"),
        (OSCILLATOR | {"hidden": None}, "got 5, the width of the f"),
    ],
)
def test_what_cannot_be_built_is_refused(options, message):
    defaults = {"layer": lambda d: stack("gcn", d), "readout": "node", "hidden": H}
    refuses(InputError, message, GraphNet, **{"d_in": D, "d_out": C, **defaults, **options})


def test_plain_stacks_refuse_what_has_no_meaning_and_features_of_another_shape():
    for shape in ((N, D + 1), (0, D)):
        refuses(InputError, r"input must have shape \(N, 5\)", network("gcn"), numbers(*shape), NONE)
    refusals = {"n_heads=2 is for kind='gat'": {"n_heads": 2}, "scale must be positive": {"pair_norm": 0.0}}
    for says, options in refusals.items():
        refuses(InputError, says, GNN, D, H, 2, kind="gcn", **options)
    with pytest.raises(InputError, match="variant must be one of 'star', 'star-official'; got 'stra'"):
        GCNII(H, 2, variant="stra")


def mostly_zeros(n: int = 40, width: int = 300) -> Tensor:
    kept = torch.rand(n, width, generator=torch.Generator().manual_seed(0)) < 0.05
    kept[3] = False  # a node without any feature
    return numbers(n, width) * kept


def dropped_linear(x: Tensor, p: float, training: bool, layer: nn.Linear) -> Tensor:
    return linear(dropped(x, p, training), layer.weight, layer.bias)


def test_mostly_zero_features_give_the_numbers_of_dense_ones_and_stay_dense_where_that_is_better() -> None:
    x, layer = mostly_zeros(), nn.Linear(300, 7).double()
    assert sparse_rows(x) is not None and sparse_rows(x) is sparse_rows(x)
    out = dropped_linear(x, 0.0, True, layer)
    torch.testing.assert_close(out, layer(x))
    slopes = torch.autograd.grad(out.square().sum(), layer.parameters())
    torch.testing.assert_close(slopes, torch.autograd.grad(layer(x).square().sum(), layer.parameters()))
    x[3, 5] = 7.0  # a change in place is seen
    torch.testing.assert_close(dropped_linear(x, 0.0, True, layer), layer(x))
    assert sparse_rows(torch.rand(40, 300)) is None and sparse_rows(torch.zeros(40, 8)) is None
    assert sparse_rows(mostly_zeros().requires_grad_()) is None
    x = mostly_zeros()
    x[2, 2] = torch.nan
    out = dropped_linear(x, 0.0, True, nn.Linear(300, 2).double())
    assert out.isnan().any(1).nonzero().flatten().tolist() == [2]


def test_dropout_of_features_that_are_mostly_zeros_has_the_same_law():
    x, layer = mostly_zeros(), nn.Linear(300, 2, bias=False).double()
    torch.manual_seed(0)
    many = x.repeat(50, 1)
    sparse = torch.cat([dropped_linear(many, 0.4, True, layer).view(50, 40, 2) for _ in range(80)])
    dense = torch.cat([layer(nn.functional.dropout(many, 0.4)).view(50, 40, 2) for _ in range(80)])
    assert ((sparse.mean(0) - dense.mean(0)).abs() / dense.std(0).clamp(min=1e-9)).max() < 0.15
    torch.testing.assert_close(sparse.std(0), dense.std(0), rtol=0.12, atol=1e-9)
    assert torch.equal(dropped_linear(x, 0.4, False, layer), dropped_linear(x, 0.0, True, layer))


@pytest.mark.parametrize(
    ("kind", "residual"), [("ggcn", False), *itertools.product(("mlp", "gcn", "gat", "sage"), (False, True))]
)
def test_a_stack_without_encoder_has_the_same_numbers_from_sparse_features(kind, residual, monkeypatch):
    x, edge_index = mostly_zeros(), torch.randint(0, 40, (2, 120), generator=torch.Generator().manual_seed(1))
    stack = GGCN(300, 5, 2) if kind == "ggcn" else GNN(300, 300, 2, kind=kind, residual=residual)
    net = GraphNet(lambda _: stack, 300, 3, "node", hidden=None).double()
    results, entered = [], []
    stack.register_forward_pre_hook(lambda _, args: entered.append(type(args[0])))
    for width in (10_000, 256):  # dense, then sparse
        monkeypatch.setattr("physml.graph.rows.SPARSE_WIDTH", width)
        net.zero_grad()
        out = net(x, edge_index)
        out.square().sum().backward()
        results.append([out.detach(), *(p.grad.clone() for p in net.parameters())])
    assert entered == [Tensor, Tensor if residual else Rows]  # what is added to outputs must be dense
    torch.testing.assert_close(*results)


@pytest.mark.parametrize("name", ["mlp", "gcn", "gat", "sage"])
def test_gradients_lie_in_memory_as_their_weights(name: str):
    """torch's fused optimizers on a CPU take that for granted, and are wrong where it isn't so."""
    x = torch.zeros(N, 300, dtype=torch.double)
    x[torch.arange(N), torch.arange(N) * 7] = 1.0  # wide and mostly zeros: a sparse product
    net = GraphNet(lambda d: GNN(d, H, 2, kind=name), 300, C, "node", hidden=None).double()
    net(x, ODD).square().sum().backward()
    assert all(p.grad is not None and p.grad.stride() == p.stride() for p in net.parameters())


def test_late_diffusion_trains_to_T_and_is_read_at_all_times_beyond():
    x, edges = numbers(N, H), torch.tensor([[0, 1, 2, 3, 1], [1, 2, 3, 0, 0]])
    late = LateDiffusion(attention(H), T=2.5, T_test=4.0).double()
    nn.init.constant_(late.b, 0.3)

    def read_at(T: float) -> Tensor:
        plain = Diffusion(late.attention, T=T).double()
        plain.load_state_dict(late.state_dict())
        return plain(x, edges)

    torch.testing.assert_close(late.train()(x, edges), read_at(2.5), rtol=0, atol=0)
    expected = torch.stack([read_at(T) for T in (4.0, 1.0, 2.0, 3.0, 4.0)])
    torch.testing.assert_close(late.eval()(x, edges), expected, rtol=0, atol=0)
    with pytest.raises(InputError, match=r"T_test must not be before T, which is 2\.5; got 2\.0"):
        LateDiffusion(late.attention, T=2.5, T_test=2.0)
