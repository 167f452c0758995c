"""Forks of a nursery: the numbers of fresh processes, and what happens when the nursery ends or grows old.

Signals, kills and exit codes of forks are tested with those of fresh processes, in test_launch.
"""

import json
import os
import random
import signal
import socket
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
import run_harness as h
import torch

from physml import paths
from physml.execution import nursery, planning, processes, scheduler, starter
from physml.records import record

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")


@pytest.fixture
def fork(monkeypatch):
    monkeypatch.setenv("PHYSML_FORK", "1")


def parent_of(pid):
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def test_records_and_surroundings_are_those_of_fresh_processes(fork, tmp_path, monkeypatch):
    """All that runs share with a nursery: random numbers, threads, environment. With a real one."""
    fresh = []
    monkeypatch.setattr(starter, "fresh", lambda *arguments: fresh.append(arguments))
    specs = h.specs_of(h.odd("seed=0,1", "net.dropout=0.5"))
    assert scheduler.carry_out(planning.plan(specs), jobs=2).exit_code == 0
    made = [record.read(spec.record_path) for spec in specs]
    curves = [h.curve(spec) for spec in specs]
    assert not fresh and all((s.work_folder / "output.txt").read_text().endswith("finished\n") for s in specs)
    monkeypatch.setenv("PHYSML_FORK", "0")
    assert scheduler.carry_out(planning.plan(specs, force=True), jobs=2, force=True).exit_code == 0
    passing = {"cost", "started", "ended", "code"}
    for spec, one, rows in zip(specs, made, curves, strict=True):
        again = record.read(spec.record_path)
        assert {k: v for k, v in one.items() if k not in passing} == {
            k: v for k, v in again.items() if k not in passing
        }
        assert h.curve(spec) == rows
    assert made[0]["metrics"] != made[1]["metrics"]


def test_loading_draws_no_random_number():
    before = torch.get_rng_state(), np.random.get_state()[1].copy(), random.getstate()
    nursery.load(["physml.models.lem.LEM", "tasks.adding.Adding", "physml.nothing.Nothing"])
    assert torch.equal(torch.get_rng_state(), before[0])
    assert (np.random.get_state()[1] == before[1]).all() and random.getstate() == before[2]


def test_runs_go_on_when_their_nursery_is_killed_and_later_ones_have_another(fork, tmp_path):
    overrides = h.odd("seed=0,1,2", step_s=0.2)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all((spec.work_folder / "metrics.jsonl").exists() for spec in specs[:2]))
    first, second = (parent_of(h.holder(spec)) for spec in specs[:2])
    assert first == second != process.pid
    os.kill(first, signal.SIGKILL)
    assert process.wait() == 0, process.text()
    assert [p.state for p in planning.plan(specs)] == ["done"] * 3


# ---------------------------------------------------------------------------- the two ends, without torch


class Talk:
    """A nursery of which the test says what it answers: at once, and to each order."""

    def __init__(self, monkeypatch, ready, *orders):
        ours, self.theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.orders = list(orders)
        self.say({"ready": ready})
        monkeypatch.setattr(starter.socket, "socketpair", lambda *_: (ours, self.theirs.dup()))
        monkeypatch.setattr(starter.socket, "send_fds", lambda *_: self.say(*self.orders.pop(0)))
        monkeypatch.setattr(starter.subprocess, "Popen", lambda *_, **__: Ended())
        self.nursery = starter.Nursery([], {})

    def say(self, *answers):
        for answer in answers:
            self.theirs.send(json.dumps(answer).encode())


class Ended:
    def wait(self):
        return 0


def test_exit_codes_come_in_any_order(monkeypatch, tmp_path):
    talk = Talk(monkeypatch, True, [{"pid": 11}], [{"ended": 11, "code": 75}, {"pid": 12}])
    one = talk.nursery.fork(["a"], tmp_path / "out", lambda: 1)
    assert one.pid == 11 and one.poll() is None
    two = talk.nursery.fork(["b"], tmp_path / "out", lambda: 1)
    talk.say({"ended": 12, "code": -9})
    assert (two.pid, two.wait(), one.wait()) == (12, -9, 75)
    talk.nursery.close()
    talk.theirs.close()


@pytest.mark.parametrize(("ready", "orders"), [(False, []), (True, [[{"stale": True}]])])
def test_a_nursery_that_cannot_fork_makes_none(monkeypatch, tmp_path, ready, orders):
    """Because a library has started threads, or because the code is no longer what it has imported."""
    talk = Talk(monkeypatch, ready, *orders)
    assert talk.nursery.fork(["a"], tmp_path / "out", lambda: 1) is None
    assert talk.nursery.refuses is not ready
    talk.nursery.close()
    talk.theirs.close()


def test_the_code_of_a_run_whose_nursery_is_lost_comes_from_its_files(monkeypatch, tmp_path):
    talk = Talk(monkeypatch, True, [{"pid": 2**22 + 1}])  # no such process
    run = talk.nursery.fork(["a"], tmp_path / "out", lambda: 75)
    assert run.poll() is None
    talk.theirs.close()
    assert run.poll() == 75
    talk.nursery.close()


def test_a_pause_is_one_even_beside_a_nursery_that_has_died(monkeypatch):
    talk = Talk(monkeypatch, True)
    one = starter.Starter([])
    one.nurseries["here"] = talk.nursery
    slept = []
    monkeypatch.setattr(starter.time, "sleep", slept.append)
    one.pause(0.01)
    talk.theirs.close()
    one.pause(0.01)
    assert talk.nursery.ready and talk.nursery.gone and not slept
    one.pause(0.01)
    assert slept == [0.01]
    one.close()


def test_what_is_loaded_of_the_checkout_is_watched(monkeypatch, tmp_path):
    module = type(sys)("physml_watched")
    module.__file__ = str(tmp_path / "physml" / "watched.py")
    Path(module.__file__).parent.mkdir()
    Path(module.__file__).write_text("")
    monkeypatch.setitem(sys.modules, "physml_watched", module)
    assert module.__file__ not in nursery.sources()
    monkeypatch.setattr(nursery, "ROOT", tmp_path)
    before = nursery.sources()
    assert list(before) == [module.__file__]
    os.utime(module.__file__, ns=(1, 1))
    assert nursery.sources() != before
    assert str(paths.ROOT / "physml" / "nursery.py") not in before


def test_threads_are_seen():
    wait = threading.Event()
    other = threading.Thread(target=wait.wait)
    other.start()
    try:
        assert not nursery.one_thread()
    finally:
        wait.set()
        other.join()


def test_classes_that_a_config_names():
    config = {"model": {"_target_": "physml.models.lem.LEM", "inner": [{"_target_": "own.Net"}]}}
    config["task"] = {"_target_": "tasks.adding.Adding"}
    assert starter.targets_of(config) == {"physml.models.lem.LEM", "tasks.adding.Adding"}


def test_forks_are_for_one_thread_on_a_cpu():
    assert processes.may_fork(h.spec_of(h.odd()))
    assert not processes.may_fork(h.spec_of(h.odd("runtime.threads=2")))
