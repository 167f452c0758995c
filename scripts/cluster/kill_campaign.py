"""Kill pilots and runs at random moments until all runs are made; compare with runs that nobody disturbed.

    python scripts/cluster/kill_campaign.py --kills 200
    python scripts/cluster/kill_campaign.py --kills 40 --engine ray
    SLURM_CONF=... python scripts/cluster/kill_campaign.py --kills 40 --engine slurm

A round is a set of short runs with seeds of their own. Pilots make them; meanwhile SIGKILL, SIGTERM or
SIGUSR1 goes to a random one of the pilots, their fork servers and their runs, again and again. This script
(local) or the engine replaces pilots that ended. Rounds follow until enough signals were sent. The exit code
is 1 if a run was lost, made twice, or has other numbers than an undisturbed one.
"""

import argparse
import contextlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physml.run import history

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGUSR1)
LOOK_S = 0.5


@dataclass
class Counts:
    """Counts of the whole campaign. given_up: how often pilots left a run that was killed again and again."""

    kills: Counter[str] = field(default_factory=Counter)
    runs: int = 0
    records: int = 0
    given_up: int = 0
    lost: list[str] = field(default_factory=list)
    twice: list[str] = field(default_factory=list)
    unequal: list[str] = field(default_factory=list)

    @property
    def sent(self) -> int:
        return sum(self.kills.values())

    def text(self) -> str:
        kills = ", ".join(f"{n} {name}" for name, n in sorted(self.kills.items()))
        return (
            f"kills {self.sent} ({kills})\n"
            f"runs {self.runs}, records {self.records}, given up and begun again {self.given_up}\n"
            f"lost {len(self.lost)}, made twice {len(self.twice)}, unequal {len(self.unequal)}"
        )


@dataclass(frozen=True)
class Round:
    """One set of runs in a folder of its own."""

    options: argparse.Namespace
    folder: Path
    seeds: list[int]

    @property
    def command(self) -> list[str]:
        seeds = ",".join(map(str, self.seeds))
        chosen = [f"trainer.epochs={self.options.epochs}", f"seed={seeds}", "runtime.checkpoint_every_s=0.5"]
        return ["run", "-m", f"experiment={self.options.experiment}", *chosen]

    def environment(self, name: str) -> dict[str, str]:
        chosen = {"PHYSML_CPUS": "1", "WANDB_MODE": "disabled"}
        variables = os.environ | chosen | {"PHYSML_RESULTS": str(self.folder / name)}
        variables.pop("PHYSML_RUNS", None)
        return variables

    def start(self, name: str, *arguments: str) -> "subprocess.Popen[bytes]":
        """`physml ...` with the results folder `name`; its output goes to the file <name>.log."""
        with (self.folder / f"{name}.log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, "-m", "physml", *arguments],
                env=self.environment(name),
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def records(self, name: str) -> dict[str, Path]:
        files = (self.folder / name / "runs").rglob("*-seed*.json")
        return {file.name: file for file in files}


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--kills", type=int, default=200, help="signals to send (200)")
    parser.add_argument("--engine", choices=("local", "slurm", "ray"), default="local")
    parser.add_argument("--workers", type=int, default=2, help="pilots at the same time (2)")
    parser.add_argument("--runs", type=int, default=6, help="of a round (6)")
    parser.add_argument("--epochs", type=int, default=200, help="of a run (200)")
    parser.add_argument("--every", type=float, default=5.0, metavar="S", help="mean time between kills (5)")
    parser.add_argument("--experiment", default="lem/fitzhugh_nagumo-lstm")
    parser.add_argument("--random", type=int, default=0, help="seed of moments, victims and signals (0)")
    parser.add_argument("--folder", type=Path, help="for all files; default: a temporary one")
    options = parser.parse_args()
    folder = (options.folder or Path(tempfile.mkdtemp(prefix="physml-kills-"))).absolute()
    rng, counts, number = random.Random(options.random), Counts(), 0
    while counts.sent < options.kills:
        seeds = list(range(number * options.runs, (number + 1) * options.runs))
        current = Round(options, folder / f"round-{number}", seeds)
        current.folder.mkdir(parents=True)
        disturbed(current, rng, counts)
        compare(current, counts)
        print(f"round {number}:\n{counts.text()}", flush=True)
        number += 1
    wrong = {"lost": counts.lost, "made twice": counts.twice, "unequal": counts.unequal}
    for name, which in wrong.items():
        print(*(f"{name}: {run}" for run in which), sep="\n", end="\n" if which else "")
    if any(wrong.values()):
        print(f"see {folder}")
        return 1
    if not options.folder:
        shutil.rmtree(folder)
    return 0


# ---------------------------------------------------------------------------- the disturbed runs


def disturbed(current: Round, rng: random.Random, counts: Counts) -> None:
    """Make the runs of a round under fire, until a pilot or command says that nothing is left to do."""
    options = current.options
    local = options.engine == "local"
    how = ["--on", "pilot" if local else options.engine]
    how += [] if local else ["--workers", str(options.workers), "--engine", "memory_gib=1"]
    n_workers = options.workers if local else 1
    running = [current.start("shared", *current.command, *how) for _ in range(n_workers)]
    written: dict[str, tuple[int, int]] = {}  # record -> its file, as it was first seen
    twice: set[str] = set()
    next_kill = time.monotonic() + rng.expovariate(1 / options.every)
    done = False
    while running:
        time.sleep(LOOK_S)
        for name, file in current.records("shared").items():
            stamp = file.stat().st_ino, file.stat().st_mtime_ns
            if written.setdefault(name, stamp) != stamp:
                twice.add(name)
        if time.monotonic() > next_kill and counts.sent < options.kills:
            next_kill = time.monotonic() + rng.expovariate(1 / options.every)
            _kill(current, rng, counts)
        counts.given_up += _begin_again(current.folder / "shared")
        _release(options.engine)
        codes = [process.poll() for process in running]
        done = done or 0 in codes
        running = [process for process, code in zip(running, codes, strict=True) if code is None]
        if not done:
            running += [
                current.start("shared", *current.command, *how) for _ in range(n_workers - len(running))
            ]
    counts.twice += sorted(twice)


def _kill(current: Round, rng: random.Random, counts: Counts) -> None:
    """A random signal to a random process of the round."""
    victims = sorted(processes(current.environment("shared")["PHYSML_RESULTS"]).items())
    if not victims:
        return
    pid, kind = rng.choice(victims)
    number = rng.choice(SIGNALS)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, number)
        counts.kills[f"{number.name} to a {kind}"] += 1


