"""A search makes its trials as runs, looks at validation data alone, and goes on where it was stopped."""

import dataclasses
import json
import types

import optuna
import pytest
import run_harness as h
import yaml
from search_conf import without_studies, write_study

from physml.base.errors import ConfigError, RunFailed
from physml.cli import main
from physml.config import compose, studies
from physml.queue import scheduler
from physml.records import record
from physml.search import plain as search
from physml.search import points as search_points

EXPERIMENT = "lem/fitzhugh_nagumo-lstm"
ID = "lem-fitzhugh_nagumo-lstm"
TINY = {
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
    """conf/ with one study: a row that is searched, and one that is not."""
    return without_studies(tmp_path, monkeypatch)


def write(conf, row=None, **changes):
    """The study, with a search named tiny of its row lstm."""
    return write_study(
        conf,
        TINY | changes,
        {"lstm": {"model": "lstm", "search": "tiny", **(row or {})}, "gru": {"model": "gru"}},
    )


def searched(conf):
    return conf / "study" / "lem" / "fitzhugh_nagumo.searched.yaml"


def test_a_search_to_its_end_and_again(conf, tmp_path, forked, capsys):
    study = write(conf)
    before = study.read_bytes()
    assert search.search(EXPERIMENT, jobs=2) == 0
    assert len(forked) == 3
    result = json.loads((tmp_path / "results" / "search" / f"{ID}.json").read_text())
    assert result["search"] == {"experiment": EXPERIMENT} | TINY
    rows = result["trials"]
    assert [row["trial"] for row in rows] == [0, 1, 2] and {row["status"] for row in rows} == {"finished"}
    for row in rows:
        assert 1e-3 <= row["point"]["optim.lr"] <= 5e-2 and 0 <= row["point"]["net.dropout"] <= 0.5
        folder = tmp_path / "results" / "runs" / "adhoc" / "search" / ID / f"{row['trial']:03d}"
        (path,) = folder.glob(record.RUNS)
        made = record.read(path)
        assert made["seed"] == 7 and made["identity"] == row["identity"]
        assert row["value"] == made["metrics"]["best"]["valid"]["rmse"]
        assert made["metrics"]["best"]["test"] == made["metrics"]["last"]["test"] == {}
        assert made["config"]["optim"]["lr"] == row["point"]["optim.lr"]
        assert made["wandb"] is None
    best = min(rows, key=lambda row: row["value"])
    assert study.read_bytes() == before
    written = compose.compose([f"experiment={EXPERIMENT}"]).config
    assert written["optim"]["lr"] == best["point"]["optim.lr"]
    assert written["net"]["dropout"] == best["point"]["net.dropout"]
    assert written["provenance"] == {
        "kind": "searched-here",
        "source": "a paper",
        "note": f"Random search: 3 trials (3 finished), profile smoke, trainer.epochs 2, sampler seed 7; "
        f"best valid/rmse {best['value']:.3g} (trial {best['trial']}).",
        "search": f"results/search/{ID}.json",
    }
    other = compose.compose(["experiment=lem/fitzhugh_nagumo-gru"]).config
    assert other["provenance"] == {"kind": "own", "source": "a paper"}
    trials = optuna.load_study(study_name=ID, storage=f"sqlite:///{tmp_path / 'runs' / 'search' / ID}.db")
    assert [trial.value for trial in trials.trials] == [row["value"] for row in rows]
    assert trials.best_trial.number == best["trial"]
    assert f"best: trial {best['trial']}" in capsys.readouterr().out
    assert search.search(EXPERIMENT, jobs=2) == 0
    assert main.main(["search", EXPERIMENT, "--plan"]) == 0
    assert "3 runs, 0 to do" in capsys.readouterr().out
    assert main.main(["search", EXPERIMENT, "--sampler-seed", "7"]) == 2
    assert "--sampler-seed takes a number from 0 on, for a search with stages" in capsys.readouterr().err
    assert main.main(["search", EXPERIMENT, "--jobs", "2"]) == 0
    assert len(forked) == 3  # all trials were there
    assert json.loads((tmp_path / "results" / "search" / f"{ID}.json").read_text()) == result


def test_the_points_depend_on_the_seed_alone(conf):
    write(conf)
    points = search.draw(search.load_search(EXPERIMENT))
    assert search.draw(search.load_search(EXPERIMENT)) == points
    write(conf, seed=8)
    assert search.draw(search.load_search(EXPERIMENT)) != points
    write(conf, seed=7, trials=5)
    assert search.draw(search.load_search(EXPERIMENT))[:3] == points


def test_draws_from_a_range_are_short_and_choices_stay_as_written(tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path))
    space = {
        "optim.lr": {"low": 1e-3, "high": 1e-1, "log": True},
        "model.bound": [1.00354, 6.283185307179586],
    }
    points = search_points.random_points(space, 8, seed=0)
    assert {point["model.bound"] for point in points} == {1.00354, 6.283185307179586}
    assert all(float(f"{point['optim.lr']:.3g}") == point["optim.lr"] for point in points)
    tried = [search_points.Tried(point, space, "finished", float(i)) for i, point in enumerate(points)]
    assert search_points.keep("x", "lower", tried).is_file()  # Optuna refuses what is not among the choices
    guided = search_points.guided_points(space, [(one.point, one.value) for one in tried], 3, 0, "lower")
    assert all(point["model.bound"] in space["model.bound"] for point in guided)


