"""Configs of one's own: a folder with the groups of conf/, and files at a path; none hides a shipped one."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from configs import write
from refusals import refuses

from physml.base.errors import ConfigError
from physml.config import conf_files, studies
from physml.config.compose import compose, names
from physml.config.identity import identity
from physml.config.schema import checked
from physml.queue.engines.job import shared_environment
from physml.report.figure.spec import find_figure, load_figure
from physml.report.table.settings import collect_settings, load_settings
from physml.report.table.spec import experiments_of, find_table, load_table, table_ids
from physml.run.spec import spec_of
from physml.run.trackers.upload import tables_of_experiments

FOUND = "{trial: 0, search: results/search/x.json, set: {}, drawn: 1, trials: 1, seeds: 1}"
PLUGIN = "from physml.models.sequence.lem import LEM\n\n\nclass Mine(LEM):\n    version = 1\n"
MINE = {"_target_": "my_rnn.Mine"}
SEARCH = {"metric": "mse", "better": "lower", "trials": 2, "seed": 1000}
STUDY: dict[str, Any] = {
    "task": "adding",
    "provenance": {"kind": "own", "source": "my paper"},
    "plugins": ["../my_rnn.py"],
    "searches": {"rate": SEARCH | {"space": {"optim.lr": [0.1, 0.2]}}},
    "rows": {
        "mine": {"model": "own", "set": {"model": MINE | {"dt": 0.5, "backend": "auto"}}, "search": "rate"},
        "slow": {"base": "mine", "set": {"model": {"dt": 0.1}}},
        "lem": {"base": "lem/adding-2000-lem"},
    },
}
TABLE: dict[str, Any] = {
    "title": "My table",
    "source": "my paper",
    "seeds": [0, 1],
    "columns": [{"key": "mse", "metric": "test/mse", "better": "lower", "protocol": "clean"}],
    "rows": [
        {"label": "mine", "experiment": "../adding.yaml:mine"},
        {"label": "file", "cells": {"mse": {"experiment": "./mine.yaml:row"}}},
        {"label": "LEM", "experiment": "lem/adding-2000-lem"},
    ],
}
SERIES = {"label": "a", "points": [{"x": 1.0, "experiment": "../adding.yaml:mine"}]}
FIGURE: dict[str, Any] = {
    **{"title": "My figure", "source": "my paper", "kind": "points", "x_label": "dt", "y_label": "mse"},
    **{"metric": "test/mse", "seeds": [0], "panels": [{"title": "first", "series": [SERIES]}]},
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "my_rnn.py", PLUGIN)
    write(tmp_path / "files" / "adding.yaml", STUDY)
    yield tmp_path
    sys.modules.pop("my_rnn", None)  # the next test has another one


@pytest.fixture
def own(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own, with the same study as my/adding."""
    monkeypatch.setenv("PHYSML_CONF", str(folder / "conf"))
    write(folder / "conf" / "study" / "my" / "adding.yaml", STUDY | {"plugins": ["../../../my_rnn.py"]})
    return folder / "conf"


def test_a_row_of_a_study_at_a_path_is_an_experiment(folder: Path) -> None:
    composed = compose(["experiment=./files/adding.yaml:slow", "seed=3"])
    config, _ = checked(composed.config)
    assert (config["model"]["_target_"], config["model"]["dt"], config["seed"]) == ("my_rnn.Mine", 0.1, 3)
    assert config["plugins"] == [str(folder / "my_rnn.py")]
    assert composed.config["experiment"] == composed.choices["experiment"] == "./adding.yaml:slow"
    assert spec_of(composed).place.folder == "adhoc/adding-slow"
    theirs = compose(["experiment=./files/adding.yaml:lem"]).config
    assert theirs["model"] == compose(["experiment=lem/adding-2000-lem"]).config["model"]


def test_an_identity_is_the_same_wherever_its_files_lie(folder: Path, own: Path, monkeypatch) -> None:
    by_path = identity(compose(["experiment=./files/adding.yaml:mine"]).config)
    by_name = compose(["experiment=my/adding-mine"])
    assert identity(by_name.config) == by_path
    assert spec_of(by_name).place.folder == "my/adding-mine"
    assert spec_of(compose(["experiment=my/adding-mine", "optim.lr=9"])).place.folder.startswith("adhoc/")
    monkeypatch.chdir(folder / "files")
    assert identity(compose([f"experiment={folder}/files/adding.yaml:mine"]).config) == by_path
    shipped = compose(["experiment=lem/adding-2000-lem"])
    monkeypatch.delenv("PHYSML_CONF")
    assert compose(["experiment=lem/adding-2000-lem"]) == shipped


