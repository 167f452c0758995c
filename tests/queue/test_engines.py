"""Engines: the batch script of Slurm, and a session that submits once and watches the folder."""

import dataclasses
import os
import signal
import subprocess
import threading
from dataclasses import dataclass, field
from pathlib import Path

import pytest
import run_harness as h
from refusals import refuses

from physml.base.errors import ConfigError, Preempted, RunFailed
from physml.base.paths import work_root
from physml.cli import console
from physml.cli.distribution import pilot_command
from physml.queue import planning, scheduler
from physml.queue.engines import session, slurm
from physml.queue.engines.job import Settings, job_of, read_settings
from physml.queue.engines.session import Session, engine_of
from physml.queue.engines.slurm import SlurmSettings, script
from physml.records.costs import of_record
from physml.run import history


@pytest.fixture(autouse=True)
def quick(monkeypatch):
    monkeypatch.setattr(session, "LOOK", 0.1)


@dataclass
class Fake:
    """Its pilots are a thread that makes runs; lives: how often it says so once the thread has ended."""

    specs: list = field(default_factory=list)
    lives: int = 10_000
    settings: Settings = field(default_factory=Settings)
    jobs: list = field(default_factory=list)
    text: str = "job 1"
    attached: bool = False
    closed: int = 0

    def describe(self, job):
        return f"{job.workers} pilots: {' '.join(job.command)}"

    def submit(self, job):
        self.jobs.append(job)
        self.thread = threading.Thread(target=lambda: [h.make(spec) for spec in self.specs])
        self.thread.start()
        return self

    def close(self):
        self.closed += 1

    def alive(self):
        self.lives -= not self.thread.is_alive()
        return int(self.lives > 0)


def watched(engine, planned, **options):
    with Session(engine, ["table", "x", "--on", "pilot"], **options).active():
        return scheduler.carry_out(planned, jobs=None)


# ---------------------------------------------------------------------------- sessions


def test_a_session_submits_once_and_ends_when_all_is_made(capsys):
    specs = h.specs_of(h.odd("seed=0,1"))
    engine = Fake(specs)
    with Session(engine, ["run", "--on", "pilot"]).active():
        outcome = scheduler.carry_out(planning.plan(specs), jobs=None)
        assert outcome.codes == {spec.label: 0 for spec in specs} and outcome.exit_code == 0
        engine.specs = more = h.specs_of(h.odd("seed=2"))
        threading.Thread(target=lambda: h.make(more[0])).start()  # the pilots that are there go on
        assert scheduler.carry_out(planning.plan(more), jobs=None).exit_code == 0
    (job,) = engine.jobs
    assert job.command == ("run", "--on", "pilot") and job.workers == 2
    assert {"PHYSML_RESULTS", "PHYSML_RUNS", "PHYSML_CACHE"} <= set(job.environment)
    assert "job 1" in capsys.readouterr().out


def test_what_the_pilots_left_undone_is_told(capsys):
    """They have ended: a failed run, and one that none has begun."""
    broken, missing = h.spec_of(h.odd(trouble="memory")), h.spec_of(h.odd("seed=7"))
    engine = Fake([broken], lives=3)
    outcome = watched(engine, planning.plan([broken, missing]))
    engine.thread.join()
    assert outcome.codes == {broken.label: 1} and outcome.left == [missing.label]
    assert outcome.exit_code == 75


def test_a_run_that_was_given_up_or_killed_each_time_without_a_record_is_not_waited_for(capsys) -> None:
    spec = h.spec_of(h.odd(trouble="memory"))
    for _ in range(history.LIMIT):
        h.make(spec)
    assert watched(Fake(), planning.plan([spec])).codes == {spec.label: 1}
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    (spec.work_folder / history.NAME).write_text('{"in_vain": 3}')
    spec.output_file.write_text("Killed\n")
    outcome = watched(Fake(), planning.plan([spec]))
    assert outcome.codes == {spec.label: 1} and outcome.exit_code == 1
    assert "given up: Killed" in capsys.readouterr().err


