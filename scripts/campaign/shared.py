"""Hostile files in folders that others may write, and a command: results, work, cache, data, hub, configs.

A round puts something hostile in place of a file of a lab, or beside it, and runs one command. Beside the
faults of every command, results of other runs that were changed count, and memory without bound.
"""

import gzip
import hashlib
import json
import os
import pickle
import random
import shutil
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

from scripts.campaign import furnished
from scripts.campaign.driver import MARK, Found, one_command

ESCAPE = "\x1b]0;x\x07\x1b[2J"
# Names of files that a run has now and then, beside those that it has left.
WORK = (
    *("lock", "lease/1", "lease/2", "log.txt", "output.txt", "metrics.jsonl", "progress.json", "last.pt"),
    *("attempts.json", "forced", "spec.json"),
)
JOURNALS = (
    "mine-fitzhugh_nagumo-lem-tpe-0a1b2c3d.journal",
    "trials.journal",
    "mine-fitzhugh_nagumo-lem.json",
)
RUN = "experiment=mine/fitzhugh_nagumo-lem"
COMMANDS = (
    f"run {RUN}",
    f"run {RUN} --force",
    f"run {RUN} seed=1 --plan",
    f"run -m {RUN} seed=0,1",
    f"run {RUN} seed=2",
    "run model=lem task=ecg5000 profile=smoke tracker=none --verify off",
    "run model=lem task=hf task.name=../data/hub net.embedding=4 profile=smoke tracker=none",
    "run model=gcn task=texas profile=smoke tracker=none --verify content",
    "table mine-1",
    "table mine-1 --no-run --long --latex out.tex --html out.html --write",
    "table --all --write",
    "figure mine-fig-1 --no-run",
    "search mine/fitzhugh_nagumo-lem",
    "search mine/fitzhugh_nagumo-lem --storage ../results/search/trials.journal",
    "search mine/fitzhugh_nagumo-lem --picture",
    "search mine/fitzhugh_nagumo-lem --plan",
    "status",
    "status mine-1 --all",
    "logs",
    "failed",
    "retry mine-1",
    "plot {record}",
    "plot mine/* --out p.csv",
    "export {record} --to safetensors --out made",
    "rerun {record} --plan",
    "rerun {record}",
    "diff {record} {other}",
    "compare {record} {other}",
    "records pack",
    "records pack export",
    "records costs",
    "track sync --plan",
    "data list",
    "data check texas ecg5000 mnist",
    "list experiments mine",
    "list searches mine",
    "list tables mine",
    "list tasks --measure texas",
    "pilot table mine-1 --no-wait",
    "cite mine-1",
    "doctor",
)
# They may write the records of runs again.
REWRITE = ("--force", "pack", "retry")


