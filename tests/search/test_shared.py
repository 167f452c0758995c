"""A shared search: its trials are runs, its cap holds, its results are written once all have ended."""

import json

import optuna
import pytest
import yaml
from search_conf import without_studies, write_study

from physml.base.errors import ConfigError, InputError
from physml.cli import main
from physml.config import search_schema
from physml.queue import pilot, scheduler
from physml.records import record
from physml.run import history
from physml.search import plain as search
from physml.search import shared as shared_search
from physml.search.overview import picture
from physml.search.state import state_text

EXPERIMENT, ID = "lem/fitzhugh_nagumo-lstm", "lem-fitzhugh_nagumo-lstm"
TINY = {
    "metric": "rmse",
    "better": "lower",
    "trials": 4,
    "seed": 1000,
    "trial": {"profile": "smoke", "trainer.epochs": 3, "trainer.max_steps": None},
    "space": {
        "optim.lr": {"low": 1.0e-3, "high": 5.0e-2, "log": True},
        "net.dropout": {"low": 0.0, "high": 0.5},
    },
}


@pytest.fixture
def conf(tmp_path, monkeypatch):
    monkeypatch.setattr(shared_search, "LOOK", 0.05)
    monkeypatch.setattr(pilot, "LOOK", 0.1)
    return without_studies(tmp_path, monkeypatch)


def write(conf, **changes):
    return write_study(conf, TINY | changes, {"lstm": {"model": "lstm", "search": "tiny"}})


def results(root, name):
    return json.loads((root / "results" / "search" / f"{name}.json").read_text())


def test_the_best_trial_of_a_rows_own_search_becomes_its_setting(conf, tmp_path, forked, capsys):
    write(conf, sampler="tpe")
    assert main.main(["search", EXPERIMENT, "--jobs", "2"]) == 0
    made = results(tmp_path, ID)
    assert made["search"]["sampler"] == "tpe" and "pruner" not in made["search"]
    assert [row["trial"] for row in made["trials"]] == [0, 1, 2, 3] and len(forked) == 4
    best = min(made["trials"], key=lambda row: row["value"])
    found = yaml.safe_load((conf / "study" / "lem" / "fitzhugh_nagumo.searched.yaml").read_text())["lstm"]
    assert found["set"] == best["point"] == made["best"]["point"]
    assert found["note"].startswith("TPE search: 4 trials (4 finished)")
    assert not list((tmp_path / "results" / "search").glob("*.unfinished.json"))
    for row in made["trials"]:
        (path,) = (tmp_path / "results" / "runs").rglob(f"*/{row['trial']:03d}/*-seed1000.json")
        metrics = record.read(path)["metrics"]
        assert metrics["best"]["valid"]["rmse"] == row["value"]
        assert metrics["best"]["test"] == {}, "test data are not scored"
    out = capsys.readouterr().out
    assert "4 trials (4 finished) by 1 worker(s)" in out and "best: trial" in out
    assert main.main(["search", EXPERIMENT, "--jobs", "2"]) == 0
    assert len(forked) == 4, "nothing is made again"
    (journal,) = (tmp_path / "results" / "search").glob("*.journal")  # which Optuna itself reads
    backend = optuna.storages.journal.JournalFileBackend(str(journal))
    (study,) = optuna.get_all_study_summaries(optuna.storages.JournalStorage(backend))
    assert study.n_trials == 4 and study.study_name == journal.stem


def test_a_sampler_of_the_command_line_leaves_the_settings(conf, tmp_path, forked):
    path = write(conf)
    before = path.read_bytes()
    command = [
        "search",
        EXPERIMENT,
        "--sampler",
        "random",
        "--pruner",
        "median",
        "--trials",
        "3",
        "--jobs",
        "1",
    ]
    assert main.main(command) == 0
    made = results(tmp_path, f"{ID}-random-median")
    assert len(made["trials"]) == 3 and made["search"]["pruner"] == "median"
    assert not (path.parent / "fitzhugh_nagumo.searched.yaml").exists() and path.read_bytes() == before
    command[7] = "5"
    assert main.main(command) == 0, "a greater cap goes on"
    assert len(results(tmp_path, f"{ID}-random-median")["trials"]) == 5 and len(forked) == 5


def test_a_lost_store_is_made_again_from_the_records(conf, tmp_path, forked):
    write(conf, sampler="random", pruner="median")
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 0
    before = results(tmp_path, ID)
    for path in (tmp_path / "results" / "search").iterdir():
        path.unlink()
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 0
    after = results(tmp_path, ID)
    assert [row["value"] for row in after["trials"]] == [row["value"] for row in before["trials"]]
    assert len(forked) == 4


