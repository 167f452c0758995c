"""`physml status`, `logs`, `failed`, `retry`: told by the folder alone."""

import errno
import json
import os
import time
from dataclasses import replace

import pytest
import run_harness as h

from physml.base.errors import InputError
from physml.base.paths import work_root
from physml.cli import main, status
from physml.queue import planning
from physml.queue import status as overview
from physml.queue.status import Seen, duration, seen, summary
from physml.run import history

SLOW = {"step_s": 0.2}
TABLE = ("lem-9", "--smoke", "--seeds", "0")


def of(spec):
    (run,) = planning.plan([spec])
    return seen(run)


def test_each_state_of_a_run_is_told(forked):
    done, missing = h.specs_of(h.odd("seed=0,1"))
    h.make(done)
    failed = h.spec_of(h.odd(trouble="memory"))
    h.make(failed)
    (running,) = h.specs_of(h.odd("seed=5", "runtime.checkpoint_every_s=0", **SLOW))
    process = h.start(running)
    h.until(lambda: of(running).step > 1)
    now = of(running)
    assert now.state == "running" and now.steps > now.step and 0 < now.hours_left < 1
    assert f"(pid {process.pid})" in now.host and "left" in now.text and now.silent_s is None
    process.kill()
    assert of(running).state == "stopped" and of(running).step >= now.step
    assert (of(done).state, of(missing).state) == ("done", "missing")
    failure = of(failed)
    assert failure.state == "failed" and "out of memory" in failure.reason
    for _ in range(history.LIMIT - 1):
        h.make(failed)
    assert of(failed).state == "given up" and "3 attempts in vain: out of memory" in of(failed).reason
    planned = planning.plan([done, missing, failed, running])
    text = summary("t", [seen(run) for run in planned], planned)
    assert text.startswith("t: 4 runs: 1 done, 1 missing, 1 given up, 1 stopped; ")
    assert "of work left" in text and "of unknown time" in text


def test_a_run_that_ended_without_a_record_has_failed():
    """Such as one whose layer returns a wrong shape: bad input is no result."""
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    with pytest.raises(InputError), history.counted(spec.work_folder):
        raise InputError("u is wrong")
    spec.output_file.write_text("error: u is wrong\n")
    assert of(spec).state == "failed" and of(spec).reason == "ended without a result: error: u is wrong"


def test_a_run_without_news_is_called_silent_and_times_are_told_in_two_units():
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    news = {"step": 5, "steps": 10, "host": "node7", "began": time.time() - 1000, "first": 0}
    (spec.work_folder / "progress.json").write_text(json.dumps(news | {"at": time.time() - 700}))
    silent = seen(planning.Planned(spec, "running"))
    assert silent.text.startswith("node7, step 5 of 10, ") and silent.text.endswith("no news for 12 min")
    for damaged in ("[]", "{", json.dumps({"step": 5, "steps": 10, "at": "x"})):
        (spec.work_folder / "progress.json").write_text(damaged)
        (spec.work_folder / "attempts.json").write_text('{"host": 5}')
        damaged_run = seen(planning.Planned(spec, "running"))
        assert damaged_run.hours_left is None and damaged_run.text in ("", "step 5 of 10")
    texts = {0.0: "0 s", 1.0: "1 h 0 min", 1.99: "1 h 59 min", 24.0: "1 d 0 h", 49.5: "2 d 1 h"}
    assert {hours: duration(hours) for hours in texts} == texts
    assert Seen(None, "blocked", reason="no data").text == "no data"


@pytest.fixture
def shared(monkeypatch, tmp_path):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "shared"))


def test_status_of_a_table_before_and_after(forked, shared, prints):
    assert "lem-9: 4 runs: 4 missing; 4 of unknown time" in prints(0, "status", *TABLE).out
    prints(0, "table", *TABLE)
    out = prints(0, "status", "lem/fitzhugh_nagumo-lem", *TABLE, "--all").out
    assert "lem-9: 4 runs: 4 done" in out and "lem/fitzhugh_nagumo-lem: 1 run: 1 done" in out
    assert "4 runs: 4 done" in prints(0, "status", "--smoke").out
    out = prints(0, "status").out
    assert "no run was started here" in out and "left out" not in out
    out = prints(0, "logs", *TABLE, "--lines", "1").out
    assert out.count("output.txt") == 4 and "finished" in out
    assert "No run has failed" in prints(0, "failed").out
    assert "Nothing was given up" in prints(0, "retry").out
    assert "table of settings" in prints(2, "status", "lem-8").err


