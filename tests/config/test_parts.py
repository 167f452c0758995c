"""A part of a config that names its class replaces what is there, instead of being mixed with it."""

from pathlib import Path

import pytest
import yaml
from configs import write

from physml.base.errors import ConfigError
from physml.config.compose import compose

GRAPH = ("model=graphcon_gcn", "task=texas")
GCN = "model.coupling={_target_: torch_geometric.nn.GCNConv, in_channels: 64, out_channels: '${net.hidden}'}"


def test_a_coupling_of_another_class_has_its_own_arguments_alone() -> None:
    """What follows it changes it."""
    model = compose([*GRAPH, GCN, "net.hidden=32"]).config["model"]
    coupling = {"_target_": "torch_geometric.nn.GCNConv", "in_channels": 64, "out_channels": 32}
    assert model["coupling"] == coupling
    assert model["n_layers"] == compose([*GRAPH]).config["model"]["n_layers"]
    changed = compose([*GRAPH, GCN, "model.coupling.in_channels=7"]).config
    assert changed["model"]["coupling"]["in_channels"] == 7


def test_a_part_may_come_where_there_was_none_a_misspelt_one_is_refused_null_is_no_experiment() -> None:
    stop = "{_target_: physml.training.selection.Patience, epochs: 20, metric: null}"
    assert compose([*GRAPH, f"trainer.stop={stop}"]).config["trainer"]["stop"] == yaml.safe_load(stop)
    with pytest.raises(ConfigError, match=r"no config key model\.couplin\. Did you mean coupling\?"):
        compose([*GRAPH, GCN.replace("coupling", "couplin")])
    assert compose(["experiment=null", *GRAPH]) == compose([*GRAPH])


@pytest.mark.parametrize("text", ["it's", "a\\", "\\'", "x: {y}, [#]", ""])
def test_a_part_of_a_file_stands_as_it_is_written(text: str, tmp_path: Path) -> None:
    quoted = text.replace("'", "''")
    study = (
        "task: texas\nprovenance: {kind: own, source: a test}\nrows:\n mine:\n  model: graphcon_gcn\n  set:\n"
        "   net: {hidden: 16}\n   model:\n    n_layers: 3\n    coupling:\n      _target_: my_gnn.MyGNN\n"
        f"      d_in: '${{net.hidden}}'\n      leak: 1.0e-7\n"
        f"      name: '{quoted}'\n      some: [1, null, {{a: true}}]\n"
    )
    file = write(tmp_path / "mine.yaml", study)
    coupling = {"_target_": "my_gnn.MyGNN", "d_in": 16, "leak": 1e-7, "name": text}
    coupling |= {"some": [1, None, {"a": True}]}
    assert compose([f"experiment={file}:mine"]).config["model"]["coupling"] == coupling
    changed = compose([f"experiment={file}:mine", "model.coupling.leak=0.5", "net.hidden=8"]).config["model"]
    assert (changed["coupling"]["leak"], changed["coupling"]["d_in"], changed["n_layers"]) == (0.5, 8, 3)
