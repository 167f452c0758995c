"""Weights that come with physml: found by name, evaluated before they are kept, small, of recorded runs."""

import hashlib
import json
import re
import sys
from typing import Any

import pytest
import run_harness as h
import torch
from refusals import refuses

from physml.base.errors import DataError, InputError
from physml.base.paths import OWN_RESULTS, ROOT, results_root
from physml.cli.main import main
from physml.export import keeping
from physml.export.facts import facts_of
from physml.records import record
from physml.run.record import count_parameters
from physml.run.weights import kept_of, load, path_of, read_about

NETWORKS = sorted((OWN_RESULTS / "weights").rglob("*.safetensors"))
TINY = ["model=lem", "model.d_hidden=3", "task=adding", "profile=smoke", "trainer.epochs=1", "tracker=none"]


def test_weights_in_the_repository_are_small_and_those_of_recorded_runs():
    assert NETWORKS and sum(path.stat().st_size for path in NETWORKS) < keeping.MOST
    for path in NETWORKS:
        card = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
        assert hashlib.sha256(path.read_bytes()).hexdigest() == card["sha256"]
        name = path.relative_to(OWN_RESULTS / "weights").with_suffix("").as_posix()
        of = [r for r in record.records(name) if (r["split"], r["seed"]) == (card["split"], card["seed"])]
        (recorded,) = [r for r in of if r["identity"] == card["identity"] == read_about(path).identity]
        assert card["metrics"] == recorded["metrics"] and recorded["status"] == "finished"
        for metric, value in recorded["metrics"]["best"]["test"].items():
            assert card["evaluated"][metric] == pytest.approx(value, rel=keeping.AGREE)
        assert count_parameters(load(name)) == card["n_parameters"]


def test_all_are_named_in_the_docs_and_loaded_by_the_name_of_their_experiment():
    names = [path.relative_to(OWN_RESULTS / "weights").with_suffix("").as_posix() for path in NETWORKS]
    rows = re.findall(r"^\| `(\w+/[\w-]+)` \| ", (ROOT / "docs" / "export.md").read_text("utf-8"), re.M)
    assert rows == names and len([*(OWN_RESULTS / "weights").rglob("*.json")]) == len(names)
    net = load("lem/adding-5000-lem-short")
    assert sum(p.numel() for p in net.parameters()) == 67713
    assert net(torch.zeros(1, 7, 2))[0].shape == (1, 1)


def test_weights_are_kept_once_their_score_is_that_of_the_record():
    run = h.make(h.spec_of([*TINY, "runtime.save_model=true"]))
    of_table = {**run, "path": str(results_root() / "runs" / "lem" / "adding-500-lem" / "a.json")}
    target = keeping.keep(of_table, path_of(run))
    assert target == results_root() / "weights" / "lem" / "adding-500-lem.safetensors"
    assert target == kept_of("lem/adding-500-lem") and target.with_suffix(".json").exists()
    mse = run["metrics"]["best"]["test"]["mse"]
    for test, says in (
        ({"mse": mse * 1.01}, "gives test mse .*, the record .*: these are not the weights"),
        ({"mse": None}, "has no score on test data"),
        ({}, "has no score on test data"),
    ):
        refuses(DataError, says, keeping.keep, {**run, "metrics": {"best": {"test": test}}}, path_of(run))


def test_weights_of_other_settings_do_not_take_the_name_of_the_experiment(capsys):
    """That of a row of one's own, and that of a shipped row with other settings."""
    tiny = ["profile=smoke", "trainer.epochs=1", "tracker=none", "runtime.save_model=true"]
    run = h.make(h.spec_of(["experiment=lem/fitzhugh_nagumo-lstm", *tiny, "model.d_hidden=3"]))
    assert main(["export", run["path"], "--keep"]) == 0
    assert "physml.load('adhoc/lem/fitzhugh_nagumo-lstm') reads it" in capsys.readouterr().out
    own = results_root() / "weights"
    assert load("adhoc/lem/fitzhugh_nagumo-lstm") and not (own / "lem" / "fitzhugh_nagumo-lstm.json").exists()
    assert "adhoc/lem/fitzhugh_nagumo-lstm" in record.adhoc_folders()
    assert facts_of(kept_of("adhoc/lem/fitzhugh_nagumo-lstm"), None, None).run["path"] == run["path"]


def test_code_of_ones_own_is_run_where_it_is_named_alone(tmp_path, monkeypatch, prints):
    plugin = tmp_path / "own_rnn_kept.py"
    plugin.write_text("from physml.models.sequence.gated import GRU\n\nclass OwnRNNKept(GRU):\n    pass\n")
    own = ["model=own", "model._target_=own_rnn_kept.OwnRNNKept", "model.d_hidden=3", f"plugins=[{plugin}]"]
    run = h.make(h.spec_of([*own, *TINY[2:], "runtime.save_model=true"]))
    del sys.modules["own_rnn_kept"]
    monkeypatch.chdir(tmp_path)
    assert (
        "model._target_=own_rnn_kept.OwnRNNKept is not allowed"
        in prints(2, "export", run["path"], "--keep").err
    )
    assert "own_rnn_kept" not in sys.modules
    assert main(["export", run["path"], "--keep", "--plugin", "own_rnn_kept.py"]) == 0


def test_too_many_weights_are_refused(monkeypatch):
    run = h.make(h.spec_of([*TINY, "runtime.save_model=true", "seed=3"]))
    monkeypatch.setattr(keeping, "MOST", 100)
    with pytest.raises(DataError, match="all kept weights would take"):
        keeping.keep({**run, "experiment": "lem/adding-500-lem"}, path_of(run))


@pytest.mark.parametrize(
    ("name", "says"),
    [(None, "got None"), (3, "got 3"), ("x" * 5000, "no file can be"), ("a\0b", "no file can be")],
)
def test_what_can_name_no_run_is_told_so(name: Any, says: str) -> None:
    refuses(InputError, says, load, name)