def test_a_table_and_a_figure_name_experiments_from_their_folder(folder: Path) -> None:
    deep, mine = folder / "files" / "deep", f"{folder}/files/adding.yaml:mine"
    spec = load_table(find_table(str(write(deep / "mytable.yaml", TABLE))))
    assert spec.id == "mytable"
    assert experiments_of(spec) == [mine, f"{deep}/mine.yaml:row", "lem/adding-2000-lem"]
    write(deep / "myfig.yaml", FIGURE)
    assert load_figure(find_figure("files/deep/myfig.yaml")).runs == [(mine, 0, 0)]
    ranks = {key: v for key, v in FIGURE.items() if key not in ("panels", "metric")}
    write(deep / "ranks.yaml", ranks | {"kind": "ranks", "table": "./mytable.yaml"})
    with pytest.raises(ConfigError, match=r"deep/mytable\.yaml names no columns to rank"):
        _ = load_figure(find_figure("files/deep/ranks.yaml")).runs
    cells = {"rows": [{"label": "mine", "experiment": "../adding.yaml:mine"}]}
    columns = {"kind": "settings", "columns": [{"key": "dt", "setting": "model.dt"}]}
    head = {key: TABLE[key] for key in ("title", "source")}
    settings = load_settings(write(deep / "settings.yaml", head | columns | cells))
    (cell,) = collect_settings(settings).cells
    assert (cell.ours, cell.where) == ("0.5", "./adding.yaml:mine: model.dt")


def test_a_folder_of_ones_own_has_tables_studies_and_models_with_plugins(own: Path, folder: Path) -> None:
    rows = [{"label": "mine", "experiment": "my/adding-mine"}]
    write(own / "table" / "mine-1.yaml", TABLE | {"rows": rows, "aliases": ["first"]})
    assert {"mine-1", "lem-4"} <= {*table_ids()}
    assert find_table("first") == find_table("1", "mine") == own / "table" / "mine-1.yaml"
    assert studies.search_named("my/adding-mine") == ("my-adding-mine", "my/adding-mine")
    assert tables_of_experiments()["my/adding-mine"] == ["mine-1"]
    write(own / "model" / "mine.yaml", MINE | {"plugins": ["../../my_rnn.py"], "d_hidden": 4})
    assert "mine" in names("model") and "lem" in names("model") and "my/adding-mine" in names("experiment")
    config, _ = checked(compose(["model=mine", "task=adding"]).config)
    assert config["plugins"] == [str(folder / "my_rnn.py")] and "plugins" not in config["model"]
    assert shared_environment()["PHYSML_CONF"] == str(own)


# ---------------------------------------------------------------------------- refused


@pytest.mark.parametrize(
    ("file", "use"),
    [
        ("model/lem.yaml", lambda: compose(["model=lem", "task=adding"])),
        ("trainer/default.yaml", lambda: compose(["model=lem", "task=adding"])),
        ("profile/smoke.yaml", lambda: compose(["model=lem", "task=adding", "profile=smoke"])),
        ("study/lem/adding.yaml", lambda: compose(["experiment=lem/adding-2000-lem"])),
        ("table/lem-4.yaml", lambda: find_table("4")),
        ("figure/lem-fig-1.yaml", lambda: find_figure("lem-fig-1")),
    ],
)
def test_a_file_of_ones_own_hides_no_shipped_one(own: Path, file: str, use: Any) -> None:
    path = write(own / file, {"optim": {"lr": 1}})
    refuses(ConfigError, rf"{path}: physml has a \w+ named \S+ already\. Rename the file", use)
    refuses(ConfigError, "already", conf_files.files, file.partition("/")[0])


def test_neither_does_an_alias_a_searched_file_or_a_file_at_a_path(own: Path, folder: Path) -> None:
    write(own / "study" / "lem" / "fitzhugh_nagumo.searched.yaml", f"lem: {FOUND}")
    before = compose(["experiment=lem/fitzhugh_nagumo-lem"]).config
    assert before["provenance"]["kind"] != "searched-here"
    path = write(folder / "lem-4.yaml", TABLE)
    refuses(ConfigError, rf"{path}: physml has a table named lem-4 already", find_table, "./lem-4.yaml")
    assert find_table(str(find_table("lem-4"))) == find_table("lem-4"), "a shipped file by its own path"
    write(own / "table" / "mine-1.yaml", TABLE | {"aliases": ["thesis-5.4"]})
    refuses(ConfigError, r"the alias thesis-5\.4 is one of .* too", find_table, "5.4")