def test_runs_that_always_fail_are_given_up_and_count(conf, tmp_path, forked, capsys):
    write(conf, sampler="tpe", trials=2, trial=TINY["trial"] | {"runtime.device": "cuda:7"})
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 1
    assert f"no trial of {ID} gave a number" in capsys.readouterr().err
    assert [row["status"] for row in results(tmp_path, ID)["trials"]] == ["failed", "failed"]
    assert len(forked) == 2 * history.LIMIT


def test_a_worker_that_cannot_start_processes_ends(conf, tmp_path, monkeypatch, capsys):
    def full(*_, **__):
        raise OSError("No space left on device")

    monkeypatch.setattr(scheduler, "start_worker", full)
    write(conf, sampler="tpe", trials=2)
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 75
    assert "cannot be started: No space left" in capsys.readouterr().err


def test_a_point_that_the_setting_refuses_ends_its_trial(conf, tmp_path, forked, capsys):
    write(conf, sampler="random", pruner="median", trials=3, space={"net.dropout": [0.1, 7.0]})
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 0
    rows = results(tmp_path, ID)["trials"]
    assert {row["point"]["net.dropout"]: row["status"] for row in rows} == {0.1: "finished", 7.0: "refused"}
    assert "is refused" in capsys.readouterr().out


def test_a_pruner_ends_runs_early(conf, tmp_path, forked, monkeypatch):
    monkeypatch.setattr(
        shared_search.TrialStore, "report", lambda self, trial, epoch, value: trial.number == 1
    )
    trial = TINY["trial"] | {"trainer.epochs": 400}
    write(conf, sampler="tpe", pruner="median", trials=2, trial=trial)
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 0
    rows = results(tmp_path, ID)["trials"]
    assert [row["status"] for row in rows] == ["finished", "pruned"]
    assert not list((tmp_path / "runs").rglob("*/001/*/last.pt")), "its checkpoint is of no use"


def test_pilots_share_the_trials(conf, tmp_path, forked):
    write(conf, sampler="tpe")
    made = shared_search.SharedSearch(search.load_search(EXPERIMENT), None, "bytes")
    with made.store.working():
        spec = made.next()  # another worker, that lives and does nothing
        assert spec is not None and made.left() == 4
        again = ["search", EXPERIMENT, "--on", "pilot", "--no-wait", "--jobs", "1"]
        assert main.main(again) == 75
        assert state_text(ID).startswith("3 of 4 trials, trial ")
    assert main.main(["search", EXPERIMENT, "--on", "pilot", "--jobs", "1"]) == 0
    assert len(forked) == 4 and state_text(ID).startswith("done, trial ")


def test_the_picture_of_a_search(conf, tmp_path, forked, capsys):
    write(conf, sampler="tpe")
    with pytest.raises(ConfigError, match="has no trials yet"):
        picture(EXPERIMENT)
    assert main.main(["search", EXPERIMENT, "--jobs", "1"]) == 0
    capsys.readouterr()
    assert main.main(["search", EXPERIMENT, "--picture"]) == 0
    out = capsys.readouterr().out
    assert (
        "of the variance" in out and (tmp_path / "results" / "search" / f"{ID}.png").stat().st_size > 10_000
    )


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--trials", "3"], "--trials is for a search with --sampler or --pruner"),
        (["--storage", "sqlite://"], "--storage is for a search with --sampler or --pruner"),
        (["--sampler", "tpe", "--sampler-seed", "3"], "--sampler-seed takes a number"),
        (["--sampler", "tpe", "--storage", "nonsense"], "--storage takes a URL"),
    ],
)
def test_options_that_do_not_fit(conf, arguments, said, capsys):
    write(conf)
    assert main.main(["search", EXPERIMENT, *arguments]) == 2
    assert said in capsys.readouterr().err


def test_stages_and_a_sampler_exclude_each_other():
    stages = [search_schema.Stage()]
    with pytest.raises(InputError, match="neither stages nor points"):
        search_schema.Search("rmse", "lower", 4, 1, {"a": [1]}, sampler="tpe", stages=stages)


def test_a_trial_whose_end_is_being_told_still_runs(conf):
    """Another worker has set why it ended, and not yet the value."""
    write(conf, sampler="tpe")
    made = shared_search.SharedSearch(search.load_search(EXPERIMENT), None, "bytes")
    with made.store.working():
        assert made.next() is not None
        made.store._trial(made.store.all()[0]).set_user_attr("end", "finished")
        assert made.rows()[0]["status"] == "running" and made.best_text() == "no value so far"
