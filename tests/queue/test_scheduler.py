"""Many runs: planned, made side by side, stopped in time; one that fails is nobody else's trouble."""

import dataclasses
import json
import os
import signal
import subprocess
import sys
import threading

import pytest
import run_child
import run_harness as h
from refusals import refuses

from physml.base import files, lease, paths
from physml.base.errors import ConfigError, InputError
from physml.queue import planning, scheduler, worker
from physml.queue.scheduler import Outcome
from physml.records import record
from physml.records.costs import of_record
from physml.run import progress, resources

SLOW = {"step_s": 0.07}
FORKS = pytest.mark.skipif(sys.platform != "linux", reason="runs are forked on Linux alone")


@pytest.fixture
def at_once(monkeypatch):
    """How many runs were seen side by side."""
    seen = []
    monkeypatch.setattr(progress.ManyLines, "show", lambda self, running, done: seen.append(len(running)))
    return seen


def code_of(specs, jobs=None, **options):
    """The exit code of the runs, made by a launcher in this process."""
    return scheduler.carry_out(planning.plan(specs, **options), jobs=jobs, **options).exit_code


# ---------------------------------------------------------------------------- plans


def test_a_plan_tells_every_state(forked):
    done, missing = h.specs_of(h.odd("seed=0,1"))
    h.make(done)
    diverged, failed = (h.spec_of(h.odd(trouble=t)) for t in ("nan_loss", "memory"))
    for spec in (diverged, failed):
        h.make(spec)
    stopped, running = h.specs_of(h.odd("seed=5,6", "runtime.checkpoint_every_s=0", **SLOW))
    process = h.start(stopped)
    h.until(lambda: h.steps_done(stopped) > 0)
    process.kill()
    process = h.start_holding(running)
    specs = [done, diverged, running, stopped, failed, missing]
    assert h.states(specs) == ["done", "diverged", "running", "stopped", "failed", "missing"]
    assert [p.todo for p in planning.plan(specs)] == [False, False, False, True, True, True]
    assert h.states(specs, force=True)[:2] == ["missing", "missing"]
    assert not forked  # nothing was timed
    process.kill()


def test_time_is_told_from_records_else_from_a_few_steps(forked, monkeypatch):
    done, other = h.specs_of(h.odd("seed=0,1", step_s=0.01))
    finished = h.make(done)
    (planned,) = planning.plan([other], probe=True)
    cost, here = (
        finished["cost"],
        planned.cost.core.times(of_record(finished).core),
    )  # hours are of a core of this machine
    assert planned.cost.hours * here == pytest.approx((cost["cpu_s"] + cost["eval_cpu_s"]) / 3600)
    assert planned.cost.ms_per_step * here == pytest.approx(1000 * cost["cpu_s"] / 12, abs=0.001)
    assert not forked
    fresh = h.spec_of(h.odd("model.d_hidden=6"))
    assert planning.plan([fresh])[0].cost.hours is None and not forked
    (timed,) = planning.plan([fresh], probe=True)
    assert timed.cost.ms_per_step > 0 and timed.cost.hours > 0 and len(forked) == 1
    assert planning.plan([fresh], probe=True) == [timed] and len(forked) == 1  # kept
    assert h.states([fresh]) == ["missing"]
    assert planning.plan([h.spec_of(h.odd(trouble="load"))], probe=True)[0].cost.hours is None
    monkeypatch.setattr(worker, "_part_s", lambda *_: 1.0)
    trainer = h.odd_trainer(h.spec_of(h.odd("trainer.eval_every=2")))
    assert worker._evaluations_s(trainer, None) == 4  # after epochs 2 and 3, and two on test


def test_a_plan_looks_up_once_what_runs_of_one_setting_share(monkeypatch):
    done, *others = h.specs_of(h.odd("seed=0,1,2,3"))
    h.make(done)
    read, looked = [], []
    monkeypatch.setattr(record, "read", lambda path, plain=record.read: [read.append(path), plain(path)][1])
    monkeypatch.setattr(planning, "blocked_by", lambda *_: looked.append(1))
    planned = planning.plan(others)
    assert len(read) == len(looked) == 1
    assert all(p.cost.hours is not None for p in planned)