def test_ctrl_c_and_detach_leave_the_pilots_alone(monkeypatch):
    specs = h.specs_of(h.odd("seed=0"))
    with pytest.raises(Preempted, match="submitted; physml status shows") as error:
        watched(Fake(), planning.plan(specs), detach=True)
    assert error.value.exit_code == 0
    monkeypatch.setattr(session.time, "sleep", lambda _: (_ for _ in ()).throw(KeyboardInterrupt))
    refuses(Preempted, "the runs go on: job 1", watched, Fake(), planning.plan(specs))
    engine = Fake(attached=True)
    with pytest.raises(Preempted, match="the pilots are stopped; the same command goes on"):
        watched(engine, planning.plan(specs))
    assert engine.closed == 1


def test_a_session_tells_how_runs_are_packed_and_which_are_blocked() -> None:
    reason = "a.gz missing, get it with `physml data get a`"
    planned = planning.plan(h.specs_of(h.odd("seed=0,1")))
    blocked = [dataclasses.replace(run, state="blocked", reason=reason) for run in planned]
    text = Session(Fake(settings=Settings(workers=2, cpus=2)), ["run"]).describe(blocked)
    assert text.startswith("Nothing would be submitted: 2 runs are blocked.") and "2 pilots: run" in text
    assert list(console._blocked_lines(blocked)) == ["0 done, 2 blocked:", f"  2 by {reason}"]
    specs = h.specs_of(h.odd("seed=0,1,2,3,4"))
    text = Session(Fake(settings=Settings(workers=2, cpus=2)), ["run"]).describe(planning.plan(specs))
    assert text.splitlines()[0] == "2 pilots: run"
    assert "5 runs, unknown hours in all, by 2 pilot(s) of 2 core(s)" in text and "2.5 runs each" in text
    h.make(specs[0])
    text = Session(Fake(), ["run"]).describe(planning.plan(specs[:1]))
    assert text == "Nothing is to do: 1 of 1 runs are there."


def test_a_job_asks_for_what_its_runs_need():
    done, *specs = h.specs_of(h.odd("seed=0,1,2,3,4"))
    finished = h.make(done)
    cost = finished["cost"]
    job = job_of(Settings(workers=2, cpus=2), ["run"], planning.plan(specs))
    here = planning._core().times(of_record(finished).core)
    assert job.total_hours == pytest.approx(4 / here * (cost["cpu_s"] + cost["eval_cpu_s"]) / 3600)
    assert job.memory_gib >= 2 * 1.1 * cost["peak_memory_mib"] / 1024 and job.hours < 0.3 and job.gpus == 0
    assert job_of(Settings(hours=0.1), ["run"], planning.plan(specs)).hours == 0.1
    on_gpu = [planning.Planned(h.spec_of(h.odd("runtime.device=cuda")), "missing")]
    assert job_of(Settings(), ["run"], on_gpu).gpus == 1
    assert job_of(Settings(gpus=0), ["run"], on_gpu).gpus == 0


# ---------------------------------------------------------------------------- Slurm


def program(path, body):
    """A stand-in for a command of Slurm."""
    path.write_text(f"#!/bin/bash\n{body}\n")
    path.chmod(0o755)