def test_a_trial_that_fails_is_kept_and_not_chosen(conf, tmp_path, forked):
    write(conf, space={"optim.lr": [1.0e-3, 1.0e30]}, trials=4)
    points = search.draw(search.load_search(EXPERIMENT))
    assert {p["optim.lr"] for p in points} == {1.0e-3, 1.0e30}
    assert search.search(EXPERIMENT, jobs=2) == 0
    rows = json.loads((tmp_path / "results" / "search" / f"{ID}.json").read_text())["trials"]
    assert {row["status"]: row["value"] is None for row in rows} == {"finished": False, "diverged": True}
    assert yaml.safe_load(searched(conf).read_text())["lstm"]["set"] == {"optim.lr": 1.0e-3}
    write(conf, space={"optim.lr": [1.0e30]}, trials=1)
    with pytest.raises(RunFailed, match=f"no trial of {ID} gave a number"):
        search.search(EXPERIMENT, jobs=1)


def test_out_of_time_writes_nothing(conf, tmp_path, forked):
    write(conf, trials=2)
    assert search.search(EXPERIMENT, jobs=1, max_hours=1e-9) == 75
    assert not searched(conf).exists()
    assert not (tmp_path / "results" / "search").exists()


@pytest.mark.parametrize(("status", "code"), [("killed", 75), ("failed", 1)])
def test_a_search_that_lacks_trials_writes_nothing_and_makes_them_next_time(
    status, code, conf, tmp_path, forked, monkeypatch, capsys
):
    write(conf)
    result = tmp_path / "results" / "search" / f"{ID}.json"

    def one_goes_wrong(planned, **options):
        *others, last = planned
        outcome = scheduler.carry_out(others if status == "killed" else planned, **options)
        outcome.codes[last.spec.label] = 1
        if status == "failed":
            made = record.read(last.spec.record_path)
            record.write(last.spec.record_path, made | {"status": "failed", "reason": "out of memory"})
        return outcome

    with monkeypatch.context() as patch:
        patch.setattr(search, "scheduler", types.SimpleNamespace(carry_out=one_goes_wrong))
        assert search.search(EXPERIMENT, jobs=2) == code
    failed = int(status == "failed")
    message = capsys.readouterr().err
    assert f"{ID}: 1 of 3 trials lack a result ({failed} failed): 2. Nothing is written" in message
    assert not result.exists() and not searched(conf).exists()
    made = len(forked)
    assert search.search(EXPERIMENT, jobs=2) == 0 and len(forked) == made + 1
    assert {row["status"] for row in json.loads(result.read_text())["trials"]} == {"finished"}


def test_a_pattern_stands_for_all_that_fit_and_missing_for_those_to_be_made(conf, forked, capsys):
    write(conf)
    arguments = ["search", "lem/fitzhugh_nagumo-*", EXPERIMENT, "--missing", "--jobs", "1"]
    assert main.main(arguments) == 0 and len(forked) == 3
    assert capsys.readouterr().out.count("3 trials") == 1
    assert main.main(arguments) == 0 and len(forked) == 3
    assert capsys.readouterr().out == "all searches are done\n"
    assert main.main(["search", "lem/fitz?", "--missing"]) == 2
    assert "no search fits lem/fitz?. `physml list searches` shows all." in capsys.readouterr().err