def test_settings_that_share_a_folder_and_data_that_one_would_replace_are_told_apart(monkeypatch):
    """The settings read the same data sets; one of them names vectors of words."""
    monkeypatch.setattr(planning, "substitute_for", lambda config, _: f"with {config['model']['d_hidden']}")
    planned = planning.plan(h.specs_of(h.odd("model.d_hidden=4,5")))
    assert [run.substitute for run in planned] == ["with 4", "with 5"]
    specs = h.specs_of(h.odd("model.d_hidden=4,5"))
    assert len({s.place.folder for s in specs}) == 1 and len({s.label for s in specs}) == 2


# ---------------------------------------------------------------------------- all together


def test_runs_side_by_side_and_a_second_start(forked, at_once):
    specs = h.specs_of(h.odd("seed=0,1,2", "model.d_hidden=4,5", step_s=0.01))
    outcome = scheduler.carry_out(planning.plan(specs), jobs=2)
    assert max(at_once) == 2
    assert outcome.codes == {spec.label: 0 for spec in specs} and outcome.exit_code == 0
    assert h.states(specs) == ["done"] * 6 and len(forked) == 6
    assert scheduler.carry_out(planning.plan(specs), jobs=2) == Outcome()
    assert len(forked) == 6


def test_jobs_must_be_positive_and_a_misspelt_key_is_told_before_anything_is_started():
    with pytest.raises(InputError, match="jobs must be at least 1; got 0"):
        scheduler.carry_out(planning.plan([h.spec_of(h.odd())]), jobs=0)
    refuses(ConfigError, "d_hiden", h.specs_of, h.odd("+model.d_hiden=4,5"))


# ---------------------------------------------------------------------------- as many as fit


def full(*overrides, **arguments):
    """Runs of which nothing is known: for tiny sizes a guess would do."""
    return ["profile=full" if o == "profile=smoke" else o for o in h.odd(*overrides, **arguments)]


@pytest.fixture
def machine(monkeypatch):
    """A machine of `cores` CPUs and `mib` of free memory, of which its processes are seen to hold none."""

    def made(cores, mib):
        monkeypatch.setattr(resources, "cores", lambda: cores)
        monkeypatch.setattr(resources, "free_memory", lambda: mib * resources.MIB)
        monkeypatch.setattr(resources, "resident", lambda pid: 0.0)

    return made


@pytest.fixture(params=["fresh", pytest.param("fork", marks=FORKS)])
def way(request, monkeypatch):
    """Runs are fresh processes, or forks of a server; they must not differ in anything but speed."""
    monkeypatch.setenv("PHYSML_FORK", "1" if request.param == "fork" else "0")
    return request.param


def probes(forked):
    return sum("--probe" in process.arguments for process in forked)


def test_a_run_of_more_than_a_day_is_asked_for():
    spec = h.spec_of(h.odd())
    kept = paths.work_root() / "probes" / f"{spec.place.identity}-cpu-auto-3.json"
    files.write_json(kept, {"ms_per_step": 1660.0, "hours": 95.2, "memory_mib": 900.0})
    planned = planning.plan([spec])
    says = r"takes about 95 core-hours on this machine\. Say --yes to start it"
    refuses(ConfigError, says, planning.refuse_long, planned)
    planning.refuse_long([dataclasses.replace(planned[0], state="done")])
    files.write_json(kept, {"ms_per_step": 16.6, "hours": 0.952, "memory_mib": 900.0})
    planning.refuse_long(planning.plan([spec]))


def test_auto_fills_the_cores(forked, machine, at_once):
    machine(3, 100_000)
    assert code_of(h.specs_of(h.odd("seed=0,1,2,3", step_s=0.02))) == 0
    assert max(at_once) == 3 and probes(forked) == 0


def test_runs_of_two_threads_take_two_cores(forked, machine, at_once):
    machine(3, 100_000)
    assert code_of(h.specs_of(h.odd("seed=0,1", "runtime.threads=2"))) == 0
    assert max(at_once) == 1


def test_auto_starts_no_more_than_fit_into_memory(forked, machine, at_once):
    """A record tells what a run of the setting takes; two do not fit into 1.5 of that."""
    machine(4, 100_000)
    done, *others = h.specs_of(h.odd("seed=0,1,2"))
    machine(4, 1.5 * resources.GROWTH * h.make(done)["cost"]["peak_memory_mib"])
    assert code_of(others) == 0 and max(at_once) == 1 and probes(forked) == 0
    assert code_of(others, jobs=2, force=True) == 0
    assert max(at_once) == 2  # said by a person


