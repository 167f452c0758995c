"""Layers against their authors' code at equal weights, in float64: outputs and gradients.

tests/golden/authors_graph.json holds what the authors' classes gave, with their weights. PyG stands for the
authors where it has their layer. More of these: test_baselines*.py, test_gnn.py, test_graph_layers.py.
"""

import json
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from physml.data.graphs import directed
from physml.models.graph.appnp import APPNP
from physml.models.graph.fagcn import FAGCN
from physml.models.graph.ggcn import GGCN, SignedConvolution
from physml.models.graph.glognn import GloGNN
from physml.models.graph.gnn import PairNorm
from physml.models.graph.linkx import LINKX

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # PyG calls torch.jit.script, which torch deprecates
    from torch_geometric import nn as pyg

GOLDEN = json.loads((Path(__file__).parents[2] / "golden/authors_graph.json").read_text(encoding="utf-8"))
LINES = torch.tensor(GOLDEN["lines"]).T
N, D, H, C = 6, 4, 3, 2


def edges(direction: str) -> Tensor:
    return torch.from_numpy(directed(LINES.numpy(), direction))


def features() -> Tensor:
    return torch.tensor(GOLDEN["x"], dtype=torch.double).requires_grad_()


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(1))


def same(found: Tensor | None, wanted: Any) -> None:
    assert found is not None
    torch.testing.assert_close(found, torch.as_tensor(wanted, dtype=torch.double), rtol=1e-10, atol=1e-12)


def same_pairs(pairs: list[tuple[nn.Parameter, str]], theirs: dict[str, Any]) -> None:
    """Gradients of the weights; and no weight of theirs is left out."""
    assert {name for _, name in pairs} == set(theirs["weights"])
    for p, name in pairs:
        same(p.grad, torch.tensor(theirs["grad"][name], dtype=torch.double).view_as(p))


def load(pairs: list[tuple[nn.Parameter, str]], theirs: dict[str, Any]) -> None:
    with torch.no_grad():
        for p, name in pairs:
            p.copy_(torch.tensor(theirs["weights"][name], dtype=torch.double).view_as(p))


def test_five_layers_of_ggcn_are_those_of_its_code() -> None:
    """In the direction of its code a page receives from those that it links to: `edges: reversed`."""
    theirs = GOLDEN["ggcn"]
    net = GGCN(D, H, theirs["n_layers"], decay=theirs["decay"], exponent=theirs["exponent"]).double()
    head = net.head(C).double()
    pairs = [(net.own.weight, "fcn.weight"), (net.own.bias, "fcn.bias")]
    for n, layer in enumerate([*net.layers, head]):
        assert isinstance(layer, SignedConvolution)
        parts = {"fcn.weight": layer.lin.weight, "fcn.bias": layer.lin.bias}
        parts |= {"deg_coeff": layer.c, "coeff": layer.a, "scale": layer.s}
        pairs += [(p, f"convs.{n}.{name}") for name, p in parts.items()]
    load(pairs, theirs)
    x = features()
    out = torch.log_softmax(head(net(x, edges("reversed")), edges("reversed")), 1)
    same(out, theirs["out"])
    out.square().sum().backward()
    same(x.grad, theirs["x_grad"])
    same_pairs(pairs, theirs)


def test_glognn_is_that_of_its_code() -> None:
    theirs = GOLDEN["glognn"]
    keys = ("alpha", "beta", "gamma", "delta", "n_layers", "n_orders")
    settings = {key: theirs[key] for key in keys}
    net = GloGNN(D, N, d_hidden=H, matrix="official", n_classes=C, **settings).double()
    assert net.scores is not None
    pairs = [(net.lam, "orders_weight")]
    for part, name in ((net.of_features, "fc1"), (net.scores, "fc2"), (net.of_links, "fc3")):
        pairs += [(part.weight, f"{name}.weight"), (part.bias, f"{name}.bias")]
    load(pairs, theirs)
    x = features()
    out = torch.log_softmax(net(x, edges("undirected")), 1)
    same(out, theirs["out"])
    out.square().sum().backward()
    same(x.grad, theirs["x_grad"])
    same_pairs(pairs, theirs)


def slopes(net: nn.Module, x: Tensor, *rest: Tensor) -> tuple[Tensor, Tensor]:
    """Output, and the slope of the sum of its squares by x."""
    out = net(x, *rest)
    (slope,) = torch.autograd.grad(out.square().sum(), x)
    return out, slope


@pytest.mark.parametrize("direction", ["stored", "undirected"])
def test_appnp_is_that_of_pyg(direction: str) -> None:
    x = features()
    for mine, theirs in zip(
        slopes(APPNP(D, K=7, alpha=0.3).double(), x, edges(direction)),
        slopes(pyg.APPNP(7, 0.3).double(), x, edges(direction)),
        strict=True,
    ):
        same(mine, theirs)


def test_pair_norm_is_that_of_pyg() -> None:
    """Which adds another small number to the mean square: 1e-5, ours the 1e-6 of the authors' code."""
    x = features()
    mine, theirs = slopes(PairNorm(scale=2.0), x), slopes(pyg.PairNorm(2.0, eps=1e-6).double(), x)
    for ours, wanted in zip(mine, theirs, strict=True):
        same(ours, wanted)


@pytest.mark.parametrize("direction", ["stored", "undirected"])
def test_linkx_is_that_of_pyg(direction: str) -> None:
    """PyG has a square matrix each for joined links and features; ours has them side by side."""
    torch.manual_seed(0)
    theirs = pyg.LINKX(N, D, H, C, num_layers=1).double()
    net, last = LINKX(D, N, d_hidden=H).double(), nn.Linear(H, C).double()
    with torch.no_grad():
        for p in theirs.parameters():
            p.copy_(draw(*p.shape))
        net.of_links.weight.copy_(theirs.edge_lin.weight.T)
        net.of_links.bias.copy_(theirs.edge_lin.bias)
        net.of_features.load_state_dict(theirs.node_mlp.lins[0].state_dict())
        net.joined.weight.copy_(torch.cat([theirs.cat_lin1.weight, theirs.cat_lin2.weight], 1))
        net.joined.bias.copy_(theirs.cat_lin1.bias + theirs.cat_lin2.bias)
        last.load_state_dict(theirs.final_mlp.lins[0].state_dict())
    x = features()
    out, wanted = last(net(x, edges(direction))), theirs(x, edges(direction))
    same(out, wanted)
    parameters = (x, net.of_links.weight, net.joined.weight)
    ours = torch.autograd.grad(out.square().sum(), parameters)
    sought = (x, theirs.edge_lin.weight, theirs.cat_lin1.weight, theirs.cat_lin2.weight)
    slope_x, links, first, second = torch.autograd.grad(wanted.square().sum(), sought)
    for found, expected in zip(ours, (slope_x, links.T, torch.cat([first, second], 1)), strict=True):
        same(found, expected)


def test_gradients_of_fagcn_are_those_of_pyg() -> None:
    x = features()
    net, theirs = FAGCN(D, 1, epsilon=0.3).double(), pyg.FAConv(D, eps=0.3, add_self_loops=False).double()
    theirs.att_r.weight.data, theirs.att_l.weight.data = net.g[0][:1].data, net.g[0][1:].data
    for mine, wanted in zip(
        slopes(net, x, edges("undirected")), slopes(theirs, x, x, edges("undirected")), strict=True
    ):
        same(mine, wanted)
