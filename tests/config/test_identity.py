"""Identities: what moves them and what must not, and that two configs never share a record."""

import copy
import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest
from configs import write
from refusals import refuses

from physml.base.errors import ConfigError, RunFailed
from physml.config import class_source
from physml.config import identity as identities
from physml.config.compose import Composed, compose
from physml.config.identity import canonical, identity, payload
from physml.records import record
from physml.run.perform import existing
from physml.run.spec import spec_of

PLUGIN = """
from torch import nn


class MyRNN(nn.Module):
    version = 1

    def __init__(self, d_in: int, d_hidden: int, *, clip: float | None = 1.0, skip: int | None = None):
        super().__init__()
"""


def config_of(*overrides: str) -> dict[str, Any]:
    return compose(["model=lem", "task=adding", *overrides]).config


BASE = config_of()
KEY = identity(BASE)


def changed(**sections: dict[str, Any]) -> str:
    config = copy.deepcopy(BASE)
    for section, values in sections.items():
        config[section] |= values
    return identity(config)


def test_an_identity_is_eight_hex_digits_of_finite_numbers_in_keys_of_any_order() -> None:
    assert len(KEY) == 8 and int(KEY, 16) >= 0
    refuses(ConfigError, "not finite", changed, optim={"lr": float("inf")})
    # Lists and tuples are alike.
    assert identity(turned(BASE)) == KEY != changed(model={"biases": True})
    assert changed(optim={"betas": (0.9, 0.999)}) == KEY
    assert changed(optim={"betas": [0.999, 0.9]}) != KEY


def test_a_class_is_the_same_by_every_name_that_it_has_had() -> None:
    """Records of earlier releases hold names between the first and the present one; they can be rerun."""
    config = compose(["model=gcn", "task=cora", "net=graph"]).config
    now = identity(config)
    assert config["net"]["_target_"] == "physml.models.graph.graph_net.GraphNet"
    for place in ("graph_net", "gnn"):
        config["net"]["_target_"] = f"physml.models.{place}.GraphNet"
        assert identity(config) == now


@pytest.mark.parametrize("step", [1, 1.0])
def test_whole_numbers_are_equal_to_their_floats(step: float) -> None:
    assert changed(model={"dt": step}) == KEY
    assert config_of("model.dt=1") == config_of("model.dt=1.0")
    assert identity(config_of("model.dt=1")) == KEY


def turned(node: Any) -> Any:
    if isinstance(node, dict):
        return {key: turned(value) for key, value in reversed(node.items())}
    return node


@pytest.mark.parametrize("section", ["trainer", "optim", "net", "task"])
def test_a_new_option_that_is_null_keeps_old_identities(section: str) -> None:
    assert changed(**{section: {"new": None}}) == KEY != changed(**{section: {"new": 1}})


STILL = [
    *("seed=7", "split=3", "runtime.device=cpu", "runtime.threads=2", "runtime.backend=native"),
    *("runtime.deterministic=true", "runtime.checkpoint_every_s=1", "runtime.save_model=true"),
    *("tracker=none", "tracker.project=other", "model.backend=reference", "model.backend=native"),
    *("n_parameters_printed=1k", "arrays={_target_:physml.training.collectors.TimeScales,n:3}"),
    "short=half the steps",
]


@pytest.mark.parametrize("override", STILL)
def test_what_cannot_move_a_number_is_not_in_the_identity(override: str) -> None:
    assert identity(config_of(override)) == KEY


MOVING = [
    *("model=cornn", "model.d_hidden=17", "model.dt=0.999", "model.multiscale=false", "model.chrono=10"),
    *("net.n_layers=2", "net.readout_init=kaiming_normal", "task.length=501", "task.protocol=official"),
    *("trainer.epochs=101", "trainer.batch_size=33", "trainer.clip_norm=1"),
    *("trainer.select._target_=physml.training.selection.Last", "optim=adamw", "optim.lr=1.0001e-3"),
    "+trainer.schedule={_target_:torch.optim.lr_scheduler.StepLR,step_size:3,gamma:0.1}",
    "+trainer.stop={_target_:physml.training.selection.Patience,epochs:3,metric:null}",
    "trainer.average={_target_:physml.training.averaging.Triggered,epochs:null,latest:2,metric:null}",
    *("+optim.lr_factors={b:0.1}", "precision=bf16", "precision=bf16-products", "profile=smoke"),
]


@pytest.mark.parametrize("override", MOVING)
def test_what_can_move_a_number_moves_the_identity(override: str) -> None:
    assert identity(config_of(override)) != KEY


NETS = "physml.models.sequence"
TARGETS = [f"{NETS}.lem.LEM", f"{NETS}.rnn.SequenceModel", "tasks.adding.Adding", "the trainer"]


