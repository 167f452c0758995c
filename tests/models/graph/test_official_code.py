"""Graph layers against their authors' code, see `official` in tests/harness; node 5 has no edge."""

import pytest
import torch
from official import GOLDEN, LINES, Make, N, check_law, check_layer, numbers
from torch import Tensor, nn

from physml.data.graphs import directed
from physml.graph.edges import Edges
from physml.models.graph import directional, geom_gcn, graph_layers
from physml.models.graph import graph_convolutions as convolutions
from physml.models.graph.acm_gcn import ChannelMixing
from physml.models.graph.adgn import ADGN
from physml.models.graph.appnp import APPNP
from physml.models.graph.cgnn import CGNN
from physml.models.graph.diffusion import Diffusion
from physml.models.graph.directional import DirectionalConvolution
from physml.models.graph.f2gnn import F2GNN
from physml.models.graph.fagcn import FAGCN
from physml.models.graph.g2 import GradientGating
from physml.models.graph.gcnii import GCNII
from physml.models.graph.geom_gcn import GeomGCN
from physml.models.graph.ggcn import GGCN
from physml.models.graph.glognn import GloGNN
from physml.models.graph.gnn import PairNorm
from physml.models.graph.gprgnn import GPRGNN
from physml.models.graph.graph_layers import GraphAttention, GraphConvolution, TransformerAttention
from physml.models.graph.graph_propagation import Spread
from physml.models.graph.graph_transformer import GraphTransformer
from physml.models.graph.graphcon import (
    CitationGraphCON,
    CoupledCitationGraphCON,
    GraphCON,
    LateCitationGraphCON,
)
from physml.models.graph.h2gcn import H2GCN
from physml.models.graph.linkx import LINKX
from physml.models.graph.mixhop import MixHop
from physml.models.graph.mpnn import MPNN
from physml.models.graph.phdgn import PHDGN
from physml.models.graph.spline import SplineCNN


class WithHead(nn.Module):
    def __init__(self, net: GGCN | GeomGCN, n_classes: int) -> None:
        super().__init__()
        self.net, self.head = net, net.head(n_classes)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return self.head(self.net(x, edge_index), edge_index)


def divisions(x: Tensor, _: Tensor) -> list[Spread]:
    """Given ones, for places in the plane are not fixed to the last bit: pairs a -> b in (a + 2b) mod 8."""
    pairs = [(a, b) for a in range(N) for b in range(N) if a != b and (3 * a + b) % 4]
    sender, receiver = torch.tensor([*pairs, *((a, a) for a in range(N))]).T
    number = torch.tensor([(a + 2 * b) % 8 for a, b in pairs] + N * [8])
    degree = torch.bincount(receiver, minlength=N).to(x.dtype)
    spreads = []
    for r in range(9):
        a, b = sender[number == r], receiver[number == r]
        spreads.append(Spread(Edges(a, b, N), (degree[a] * degree[b]).rsqrt()))
    return spreads


STEPS = {"dt": 0.7, "gamma": 0.9, "alpha": 0.8}
MEAN = {"p": 2.5, "aggregate": "mean"}
DRIVEN = {"aggregate_p": "gcn", "aggregate_q": "gcn", "damping": "graph", "force": "graph", "beta": 0.7}
GLOGNN = {"n_layers": 2, "alpha": 0.3, "beta": 0.7, "gamma": 0.4, "delta": 0.2, "matrix": "official"}


def conv(k: int) -> GraphConvolution:
    return GraphConvolution(3 * k, 3 * k)


def mean(k: int) -> graph_layers.MeanConvolution:
    return graph_layers.MeanConvolution(3 * k, 3 * k)


def gat(k: int) -> GraphAttention:
    return GraphAttention(4 * k, 4 * k, n_heads=4)


def by_sender(k: int) -> TransformerAttention:
    return TransformerAttention(3 * k, d_attention=4 * k, n_heads=2, normalize="sender")


