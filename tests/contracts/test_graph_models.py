"""Laws of every model on graphs in conf/model, as it is there but narrow; the laws are in graph_laws.

A new config is tried by itself; VARIANTS has further settings of a model that take another way through its
code. What each model computes is tested beside its module.
"""

import functools

import pytest
import torch
from drawn_layers import numbers
from gpu import agrees_on_a_gpu, needs_gpu
from graph_laws import BOTH, LAWS, OF_NODES, OF_PLACES, laws_of
from refusals import refuses
from small_graphs import N, far_from_start
from torch import nn

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.config.build import Node, passes_messages
from physml.config.compose import compose, names
from physml.config.load import read_yaml
from physml.config.schema import checked
from physml.models.graph.graph_parts import call

D = 4
LAYERS = "physml.models.graph"
MODELS = [
    name for name in names("model") if f"{LAYERS}." in read_yaml(CONF / "model" / f"{name}.yaml")["_target_"]
]
SOURCE = ("gradients_by_features_are_those_of_differences",)  # of the citation model passes no gradient
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("glognn", "link", "linkx"), OF_NODES),
    **dict.fromkeys(("graphcon_citation", "graphcon_citation_gcn"), SOURCE),
    "geom_gcn": OF_PLACES,
}
ALL_AT_ONCE = OF_PLACES  # the largest score of a graph is everyone's
SAGE = f"{{_target_: {LAYERS}.graph_layers.MeanConvolution, d_in: {D}, d_out: {D}}}"
SUM = f"{{_target_: {LAYERS}.graph_convolutions.SumConvolution, d_in: {D}, d_out: {D}}}"
PYG_GAT = f"{{_target_: torch_geometric.nn.GATConv, in_channels: {D}, out_channels: {D}, heads: 3}}"
PYG_SAGE = f"{{_target_: torch_geometric.nn.SAGEConv, in_channels: {D}, out_channels: {D}}}"
OSCILLATOR = ("model.dt=0.3", "model.gamma=1.7", "model.alpha=0.6", "model.activation=tanh")
DIRECTIONS = "model.coupling.aggregations=[mean,max,min,av,dx]"
VARIANTS: dict[str, list[tuple[str, ...]]] = {
    "acm_gcn": [("model.variant=true",)],
    "adgn": [(f"model.coupling={SUM}",)],
    "dgn": [(DIRECTIONS, "model.coupling.n_directions=2", "model.batch_norm=false", "model.n_layers=1")],
    "diffusion": [
        ("model.attention.normalize=receiver",),
        ("model.attention.score=cosine",),
        # of few channels: else the kernel is 0 but for equal nodes
        ("model.attention.score=exp_kernel", "model.attention.d_attention=2", "model.attention.n_heads=1"),
    ],
    "f2gat": [('model.select="1 01 101 0111"', "model.fuse=[sum,cat,lstm,mean]")],
    "fagcn": [("model.bias=null",)],
    "gcnii": [("model.variant=star", "model.alpha=0.3"), ("model.variant=star-official",)],
    "glognn": [("model.matrix=official", "model.n_classes=2", "model.n_layers=2")],
    "graph_transformer": [("model.norm=batch",)],
    "graphcon_gat": [(*OSCILLATOR, "model.heads=official"), (f"model.coupling={PYG_GAT}",)],
    "graphcon_gcn": [
        (*OSCILLATOR, "model.shared_weights=false"),
        *((*OSCILLATOR, f"model.residual={kind}") for kind in ("plus", "official-v1", "official-v2")),
        (f"model.coupling={PYG_SAGE}",),
    ],
    "graphcon_tran": [OSCILLATOR],
    "g2_gat": [("model.heads=official", "model.activation=tanh"), (f"model.coupling={PYG_GAT}",)],
    "g2_gcn": [
        ("model.activation=tanh", f"model.gate_coupling={SAGE}", *change)
        for change in (
            ("model.p=2.5", "model.aggregate=mean"),
            ("model.p=3.3", "model.shared_weights=false"),
            ("model.p=2.0", "model.single_rate=true"),
            ("model.p=2.5", "model.rate_exponent=0.3"),
        )
    ],
    "jknet": [("model.fuse=cat",), ("model.fuse=max",)],
    "pde_gcn": [("model.kind=diffusion",), ("model.kind=mixed",)],
    "phdgn": [
        ("model.damping=graph", "model.force=graph", "model.aggregate_p=gcn", "model.state=p"),
        ("model.damping=channels", "model.aggregate_q=gcn", "model.state=q"),
    ],
    "sage": [("model.residual=true", "model.d_hidden=4")],
}
OF_SQUARE_PLUS = ("model.attention.square_plus=true", "model.attention.n_heads=1")


@functools.cache
def node_of(name: str, changes: tuple[str, ...]) -> Node:
    chosen = [f"model={name}", "task=texas", "profile=smoke", "tracker=none", f"net.hidden={D}", *changes]
    _, parts = checked(compose(chosen).config)
    assert passes_messages(parts.model.cls)
    return parts.model


def layer_of(name: str, changes: tuple[str, ...] = ()) -> nn.Module:
    """In double precision and evaluation, all weights drawn anew."""
    torch.manual_seed(0)
    return far_from_start(node_of(name, changes).make(d_in=D, n_nodes=N)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_keeps_the_laws_and_edge_weights_act_or_are_refused(name: str) -> None:
    for changes in ((), *VARIANTS.get(name, [])):
        laws_of(functools.partial(layer_of, name, changes), D, EXCEPTIONS.get(name, ()))
    layer, x, n_edges = layer_of(name), numbers(N, D), BOTH.shape[1]
    ones = torch.ones(n_edges, dtype=torch.double)
    if name not in WEIGHTED:
        refuses(InputError, "takes no edge_weight", call, layer, x, BOTH, ones)
        return
    plain = layer(x, BOTH)
    torch.testing.assert_close(call(layer, x, BOTH, ones), plain, rtol=1e-9, atol=1e-10)
    other = call(layer, x, BOTH, torch.linspace(0.1, 3, n_edges, dtype=torch.double))
    assert torch.allclose(other, plain) == (name == "mlp")


@needs_gpu
@pytest.mark.filterwarnings("ignore:The usage of `scatter:UserWarning")
@pytest.mark.parametrize("name", MODELS)
def test_a_layer_computes_the_same_on_a_gpu(name: str) -> None:
    for changes in ((), *VARIANTS.get(name, [])):
        agrees_on_a_gpu(layer_of(name, changes), lambda layer, x, e: layer(x, e), numbers(N, D), BOTH)


@pytest.mark.parametrize("name", ["diffusion", "graphcon_citation"])
def test_square_plus_looks_at_all_nodes_at_once_and_keeps_the_other_laws(name: str) -> None:
    laws_of(functools.partial(layer_of, name, OF_SQUARE_PLUS), D, (*EXCEPTIONS.get(name, ()), *ALL_AT_ONCE))


WEIGHTED = (  # whose layers take edge weights
    *("adgn", "appnp", "cgnn", "chebnet", "g2_gcn", "gcn", "gcnii", "gde", "gprgnn", "graphcon_gcn"),
    *("graphcon_pyg_gcn", "mixhop", "mlp", "multirate_gcn", "residual_gcn"),
)


def test_exceptions_name_laws_and_models_that_are_there() -> None:
    assert EXCEPTIONS.keys() | VARIANTS.keys() <= set(MODELS)
    assert {name for kept in EXCEPTIONS.values() for name in kept} <= {rule.__name__ for rule in LAWS}