def test_of_each_unknown_size_one_is_tried(forked, machine, at_once, capsys):
    machine(4, 100_000)
    assert code_of(h.specs_of(full("seed=0,1", "model.d_hidden=4,5", "optim.lr=0.1,0.01"))) == 0
    assert probes(forked) == 2 and max(at_once) > 1
    assert capsys.readouterr().err.count("trying a few steps, to know how much memory it takes") == 2
    kept = [json.loads(path.read_text()) for path in (paths.work_root() / "probes").iterdir()]
    assert all(100 < probe["memory_mib"] < 10_000 and probe["gpu_mib"] == 0 for probe in kept)


def test_one_run_is_not_tried_first_and_what_cannot_be_tried_runs_alone(forked, machine, at_once):
    machine(4, 100_000)
    assert code_of([h.spec_of(full())]) == 0 and probes(forked) == 0
    specs = h.specs_of(full("seed=0,1", trouble="load"))
    assert code_of(specs) == 1
    assert max(at_once) <= 1 and h.states(specs) == ["failed", "failed"]


def test_a_stop_while_one_is_tried(forked, machine, monkeypatch):
    """The trial is ended, and nothing is started after it."""
    machine(4, 100_000)
    stop = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGTERM))
    monkeypatch.setattr(progress.ManyLines, "note", lambda self, text: "trying" in text and stop.start())
    specs = h.specs_of(full("seed=0,1", step_s=600))
    outcome = scheduler.carry_out(planning.plan(specs), jobs=None)
    assert outcome.exit_code == 75 and outcome.left == [spec.label for spec in specs]
    assert [process.poll() for process in forked] == [-signal.SIGKILL]


def test_one_that_fails_does_not_stop_the_others(way, tmp_path):
    several = [*(o for o in h.odd() if "trouble" not in o), "+task.trouble=nan_loss,none,memory,nan_train"]
    process = h.start_many(several, tmp_path / "output", "--jobs", "2")
    assert process.wait() == 1, process.text()
    assert h.states(h.specs_of(several)) == ["diverged", "done", "failed", "missing"]
    said = process.text()
    assert "hold NaN or infinite values. (exit 2; " in said and "diverged: the loss is not finite" in said
    assert "failed: out of memory: OutOfMemoryError" in said


@pytest.mark.parametrize(
    ("codes", "left", "code"),
    [
        *(([], [], 0), ([0, 0], [], 0), ([0, 1], [], 1), ([0, 2], [], 2), ([1, 2], [], 1), ([0, 3], [], 1)),
        *(([0, 1, 75], [], 75), ([0, 2], ["x"], 75)),
    ],
)
def test_exit_codes(codes, left, code):
    assert Outcome({str(i): c for i, c in enumerate(codes)}, left).exit_code == code


def test_out_of_time_and_on_with_the_next_start(way, tmp_path):
    overrides = h.odd("seed=0,1", step_s=0.3)
    want = [h.numbers(h.make(s))["metrics"] for s in h.specs_of(h.odd("seed=0,1"))]
    flags = ("--jobs", "1", "--max-hours", "1")
    first = h.start_many(overrides, tmp_path / "first", *flags, command=run_child.out_of_time)
    assert first.wait() == 75, first.text()
    specs = h.specs_of(overrides)
    assert h.states(specs) == ["stopped", "missing"]
    said = first.text()
    assert "stopping: each run writes a checkpoint" in said and "seed=1: not started" in said
    assert "seed=0: stopped; the same command goes on" in said
    second = h.start_many(overrides, tmp_path / "second", "--jobs", "2")
    assert second.wait() == 0, second.text()
    assert [record.read(s.record_path)["metrics"] for s in specs] == want


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT, signal.SIGUSR1])
def test_a_stop_reaches_all_runs_and_nothing_goes_on(way, number, tmp_path):
    overrides = h.odd("seed=0,1,2", **SLOW)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: h.begun(specs[0]) and h.begun(specs[1]))
    workers = [h.holder(spec) for spec in specs[:2]]
    process.send_signal(number)
    assert process.wait() == 75, process.text()
    assert h.states(specs) == ["stopped", "stopped", "missing"], "not at their end"
    assert not any(lease.started(pid) for pid in workers)


def test_a_worker_that_is_killed_is_said_and_made_next_time(way, tmp_path):
    overrides = h.odd("seed=0,1", **SLOW)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "output", "--jobs", "2")
    h.until(lambda: all(h.begun(spec) for spec in specs))
    os.kill(h.holder(specs[0]), signal.SIGKILL)
    assert process.wait() == 1
    killed = f"seed={specs[0].place.seed}: killed by SIGKILL: perhaps out of memory; the same command goes on"
    assert killed in process.text()
    assert h.states(specs) == ["missing", "done"]
    assert h.start_many(overrides, tmp_path / "again").wait() == 0 and h.states(specs) == ["done", "done"]


