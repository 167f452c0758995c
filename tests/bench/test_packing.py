"""`python -m scripts.bench.packing` makes the runs it says, out of the results, in one file."""

import json
import os

import pytest

from physml.queue import scheduler
from scripts.bench import packing

TINY = ("profile=smoke", "--epochs", "1", "--rounds", "2", "--runs", "2")


@pytest.fixture
def carried_out(monkeypatch):
    """What the launcher was asked for: the number of runs to do, and how many at a time."""
    calls, real = [], scheduler.carry_out

    def carry_out(planned, *, jobs):
        calls.append((sum(row.todo for row in planned), jobs))
        return real(planned, jobs=jobs)

    monkeypatch.setattr(scheduler, "carry_out", carry_out)
    return calls


@pytest.mark.grid
def test_both_ways_make_the_same_runs(forked, carried_out, roots, capsys):
    before = dict(os.environ)
    assert packing.main(TINY) == 0
    assert dict(os.environ) == before
    assert carried_out == [(1, 1), (2, 1), (2, None), (2, 1), (2, None)]
    (path,) = (roots / "results").rglob("*.json")
    report = json.loads(path.read_text())
    assert {way: len(rounds) for way, rounds in report["ways"].items()} == {"one at a time": 2, "auto": 2}
    assert all(timing["clock_s"] > 0 for rounds in report["ways"].values() for timing in rounds)
    said = capsys.readouterr().out
    assert "runs per hour" in said and "auto against one at a time: " in said
    assert not (roots / "runs").exists()


def test_a_wrong_experiment_is_told(capsys):
    assert packing.main(["--experiment", "lem/fitzhugh"]) == 2
    assert "there is no experiment named lem/fitzhugh" in capsys.readouterr().err


def test_runs_that_fail_are_no_measurement(forked, roots, capsys):
    assert packing.main([*TINY, "split=7"]) == 1
    assert "error: not all runs came to their end" in capsys.readouterr().err
    assert not list((roots / "results").rglob("packing-*.json"))
