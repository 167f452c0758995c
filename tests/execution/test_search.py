"""A search makes its trials as runs, looks at validation data alone, and goes on where it was stopped."""

import json
import shutil

import optuna
import pytest
import run_harness as h
import yaml

from physml.errors import ConfigError, RunFailed
from physml.execution import search
from physml.paths import CONF
from physml.records import record

EXPERIMENT = "lem/fitzhugh_nagumo-lstm"
TINY = {
    "experiment": EXPERIMENT,
    "metric": "rmse",
    "better": "lower",
    "trials": 3,
    "seed": 7,
    "trial": {"profile": "smoke", "trainer.epochs": 2},
    "space": {
        "optim.lr": {"low": 1.0e-3, "high": 5.0e-2, "log": True},
        "net.dropout": {"low": 0.0, "high": 0.5},
        "optim.amsgrad": [True, False],
    },
}


@pytest.fixture
def conf(tmp_path, monkeypatch):
    """Where searches are read from and experiments written to: a folder of the test."""
    folder = tmp_path / "conf"
    (folder / "search").mkdir(parents=True)
    (folder / "experiment" / "lem").mkdir(parents=True)
    shutil.copy(CONF / "experiment" / f"{EXPERIMENT}.yaml", folder / "experiment" / "lem")
    monkeypatch.setattr(search, "CONF", folder)
    return folder


def write(conf, **changes):
    (conf / "search" / "tiny.yaml").write_text(yaml.safe_dump(TINY | changes))


def test_a_search_to_its_end_and_again(conf, tmp_path, forked, capsys):
    write(conf)
    assert search.search("tiny", jobs=2) == 0
    assert len(forked) == 3
    result = json.loads((tmp_path / "results" / "search" / "tiny.json").read_text())
    assert result["search"] == TINY
    rows = result["trials"]
    assert [row["trial"] for row in rows] == [0, 1, 2] and {row["status"] for row in rows} == {"finished"}
    for row in rows:
        assert 1e-3 <= row["point"]["optim.lr"] <= 5e-2 and 0 <= row["point"]["net.dropout"] <= 0.5
        folder = tmp_path / "results" / "runs" / "adhoc" / "search" / "tiny" / f"{row['trial']:03d}"
        (path,) = folder.glob(record.RUNS)
        made = record.read(path)
        assert made["seed"] == 7 and made["identity"] == row["identity"]
        assert row["value"] == made["metrics"]["best"]["valid"]["rmse"]
        assert made["metrics"]["best"]["test"] == made["metrics"]["last"]["test"] == {}
        assert made["config"]["optim"]["lr"] == row["point"]["optim.lr"]
        assert made["wandb"] is None
    best = min(rows, key=lambda row: row["value"])
    text = (conf / "experiment" / f"{EXPERIMENT}.yaml").read_text()
    assert text.startswith("# @package _global_\n")
    written = yaml.safe_load(text)
    assert written["optim"]["lr"] == best["point"]["optim.lr"]
    assert written["net"]["dropout"] == best["point"]["net.dropout"]
    before = yaml.safe_load((CONF / "experiment" / f"{EXPERIMENT}.yaml").read_text())
    assert written["defaults"] == before["defaults"] and written["trainer"] == before["trainer"]
    assert written["provenance"]["kind"] == "searched-here"
    assert written["provenance"]["search"] == "results/search/tiny.json"
    assert (
        f"3 trials (3 finished), profile smoke, trainer.epochs 2, sampler seed 7; best valid/rmse "
        f"{best['value']:.3g} (trial {best['trial']})." in written["provenance"]["note"]
    )
    study = optuna.load_study(
        study_name="tiny", storage=f"sqlite:///{tmp_path / 'runs' / 'search' / 'tiny.db'}"
    )
    assert [trial.value for trial in study.trials] == [row["value"] for row in rows]
    assert study.best_trial.number == best["trial"]
    assert f"best: trial {best['trial']}" in capsys.readouterr().out
    assert search.search("tiny", jobs=2) == 0
    assert len(forked) == 3  # all trials were there
    assert json.loads((tmp_path / "results" / "search" / "tiny.json").read_text()) == result


def test_the_points_depend_on_the_seed_alone(conf):
    write(conf)
    points = search.draw(search.load_search("tiny"))
    assert search.draw(search.load_search("tiny")) == points
    write(conf, seed=8)
    assert search.draw(search.load_search("tiny")) != points
    write(conf, seed=7, trials=5)
    assert search.draw(search.load_search("tiny"))[:3] == points


def test_a_trial_that_fails_is_kept_and_not_chosen(conf, tmp_path, forked):
    write(conf, space={"optim.lr": [1.0e-3, 1.0e30]}, trials=4)
    points = search.draw(search.load_search("tiny"))
    assert {p["optim.lr"] for p in points} == {1.0e-3, 1.0e30}
    assert search.search("tiny", jobs=2) == 0
    rows = json.loads((tmp_path / "results" / "search" / "tiny.json").read_text())["trials"]
    assert {row["status"]: row["value"] is None for row in rows} == {"finished": False, "diverged": True}
    written = yaml.safe_load((conf / "experiment" / f"{EXPERIMENT}.yaml").read_text())
    assert written["optim"]["lr"] == 1.0e-3
    write(conf, space={"optim.lr": [1.0e30]}, trials=1)
    with pytest.raises(RunFailed, match="no trial of tiny gave a number"):
        search.search("tiny", jobs=1)


def test_out_of_time_writes_no_experiment(conf, tmp_path, forked):
    write(conf, trials=2)
    before = (conf / "experiment" / f"{EXPERIMENT}.yaml").read_text()
    assert search.search("tiny", jobs=1, max_hours=1e-9) == 75
    assert (conf / "experiment" / f"{EXPERIMENT}.yaml").read_text() == before
    assert not (tmp_path / "results" / "search").exists()


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"metric": "rmsee"}, r"search tiny: no metric rmsee\. Did you mean rmse"),
        ({"better": "higher"}, "search tiny: lower rmse is better, says the task"),
        ({"better": "best"}, "better must be lower or higher; got 'best'"),
        ({"trials": 0}, "a search needs at least one trial"),
        ({"space": {"optim.lrr": [1.0e-3]}}, "there is no config key optim.lrr. Did you mean lr"),
        ({"space": {"optim.lr": {"low": 1.0e-3}}}, "high"),
        ({"experiment": "lem/fitzhugh_nagumo-lsmt"}, "Did you mean .*fitzhugh_nagumo-lstm"),
        ({"spaces": {}}, "Did you mean space"),
    ],
)
def test_mistakes_are_told_before_anything_is_trained(changes, said, conf):
    write(conf, **changes)
    with pytest.raises(ConfigError, match=said):
        search.search("tiny", jobs=1)
    with pytest.raises(ConfigError, match=r"no search tini\. Did you mean tiny"):
        search.search("tini", jobs=1)


def test_all_searches_of_the_repository_are_sound():
    """Every one composes, names a metric of its task, and writes values that its experiment takes."""
    for name in search.search_ids():
        spec = search.load_search(name)
        first, *_ = search.draw(spec)
        made = search.trial_spec(spec, 0, first)
        search._check_metric(spec, made)
        assert made.config["runtime"]["score_test"] is False and h.is_held(made) is False
