"""`physml doctor`: the state of this machine, what is missing and how to get it.

Changes nothing but the cache of compiled code, asks nobody, needs no network. Every check stands alone, so a
broken package is one line.
"""

import argparse
import importlib
import importlib.metadata
import importlib.util
import os
import platform
import re
import shutil
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import physml
from physml.base.errors import to_install, working
from physml.base.paths import (
    CONF,
    CONSTRAINTS,
    INSTALLED,
    PACKAGE,
    ROOT,
    cache_root,
    own_conf,
    results_root,
    work_root,
)
from physml.cli.console import Line, aligned
from physml.cli.options import seconds
from physml.records import provenance

State = Literal["ok", "note", "missing"]
LITTLE_DISK = 2 * 2**30  # bytes; checkpoints and generated data of a table fit in it
MEND = "install the wheel of physml again, with --force-reinstall" if INSTALLED else "make setup"
_MARKS = {"ok": "  ", "note": "- ", "missing": "! "}


@dataclass(frozen=True)
class Row:
    """One finding. State `note`: works, but worth knowing; `missing`: something physml needs is not there."""

    name: str
    value: str
    state: State = "ok"
    hint: str = ""


def add(commands: Any) -> None:
    doctor = commands.add_parser("doctor", help="what is installed, what is missing, how to get it")
    doctor.add_argument(
        "--shared", type=Path, metavar="PATH", help="try locks and renames of a folder for pilots"
    )
    doctor.add_argument(
        "--nodes", type=int, choices=(1, 2), default=1, help="2: the same command is started on another node"
    )
    doctor.add_argument("--wait", type=seconds, default=60.0, metavar="S", help="for the other node")
    doctor.set_defaults(command=_run)


def findings(topic: str) -> list[Row]:
    """Those of one topic. A report must come to its end on the very machines where things are broken."""
    rows: list[Row] = []
    try:
        rows += CHECKS[topic]()
    except Exception as error:
        rows.append(Row(topic, f"the check failed: {type(error).__name__}: {_short(error)}", "note"))
    return rows


def text(topics: dict[str, list[Row]]) -> str:
    """Missing things first, then those worth knowing, then the rest by topic; each row once."""
    rows = [row for of_topic in topics.values() for row in of_topic]
    missing, notes = ([row for row in rows if row.state == state] for state in ("missing", "note"))
    groups = {"missing": missing, "worth knowing": notes}
    groups |= {topic: [row for row in of_topic if row.state == "ok"] for topic, of_topic in topics.items()}
    lines: list[Line | str] = [f"{len(missing)} missing, marked with !" if missing else "Nothing is missing."]
    for title, group in groups.items():
        lines += ["", title, *map(_line, group)] if group else []
    return aligned(lines)


def _line(row: Row) -> Line:
    return Line((f"  {_MARKS[row.state]}{row.name}", row.value), (row.hint,) if row.hint else ())


def _run(options: argparse.Namespace) -> int:
    """Exit code 1 if something needed is missing."""
    if options.shared:
        return _shared(options)
    topics = {topic: findings(topic) for topic in CHECKS}
    print(text(topics))
    return int(any(row.state == "missing" for of_topic in topics.values() for row in of_topic))


def _shared(options: argparse.Namespace) -> int:
    """Exit code 1 where pilots must not share the folder."""
    from physml.queue.shared_folder import check

    checks = check(options.shared.absolute(), options.nodes, options.wait)
    print(aligned([Line((f"{'  ' if result.ok else '! '}{result.name}", result.text)) for result in checks]))
    good = all(result.ok for result in checks)
    print(
        "Pilots can share this folder." if good else "Pilots must not share this folder; see docs/cluster.md."
    )
    return int(not good)