@pytest.mark.parametrize(
    ("says", "alive"), [("Invalid job id specified", 0), ("Unable to contact slurm controller", 1)]
)
def test_a_controller_that_is_silent_does_not_end_a_job(says, alive, tmp_path, monkeypatch):
    program(tmp_path / "squeue", f"echo 'slurm_load_jobs error: {says}' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    assert slurm.SlurmJob("101").alive() == alive


def test_a_controller_that_stays_silent_ends_the_wait(tmp_path, monkeypatch, capsys):
    program(tmp_path / "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    job = slurm.SlurmJob("101")
    assert [job.alive(), job.alive()] == [1, 1]
    assert capsys.readouterr().err.count("Unable to contact slurm controller; it is asked again") == 1
    program(tmp_path / "squeue", "echo RUNNING")
    assert job.alive() == 1 and job.silent_since is None
    program(tmp_path / "squeue", "echo 'Unable to contact slurm controller' >&2; exit 1")
    assert job.alive() == 1
    monkeypatch.setattr(slurm, "PATIENCE_S", -1.0)
    refuses(RunFailed, r"Unable to contact .*Slurm job 101; .*physml status shows", job.alive)


def options_of(text):
    lines = [line.removeprefix("#SBATCH --") for line in text.splitlines() if line.startswith("#SBATCH")]
    return dict(line.partition("=")[::2] for line in lines)


def test_the_script_of_a_slurm_array(monkeypatch, tmp_path):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "it's here"))
    monkeypatch.delenv("PHYSML_RUNS", raising=False)
    specs = h.specs_of(h.odd("seed=0,1,2", "runtime.device=cuda"))
    settings = SlurmSettings(
        workers=8, cpus=2, hours=1.5, partition="gpu", account="lab", throttle=2, lines=["--constraint=a100"],
        setup=["module load cuda"],
    )  # fmt: skip
    planned = [planning.Planned(spec, "missing") for spec in specs]
    job = job_of(settings, ["table", "lem-1", "--on", "pilot"], planned)
    text = script(job, settings)
    assert options_of(text) == {
        **{"job-name": "physml-table-lem-1", "array": "0-2%2", "partition": "gpu", "account": "lab"},
        **{"cpus-per-task": "2", "mem": "4096M", "gres": "gpu:1", "time": "1:30:00"},
        **{"signal": "B:USR1@90", "open-mode": "append", "requeue": "", "constraint": "a100"},
    }
    assert "module load cuda" in text and "-m physml table lem-1 --on pilot &" in text
    assert subprocess.run(["bash", "-n"], input=text, text=True).returncode == 0
    head = text[: text.index("cd ")] + 'echo "$PHYSML_RESULTS"'
    shell = subprocess.run(["bash"], input=head, text=True, capture_output=True)
    assert shell.stdout.strip().endswith("it's here")
    refuses(ConfigError, "must be one line", script, job, SlurmSettings(lines=["--a\nrm -rf x"]))
    refuses(ConfigError, "partition must be one word", script, job, SlurmSettings(partition="gpu --wrap=x"))
    assert slurm._output(Path("/lab/100% 'ours'")) == "--output=/lab/100%% 'ours'/%A_%a.log"


@pytest.mark.parametrize(
    ("pilot", "codes"),
    [
        ('trap "exit 75" USR1; touch begun; while :; do sleep 0.05; done', {75}),
        # It does not know of signals yet. Its own code, or that of the signal which ended `wait`.
        ("touch begun; exec sleep 60", {128 + signal.SIGUSR1, 128 + signal.SIGTERM}),
    ],
)
def test_the_script_passes_signals_on_and_is_queued_again(pilot, codes, tmp_path):
    """With bash, a stand-in for the pilot, and one for scontrol."""
    job = job_of(Settings(), ["x"], [planning.Planned(h.spec_of(h.odd()), "missing")])
    text = script(job, SlurmSettings())
    program(tmp_path / "scontrol", 'echo "$@" > requeued')
    _, *body = text[text.index("cd ") :].splitlines()
    body = [f"bash -c '{pilot}' &" if line.endswith(" &") else line for line in body]
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin", "SLURM_ARRAY_JOB_ID": "9", "SLURM_ARRAY_TASK_ID": "1"}
    process = subprocess.Popen(["bash", "-c", "\n".join(body)], env=environment, cwd=tmp_path)
    h.until(lambda: (tmp_path / "begun").exists())
    process.terminate()
    assert process.wait(20) in codes
    assert (tmp_path / "requeued").read_text().split() == ["requeue", "9_1"]


