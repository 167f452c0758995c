"""One process per run: the second is told who works on it; a killed one leaves no lock."""

import contextlib
import platform
import signal
import threading
import time

import pytest
import run_harness as h

from physml.base import lock
from physml.base.errors import Busy
from physml.run import perform as run


@pytest.fixture(autouse=True, params=["flock", "lease"])
def kind(request, monkeypatch):
    monkeypatch.setenv("PHYSML_LOCKS", request.param)


def test_the_second_process_is_told_who_works_on_the_run(prints):
    overrides = h.odd(step_s=0.3)  # seconds enough for two other starts, also on a busy machine
    spec = h.spec_of(overrides)
    first = h.start(spec)
    h.until(lambda: h.is_held(spec))
    said = prints(2, "run", *overrides).err
    assert f"error: {platform.node()} (pid {first.pid}) works on " in said
    assert str(spec.work_folder) in said and "Wait for it, or stop it" in said
    assert h.start(spec).wait() == 3
    first.kill()
    assert first.wait() == -signal.SIGKILL
    assert not h.is_held(spec)
    assert h.start(spec).wait() == 0


def test_a_run_that_another_process_has_just_ended_is_not_made_again(monkeypatch):
    spec = h.spec_of(h.odd())
    theirs = []

    @contextlib.contextmanager
    def other_was_faster(folder):
        monkeypatch.setattr(run, "held", lock.held)
        theirs.append(h.make(spec))
        with lock.held(folder):
            yield

    monkeypatch.setattr(run, "held", other_was_faster)
    assert h.make(spec)["skipped"] and "skipped" not in theirs[0]


def test_looking_whether_a_lock_is_held_disturbs_nobody(tmp_path):
    """A table that looks for running runs holds their locks for an instant."""
    looked, ended = threading.Event(), threading.Event()

    def look():
        while not ended.is_set():
            lock.is_held(tmp_path)
            looked.set()

    watcher = threading.Thread(target=look)
    with lock.held(tmp_path):
        assert lock.is_held(tmp_path)
    watcher.start()
    looked.wait()
    for _ in range(200):
        with lock.held(tmp_path):
            pass
    ended.set()
    watcher.join()


def test_busy_comes_soon_who_has_time_waits_and_nothing_started_has_no_lock(tmp_path) -> None:
    began = time.monotonic()
    with lock.held(tmp_path), pytest.raises(Busy), lock.held(tmp_path):
        pass
    assert time.monotonic() - began < 3.0
    with contextlib.ExitStack() as first:
        first.enter_context(lock.held(tmp_path))
        threading.Timer(0.8, first.pop_all().close).start()
    with lock.held(tmp_path, wait_s=60):
        assert lock.is_held(tmp_path)
    assert not lock.is_held(tmp_path / "nowhere")
    assert not (tmp_path / "nowhere").exists()
