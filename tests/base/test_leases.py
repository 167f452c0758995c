"""Leases: taken over once, by watching alone; a holder that lost its lease writes nothing."""

import errno
import json
import os
import signal
import subprocess
import sys
import threading
import time

import pytest
import run_harness as h

from physml.base import lease, lock
from physml.base.errors import Busy, ConfigError
from physml.base.lease import Lease, Lost
from physml.base.paths import ROOT
from physml.queue.engines.job import shared_environment
from physml.training import checkpoint


@pytest.fixture(autouse=True)
def leases(monkeypatch):
    monkeypatch.setenv("PHYSML_LOCKS", "lease")
    monkeypatch.setenv("PHYSML_LEASE_S", "0.1")


@pytest.fixture
def another_machine(monkeypatch):
    """This process sees no process ids of the others, as on another node."""
    monkeypatch.setattr(lease, "_machine", dict)


def left_by(folder, **holder):
    """A lease that nobody renews."""
    (folder / lease.NAME).mkdir(parents=True)
    content = {"host": "far", "pid": 7, "started": 1, "period_s": 0.02} | holder
    (folder / lease.NAME / "1").write_text(json.dumps(content) + "\n...")


# ---------------------------------------------------------------------------- one lease


def test_a_lease_is_held_until_it_is_given_back_and_pilots_have_the_same_locks(tmp_path, another_machine):
    with lock.held(tmp_path):
        assert lock.is_held(tmp_path)
        began = len((tmp_path / "lease" / "1").read_bytes())
        h.until(lambda: len((tmp_path / "lease" / "1").read_bytes()) > began + lease.MISSED)
        assert lock.is_held(tmp_path)
        with pytest.raises(Busy, match=rf"\(pid {os.getpid()}\) works on"), lock.held(tmp_path):
            pass
    assert not lock.is_held(tmp_path)
    with lock.held(tmp_path):
        assert lock.is_held(tmp_path)
    assert shared_environment()["PHYSML_LOCKS"] == "lease"


def test_a_server_that_does_not_answer_for_a_while_ends_no_renewal(tmp_path, monkeypatch):
    folder, exists = tmp_path / "run", lease.Path.exists

    def stale(path):
        if path.parent.name == lease.NAME and not answers.is_set():
            failed.set()
            raise OSError(errno.ESTALE, "Stale file handle")
        return exists(path)

    answers, failed = threading.Event(), threading.Event()
    with lock.held(folder) as hold:
        monkeypatch.setattr(lease.Path, "exists", stale)
        assert failed.wait(5)
        hold.refuse_if_lost()
        answers.set()
        began = len((folder / "lease" / "1").read_bytes())
        h.until(lambda: len((folder / "lease" / "1").read_bytes()) > began)


def test_what_another_machine_left_runs_out_by_our_clock_alone(tmp_path, monkeypatch):
    """Its file may be from the past or the future, and our clock may jump."""
    left_by(tmp_path)
    monkeypatch.setattr(lease.time, "time", lambda: pytest.fail("no clock is compared"))
    for written in (0, 2**32):
        os.utime(tmp_path / "lease" / "1", (written, written))
        assert lock.is_held(tmp_path)
    h.until(lambda: not lock.is_held(tmp_path))
    assert (tmp_path / "lease" / "2").read_bytes() == lease.FREE  # all see it
    monkeypatch.setattr(lease, "_SEEN", {})
    assert not lock.is_held(tmp_path)


def test_a_sign_of_life_starts_the_watch_anew(tmp_path):
    left_by(tmp_path, period_s=1000)
    path = tmp_path / "lease" / "1"
    for sign_of_life in (True, False):
        assert lock.is_held(tmp_path)
        size, since = lease._SEEN[path]
        lease._SEEN[path] = size, since - 6001
        if sign_of_life:
            lease._append(path, b".")
    assert not lock.is_held(tmp_path)


def test_taking_waits_until_the_lease_of_another_machine_has_run_out(tmp_path):
    left_by(tmp_path)
    with lock.held(tmp_path) as hold:
        assert hold.lease.number == 2
    left_by(tmp_path / "alive", period_s=1000)

    def live():
        while not done.is_set():
            lease._append(tmp_path / "alive" / "lease" / "1", b".")
            time.sleep(0.01)

    done = threading.Event()
    other = threading.Thread(target=live)
    other.start()
    with pytest.raises(Busy, match=r"far \(pid 7\) works on"), lock.held(tmp_path / "alive"):
        pass
    done.set()
    other.join()


@pytest.mark.parametrize("started", ["dead", "reused"])
def test_a_process_of_this_machine_that_has_died_is_out_at_once(tmp_path, started):
    with subprocess.Popen([sys.executable, "-c", ""]) as child:
        child.wait()
    pid = child.pid if started == "dead" else os.getpid()
    left_by(tmp_path, **(lease._self() | {"pid": pid, "started": 5, "period_s": 1000}))
    assert not lock.is_held(tmp_path)