def test_runs_go_on_when_their_launcher_is_killed(way, tmp_path):
    """A second start sees them running and leaves them alone."""
    overrides = h.odd("seed=0,1", step_s=0.15)
    specs = h.specs_of(overrides)
    process = h.start_many(overrides, tmp_path / "first", "--jobs", "2")
    h.until(lambda: all(h.begun(spec) for spec in specs))
    process.kill()
    assert h.states(specs) == ["running", "running"]
    second = h.start_many(overrides, tmp_path / "second")
    assert second.wait() == 0
    assert all(f"seed={spec.place.seed}: running" in second.text() for spec in specs), second.text()
    h.until(lambda: h.states(specs) == ["done", "done"])


def test_a_run_begun_elsewhere_since_the_plan_is_passed_over(forked):
    specs = h.specs_of(h.odd("seed=0,1", **SLOW))
    planned = planning.plan(specs)
    other = h.start_holding(specs[0])
    outcome = scheduler.carry_out(planned, jobs=2)
    assert outcome.elsewhere == [specs[0].label] and outcome.codes == {specs[1].label: 0}
    assert other.wait() == 0


@pytest.mark.parametrize("sooner", ["lock", "file"])
def test_a_run_that_two_commands_begin_at_once_breaks_neither(sooner, forked, monkeypatch):
    """The other one has its lock, or has only written its own spec.json for a table of its own."""
    spec = h.spec_of(h.odd(**SLOW))
    planned, popen = planning.plan([spec]), subprocess.Popen
    if sooner == "lock":
        other = h.start_holding(spec)
        monkeypatch.setattr(scheduler, "is_held", lambda _: False)
    else:

        def late(*arguments, **options):
            with (spec.work_folder / "spec.json").open("a") as file:
                file.write(" ")
            return popen(*arguments, **options)

        monkeypatch.setattr(subprocess, "Popen", late)
    outcome = scheduler.carry_out(planned, jobs=1)
    assert outcome.elsewhere == [spec.label] and outcome.codes == {} and len(forked) == 1
    if sooner == "lock":
        assert other.wait() == 0


def test_an_error_of_the_launcher_leaves_nothing_running(forked, monkeypatch):
    specs = h.specs_of(h.odd("seed=0,1", **SLOW))

    def broken(self, running, done):
        if all(h.begun(spec) for spec in specs):
            raise BrokenPipeError

    monkeypatch.setattr(progress.ManyLines, "show", broken)
    with pytest.raises(BrokenPipeError):
        scheduler.carry_out(planning.plan(specs), jobs=2)
    assert [process.poll() for process in forked] == [75, 75]
    assert h.states(specs) == ["stopped", "stopped"]


def test_a_run_that_cannot_be_started_is_one_failure(forked, monkeypatch, capsys):
    specs = h.specs_of(h.odd("seed=0,1"))
    specs[0].work_folder.parent.mkdir(parents=True)
    specs[0].work_folder.write_text("a file in the place of the folder")
    outcome = scheduler.carry_out(planning.plan(specs), jobs=1)
    assert outcome.codes == {specs[0].label: 1, specs[1].label: 0}
    assert "cannot be written: File exists. Free space, or set PHYSML_RUNS to" in capsys.readouterr().err


# ---------------------------------------------------------------------------- the real process


def test_the_worker_is_a_python_of_its_own(tmp_path, monkeypatch):
    """From another folder, with a `tasks.py` in it that must not be taken for ours."""
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere" / "tasks.py").write_text("raise SystemExit('the wrong tasks')")
    monkeypatch.chdir(tmp_path / "elsewhere")
    small = [o for o in h.SMALL if not o.startswith("trainer.max_steps")]
    spec = h.spec_of([*small, "task=adding", "trainer.max_steps=2", "seed=3"])
    outcome = scheduler.carry_out(planning.plan([spec]), jobs=1)
    assert outcome.exit_code == 0, (spec.work_folder / "output.txt").read_text()
    recorded = record.read(spec.record_path)
    assert recorded["machine"]["threads"] == 1 and recorded["seed"] == 3
    assert json.loads((spec.work_folder / "spec.json").read_text())["spec"]["config"] == spec.config
    assert h.numbers(recorded) == h.numbers(h.make(spec, force=True))