@pytest.mark.parametrize("target", TARGETS)
def test_a_raised_version_moves_the_identity(monkeypatch: pytest.MonkeyPatch, target: str) -> None:
    def raised(name: str) -> class_source.ClassSource:
        source = class_source.read_class(name)
        return dataclasses.replace(source, version=source.version + 1) if name == target else source

    monkeypatch.setattr(identities, "read_class", raised)
    trainer = identities.TRAINER_VERSION + (target == "the trainer")
    monkeypatch.setattr(identities, "TRAINER_VERSION", trainer)
    assert identity(BASE) != KEY


@pytest.fixture
def plugin(tmp_path: Path) -> Path:
    return write(tmp_path / "my_rnn.py", PLUGIN)


def with_plugin(path: Path, *overrides: str) -> str:
    typed = [f"plugins=[{path}]", "model=own", f"model._target_={path.stem}.MyRNN", "task=adding", *overrides]
    return identity(compose(typed).config)


def test_an_edited_plugin_is_another_setting_and_null_is_unlike_another_default(plugin, tmp_path) -> None:
    before = with_plugin(plugin)
    assert with_plugin(plugin) == before == with_plugin(write(tmp_path / "other" / "my_rnn.py", PLUGIN))
    plugin.write_text(PLUGIN + "\n# a comment is an edit, too\n")
    assert with_plugin(plugin) != before
    # `clip` is 1.0 when left out and nothing when null; `skip` is null either way.
    assert with_plugin(plugin, "+model.clip=null") != with_plugin(plugin)
    assert with_plugin(plugin, "+model.skip=null") == with_plugin(plugin)
    plugin.write_text(PLUGIN.replace("clip: float", "backend: str = 'a', clip: float"))
    assert with_plugin(plugin, "+model.backend=b") != with_plugin(plugin)


def test_interpolations_are_resolved_before_hashing(tmp_path: Path) -> None:
    row = {"model": "lem", "set": {"model": {"d_hidden": "${trainer.batch_size}"}}}
    study = {"task": "adding", "provenance": {"kind": "own", "source": "a test"}, "rows": {"mine": row}}
    path = write(tmp_path / "mine.yaml", study)
    by_reference = identity(compose([f"experiment={path}:mine"]).config)
    assert by_reference == identity(config_of("model.d_hidden=32"))
    assert by_reference != identity(compose([f"experiment={path}:mine", "trainer.batch_size=16"]).config)


# ---------------------------------------------------------------------------- where a run belongs


def spec(*overrides: str):
    return spec_of(compose(["experiment=lem/fitzhugh_nagumo-lem", *overrides]))


@pytest.mark.parametrize(
    "overrides", [(), ("seed=4",), ("runtime.threads=2",), ("tracker=none",), ("optim.lr=0.00904",)]
)
def test_an_untouched_experiment_has_its_own_folder(overrides: tuple[str, ...]) -> None:
    assert spec(*overrides).place.folder == "lem/fitzhugh_nagumo-lem"


@pytest.mark.parametrize(
    "override",
    ["model.dt=0.5", "runtime.score_test=false", "short=x", "trainer.epochs=1", "n_parameters_printed=2k"],
)
def test_a_touched_experiment_is_kept_out_of_its_folder(override: str) -> None:
    assert spec(override).place.folder == "adhoc/lem/fitzhugh_nagumo-lem"


def test_a_smoke_run_is_kept_out_of_the_checkouts_records_and_no_two_configs_share_one(monkeypatch, tmp_path):
    monkeypatch.delenv("PHYSML_RESULTS", raising=False)
    assert spec("profile=smoke").place.folder == "adhoc/lem/fitzhugh_nagumo-lem"
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    assert spec("profile=smoke").place.folder == "lem/fitzhugh_nagumo-lem"
    # The folder is that of the full run, and `run -m profile=smoke,full` keeps both, by their labels.
    assert spec("profile=smoke").label != spec().label == "lem/fitzhugh_nagumo-lem split 0 seed 0"
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    run_spec = spec("seed=99")
    kept = {"schema": record.SCHEMA, "identity": run_spec.place.identity, "seed": 99, "split": 0}
    kept |= {"experiment": "x", "status": "finished", "config": run_spec.config}
    kept |= {"metrics": {"best": None, "last": None}}
    record.write(run_spec.record_path, kept | {"hashed": payload(run_spec.config)})
    assert existing(run_spec) is not None
    record.write(run_spec.record_path, kept | {"hashed": payload(BASE)})
    refuses(RunFailed, "same identity but another config", existing, run_spec)


def test_what_is_hashed_goes_through_json_unchanged_and_names_of_records_do_not_depend_on_places() -> None:
    assert json.loads(json.dumps(payload(BASE))) == payload(BASE)
    assert canonical({"a": None, "b": [1.0, None, {"c": None}]}) == {"b": [1, None, {}]}
    composed = Composed(BASE, dict.fromkeys(("model", "task"), "x") | {"experiment": None})
    assert str(spec_of(composed).place.relative) == f"runs/adhoc/x-x/{KEY}-split0-seed0.json"