def test_a_lease_that_was_confirmed_cannot_be_taken(tmp_path):
    first = Lease(tmp_path)
    first.confirm()
    with pytest.raises(FileExistsError):  # a taker that had seen the first number run out
        lease._create(tmp_path / "lease" / "2", b"")
    lease._create(tmp_path / "lease" / "3", b"{}\n")
    assert first.lost
    with pytest.raises(Lost):
        first.confirm()
    first.give_back()
    assert (tmp_path / "lease" / "3").read_bytes() == b"{}\n"


def test_both_kinds_of_lock_see_a_lease(tmp_path, monkeypatch):
    with lock.held(tmp_path):
        monkeypatch.setenv("PHYSML_LOCKS", "flock")
        assert lock.is_held(tmp_path)
        with pytest.raises(Busy), lock.held(tmp_path):
            pass
    with lock.held(tmp_path) as hold:
        hold.confirm()
        hold.refuse_if_lost()


@pytest.mark.parametrize(("name", "value"), [("PHYSML_LOCKS", "lockd"), ("PHYSML_LEASE_S", "-1")])
def test_mistakes_are_told(tmp_path, monkeypatch, name, value):
    monkeypatch.setenv(name, value)
    with pytest.raises(ConfigError, match=f"{name} must be"), lock.held(tmp_path):
        pass


# ---------------------------------------------------------------------------- races

TAKER = """
import sys
from pathlib import Path
from physml.base.lease import Lease
root, held = Path(sys.argv[1]), []
print("ready", flush=True)
sys.stdin.readline()
for k in range(int(sys.argv[2])):
    try:
        held.append(Lease(root / str(k)))
        print(k, flush=True)
    except BlockingIOError:
        pass
print("done", flush=True)
sys.stdin.readline()
"""


@pytest.mark.parametrize("how", ["dead", "run out"])
def test_of_many_takers_one_wins(tmp_path, how):
    rounds, holder = 10, lease._self() | {"started": 5, "period_s": 1000} if how == "dead" else {}
    for k in range(rounds):
        left_by(tmp_path / str(k), **holder)
    command = [sys.executable, "-c", TAKER, str(tmp_path), str(rounds)]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PHYSML_LEASE_S": "100"}
    takers = [
        subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment)
        for _ in range(8)
    ]
    for taker in takers:
        assert taker.stdout.readline() == "ready\n"
    for taker in takers:
        taker.stdin.write("\n")
        taker.stdin.flush()
    won = [list(iter(taker.stdout.readline, "done\n")) for taker in takers]
    for taker in takers:
        taker.communicate("\n")
    assert sorted(int(k) for lines in won for k in lines) == list(range(rounds))


# ---------------------------------------------------------------------------- runs


SLOW = h.odd("runtime.checkpoint_every_s=0", step_s=0.1)


def slow_run():
    """A run with a checkpoint after each step, of which the first is done, and its process."""
    spec = h.spec_of(SLOW)
    process = h.start(spec)
    h.until(lambda: h.steps_done(spec) > 0)
    return spec, process


def test_a_killed_run_goes_on_elsewhere_to_the_same_numbers(monkeypatch, another_machine):
    spec, first = slow_run()
    first.kill()
    first.wait()
    assert lock.is_held(spec.work_folder)
    resumed = h.make(spec)
    monkeypatch.setenv("PHYSML_RESULTS", str(spec.work_folder / "alone"))
    monkeypatch.setenv("PHYSML_RUNS", str(spec.work_folder / "alone"))
    assert h.numbers(h.make(h.spec_of(SLOW))) == h.numbers(resumed)


@pytest.mark.parametrize("other", ["has ended", "works on it"])
def test_a_stopped_holder_that_comes_back_writes_nothing(other, another_machine):
    spec, first = slow_run()
    first.send_signal(signal.SIGSTOP)
    h.until(lambda: not lock.is_held(spec.work_folder))
    if other == "has ended":
        h.make(spec)
        before = spec.record_path.read_bytes()
        first.send_signal(signal.SIGCONT)
        assert first.wait() == 3
        assert spec.record_path.read_bytes() == before and not checkpoint.exists(spec.work_folder)
    else:
        with lock.held(spec.work_folder):
            first.send_signal(signal.SIGCONT)
            assert first.wait() == 3
            assert not spec.record_path.exists()
    assert "silent for too long" in first.text()


def test_a_holder_that_is_late_by_a_hair_writes_nothing(monkeypatch):
    """It was taken over after its last look: the file system has the last word."""
    spec = h.spec_of(h.odd())
    monkeypatch.setattr(Lease, "lost", False)
    plain = lock.Hold.confirm

    def taken(self):
        lease._create(self.folder / "lease" / "2", b"{}\n")
        plain(self)

    monkeypatch.setattr(lock.Hold, "confirm", taken)
    with pytest.raises(Busy, match="another process has taken"):
        h.make(spec)
    assert not spec.record_path.exists()