class Call:
    """Runs code where it is unpickled: a file beside the victim says so."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.system, (f"touch {MARK} ../{MARK}",)


# ---------------------------------------------------------------------------- hostile content


def _sparse(path: Path, rng: random.Random) -> None:
    with path.open("wb") as file:
        file.write(b"{}\n")
        file.truncate(1 << 40)


def _changed(path: Path, rng: random.Random) -> None:
    """The file itself with a few bytes changed."""
    content = bytearray(path.read_bytes() if path.is_file() else b"{}")
    for _ in range(rng.choice((1, 4))):
        if content:
            content[rng.randrange(len(content))] = rng.randrange(256)
    path.write_bytes(content)


def _forged(path: Path, rng: random.Random) -> None:
    """The file itself with a value of its JSON made odd; each line counts as one value."""
    lines = path.read_text(errors="replace").splitlines() if path.is_file() else []
    at = rng.randrange(len(lines) or 1)
    try:
        value = json.loads("\n".join(lines) if path.suffix == ".json" else lines[at])
    except (ValueError, IndexError):
        value = {"host": ESCAPE, "pid": "../1", "period_s": 1e999, "config": {"plugins": ["/tmp/x.py"]}}
    node = value
    while isinstance(node, dict | list) and node:
        key = rng.choice(sorted(node)) if isinstance(node, dict) else rng.randrange(len(node))
        if not isinstance(node[key], dict | list) or not node[key] or rng.random() < 0.2:
            node[key] = rng.choice(_odd())
            break
        node = node[key]
    if isinstance(value, dict) and "check" in value and rng.random() < 0.7:  # whoever forges can compute it
        from physml.records.record import check_of

        value["check"] = check_of(value)
    forged = json.dumps(value)
    path.write_text(
        forged if path.suffix == ".json" else "\n".join([*lines[:at], forged, *lines[at + 1 :]]) + "\n"
    )


def _odd() -> tuple[object, ...]:
    return (
        *(None, True, -1, 1e308, float("nan"), 10**400, "", ESCAPE, "\u202egpj.exe", [], {}, ["x"], {"a": 1}),
        *("../../victim.txt", "/dev/zero", "/etc/passwd", f"$(touch {MARK})", "=cmd|' /C calc'!A0"),
        "x" * 9999,
        *({"_target_": "os.system"}, ["../here/evil.py"], "<img src=x onerror=alert(1)>", "*", 44.77, "lem"),
    )


def _library(path: Path, rng: random.Random) -> None:
    path.write_bytes((Path(os.environ["PHYSML_RESULTS"]).parent / "evil.so").read_bytes())
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    path.with_suffix(".sha256").write_text(digest) if path.suffix == ".so" else None


def _journal(path: Path, rng: random.Random) -> None:
    """A journal of Optuna whose study has a pickle as an attribute, as some samplers keep one."""
    state = pickle.dumps(Call()).hex()
    lines: list[dict[str, Any]] = [
        {"op_code": 0, "worker_id": "w", "study_name": "mine-fitzhugh_nagumo-lem", "directions": [1]},
        {"op_code": 4, "worker_id": "w", "study_id": 0, "datetime_start": "2020-01-01T00:00:00"},
        {"op_code": 9, "worker_id": "w", "trial_id": 0, "system_attr": {"cma:optimizer:0": state}},
    ]
    path.write_text("".join(f"{json.dumps(line)}\n" for line in lines))


def _tensors(path: Path, rng: random.Random) -> None:
    about = {"a": {"dtype": "F32", "shape": [1 << 40, 1 << 40], "data_offsets": [0, 1 << 60]}}
    head = json.dumps(about | {"__metadata__": {"physml": json.dumps({"config": [1]})}}).encode()
    path.write_bytes(struct.pack("<Q", rng.choice((len(head), 1 << 62))) + head)


def _named(path: Path, rng: random.Random) -> None:
    """The file again under a hostile name."""
    name = rng.choice(
        (
            *(f"{ESCAPE}-split0-seed0.json", f"$(touch {MARK})-split0-seed1.json", "a\nb-split0-seed0.json"),
            *("-rf", f"`touch {MARK}`.yaml", "=1+1.json", "\udcff-split0-seed0.json", "x" * 250),
            *("0a1b2c3d-split0-seed99999999999999999999.json", "0a1b2c3d-split\u0663-seed0.json"),
            *("curves", ".git"),
        )
    )
    content = path.read_bytes() if path.is_file() else b"{}"
    path.with_name(name).write_bytes(content)


KINDS: dict[str, Callable[[Path, random.Random], object]] = {
    "link": lambda path, _: path.symlink_to(_victim()),
    "link to nothing": lambda path, _: path.symlink_to(_victim().with_name("new")),
    "link to zeros": lambda path, _: path.symlink_to("/dev/zero"),
    "link to itself": lambda path, _: path.symlink_to(path.name),
    "FIFO": lambda path, _: os.mkfifo(path),
    "folder": lambda path, _: path.mkdir(),
    "nothing": lambda path, _: path.write_bytes(b""),
    "not readable": lambda path, _: path.touch(0),
    "a terabyte": _sparse,
    "a bomb": lambda path, _: path.write_bytes(gzip.compress(bytes(64 << 20), 1)),
    "pickle": lambda path, rng: path.write_bytes(pickle.dumps(Call(), rng.choice((0, 2, 4)))),
    "library": _library,
    "journal": _journal,
    "tensors": _tensors,
    "escape sequences": lambda path, _: path.write_text(
        json.dumps({"host": ESCAPE, "reason": ESCAPE, "spec": ESCAPE, "done": ESCAPE}) + ESCAPE
    ),
    "depth": lambda path, _: path.write_text("[" * 100_000),
    "digits": lambda path, _: path.write_text('{"schema": ' + "9" * 9000 + "}"),
    "odd values": lambda path, _: path.write_text('{"schema": 5, "in_vain": [], "done": "x", "now": {}}'),
    "changed bytes": _changed,
    "forged": _forged,
    "name": _named,
}
KEPT = ("changed bytes", "forged", "name")  # kinds that begin with the file as it is


def _victim() -> Path:
    return Path(os.environ["PHYSML_RESULTS"]).parent / "victim.txt"


# ---------------------------------------------------------------------------- rounds


def prepared(base: Path) -> None:
    """A lab with runs, their table, a search, data sets and a folder of the hub."""
    from physml.data.datasets import DataSet
    from physml.data.readers import ecg5000, mnist, webkb
    from physml.data.store import Store
    from tasks.hf import _fixture

    furnished.lab(base)
    (base / "here" / "evil.py").write_text(f"open('{MARK}', 'w')\nopen('../{MARK}', 'w')\n")
    source = f"""#include <stdlib.h>
    __attribute__((constructor)) static void run(void) {{ system("touch {MARK} ../{MARK}"); }}"""
    command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", str(base / "evil.so")]
    if not shutil.which("cc") or subprocess.run(command, input=source, text=True).returncode:
        (base / "evil.so").write_bytes(b"\x7fELF")
    for module in (ecg5000, mnist, webkb):
        next(value for value in vars(module).values() if isinstance(value, DataSet)).fixture(base / "data")
    hub = _fixture(Store(None, base / "made", "off"), True)
    shutil.copytree(hub, base / "data" / "hub")
    shutil.rmtree(base / "made")
    furnished.carried_out(base, "search mine/fitzhugh_nagumo-lem", "table mine-1")


def places(rng: random.Random, folder: Path) -> Path:
    """A file of the lab, or the place of one that a command would look for."""
    parts = ("results", "results", "runs", "cache", "data", "conf")
    left = [path for path in sorted((folder / rng.choice(parts)).rglob("*")) if path.is_file()]
    work = sorted({path.parent for path in (folder / "runs").rglob("metrics.jsonl")})
    named = [folder / "results" / "search" / name for name in JOURNALS]
    named += [rng.choice(work) / name for name in WORK] if work else []
    return rng.choice([*left, *named]) if rng.random() < 0.7 or not left else rng.choice(named)


def round_of(rng: random.Random, number: int, folder: Path, material: None) -> Found:
    records = [str(path) for path in sorted((folder / "results" / "runs").rglob("*-seed*.json"))]
    chosen = {"record": records[0], "other": records[-1]}
    words = rng.choice(COMMANDS).format(**chosen).split()
    path, kind = places(rng, folder), rng.choice(sorted(KINDS))
    path.parent.mkdir(parents=True, exist_ok=True)
    if kind not in KEPT:
        path.unlink(missing_ok=True)
    KINDS[kind](path, rng)
    before = _results(folder)
    result = one_command(folder, words, place=str(path.relative_to(folder)), attack=kind)
    rewrites = any(word in words for word in REWRITE)
    if not result["fault"] and not rewrites and (lost := _lost(before, _results(folder), path)):
        result |= {"fault": "a result was changed", "said": lost}
    return result


def _results(folder: Path) -> dict[Path, bytes]:
    files = [
        path for path in (folder / "results" / "runs").rglob("*") if path.is_file() and not path.is_symlink()
    ]
    return {
        path: path.read_bytes()
        for path in files
        if path.stat().st_size < 1 << 20 and os.access(path, os.R_OK)
    }


def _lost(before: dict[Path, bytes], after: dict[Path, bytes], attacked: Path) -> str:
    """Files of runs that were changed or are gone, but for those of the run that was attacked."""
    stem = attacked.name.partition(".")[0]
    return ", ".join(
        path.name for path in before if after.get(path) != before[path] and not path.name.startswith(stem)
    )