LAYERS: dict[str, Make] = {
    "graphcon_gcn_v1": lambda k: GraphCON(  # of 5 channels: with 3 no unit of its ReLU is ever on
        GraphConvolution(5 * k, 5 * k), 3, residual="official-v1", **STEPS
    ),
    "graphcon_gcn_v2": lambda k: GraphCON(conv(k), 3, residual="official-v2", **STEPS),
    "graphcon_gat": lambda k: GraphCON(
        gat(k), 3, activation="elu", residual="plus", heads="official", **STEPS
    ),
    "graphcon_citation": lambda k: CitationGraphCON(by_sender(k), T=2.5),
    "graphcon_citation_late": lambda k: LateCitationGraphCON(by_sender(k), T=1.25, T_test=2.5).eval(),
    "graphcon_citation_gcn": lambda k: CoupledCitationGraphCON(conv(k), T=2.5),
    "g2_gcn": lambda k: GradientGating(conv(k), 3, gate_coupling=conv(k), **MEAN),
    "g2_sage": lambda k: GradientGating(mean(k), 3, gate_coupling=mean(k), **MEAN),
    "g2_gat": lambda k: GradientGating(
        gat(k), 2, p=2.0, activation="elu", aggregate="mean", heads="official"
    ),
    "adgn_sum": lambda k: ADGN(convolutions.SumConvolution(3 * k, 3 * k), 3, epsilon=0.3, gamma=0.2),
    "adgn_gcn": lambda k: ADGN(GraphConvolution(3 * k, 3 * k, bias=False), 3, epsilon=0.3, gamma=0.2),
    "phdgn": lambda k: PHDGN(3 * k, 3, epsilon=0.3, damping="channels", alpha=0.5, init="official"),
    "phdgn_driven": lambda k: PHDGN(3 * k, 3, epsilon=0.3, alpha=0.5, init="official", **DRIVEN),
    "cgnn": lambda k: CGNN(3 * k, T=1.4, n_steps=4, flow="official"),
    "f2gat": lambda k: F2GNN(
        GraphAttention(4 * k, k, n_heads=4), "1 01 101", fuse=["att", "lstm", "cat"], activation="elu"
    ),
    "geom_gcn": lambda k: WithHead(GeomGCN(3 * k, 2 * k), 2 * k),
    "h2gcn": lambda k: H2GCN(3 * k, 2),
    "mixhop": lambda k: MixHop(3 * k, 2 * k, 2, activation="tanh"),
    "gcn": lambda k: GraphConvolution(3 * k, 2 * k),
    "gat": lambda k: GraphAttention(3 * k, 2 * k, n_heads=3),
    "sage": lambda k: graph_layers.MeanConvolution(3 * k, 2 * k),
    "gin": lambda k: convolutions.IsomorphismConvolution(3 * k, 3 * k),
    "graph_transformer": lambda k: GraphTransformer(4 * k, 2, n_heads=2),
    "graph_transformer_batch": lambda k: GraphTransformer(4 * k, 2, n_heads=2, norm="batch"),
    "gde": lambda k: MPNN(conv(k), 3, activation="tanh", step=0.3, shared_weights=True),
    "gated_gcn": lambda k: MPNN(convolutions.GatedConvolution(3 * k, 3 * k), 2, step=1.0, batch_norm=True),
    "res_gated_gcn": lambda k: MPNN(  # of 6 channels: with 3 no unit of its ReLU is ever on
        convolutions.GatedConvolution(6 * k, 6 * k, normalized=False), 2
    ),
    "monet": lambda k: convolutions.MixtureConvolution(3 * k, 2 * k),
    "splinecnn": lambda k: SplineCNN(5, 3 * k, 2, n_knots=3),
    "chebnet": lambda k: pytest.importorskip("torch_geometric.nn").ChebConv(3 * k, 2 * k, K=3),
    "pna": lambda k: convolutions.PrincipalConvolution(3 * k, 2 * k, delta=0.9),
    "dgn": lambda k: DirectionalConvolution(3 * k, 2 * k, delta=0.9, n_directions=2),
    "grand": lambda k: Diffusion(TransformerAttention(3 * k, d_attention=4 * k, n_heads=2), T=2.5),
    "gprgnn": lambda k: GPRGNN(3 * k, K=4, alpha=0.2),
    "appnp": lambda k: APPNP(3 * k, K=5, alpha=0.2),
    "pairnorm": lambda k: PairNorm(scale=2.0),
    "gcnii": lambda k: GCNII(3 * k, 3, alpha=0.2, lam=0.7),
    "gcnii_star": lambda k: GCNII(3 * k, 3, alpha=0.2, lam=0.7, variant="star-official"),
    "fagcn": lambda k: FAGCN(3 * k, 2 * k, epsilon=0.3, bias="official"),
    "ggcn": lambda k: WithHead(GGCN(4 * k, 3 * k, 4, decay=0.8, exponent=3.0), 2 * k),
    "glognn": lambda k: GloGNN(4 * k, N, d_hidden=3 * k, n_classes=2 * k, **GLOGNN),
    "linkx": lambda k: LINKX(3 * k, N, d_hidden=4 * k),
    "acm_gcn": lambda k: ChannelMixing(3 * k, 2 * k),
    "acm_gcn_variant": lambda k: ChannelMixing(3 * k, 2 * k, variant=True),
}
EDGES = {  # which a layer gets of the lines; others get undirected ones
    **dict.fromkeys(("g2_gcn", "g2_sage", "g2_gat", "adgn_sum", "adgn_gcn", "geom_gcn", "gprgnn"), "stored"),
    **dict.fromkeys(("ggcn", "linkx", "acm_gcn", "acm_gcn_variant"), "reversed"),
}
LOOP = torch.tensor([[N - 1], [N - 1]])  # of the node without an edge, which is 0 / 0 in the code of some


def output(name: str, layer: nn.Module, x: Tensor) -> Tensor:
    edges = torch.from_numpy(directed(LINES.numpy(), EDGES.get(name, "undirected")))
    if name.startswith("graph_transformer"):
        edges = torch.cat([edges, LOOP], 1)
    y = layer(x) if name == "pairnorm" else layer(x, edges)
    return torch.log_softmax(y, 1) if name in ("ggcn", "glognn") else y


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_its_authors_code_computes_and_starts_by_its_law(name, monkeypatch) -> None:
    if "law" in GOLDEN[name]:
        check_law(name, LAYERS[name])
    monkeypatch.setattr(geom_gcn, "divisions", divisions)
    monkeypatch.setattr(directional, "laplacian_vectors", lambda *_: torch.from_numpy(numbers(7, (N, 2))))
    check_layer(name, LAYERS[name], output)
