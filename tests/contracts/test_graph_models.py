"""Laws of every model on graphs in conf/model, as it is there but narrow; the laws are in graph_laws.

What each model computes is tested beside its module.
"""

import pytest
import torch
from graph_laws import LAWS, OF_NODES, OF_PLACES, laws_of
from small_graphs import N, far_from_start
from torch import nn

from physml.base.paths import CONF
from physml.config.build import passes_messages
from physml.config.compose import compose, names
from physml.config.load import read_yaml
from physml.config.schema import checked

D = 4
MODELS = [
    name
    for name in names("model")
    if ".models.graph." in read_yaml(CONF / "model" / f"{name}.yaml")["_target_"]
]
SOURCE = ("gradients_are_those_of_differences",)  # the source of the citation model passes no gradient
EXCEPTIONS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("glognn", "link", "linkx"), OF_NODES),
    **dict.fromkeys(("graphcon_citation", "graphcon_citation_gcn"), SOURCE),
    "geom_gcn": OF_PLACES,
}


def layer_of(name: str) -> nn.Module:
    """In double precision and evaluation, all weights drawn anew."""
    chosen = [f"model={name}", "task=texas", "profile=smoke", "tracker=none", f"net.hidden={D}"]
    _, parts = checked(compose(chosen).config)
    assert passes_messages(parts.model.cls)
    torch.manual_seed(0)
    return far_from_start(parts.model.make(d_in=D, n_nodes=N)).eval()


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_keeps_the_laws(name: str) -> None:
    laws_of(lambda: layer_of(name), D, EXCEPTIONS.get(name, ()))


def test_exceptions_name_laws_and_models_that_are_there() -> None:
    assert EXCEPTIONS.keys() <= set(MODELS)
    assert {name for kept in EXCEPTIONS.values() for name in kept} <= {one.__name__ for one in LAWS}
