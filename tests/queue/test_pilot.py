"""Pilots: each run once, held ones are waited for, those of the dead taken over, hopeless ones given up."""

import os
import threading
import time

import pytest
import run_harness as h

from physml.base.errors import Preempted
from physml.cli import main
from physml.queue import pilot, planning, scheduler
from physml.queue.pilot import sharing
from physml.run import history, resources
from physml.run.resources import MIB
from physml.training import checkpoint

SLOW = {"step_s": 0.07}


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(pilot, "LOOK", 0.1)
    monkeypatch.delenv("SLURM_JOB_END_TIME", raising=False)


def piloted(planned, wait=True, **options):
    with sharing(wait=wait):
        return scheduler.carry_out(planned, jobs=1, **options)


def test_a_pilot_takes_over_what_a_dead_process_held(forked):
    first, second = h.specs_of(h.odd("seed=0,1", "runtime.checkpoint_every_s=0", step_s=0.25))
    planned = planning.plan([first, second])  # before anybody began
    process = h.start(first)
    h.until(lambda: h.steps_done(first) > 0)

    def kill():
        h.until(lambda: h.is_held(second))
        process.kill()

    killer = threading.Thread(target=kill)
    killer.start()
    outcome = piloted(planned)
    killer.join()
    assert outcome.codes == {first.label: 0, second.label: 0} and outcome.exit_code == 0
    assert h.states([first, second]) == ["done", "done"] and len(forked) == 2


def test_a_pilot_that_does_not_wait_leaves_what_others_hold(forked):
    first, second = h.specs_of(h.odd("seed=0,1", **SLOW))
    planned = planning.plan([first, second])
    process = h.start_holding(first)
    outcome = piloted(planned, wait=False)
    assert outcome.codes == {second.label: 0} and outcome.elsewhere == [first.label]
    assert outcome.exit_code == 0
    process.kill()


def test_a_pilot_that_is_stopped_while_others_hold_the_rest_is_to_be_started_again(forked, monkeypatch):
    spec = h.spec_of(h.odd(**SLOW))
    planned = planning.plan([spec])
    process = h.start_holding(spec)

    def leave(self, run):
        self.held.append(run)
        self._interrupt(15, None)

    monkeypatch.setattr(pilot.Pilot, "_leave", leave)
    outcome = piloted(planned)
    assert outcome.left == [spec.label] and outcome.exit_code == 75 and not forked
    process.kill()


def test_what_others_have_made_since_the_plan_is_not_made_again(forked):
    specs = h.specs_of(h.odd("seed=0,1"))
    planned = planning.plan(specs)
    h.make(specs[0])
    outcome = piloted(planned)
    assert outcome.codes == {specs[1].label: 0} and outcome.elsewhere == [specs[0].label]
    assert len(forked) == 1


def test_a_race_for_a_run_is_no_failure(forked, monkeypatch):
    """Another process takes the lock between our look and our worker's."""
    (spec,) = h.specs_of(h.odd("seed=0", **SLOW))
    planned = planning.plan([spec])
    process = h.start_holding(spec)
    answers, plain = iter(["missing"]), pilot.state_of
    monkeypatch.setattr(pilot, "state_of", lambda asked: next(answers, None) or plain(asked))
    monkeypatch.setattr(scheduler, "is_held", lambda _: False)
    outcome = piloted(planned)
    process.wait()
    assert outcome.codes == {} and outcome.elsewhere == [spec.label] and len(forked) == 1


def test_a_run_that_diverges_is_this_pilots_failure_and_force_is_refused(forked, capsys):
    spec = h.spec_of(h.odd(trouble="nan_loss"))
    outcome = piloted(planning.plan([spec]))
    assert outcome.codes == {spec.label: 1} and outcome.exit_code == 1 and len(forked) == 1
    assert main.main(["run", *h.SMALL, "-m", "seed=0", "--on", "pilot", "--force"]) == 2
    assert "--force is for one process, --on local; got --on pilot" in capsys.readouterr().err


def test_a_run_that_always_fails_is_given_up_until_somebody_says_retry(forked, capsys):
    spec = h.spec_of(h.odd(trouble="memory"))
    for k in range(history.LIMIT):
        assert not history.given_up(spec)
        assert piloted(planning.plan([spec])).exit_code == 1 and len(forked) == k + 1
    assert history.given_up(spec)
    assert piloted(planning.plan([spec])).exit_code == 1 and len(forked) == history.LIMIT
    assert "given up after 3 attempts: " in capsys.readouterr().err
    assert history.forget(spec.work_folder) and not history.forget(spec.work_folder)
    assert piloted(planning.plan([spec])).exit_code == 1 and len(forked) == history.LIMIT + 1