def test_slurms_commands_and_their_errors(monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    engine, job = engine_of("slurm", ()), job_of(Settings(), ["x"], planning.plan([h.spec_of(h.odd())]))
    refuses(ConfigError, "sbatch is not there: --on slurm works where Slurm", engine.submit, job)
    body = "cat > given; printf '%s\\n' \"$@\" > words; printf '12;cluster\\n'"
    program(tmp_path / "sbatch", f"PATH=/bin:/usr/bin\ncd {tmp_path}\n{body}")
    program(tmp_path / "squeue", "printf 'RUNNING\\nPENDING\\n'")
    submitted = engine.submit(job)
    assert submitted.ident == "12" and submitted.alive() == 2 and "scancel 12" in submitted.text
    assert (tmp_path / "given").read_text() == script(job, engine.settings)
    (_, logs) = sorted((work_root() / "slurm").iterdir(), key=lambda path: path.stat().st_ctime_ns)
    place = str(logs).replace("%", "%%")
    assert (tmp_path / "words").read_text() == f"--parsable\n--output={place}/%A_%a.log\n"
    assert logs.stat().st_mode & 0o777 == 0o700
    program(tmp_path / "squeue", "echo Invalid job id >&2; exit 1")
    assert submitted.alive() == 0
    program(tmp_path / "sbatch", "echo no such partition >&2; exit 1")
    refuses(RunFailed, "sbatch: no such partition", engine.submit, job)


@pytest.mark.parametrize(
    ("name", "changes", "says"),
    [
        ("slrum", (), "there is no engine slrum. It is local, pilot, slurm, slurm/SITE or ray"),
        ("slurm/nowhere", (), "there is no engine slurm/nowhere"),
        ("slurm", ("partitoin=gpu",), "there is no key partitoin. Did you mean partition"),
        ("slurm", ("gpu",), "--engine takes KEY=VALUE"),
        ("slurm", ("cpus=two",), "cpus"),
        ("slurm", ("workers=0",), "workers must be positive; got 0"),
        ("slurm", ("memory_gib=-5",), "memory_gib must be positive"),
        ("slurm", ("gpus=-1",), "gpus must not be negative"),
        ("slurm", ("throttle=0",), "throttle must be positive"),
        ("slurm", ("account=[",), "account=.: the value is not valid YAML"),
        ("slurm", ("account=*x",), "the value is not valid YAML"),
        ("slurm", ("hours=" + "9" * 400,), "hours must be"),
        ("ray", ("resources={tpu: -1}",), "tpu must not be negative"),
        ("ray", ("retries=-2",), "retries must be -1, for always, or more; got -2"),
        ("ray/site", (), "there is no engine ray/site"),
    ],
)
def test_mistakes_in_an_engine_are_told(name, changes, says):
    refuses(ConfigError, says, engine_of, name, changes)


# ---------------------------------------------------------------------------- the command line


def test_settings_of_an_engine_are_changed_for_a_command_whose_plan_prints_the_script(prints, monkeypatch):
    chosen = read_settings(SlurmSettings, "slurm", ["partition=gpu", "lines=[--exclusive]", "hours=2"])
    assert (chosen.partition, chosen.lines, chosen.hours, chosen.workers) == ("gpu", ["--exclusive"], 2.0, 4)
    assert slurm.Slurm(None, ["workers=9"]).settings.workers == 9
    command = ["run", "-m", "seed=0,1", "--on=slurm/lab", "--workers", "3", "--engine=cpus=2", "--detach"]
    assert pilot_command([*command, "--plan"]) == ["run", "-m", "seed=0,1", "--on", "pilot"]
    monkeypatch.setattr(slurm, "_command", lambda *_, **__: pytest.fail("nothing may be submitted"))
    out = prints(0, "table", "lem-9", "--smoke", "--on", "slurm", "--workers", "3", "--plan").out
    assert "#SBATCH --array=0-2" in out and "physml table lem-9 --smoke --on pilot &" in out
    assert "by 3 pilot(s)" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--workers", "3"], "--workers, --engine and --detach are for --on slurm or ray; got --on local"),
        (["--on", "pilot", "--detach"], "got --on pilot"),
        (["--on", "slurm", "--jobs", "2"], "--jobs is for this machine; use --workers"),
        (["--on", "slurm", "--max-hours", "2"], "--max-hours is for this machine; --engine hours=N"),
        (["--on", "cloud"], "there is no engine cloud"),
    ],
)
def test_options_that_do_not_fit_are_refused(arguments, says, prints):
    assert says in prints(2, "table", "lem-9", "--plan", *arguments).err


def test_a_pilot_by_hand_makes_runs_and_draws_nothing(forked, prints, tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "shared"))
    table = ["table", "lem-9", "--smoke", "--seeds", "0"]
    assert "4 runs, 4 to do" in prints(0, "pilot", *table, "--plan").out and forked == [], "--plan makes none"
    assert "written" not in prints(0, "pilot", *table).out and len(forked) == 4
    assert "1/1" in prints(0, *table, "--no-run", "--long").out
