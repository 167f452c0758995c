"""No model takes a count of 0, -1 or a half, a NaN or a misspelt word; the message names the argument.

A new config is tried by itself, with the numbers and words that stand there. Other refusals are tested beside
the module.
"""

import math
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from small_graphs import N

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.config import build
from physml.config.compose import compose, names
from physml.config.load import read_yaml
from physml.config.schema import checked

D = 4
MODELS = [name for name in names("model") if name != "own"]


def node_of(name: str) -> build.Node:
    graphs = ".models.graph." in read_yaml(CONF / "model" / f"{name}.yaml")["_target_"]
    base = ("task=texas", f"net.hidden={D}") if graphs else ("task=adding",)
    return checked(compose([f"model={name}", *base, "profile=smoke", "tracker=none"]).config)[1].model


def wrong_values(node: build.Node) -> Iterator[tuple[str, Any]]:
    sizes = {key: D for key in ("d_in", "n_nodes") if key in build.arguments(node.cls)}
    for key, value in (sizes | node.values).items():
        if type(value) is int:
            yield from ((key, 0), (key, -1), (key, value + 0.5))
        elif type(value) is float:
            yield from ((key, math.nan), (key, -1.0))
        elif type(value) is str:
            yield key, value + "x"


SIGNED = {"phdgn": ("beta",), "sru": ("highway_bias",)}  # any number will do
OF_PARTS = {("link", "d_hidden"): "d_out"}  # where the message has the name of an argument inside


@pytest.mark.filterwarnings("ignore:Initializing zero-element tensors")
@pytest.mark.parametrize("name", MODELS)
def test_what_no_argument_may_be_is_refused(name: str) -> None:
    node, supplied = node_of(name), {"d_in": D, "n_nodes": N}
    node.make(**supplied)
    for key, wrong in wrong_values(node):
        if key not in SIGNED.get(name, ()):
            values = replace(node, values=node.values | ({} if key in supplied else {key: wrong}))
            with pytest.raises(InputError, match=rf"\b{OF_PARTS.get((name, key), key)}\b"):
                values.make(**(supplied | {key: wrong}))
