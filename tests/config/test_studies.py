"""Studies: experiments as rows of one file, composed as Hydra would compose them."""

import json
import os
import re
from pathlib import Path
from typing import Any

import configs
import pytest
from hydra import compose as hydra_compose
from hydra import initialize_config_dir
from omegaconf import OmegaConf
from refusals import refuses
from search_conf import without_studies

from physml.base.errors import ConfigError
from physml.config import compose, conf_files, studies
from physml.config.overrides import with_overrides
from physml.listing import inventory

STEPS = {"_target_": "torch.optim.lr_scheduler.StepLR", "step_size": 3}
STUDY: dict[str, Any] = {
    "task": "adding",
    "provenance": {"kind": "paper", "source": "a paper"},
    "common": {"trainer": {"epochs": 7, "schedule": STEPS}},
    "rows": {
        "base": {"model": "lem", "set": {"model": {"d_hidden": 7}}, "note": "the first"},
        "changed": {"base": "base", "set": {"model": {"dt": 0.25}}},
        "moved": {"base": "some/adding-changed", "task": "fitzhugh_nagumo", "note": "elsewhere"},
        "16": {"model": "lstm", "optim": "adamw", "provenance": {"kind": "own"}},
    },
}


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """conf/ with one study alone."""
    folder = without_studies(tmp_path, monkeypatch)
    write(folder, STUDY)
    return folder


def write(conf: Path, content: Any, name: str = "some/adding.yaml") -> Path:
    return configs.write(conf / "study" / name, content)


def config_of(*overrides: str) -> dict[str, Any]:
    return compose.compose([*overrides]).config


# ---------------------------------------------------------------------------- rows


def test_a_row_has_the_common_settings_and_its_own_which_overrides_and_a_smoke_run_change(conf: Path) -> None:
    composed = compose.compose(["experiment=some/adding-base"])
    chosen = {"model": "lem", "task": "adding", "experiment": "some/adding-base"}
    assert composed.choices == composed.choices | chosen
    assert composed.config["model"]["d_hidden"] == 7 and composed.config["trainer"]["epochs"] == 7
    assert composed.config["provenance"] == {"kind": "paper", "source": "a paper", "note": "the first"}
    other = compose.compose(["experiment=some/adding-16"])
    assert (other.choices["optim"], other.config["provenance"]["kind"]) == ("adamw", "own")
    assert config_of("experiment=some/adding-changed", "model.dt=0.5")["model"]["dt"] == 0.5
    assert config_of("experiment=some/adding-changed", "profile=smoke")["trainer"]["epochs"] == 2
    typed = ["task=lorenz96", "experiment=some/adding-changed", "model=lstm", "~model.dt=0.25"]
    composed = compose.compose(typed)
    assert (composed.choices["task"], composed.choices["model"]) == ("lorenz96", "lstm")


def test_a_row_has_the_settings_of_its_base_or_of_a_full_name_but_its_own_name_note_and_task(conf) -> None:
    base, changed = (config_of(f"experiment=some/adding-{name}") for name in ("base", "changed"))
    assert changed["experiment"] == "some/adding-changed"
    assert changed["model"] == {**base["model"], "dt": 0.25} != base["model"]
    assert changed["task"] == base["task"]
    assert changed["provenance"] == {"kind": "paper", "source": "a paper", "note": None}
    moved = compose.compose(["experiment=some/adding-moved"])
    assert moved.choices["task"] == "fitzhugh_nagumo" and moved.config["model"]["d_hidden"] == 7
    assert moved.config["provenance"]["note"] == "elsewhere"


def test_what_a_search_found_counts_more_than_the_row(conf: Path) -> None:
    facts = {"search": "results/search/x.json", "drawn": 4, "trials": 3, "seeds": 2}
    point = {"trial": 3, "set": {"model.dt": 0.125, "optim.lr": 0.5}}
    write(conf, {"changed": point | facts}, "some/adding.searched.yaml")
    config = config_of("experiment=some/adding-changed")
    assert (config["model"]["dt"], config["optim"]["lr"]) == (0.125, 0.5)
    assert config["provenance"] == {"kind": "searched-here", "source": "a paper", "note": None, **facts}
    assert config_of("experiment=some/adding-base")["provenance"]["kind"] == "paper"