def test_a_study_at_a_path_has_no_search_of_a_shipped_one(folder: Path) -> None:
    ident, experiment = next(iter(studies.searches().items()))
    stem, _, row = ident.rpartition("-")
    path = write(folder / f"{stem}.yaml", STUDY | {"rows": {row: STUDY["rows"]["mine"]}})
    mine = studies.search_named(f"./{stem}.yaml:{row}")
    assert mine == (f"adhoc-{ident}", f"{path}:{row}") and mine[0] not in studies.searches()
    assert studies.search_named(ident) == (ident, experiment)
    study, row = studies.row_of(experiment)
    refuses(ConfigError, "is of physml", studies.search_named, f"{studies.file_of(study)}:{row}")


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("./files/adding.yaml", r"adding\.yaml names no row of a study"),
        ("./files/adding.yaml:", r"adding\.yaml has no row ''\. Known: lem, mine, slow|has no row ''"),
        ("./files/adding.yaml:slwo", r"adding\.yaml has no row 'slwo'\. Did you mean slow"),
        ("./nowhere.yaml:mine", r"there is no study file /.*nowhere\.yaml"),
        ("./nowhere.yaml", r"nowhere\.yaml names no row of a study"),
        ("./loop.yaml", r"loop\.yaml names no row of a study"),
        ("./loop.yaml:mine", r"there is no study file"),
        ("./round/adding.yaml:again", r"there is no \.\./round|is a cycle"),
        ("./my files.yaml:mine", r"named by letters, digits"),
        ("./a\x00.yaml:mine", r"no file can be called so"),
        (f"./{'x' * 300}.yaml:mine", r"no file can be called so"),
        ("./files/adding.yaml:mine/../slow", "slow: a row.s name has letters"),
    ],
)
def test_a_wrong_path_is_refused_in_one_line(folder: Path, name: str, says: str) -> None:
    (folder / "loop.yaml").symlink_to(folder / "loop.yaml")
    (folder / "round").symlink_to(folder / "files")
    rows = STUDY["rows"] | {"again": {"base": "../round/adding.yaml:again"}}
    write(folder / "files" / "adding.yaml", STUDY | {"rows": rows})
    write(folder / "my files.yaml", STUDY)
    assert "\n" not in refuses(ConfigError, says, compose, [f"experiment={name}"])


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"plugins": ["nowhere.py"]}, r"there is no plugin file /.*files/nowhere\.py"),
        ({"plugins": "my_rnn.py"}, r"plugins must be a list"),
        ({"plugins": []}, r"my_rnn\.Mine is not allowed"),
        ({"common": {"plugins": ["../my_rnn.py"]}}, r"there is no setting plugins"),
        ({"rows": {"mine": {"model": "own", "set": {"model": {"_target_": "os.system"}}}}}, "not allowed"),
        ({"rows": {"mine": {"model": "../model/lem"}}}, r"there is no model \.\./model/lem"),
        ({"searches": {}, "searches_of": "./adding.yaml"}, r"searches_of names a study whose own searches"),
    ],
)
def test_a_wrong_study_of_ones_own_is_refused(folder: Path, change: dict[str, Any], says: str) -> None:
    write(folder / "files" / "adding.yaml", STUDY | change)
    with pytest.raises(ConfigError, match=says):
        checked(compose(["experiment=./files/adding.yaml:mine"]).config)


def test_a_wrong_folder_of_ones_own_is_refused_and_no_shipped_config_has_plugins(folder, monkeypatch) -> None:
    for path, says in {"nowhere": "is no folder", ".": "needs a folder such as study or table"}.items():
        monkeypatch.setenv("PHYSML_CONF", path)
        refuses(ConfigError, says, names, "model")
    monkeypatch.setenv("PHYSML_CONF", str(conf_files.CONF))
    assert conf_files.folders() == (conf_files.CONF,), "conf/ itself is no second folder"
    for path in conf_files.CONF.rglob("*.yaml"):
        assert not conf_files.content(path).get("plugins"), path