def test_the_runs_of_an_experiment_are_those_of_its_tables(prints, monkeypatch):
    """No other pairs are wanted where a table has each split with one seed."""
    spec = h.spec_of(["experiment=lem/fitzhugh_nagumo-lem"])
    spec = replace(spec, place=replace(spec.place, identity="0" * 8))
    assert planning.plan([spec])[0].said == "missing; recorded with other settings: 10 runs"
    monkeypatch.delenv("PHYSML_RESULTS")
    assert "--smoke needs PHYSML_RESULTS: the folder that the smoke run" in prints(2, "status", *TABLE).err
    for seeds, count in (((), 5), (("--seeds", "0,1"), 10)):
        assert f"mlp: {count} runs: " in prints(0, "status", "heterophily/chameleon_filtered-mlp", *seeds).out


@pytest.mark.parametrize("place", [{"folder": "../elsewhere"}, {"folder": "/etc"}, {"seed": "0/../../../x"}])
def test_a_file_of_a_run_that_leads_elsewhere_is_left_out(place, shared, prints):
    """Who may write the work folder may not have `retry` and `logs` open files outside of it."""
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    content = json.loads(json.dumps(spec.to_json()))
    content["place"] |= place
    (spec.work_folder / "spec.json").write_text(json.dumps({"spec": content}))
    for command in ("status", "logs", "retry"):
        assert "is left out: a run has no place outside of the folder of runs" in prints(0, command).out


def test_a_damaged_record_or_a_broken_experiment_is_told(shared, capsys, prints, tmp_path, monkeypatch):
    (done,) = h.specs_of(h.odd("seed=0"))
    h.make(done)
    done.record_path.write_text("{")
    (done.work_folder / "spec.json").write_text(json.dumps({"spec": done.to_json()}))
    assert f"{done.place.stem} is left out: " in prints(0, "status").out
    done.record_path.unlink()
    with monkeypatch.context() as patch:
        patch.setenv("PHYSML_LOCKS", "foo")
        assert main.main(["status"]) == 0
    assert f"{done.place.stem} is left out: PHYSML_LOCKS must be flock or lease" in capsys.readouterr().out
    study = tmp_path / "mine.yaml"
    study.write_text("{task: adding, common: {task: {n_typo: 3}}, rows: {a: {model: lem}}}")
    for command in ("status", "failed", "logs", "retry"):
        assert "mine.yaml:a cannot be run: " in prints(2, command, f"{study}:a").err
    for command in ("status", "table", "figure", "cite"):
        assert f"is a study. Name a table, or a row, as {study}:ROW" in prints(2, command, str(study)).err


def test_a_hopeless_run_is_found_and_started_anew(forked, shared, prints):
    spec = h.spec_of(h.odd(trouble="memory"))
    for _ in range(history.LIMIT):
        h.start(spec).wait()
    out = prints(1, "failed").out
    assert "given up" in out and "3 attempts in vain" in out and "output.txt" in out
    assert "the next pilot starts it" in prints(0, "retry").out
    assert of(spec).state == "failed" and overview.history.last_host(spec.work_folder) is None


def test_watching_ends_when_all_is_done(forked, shared, prints, monkeypatch):
    looks = []

    def sleep(_):
        looks.append(1)
        assert main.main(["table", *TABLE]) == 0

    monkeypatch.setattr(status.time, "sleep", sleep)
    assert "lem-9: 4 runs: 4 done" in prints(0, "status", *TABLE, "--watch").out and len(looks) == 1


def test_a_folder_that_cannot_be_read_is_said(forked, prints, monkeypatch):
    """Root may read all of them, so the refusal is made up."""
    h.make(h.spec_of(h.odd()))
    (work_root() / "closed").mkdir()
    scandir = os.scandir

    def refusing(path="."):
        if str(path).endswith("closed"):
            raise PermissionError(errno.EACCES, "Permission denied", path)
        return scandir(path)

    monkeypatch.setattr(os, "scandir", refusing)
    out = prints(0, "status").out
    assert "closed cannot be read (Permission denied), and is left out" in out and "1 run" in out