def test_the_list_knows_model_and_task_changed_files_are_read_again_and_parts_replace_those_of_the_base(conf):
    about = {entry.name: entry.about for entry in inventory.experiments()}
    assert about["some/adding-changed"] == about["some/adding-base"] == "lem on adding; a paper"
    assert about["some/adding-moved"] == "lem on fitzhugh_nagumo; a paper"
    assert config_of("experiment=some/adding-base")["model"]["d_hidden"] == 7
    path = write(conf, json.loads(json.dumps(STUDY).replace('"d_hidden": 7', '"d_hidden": 9')))
    os.utime(path, ns=(1, 1))
    assert config_of("experiment=some/adding-base")["model"]["d_hidden"] == 9
    parts = {"part": {"step_size": 9}, "whole": {"_target_": "x"}}
    own = {row: {"base": "base", "set": {"trainer": {"schedule": part}}} for row, part in parts.items()}
    write(conf, STUDY | {"rows": STUDY["rows"] | own})
    assert config_of("experiment=some/adding-part")["trainer"]["schedule"] == STEPS | {"step_size": 9}
    assert config_of("experiment=some/adding-whole")["trainer"]["schedule"] == {"_target_": "x"}


# ---------------------------------------------------------------------------- mistakes


ROW = {"model": "lem"}
FOUND = {"trial": 1, "set": {}, "search": "results/search/x.json", "drawn": 2, "trials": 2, "seeds": 1}
OUTSIDE = "../../x.json"


def rows(**content: Any) -> dict[str, Any]:
    return {"rows": content}


CYCLE = rows(a={"base": "b"}, b={"base": "c"}, c={"base": "b"})


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (CYCLE, r"-b -> some/adding-c -> some/adding-b is a cycle"),
        (rows(a={"base": "a"}), r"some/adding-a -> some/adding-a is a cycle"),
        (rows(a={"base": "lemm"}, lem=ROW), r"rows\.a\.base: there is no lemm\. Did you mean lem"),
        (rows(a={"base": "some/addin-lem"}, lem=ROW), r"no some/addin-lem\. Did you mean some/adding-lem"),
        (rows(a={"base": "../adding"}), r"rows\.a\.base: there is no \.\./adding"),
        ({"rows": {"a": ROW, "b/c": ROW}}, r"a row's name has letters, digits and `_\.-` alone; got 'b/c'"),
        ({"rows": {"a": ROW, "..": ROW}}, r"a row's name has letters.*got '\.\.'"),
        ({"rows": {"a": ROW, 16: ROW}}, r"rows must be text; got 16\. Put it in quotes"),
        (rows(a={"modle": "lem"}), r"rows\.a: there is no key modle\. Did you mean model"),
        (rows(a={"model": {"dt": 1}}), r"rows\.a\.model must be text; got \{'dt': 1\}"),
        (rows(a={"model": "lme"}), r"rows\.a: there is no model lme\. Did you mean lem"),
        (rows(a={"set": {"trainr": {}}}), r"rows\.a\.set: there is no setting trainr\. Did you mean trainer"),
        (rows(a={"model": "lem"}), r"row a needs a provenance \{kind.*one of paper, official-code.*got none"),
        ({"provenance": {"kind": "papr", "source": "x"}, **rows(a=ROW)}, r"row a needs a provenance.*'papr'"),
        ({"rows": {"a": ROW}, "common": {"sed": 1}}, r"common: there is no setting sed"),
        ({"rows": {"a": ROW}, "row": {}}, r"there is no key row\. Did you mean rows"),
        ({"task": "adding"}, r"the key rows is missing"),
        (rows(a=ROW) | {"searches_of": "som/x"}, r"searches_of: there is no study som/x\. .*some/adding"),
        ({"rows": [1]}, r"rows must hold keys and values; got \[1\]"),
        ("rows:\n  a: {}\n  a: {}\n", r"the key a appears twice.*line 3"),
        ("rows: {a: [}\n", r"is not valid YAML"),
        ("[]", r"must hold keys and values; got list"),
    ],
)
def test_a_wrong_study_is_refused_in_one_line_with_its_file(conf: Path, content: Any, says: str) -> None:
    path = write(conf, content)
    said = refuses(ConfigError, says, compose.compose, ["experiment=some/adding-a"])
    assert str(path) in said and "\n" not in said