def _code() -> Iterator[Row]:
    yield Row("version", physml.__version__)
    yield Row("folder", str(PACKAGE if INSTALLED else ROOT))
    if not (CONF / "run.yaml").is_file():
        yield Row("configs", f"{CONF / 'run.yaml'} is not there", "missing", f"To mend it: {MEND}")
    for name, folder in (("configs", CONF), ("own configs", own_conf())):
        if folder is not None:
            n = len(list(folder.rglob("*.yaml")))
            hint = "" if n else "PHYSML_CONF must name a folder with study, table and so on."
            yield Row(name, f"{n} in {folder}", "ok" if n else "missing", hint)
    code = provenance.code()
    if code["commit"] is None:
        about = "installed, not a clone" if INSTALLED else "no clone, or no git"
        yield Row(
            "commit", f"none: {about}", "ok" if INSTALLED else "note", "Records name the version alone."
        )
    else:
        words = {True: "changed since", False: "nothing changed since", None: "git status gives no answer"}
        state: State = "ok" if code["dirty"] is False else "note"
        hint = "" if state == "ok" else "Records say so."
        yield Row("commit", f"{code['commit'][:10]}, {words[code['dirty']]}", state, hint)


def _python() -> Iterator[Row]:
    fits = (3, 11) <= sys.version_info[:2] <= (3, 14)
    hint = "" if fits else "physml is tested on 3.11 to 3.14: make setup PYTHON=python3.12"
    yield Row("version", platform.python_version(), "ok" if fits else "missing", hint)
    yield Row("program", sys.executable)
    yield Row("system", f"{platform.system()} {platform.release()}, {platform.machine()}")


def _packages() -> Iterator[Row]:
    """Installed versions against the tested ones, without importing anything; extras that are not whole."""
    tested, shown = _tested(), set()
    lacking: dict[str, list[str]] = {}
    try:
        requirements = importlib.metadata.requires("physml") or []
    except importlib.metadata.PackageNotFoundError:
        yield Row("physml", "a checkout, not installed: no version is compared", "note", f"{MEND} does")
        return
    for requirement in requirements:
        name = re.split(r"[^A-Za-z0-9_.-]", requirement, maxsplit=1)[0]
        extra = re.search(r"extra == ['\"](\w+)['\"]", requirement)
        if name == "physml":  # the extra that means all others
            continue
        first = name not in shown
        shown.add(name)
        known = tested.get(_normal(name))
        try:
            version = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            if extra:
                lacking.setdefault(extra[1], []).append(name)
            else:
                yield Row(name, "not installed", "missing", f"To get it: {MEND}")
            continue
        if not first:
            continue
        if known in (None, version.partition("+")[0]):
            yield Row(name, version)
        else:
            yield Row(name, f"{version}; the tested version is {known}", "note")
    for extra_name, names in lacking.items():
        value = f"not installed: {', '.join(names)}"
        yield Row(f"extra {extra_name}", value, "note", f"Optional. To get it: {to_install(extra_name)}")


def _tested() -> dict[str, str]:
    lines = CONSTRAINTS.read_text(encoding="utf-8").splitlines()
    pins = [line.split("==") for line in lines if "==" in line and not line.startswith("#")]
    return {_normal(name): version.strip() for name, version in pins}


