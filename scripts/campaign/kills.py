"""SIGKILL at random moments to processes of runs, tables, searches and pilots, which are then finished.

Records, curves, weights, tables and results of searches must be those of a lab where nothing was killed: none
lost, none made twice, nothing left over.
"""

import contextlib
import csv
import functools
import gzip
import hashlib
import json
import os
import random
import signal
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.campaign import furnished
from scripts.campaign.driver import Command, Found, fault_of, lab
from scripts.campaign.processes import descendants, reap

KILLS, EPOCHS = 5, 30  # of a round, of a run
AGAIN = 20  # commands until the work must be done
ONE = "run experiment=mine/fitzhugh_nagumo-lem"
WORK: dict[str, tuple[str, ...]] = {
    "run": (ONE,),
    "table": ("table mine-1",),
    "search": ("search mine/fitzhugh_nagumo-lem",),
    "pilots": ("pilot table mine-1", "pilot table mine-1"),
}
MEASURED = ("seconds", "train_s", "ms_per_step", "peak_memory_mib")
NUMBERS = ("status", "metrics", "selected", "n_steps", "n_epochs", "n_parameters")


def prepared(base: Path) -> Callable[[str], dict[str, Any]]:
    """A function of the kind of work: the files that it leaves undisturbed, and the seconds that it takes."""
    furnished.lab(base, EPOCHS)
    furnished.carried_out(base, f"{ONE} seed=9", f"{ONE[:-3]}lstm seed=9")  # compiles what is not at hand
    for part in ("results", "runs"):
        for path in sorted((base / part).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()

    @functools.cache
    def undisturbed(kind: str) -> dict[str, Any]:
        with lab(base) as folder:
            began = time.monotonic()
            furnished.carried_out(folder, WORK[kind][0])
            return {"seconds": time.monotonic() - began, "left": left(folder)}

    return undisturbed


def round_of(
    rng: random.Random, number: int, folder: Path, undisturbed: Callable[[str], dict[str, Any]]
) -> Found:
    kind = sorted(WORK)[number % len(WORK)]
    sound = undisturbed(kind)
    records: dict[str, tuple[int, int]] = {}
    result: Found = {"work": kind, "fault": None, "counts": {"runs": 0}}
    running = [Command(line.split(), folder) for line in WORK[kind]]
    kills = 0
    for _ in range(KILLS):
        until = time.monotonic() + rng.uniform(0, 2 * sound["seconds"] / KILLS)
        while time.monotonic() < until and any(command.poll() is None for command in running):
            _see(folder, records, result)
            time.sleep(0.05)
        if all(command.poll() == 0 for command in running):
            break
        kills += _kill(rng, running)
        running = _begun_again(running, WORK[kind], folder, result)
    for _ in range(AGAIN):
        codes = [command.wait() for command in running]
        if None in codes:
            result |= {"fault": "does not end", "said": running[codes.index(None)].text[-3000:]}
        alone = not descendants()
        while descendants():  # runs whose launcher was killed go on
            reap()
            time.sleep(0.05)
        _see(folder, records, result)
        if (codes == [0] * len(codes) and alone) or result["fault"]:
            break
        running = _begun_again(running, WORK[kind], folder, result, all_of_them=True)
    else:
        result |= {"fault": "never done", "said": running[0].text[-3000:]}
    expected, got = sound["left"], left(folder)
    if not result["fault"] and got != expected:
        names = sorted(name for name in {*expected, *got} if expected.get(name, 0) != got.get(name, 0))
        said = {name: [str(files.get(name, "none"))[:400] for files in (expected, got)] for name in names}
        result |= {"fault": "other results than without kills", "said": json.dumps(said)}
    result["counts"] = {f"kills of {kind}": kills, "records": len(records)}
    return result


def _kill(rng: random.Random, running: list[Command]) -> int:
    victims = descendants()
    with contextlib.suppress(ProcessLookupError, IndexError):
        os.kill(rng.choice(victims), signal.SIGKILL)
        time.sleep(0.02)
        for command in running:
            command.poll()
        return 1
    return 0


def _begun_again(
    running: list[Command],
    lines: tuple[str, ...],
    folder: Path,
    result: Found,
    *,
    all_of_them: bool = False,
) -> list[Command]:
    """The commands, those without success (or all) started anew; pilots may have given up a run."""
    again = []
    for command, line in zip(running, lines, strict=True):
        if command.poll() in (None, 0) and not all_of_them:
            again.append(command)
            continue
        fault = None if command.code == -signal.SIGKILL else fault_of(command.code, command.text, folder)
        if fault:
            result |= {"fault": fault, "said": command.text[-3000:]}
        if "given up" in command.text:
            Command(["retry"], folder).wait()
        again.append(Command(line.split(), folder))
    return again


def _see(folder: Path, records: dict[str, tuple[int, int]], result: Found) -> None:
    """Note the files of records; one that was written again is a fault."""
    for path in (folder / "results" / "runs").rglob("*-seed*.json"):
        with contextlib.suppress(FileNotFoundError):
            file = path.stat()
            stamp = file.st_ino, file.st_mtime_ns
            if records.setdefault(path.name, stamp) != stamp:
                result |= {"fault": "made twice", "said": path.name}


# ---------------------------------------------------------------------------- results


def left(folder: Path) -> dict[str, Any]:
    """The files of results, weights and checkpoints, with what must be equal in each."""
    contents = {}
    for part in ("results", "runs", "conf"):
        for path in sorted((folder / part).rglob("*")):
            name = str(path.relative_to(folder))
            if path.is_file() and (part != "runs" or path.suffix in (".safetensors", ".pt", ".tmp")):
                contents[name] = _content(path, folder)
    return contents


def _content(path: Path, folder: Path) -> Any:
    if "-seed" in path.name and path.suffix == ".json":
        record = json.loads(path.read_text())
        return {key: record.get(key) for key in NUMBERS}
    if path.name.endswith((".csv", ".csv.gz")):
        with gzip.open(path, "rt") if path.suffix == ".gz" else path.open() as file:
            return [[v for k, v in row.items() if k not in MEASURED] for row in csv.DictReader(file)]
    if path.suffix == ".safetensors":
        from safetensors.numpy import load_file

        return {key: hashlib.sha256(value.tobytes()).hexdigest() for key, value in load_file(path).items()}
    if path.parent.name == "search" and path.suffix == ".json":
        content = json.loads(path.read_text())
        return [[row[key] for key in ("point", "value", "status", "means")] for row in content["trials"]]
    if path.suffix == ".yaml":
        return path.read_text()
    return None