@pytest.mark.parametrize(
    ("row", "entry", "says"),
    [
        ("chnged", FOUND, "there is no row chnged. Did you mean changed"),
        ("base", FOUND | {"trail": 1}, "base: there is no key trail. Did you mean trial"),
        ("base", FOUND | {"search": OUTSIDE}, f"base.search must be results/search/NAME.json; got {OUTSIDE}"),
        ("base", FOUND | {"set": {"modle.dt": 1}}, "base.set: there is no setting modle. Did you mean model"),
        ("base", 3, "base must be a mapping; got 3"),
    ],
)
def test_a_wrong_searched_file_is_refused_in_one_line(conf: Path, row: str, entry: Any, says: str) -> None:
    path = write(conf, {row: entry}, "some/adding.searched.yaml")
    said = refuses(ConfigError, re.escape(says), compose.compose, ["experiment=some/adding-base"])
    assert str(path) in said and "\n" not in said


@pytest.mark.parametrize("name", ["some/a-b.yaml", "some/a.b.yaml", "a.yaml", "some/deep/a.yaml"])
def test_a_study_of_another_name_is_refused(conf: Path, name: str) -> None:
    path = write(conf, {"rows": {}}, name)
    with pytest.raises(ConfigError, match=f"{path}: a study is <paper>/<task>"):
        studies.names()


@pytest.mark.parametrize("group", compose.GROUPS)
def test_a_name_is_known_as_by_the_list(group: str) -> None:
    known = compose.names(group)
    assert all(compose.is_name(group, name) for name in known[:20])
    odd = ["", ".", "..", "/", "a//b", "no_such", "x" * 999, "a/b-" + "x" * 999, f"{known[0]}\n"]
    odd += [f"{before}{known[0]}" for before in (f"../{group}/", "./", "/", "x/../")]
    assert not any(compose.is_name(group, name) for name in odd)


# ---------------------------------------------------------------------------- as Hydra composes


SETS = [
    ("model=lem", "task=adding"),
    ("model=lem", "task=adding", "profile=smoke"),
    ("model=gcn", "task=texas", "optim=adamw", "tracker=none", "net.hidden=null"),
    ("model=gcn", "task=zinc", "profile=smoke", "tracker=wandb", "seed=3"),
    ("model=gcn", "task=texas", "net=sequence"),
    ("model=lem", "task=adding", "+model.extra=[1,{a: b}]", "++model.dt=0.5", "++model.more=x", "~optim.eps"),
    ("model=lem", "task=adding", "+trainer.stop={_target_: x, n: 3}", "model.d_hidden=${seed}", "seed=1e1"),
    ("model=lem", "task=adding", "optim.lr_factors={b: 0.1}", "optim.betas=[0.5,0.6]", "plugins=['a b.py']"),
]