def processes(results: str) -> dict[int, str]:
    """Process id -> "pilot" or "run" of all that work in a results folder. A fork server counts as a run."""
    kinds = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            words = (folder / "cmdline").read_bytes().decode(errors="replace").split("\0")
            variables = (folder / "environ").read_bytes().decode(errors="replace").split("\0")
        except OSError:
            continue
        if f"PHYSML_RESULTS={results}" not in variables:
            continue
        if "-m" in words and "pilot" in words:
            kinds[int(folder.name)] = "pilot"
        elif "physml.queue.worker" in words or any("forkserver" in word for word in words):
            kinds[int(folder.name)] = "run"
    return kinds


def _begin_again(results: Path) -> int:
    """Let pilots go on with runs that they gave up, as `physml retry` does; how many there were."""
    folders = [file.parent for file in (results / "work").rglob(history.NAME)]
    hopeless = [folder for folder in folders if history.in_vain(folder) >= history.LIMIT]
    return sum(history.forget(folder) for folder in hopeless)


def _release(engine: str) -> None:
    """Slurm lets a requeued job wait for two minutes: start it now."""
    if engine != "slurm":
        return
    waiting = ["squeue", "--noheader", "--array", "--me", "--states=PENDING", "--format=%i"]
    for job in subprocess.run(waiting, capture_output=True, text=True, check=True).stdout.split():
        subprocess.run(
            ["scontrol", "update", f"JobId={job}", "StartTime=now"], capture_output=True, check=False
        )


# ---------------------------------------------------------------------------- the comparison


def compare(current: Round, counts: Counts) -> None:
    """With the same runs, made by one command on this machine."""
    if code := current.start("alone", *current.command, "--jobs", "2").wait():
        raise SystemExit(f"the undisturbed runs ended with {code}: see {current.folder / 'alone.log'}")
    recorded, alone = current.records("shared"), current.records("alone")
    counts.runs += len(current.seeds)
    counts.records += len(recorded)
    counts.lost += sorted(set(alone) - set(recorded))
    shared = set(recorded) & set(alone)
    counts.unequal += sorted(name for name in shared if numbers(recorded[name]) != numbers(alone[name]))
    if len(alone) != len(current.seeds):
        raise SystemExit(
            f"{len(alone)} records of {len(current.seeds)} undisturbed runs: see {current.folder}"
        )
    for file in (current.folder / "shared" / "work").rglob("output.txt"):
        if file.read_text(errors="replace").splitlines().count("finished") > 1:
            counts.twice.append(file.parent.name)


def numbers(file: Path) -> dict[str, Any]:
    """Content of a record, without times and machine."""
    record = json.loads(file.read_text(encoding="utf-8"))
    kept = ("status", "metrics", "selected", "n_steps", "n_epochs", "n_parameters")
    return {key: record.get(key) for key in kept}


if __name__ == "__main__":
    sys.exit(main())