def _normal(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _torch() -> Iterator[Row]:
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    yield Row("cpu", f"{cores} cores for this process")
    try:
        torch = importlib.import_module("torch")
    except Exception as error:
        yield Row("torch", f"cannot be imported: {_short(error)}", "missing", f"To mend it: {MEND}")
        return
    threads = os.environ.get("OMP_NUM_THREADS")
    source = f"OMP_NUM_THREADS={threads}" if threads else "OMP_NUM_THREADS is not set"
    yield Row("threads", f"{torch.get_num_threads()} per process; {source}")
    for i in range(torch.cuda.device_count()):
        about = torch.cuda.get_device_properties(i)
        memory = f"{about.total_memory / 2**30:.0f} GiB"
        yield Row(f"cuda:{i}", f"{about.name}, {memory}, capability {about.major}.{about.minor}")
    if not torch.cuda.is_available():
        built = torch.version.cuda
        say = f"none found; torch is built for CUDA {built}" if built else "none; this torch is CPU-only"
        yield Row("cuda", say, "note", "Not needed; a GPU needs NVIDIA's driver." if built else "")
    for name in ("torchvision", "torchaudio"):  # both break beside a torch they were not built for
        if importlib.util.find_spec(name) and working(name) is None:
            say = f"does not work with torch {torch.__version__}"
            yield Row(name, say, "note", "Not needed: we do without.")


def _backends() -> Iterator[Row]:
    """Backends of the recurrences, tried on LEM: a compiler that is installed may still fail."""
    import torch

    from physml.ops import lem

    u, y, V, b = torch.zeros(1, 1, 1), torch.zeros(1, 1), torch.zeros(4, 1), torch.zeros(4)
    tensors = (u, y, y, torch.zeros(3, 1), y, V, b)
    yield Row("torch", "works everywhere")
    hints = {"native": "Not needed: torch computes then, slower.", "triton": "For GPUs; not needed."}
    for name, device in {"native": "cpu", "triton": "cuda"}.items():
        if device == "cuda" and not torch.cuda.is_available():
            yield Row(name, "there is no GPU", "note", hints[name])
        elif reason := lem.OP.refusal(name, tuple(x.to(device) for x in tensors)):
            yield Row(name, reason, "note", hints[name])
        else:
            yield Row(name, f"compiled at first use, kept in {cache_root()}")


def _data() -> Iterator[Row]:
    """Data sets are told by the names of their files; `physml data check` would read them."""
    from physml.data import catalogue  # here, for it imports numpy, which may be what is broken
    from physml.data.store import Store

    store = Store.from_env()
    if store.data is None:
        yield Row("PHYSML_DATA", "not set", "note", "Only downloaded data need it.")
    elif not store.data.is_dir():
        say = f"{store.data} is not a folder"
        yield Row("PHYSML_DATA", say, "missing", "Make it, or unset the variable.")
    else:
        yield Row("PHYSML_DATA", str(store.data))
    yield Row("data sets", next(iter(catalogue.summary(catalogue.choose(()), store)), "all at hand"))


def _disk() -> Iterator[Row]:
    for name, folder in {"results": results_root(), "work": work_root(), "cache": cache_root()}.items():
        base = next(path for path in (folder, *folder.parents) if path.exists())
        free = shutil.disk_usage(base).free
        if not os.access(base, os.W_OK):
            hint = "Choose another folder: PHYSML_RESULTS, PHYSML_RUNS and PHYSML_CACHE move them."
            yield Row(name, f"{folder} cannot be written", "missing", hint)
        else:
            little = free < LITTLE_DISK
            hint = "That is little: runs may fail." if little else ""
            yield Row(name, f"{free / 2**30:.1f} GiB free at {folder}", "note" if little else "ok", hint)


def _tracker() -> Iterator[Row]:
    """The mode of a run's tracker, without the client of W&B: it is slow to import, and may ask."""
    from physml.run.trackers.wandb import mode_of

    mode = mode_of("auto")
    if os.environ.get("WANDB_MODE") == mode:
        yield Row("W&B", f"{mode}: WANDB_MODE says so")
    elif mode == "online":
        yield Row("W&B", "online: you are logged in")
    else:
        hint = "No account is needed. To log in: wandb login"
        yield Row("W&B", "later, by `physml track sync`: not logged in", hint=hint)


def _short(error: Exception) -> str:
    return str(error).strip().partition("\n")[0][:120]


CHECKS: dict[str, Callable[[], Iterator[Row]]] = {
    "physml": _code,
    "Python": _python,
    "packages": _packages,
    "devices": _torch,
    "backends": _backends,
    "data": _data,
    "disk": _disk,
    "tracker": _tracker,
}