@pytest.mark.parametrize("overrides", SETS, ids=" ".join)
def test_groups_and_overrides_are_composed_as_by_hydra(overrides: tuple[str, ...]) -> None:
    """conf/ stays a config folder of Hydra, but for the rows of studies."""
    with initialize_config_dir(version_base="1.3", config_dir=str(conf_files.CONF)):
        theirs = hydra_compose("run", overrides=[*overrides], return_hydra_config=True)
    choices = {group: theirs.hydra.runtime.choices.get(group) for group in compose.GROUPS}
    OmegaConf.set_struct(theirs, False)
    del theirs["hydra"]
    groups = dict(o.split("=") for o in overrides if o.partition("=")[0] in compose.GROUPS)
    merged, ours = compose._merged(studies.Experiment({}, {}), groups)
    node = with_overrides(merged, [o for o in overrides if o.partition("=")[0] not in groups])
    assert OmegaConf.to_container(node, resolve=True) == OmegaConf.to_container(theirs, resolve=True)
    assert ours == choices


SIMPLE: list[dict[Any, Any]] = [
    {"a": "${net.hidden}", "b": ["${net.hidden}", {"c": "${net.rate}"}], 3: None},
    {"a": "${net.text}", "b": "${net.none}", "c": "${seed.x}"},
]
OTHER: list[dict[Any, Any]] = [
    *({"a": "${net.chained}"}, {"a": "${net.list}"}, {"a": "h ${net.hidden}"}, {"a": r"\${net.hidden}"}),
    *({"a": "${.b}", "b": 1}, {"a": "${net.missing}"}, {"a": "${net.text.x}"}, {"a": "${oc.env:HOME}"}),
    *({"${net.text}": 1}, {"a": "???"}),
]


@pytest.mark.parametrize("model", SIMPLE + OTHER, ids=str)
def test_references_are_resolved_as_by_omegaconf_or_left_to_it(model: dict[Any, Any]) -> None:
    net = {"hidden": 8, "rate": 0.5, "text": "x: 1", "none": None, "chained": "${net.hidden}", "list": [1]}
    merged = {"net": net, "model": model, "seed": {"x": True}}
    ours = compose._plain(merged, ["split=3"])
    if model in SIMPLE:
        theirs = OmegaConf.to_container(OmegaConf.create(merged | {"split": 3}), resolve=True)
        assert repr(ours) == repr(theirs)
    else:
        assert ours is None


@pytest.mark.parametrize("name", ["g2/texas-g2_gcn", "graphcon/zinc-graphcon_gcn", "lem/adding-2000-lem"])
def test_an_experiment_is_composed_the_same_by_omegaconf(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    composed = compose.compose([f"experiment={name}", "seed=3", "split=1"])
    monkeypatch.setattr(compose, "_plain", lambda merged, typed: None)
    assert repr(compose.compose([f"experiment={name}", "seed=3", "split=1"])) == repr(composed)


@pytest.mark.parametrize(
    ("override", "says"),
    [
        ("~tracker=-1", r"a config of a group is chosen by tracker=NAME\. Leave out ~"),
        ("+tracker=[1,2]", r"a config of a group is chosen by tracker=NAME\. Leave out \+"),
        ("~profile=[x]", r"chosen by profile=NAME"),
        ("~model.dt=77", r"~model\.dt=77: model\.dt is .*\. To delete it: ~model\.dt="),
        ("~model.dtt=1", r"there is no config key model\.dtt\. Did you mean dt"),
        ("+model.dt=3", r"model\.dt is there already\. Change it without the \+"),
        ("model@net=lem", r"there is no config group model@net\. Did you mean model"),
        ("net/x=3", r"there is no config group net/x"),
        ("seed.x=3", r"there is no config key seed\.x"),
        ("seed=1,2", r"several values need -m"),
        ("seed=[1", r"seed=\[1: "),
        ("model.gama=1", r"there is no config key model\.gama"),
        ("model.dt.x=1", r"there is no config key model\.dt\.x"),
        ("model={dt: 1}", r"model names a config file\. Set keys of it one by one: model\.KEY=VALUE"),
    ],
)
def test_a_wrong_override_is_refused_in_one_line(override: str, says: str) -> None:
    assert "\n" not in refuses(ConfigError, says, compose.compose, ["model=lem", "task=adding", override])
