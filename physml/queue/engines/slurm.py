"""Pilots as the tasks of one Slurm array job.

The scheduler is asked for nothing but whether the job is there: what is done is told by the records.
"""

import math
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from physml.base.errors import ConfigError, RunFailed
from physml.base.paths import display_path, work_root
from physml.queue.engines.job import Job, Settings, Submission, folder_of_logs, read_settings

PATIENCE_S = 600.0  # that squeue may fail in a row
SIGNAL_S = 90  # before the end of a job: time for the checkpoints


@dataclass(frozen=True)
class SlurmSettings(Settings):
    """Settings of a cluster."""

    partition: str | None = None  # as of sbatch, like the next two; None: the cluster's own
    account: str | None = None
    qos: str | None = None
    gres: str | None = None  # resources of each pilot, in place of gpu:<gpus>, such as gpu:a100:1
    throttle: int | None = None  # pilots that run at the same time at most
    lines: list[str] = field(default_factory=list)  # further options of sbatch, such as --constraint=a100
    setup: list[str] = field(default_factory=list)  # shell lines before the pilot, such as module load cuda


class Slurm:
    """The engine. site: of conf/engine/slurm/<site>.yaml; None: conf/engine/slurm.yaml."""

    def __init__(self, site: str | None, changes: Sequence[str]) -> None:
        name = f"slurm/{site}" if site else "slurm"
        self.settings: SlurmSettings = read_settings(SlurmSettings, name, changes)

    def describe(self, job: Job) -> str:
        return f"# sbatch {shlex.quote(_output(work_root() / 'slurm'))}\n{script(job, self.settings)}"

    def submit(self, job: Job) -> "SlurmJob":
        output = _output(folder_of_logs("slurm"))
        ident = _command("sbatch", "--parsable", output, text=script(job, self.settings))
        return SlurmJob(ident.strip().split(";")[0])


@dataclass
class SlurmJob(Submission):
    """An array job, which goes on when the command ends."""

    ident: str
    silent_since: float | None = None  # the time of the first failure of squeue in a row

    @property
    def text(self) -> str:
        logs = display_path(work_root() / "slurm" / "*" / f"{self.ident}_*.log")
        return f"Slurm job {self.ident}; output in {logs}; to stop it: scancel {self.ident}"

    def alive(self) -> int:
        try:
            lines = _command("squeue", "--noheader", "--array", "--jobs", self.ident, "--format", "%T")
        except RunFailed as error:  # Slurm has forgotten it, or cannot be asked now
            if "Invalid job id" in str(error):
                return 0
            if self.silent_since is None:
                self.silent_since = time.monotonic()
                print(f"{error}; it is asked again", file=sys.stderr)
            if time.monotonic() - self.silent_since > PATIENCE_S:
                raise RunFailed(f"{error}. {self.text}. physml status shows how far it is.") from error
            return 1
        self.silent_since = None
        return len(lines.split())


def _output(folder: Path) -> str:
    """The option for the logs, an argument of sbatch: a line of its script would end at a space."""
    if "\\" in str(folder):
        raise ConfigError(f"Slurm takes no path with a backslash for its logs; got {str(folder)!r}.")
    return f"--output={str(folder).replace('%', '%%')}/%A_%a.log"


def script(job: Job, settings: SlurmSettings) -> str:
    """The batch script: a pilot that is told of the end in time, and queued again if it was stopped."""
    minutes = math.ceil(job.hours * 60)
    gres = settings.gres or (f"gpu:{job.gpus}" if job.gpus else None)
    throttle = f"%{settings.throttle}" if settings.throttle else ""
    options = {
        "job-name": "physml-" + re.sub(r"[^\w.]+", "-", job.name),
        "array": f"0-{job.workers - 1}{throttle}",
        "partition": settings.partition,
        "account": settings.account,
        "qos": settings.qos,
        "cpus-per-task": job.cpus,
        "mem": f"{math.ceil(job.memory_gib * 1024)}M",
        "gres": gres,
        "time": f"{minutes // 60}:{minutes % 60:02d}:00",
        "signal": f"B:USR1@{SIGNAL_S}",
        "open-mode": "append",
    }
    for key, value in options.items():
        if re.search(r"[\s'\"\\#]", str(value)):
            raise ConfigError(f"engine slurm: {key} must be one word without quotes; got {value!r}.")
    lines = [f"#SBATCH --{key}={value}" for key, value in options.items() if value is not None]
    lines += ["#SBATCH --requeue", *(f"#SBATCH {line}" for line in settings.lines)]
    for line in lines:
        if "\n" in line:
            raise ConfigError(f"an option of sbatch must be one line; got {line!r}.")
    exports = [f"export {name}={shlex.quote(value)}" for name, value in job.environment.items()]
    pilot = shlex.join([sys.executable, "-m", "physml", *job.command])
    return "\n".join(
        [
            "#!/bin/bash",
            *lines,
            "",
            *exports,
            *settings.setup,
            f"cd {shlex.quote(str(Path.cwd()))} || exit 2",
            "",
            "# A signal ends `wait` and goes on to the pilot, which writes checkpoints and exits with 75.",
            "# A pilot that does not know of signals yet is killed by it: more than 128.",
            "pilot= told=",
            """trap 'told=1; [ -z "$pilot" ] || kill -USR1 $pilot 2>/dev/null' USR1 TERM""",
            f"{pilot} &",
            "pilot=$!",
            '[ -z "$told" ] || kill -USR1 $pilot 2>/dev/null',
            "while :; do",
            "    wait $pilot; code=$?",
            "    kill -0 $pilot 2>/dev/null || break",
            "done",
            'if [ $code -eq 75 ] || [ -n "$told" -a $code -gt 128 ]; then',
            '    scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"',
            "fi",
            "exit $code",
            "",
        ]
    )


def _command(name: str, *arguments: str, text: str | None = None) -> str:
    if shutil.which(name) is None:
        raise ConfigError(f"{name} is not there: --on slurm works where Slurm's commands are installed.")
    done = subprocess.run([name, *arguments], input=text, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RunFailed(f"{name}: {done.stderr.strip() or f'exit code {done.returncode}'}")
    return done.stdout