def test_other_rows_of_the_searched_file_stay(conf):
    write(conf, row={"search": None})
    spec = search.SearchSpec(**TINY, id="a", experiment="lem/fitzhugh_nagumo-gru")
    best = {"trial": 2, "point": {"optim.lr": 0.01}, "value": 0.5}
    search.write_found(spec, best, 3)
    search.write_found(dataclasses.replace(spec, id="b", experiment=EXPERIMENT), best | {"trial": 1}, 3)
    content = yaml.safe_load(searched(conf).read_text())
    assert {row: found["trial"] for row, found in content.items()} == {"gru": 2, "lstm": 1}
    assert searched(conf).read_text().startswith(f"{search.WRITTEN}\n\ngru:\n")


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"metric": "rmsee"}, rf"search {ID}: no metric rmsee\. Did you mean rmse"),
        ({"better": "higher"}, f"search {ID}: lower rmse is better, says the task"),
        ({"better": "best"}, "better must be lower or higher; got 'best'"),
        ({"trials": 0}, "a search needs at least one trial"),
        ({"space": {"optim.lrr": [1.0e-3]}}, "there is no config key optim.lrr. Did you mean lr"),
        ({"space": {"optim.lr": {"low": 1.0e-3}}}, "optim.lr: the key high is missing"),
        (
            {"space": {"optim.lr": {"low": 2, "high": 1}}},
            "low must not be above high; got 2.0 and 1.0",
        ),
        (
            {"space": {"optim.lr": {"low": 0, "high": 1, "log": True}}},
            "low must be positive for a logarithmic range",
        ),
        ({"space": {"optim.lr": []}}, "optim.lr: an empty list"),
        ({"space": {"optim.lr": 3}}, "optim.lr must be a mapping; got 3"),
        (
            {"spaces": {}},
            r"fitzhugh_nagumo\.yaml: searches\.tiny: there is no key spaces\. Did you mean space",
        ),
        ({"row": {"search": "tini"}}, r"rows\.lstm: there is no search tini\. Did you mean tiny"),
        (
            {"row": {"search": None}},
            r"lstm has no search\. Name one in its row of /.*/conf/study/lem/fitzhugh_nagumo\.yaml",
        ),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(changes, says, conf):
    write(conf, **changes)
    with pytest.raises(ConfigError, match=says):
        search.search(EXPERIMENT, jobs=1)


@pytest.mark.slow
def test_a_study_of_ones_own_is_searched_where_it_lies(tmp_path, forked, monkeypatch, capsys):
    """An installed package refuses its own studies alone."""
    monkeypatch.setattr(search, "INSTALLED", True)
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=r"physml search \./study\.yaml:ROW"):
        search.search("lem/fitzhugh_nagumo-lem-searched", jobs=1)
    content = {"task": "fitzhugh_nagumo", "provenance": {"kind": "own", "source": "a paper"}}
    content |= {"searches": {"tiny": TINY}, "rows": {"lstm": {"model": "lstm", "search": "tiny"}}}
    (tmp_path / "mystudy.yaml").write_text(yaml.safe_dump(content))
    assert main.main(["search", "./mystudy.yaml:lstm", "--jobs", "2"]) == 0
    assert len(forked) == 3 and "written: mystudy.searched.yaml" in capsys.readouterr().out
    result = json.loads((tmp_path / "results" / "search" / "adhoc-mystudy-lstm.json").read_text())
    assert result["search"]["experiment"] == "./mystudy.yaml:lstm"
    best = min(result["trials"], key=lambda row: row["value"])
    config = compose.compose(["experiment=./mystudy.yaml:lstm"]).config
    assert config["optim"]["lr"] == best["point"]["optim.lr"]
    assert config["provenance"]["kind"] == "searched-here"
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("mystudy*.yaml"):
        path.rename(tmp_path / "moved" / path.name)
    assert main.main(["search", "./moved/mystudy.yaml:lstm", "--jobs", "2"]) == 0
    assert len(forked) == 3, "no trial is made again"


@pytest.mark.parametrize("name", ["lem/fitzhugh_nagumo-lsmt", "lem-fitzhugh_nagumo-lsmt"])
def test_an_unknown_search_has_near_names(name, conf):
    write(conf)
    with pytest.raises(
        ConfigError, match=rf"there is no search {name}\. Did you mean lem.fitzhugh_nagumo-lstm"
    ):
        search.search(name, jobs=1)


def test_a_search_has_the_name_of_its_results_and_of_its_experiment():
    for name in ("fitzhugh_nagumo-lem", "lem/fitzhugh_nagumo-lem-searched"):
        spec = search.load_search(name)
        assert (spec.id, spec.experiment) == ("fitzhugh_nagumo-lem", "lem/fitzhugh_nagumo-lem-searched")


def test_all_searches_of_the_repository_are_sound():
    """One of each study composes, names a metric of its task, and writes values that its experiment takes.

    That all vary keys that are there is in tests/conf/test_conf.py.
    """
    for name in {name.partition("-")[0]: name for name in studies.searches()}.values():
        spec = search.load_search(name)
        first, *_ = search.draw(spec)
        made = search.trial_spec(spec, 0, first)
        search.check_metric(spec, made)
        assert made.config["runtime"]["score_test"] is False and h.is_held(made) is False