def test_a_run_that_comes_on_is_never_given_up(tmp_path):
    """A newer checkpoint sets the count back, and so does a stop, and a result."""
    (tmp_path / history.NAME).write_text('{"in_vain": 2}')
    with pytest.raises(MemoryError), history.counted(tmp_path):
        assert history.in_vain(tmp_path) == 3
        raise MemoryError
    assert history.in_vain(tmp_path) == 3
    time.sleep(0.01)
    (tmp_path / checkpoint.NAMES[0]).touch()
    assert history.in_vain(tmp_path) == 0
    with pytest.raises(Preempted), history.counted(tmp_path):
        raise Preempted("stopped")
    assert history.last_host(tmp_path) is None
    for damaged in ("[]", "{", '{"in_vain": "x"}'):
        (tmp_path / history.NAME).write_text(damaged)
        (tmp_path / checkpoint.NAMES[0]).unlink(missing_ok=True)
        assert history.in_vain(tmp_path) == 0


def test_the_clock_of_a_checkpoint_does_not_matter(tmp_path):
    (tmp_path / checkpoint.NAMES[0]).touch()
    os.utime(tmp_path / checkpoint.NAMES[0], (time.time() + 3600,) * 2)
    for count in (1, 2):
        with pytest.raises(MemoryError), history.counted(tmp_path):
            raise MemoryError
        assert history.in_vain(tmp_path) == count
    (tmp_path / checkpoint.NAMES[0]).touch()  # written with the right clock
    assert history.in_vain(tmp_path) == 0


def test_a_run_that_is_killed_in_its_last_scores_is_given_up(monkeypatch):
    """Each attempt finds it trained: it comes on once."""
    spec = h.spec_of(h.odd())

    class Killed(BaseException):
        pass

    def killed(trainer, status):
        raise Killed

    monkeypatch.setattr("physml.run.record.final_scores", killed)
    for count in (0, 1, 2, 3):
        with pytest.raises(Killed):
            h.make(spec)
        assert history.in_vain(spec.work_folder) == count and checkpoint.exists(spec.work_folder)
    assert history.given_up(spec)


def test_a_result_ends_the_count(forked):
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    (spec.work_folder / history.NAME).write_text('{"in_vain": 2}')
    assert piloted(planning.plan([spec])).exit_code == 0
    assert history.last_host(spec.work_folder) is None


def test_near_the_end_of_its_job_a_pilot_starts_nothing(forked, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + pilot.BEFORE_END - 5))
    spec = h.spec_of(h.odd())
    outcome = piloted(planning.plan([spec]))
    assert outcome.left == [spec.label] and outcome.exit_code == 75 and not forked
    monkeypatch.setenv("SLURM_JOB_END_TIME", str(time.time() + 3600 + pilot.BEFORE_END))
    assert pilot.hours_left() == pytest.approx(1.0, abs=0.01)
    monkeypatch.setenv("SLURM_JOB_END_TIME", "soon")
    assert pilot.hours_left() is None


def test_pilots_begin_at_different_places(monkeypatch, forked):
    specs, begun, plain = h.specs_of(h.odd("seed=0,1,2")), [], pilot.Pilot._start_one

    def start(self, run, slot):
        begun.append(run.spec)
        plain(self, run, slot)

    monkeypatch.setattr(pilot.random, "randrange", lambda n: n - 1)
    monkeypatch.setattr(pilot.Pilot, "_start_one", start)
    piloted(planning.plan(specs))
    assert begun == [specs[2], specs[0], specs[1]]


def test_cores_and_memory_of_a_slurm_job_are_kept(monkeypatch):
    """Also on a cluster that enforces neither."""
    monkeypatch.setattr(resources, "_groups", lambda _: [])
    monkeypatch.delenv("SLURM_CPUS_PER_TASK", raising=False)
    every = resources.cores()
    for granted, cores in {"1": 1, "4096": every, "many": every}.items():
        monkeypatch.setenv("SLURM_CPUS_PER_TASK", granted)
        assert resources.cores() == cores
    monkeypatch.setenv("SLURM_MEM_PER_NODE", "300")
    free = resources.free_memory()
    assert free < 300 * MIB
    monkeypatch.delenv("SLURM_MEM_PER_NODE")
    monkeypatch.setenv("SLURM_CPUS_PER_TASK", "1")
    monkeypatch.setenv("SLURM_MEM_PER_CPU", "300")
    assert resources.free_memory() == pytest.approx(free, abs=20 * MIB)
