"""`python -m scripts.bench.graph`: both ways make the same network, as many epochs, one file."""

import json

import numpy as np
import pytest
import torch
from torch import nn

from physml.config.compose import compose
from physml.models.graph.g2 import GradientGating
from physml.models.graph.graph_layers import MeanConvolution
from physml.run.spec import checked_specs
from scripts.bench import graph

ROUND = {"clock_s": 8.0, "processor_s": 4.0, "loop_s": 2.0}


@pytest.fixture
def graph_plain():
    """Imported where it is used: it takes torch_geometric, which is large."""
    from scripts.bench import graph_plain

    return graph_plain


def measured(experiment):
    ways = {"plain": [ROUND], "physml": [{key: value / 4 for key, value in ROUND.items()}]}
    moment = graph.store.moment("cpu", 1)
    return {"experiment": experiment, "epochs": 10, "runs": 2, "moment": moment, "ways": ways}


@pytest.mark.grid
def test_the_plain_network_of_gradient_gating_is_ours(graph_plain):
    """The same numbers with the same weights, so that speed alone differs."""
    keys = {"hidden": 6, "n_layers": 3, "p": 2.5, "aggregate": "mean", "conv": "sage", "own_gate": True}
    keys |= {"input_dropout": 0.0, "out_dropout": 0.0}
    plain = graph_plain.GatedNet(4, 3, keys)
    gate = {"gate_coupling": MeanConvolution(6, 6), "aggregate": "mean"}
    ours = GradientGating(MeanConvolution(6, 6), 3, p=2.5, activation="relu", **gate)
    for theirs, mine in ((plain.conv, ours.forces[0].coupling), (plain.gate, ours.gates[0].coupling)):
        mine.lin_l.load_state_dict(theirs.lin_l.state_dict())
        mine.lin_r.load_state_dict(theirs.lin_r.state_dict())
    x, edge_index = torch.randn(9, 4), torch.randint(0, 9, (2, 30))
    with torch.no_grad():
        want = plain(x, edge_index)
        got = plain.decoder(ours(torch.relu(plain.encoder(x)), edge_index))
    assert torch.allclose(got, want, atol=1e-5)


def test_the_plain_run_trains_and_tells(graph_plain, tmp_path, capsys):
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(30, 5)).astype(np.float32), rng.integers(0, 3, 30)
    parts = dict(zip(("train", "valid", "test"), np.arange(30).reshape(3, 10), strict=True))
    np.savez(tmp_path / "data.npz", x=x, y=y, edge_index=rng.integers(0, 30, (2, 60)), **parts)
    keys = {"hidden": 8, "n_layers": 2, "dt": 1.0, "alpha": 0.0, "gamma": 0.0, "dropout": 0.1}
    job = {"net": "graphcon", "keys": {**keys, "input_dropout": 0.1}, "n_classes": 3, "epochs": 3, "seed": 0}
    job |= {"data": str(tmp_path / "data.npz"), "lr": 0.01, "weight_decay": 0.0}
    (tmp_path / "job.json").write_text(json.dumps(job))
    assert graph_plain.main([str(tmp_path / "job.json")]) == 0
    summary = json.loads(capsys.readouterr().out)
    linear = sum(p.numel() for p in nn.Linear(8, 8).parameters())
    assert summary["parameters"] == 2 * linear + 5 * 8 + 8 + 8 * 3 + 3
    assert summary["loop_s"] > 0 and 0 <= summary["best"][0] <= 1


@pytest.mark.parametrize("name", list(graph.WORKLOADS))
def test_workloads_are_experiments(name):
    workload = graph.WORKLOADS[name]
    (spec,) = checked_specs([compose([f"experiment={workload.experiment}", "trainer.stop=null"])])
    assert workload.conv in workload.experiment
    assert spec.config["trainer"]["epochs"] >= workload.epochs
    if name.startswith("squirrel"):
        assert spec.config["model"]["p"] % 2 and spec.config["model"]["gate_coupling"]  # no quick power


def test_a_file_is_written_and_workloads_are_kept(roots, monkeypatch, capsys):
    monkeypatch.setattr(graph, "measure", lambda workload, *_: measured(workload.experiment))
    assert graph.main(["--workload", "texas GraphCON-GCN"]) == 0
    assert graph.main(["--workload", "chameleon G2-GCN"]) == 0
    (path,) = (roots / "results" / "bench").glob("graph-*.json")
    assert list(json.loads(path.read_text())["workloads"]) == ["texas GraphCON-GCN", "chameleon G2-GCN"]
    said = capsys.readouterr().out
    assert "900" in said and "3600" in said and "4.00" in said  # runs per hour, and their ratio
    text = path.with_suffix(".md").read_text()
    assert "make bench-graph" in text and "2 : 0.5" in text


def test_networks_of_different_sizes_are_no_comparison(monkeypatch, tmp_path):
    monkeypatch.setattr(graph, "_plain_run", lambda job: {"parameters": 7, "loop_s": 1.0})
    assert graph._plain([tmp_path], 7)["loop_s"] == 1.0
    with pytest.raises(graph.RunFailed, match="the plain network has 7 parameters, ours 8"):
        graph._plain([tmp_path], 8)
