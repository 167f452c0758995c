"""The common part of campaigns: labs, commands in forks of this process, what counts as a fault, counts.

A lab is a temporary folder with results, work folders, cache, configs and a working folder. This process
imports torch once, and never calls a command itself, so that no round leaves anything in its memory.
"""

import contextlib
import ctypes
import errno
import functools
import gc
import importlib
import json
import os
import pkgutil
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

import physml
import tasks
from physml.base.errors import MissingExtra
from physml.base.paths import CONF, ROOT, share_compiled
from physml.cli import main
from physml.config.load import content_of

os.environ |= {"OMP_NUM_THREADS": "1", "MKL_NUM_THREADS": "1"}  # before torch: threads do not live in forks
sys.path.insert(0, str(ROOT / "tests" / "harness"))
import run_child

from scripts.campaign import processes

KINDS = ("kills", "lines", "yaml", "files", "shared")
# A command hangs if its processes use less than IDLE_S of the processor in WAIT_S, or more than BUSY_S.
WAIT_S, IDLE_S, BUSY_S = 60.0, 0.05, 120.0
MEMORY = 8 << 30  # of address space, as `ulimit -v` sets it
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
SECRET = "S3CRET9f2e7c"
SECRETS = {
    "WANDB_API_KEY": f"{SECRET:0<40}",
    "WANDB_BASE_URL": f"http://ana:{SECRET}@127.0.0.1:9/x",
    "MLFLOW_TRACKING_URI": f"http://ana:{SECRET}@127.0.0.1:9/x?token={SECRET}",
}
PARTS = ("results", "runs", "cache", "data", "conf")
VICTIM = "kept\n"
NEXT = "@@@ next\n"
MARK = "was_run"  # a file that hostile code would write
PROGRAMS = ("git", "uname", "nvcc", "cc", "gcc", "clang", Path(sys.executable).name)  # that physml may start
SUBREAPER = 36  # of prctl: orphans become children of this process

Found = dict[str, Any]
Call = Callable[[list[str]], int]


# ---------------------------------------------------------------------------- labs


@contextlib.contextmanager
def lab(source: Path | None = None, *, compiles: bool = True) -> Iterator[Path]:
    """A temporary folder, a copy of `source`, and the variables that name its parts.

    compiles: C anew; else it has the compiled C of this process's own cache.
    """
    folder = Path(tempfile.mkdtemp(prefix="physml-campaign-"))  # no finalizer, which forks would run
    before = dict(os.environ)
    try:
        if source:
            shutil.copytree(source, folder, dirs_exist_ok=True, symlinks=True)
        for part in ("here", "conf", "data"):
            (folder / part).mkdir(exist_ok=True)
        (folder / "cache").mkdir(mode=0o700, exist_ok=True)
        if not compiles:
            share_compiled(folder / "cache")
        (folder / "victim.txt").write_text(VICTIM)
        if source:
            (folder / "here" / "link").symlink_to(folder / "victim.txt")
            os.mkfifo(folder / "here" / "fifo")
            (folder / "here" / "dir").mkdir()
        names = {f"PHYSML_{part.upper()}": str(folder / part) for part in PARTS}
        fixed = {"PHYSML_CPUS": "1", "WANDB_MODE": "disabled", "COLUMNS": "200"}
        os.environ |= names | fixed | SECRETS
        yield folder
    finally:
        os.environ.clear()
        os.environ |= before
        shutil.rmtree(folder, ignore_errors=True)


# ---------------------------------------------------------------------------- commands


@functools.cache
def warm() -> None:
    """Import what commands import and read conf/, so that forks need not."""
    for package in (physml, tasks):
        for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            if not module.name.endswith(("__main__", "preload")):
                with contextlib.suppress(MissingExtra, ImportError):
                    importlib.import_module(module.name)
    for name in ("matplotlib.pyplot", "optuna", "scipy.io", "sqlalchemy", "datasets", "plotext"):
        with contextlib.suppress(ImportError):
            importlib.import_module(name)
    for path in CONF.rglob("*.yaml"):
        content_of(path)
    gc.freeze()  # forks leave these objects alone


class Command:
    """A call in a fork of this process, with an output and bounds of its own, in the folder `here`.

    call: gets the arguments and returns an exit code; default: the command line of physml.
    """

    def __init__(self, arguments: list[str], folder: Path, call: Call = run_child.command) -> None:
        self.output = folder / f"output-{time.monotonic_ns()}"
        self.code: int | None = None
        self.pid = os.fork()
        if self.pid == 0:
            _become(arguments, folder, self.output, call)

    def poll(self) -> int | None:
        if self.code is None:
            ended, status = os.waitpid(self.pid, os.WNOHANG)
            self.code = os.waitstatus_to_exitcode(status) if ended else None
        return self.code

    def wait(self) -> int | None:
        """The exit code; None where it hung and was killed: idle, or busy for too long on the processor.

        All processes of the round count: a run may go on whose launcher was killed.
        """
        look, used = time.monotonic() + WAIT_S, 0.0
        while self.poll() is None:
            time.sleep(0.02)
            if time.monotonic() > look:
                now = sum(map(processes.cpu_s, processes.descendants()))
                if abs(now - used) < IDLE_S or now > BUSY_S:  # less, where a process has ended
                    os.killpg(self.pid, signal.SIGKILL)
                    self.code = os.waitstatus_to_exitcode(os.waitpid(self.pid, 0)[1])
                    return None
                look, used = time.monotonic() + WAIT_S, now
        return self.code

    @property
    def text(self) -> str:
        return self.output.read_text(errors="replace") if self.output.exists() else ""


def _become(arguments: list[str], folder: Path, output: Path, call: Call) -> None:
    """The fork: never returns."""
    code = 70
    try:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        streams = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND), os.open(os.devnull, os.O_RDONLY)
        for file, stream in zip((streams[1], streams[0], streams[0]), (0, 1, 2), strict=True):
            os.dup2(file, stream)
        os.chdir(folder / "here")
        sys.addaudithook(_watch(folder / "started"))
        code = call(arguments)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # as Python itself would show it
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(BaseException):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _watch(started: Path) -> Callable[[str, tuple[Any, ...]], None]:
    """A hook that keeps the programs that are started, and has no network."""

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if event in ("subprocess.Popen", "os.exec", "os.posix_spawn", "os.system"):
            with started.open("a") as log:
                log.write(f"{Path(os.fsdecode(arguments[0])).name}\n")
        elif event == "socket.connect" and isinstance(arguments[1], tuple):
            raise OSError(errno.ENETUNREACH, "no network in a campaign")

    return hook


# ---------------------------------------------------------------------------- faults


def fault_of(code: int | None, text: str, folder: Path) -> str | None:
    """The fault of a command that has ended, or None."""
    if code is None:
        return "does not end"
    if "Traceback" in text:
        return "traceback"
    if code not in (0, 1, 2, 75):
        return f"ends with {code}"
    if code == 2 and not any(
        word in text for word in ("error", "cannot", "damaged", "absent", "not measured")
    ):
        return "exit code 2 without a reason"
    if CONTROL.search(text.replace("\r", "")):
        return "control characters"
    return fault_in(folder, text)


def fault_in(folder: Path, text: str = "") -> str | None:
    """The fault that a lab shows, or None."""
    victim = folder / "victim.txt"
    if victim.read_text() != VICTIM or victim.with_name("new").exists():
        return "another file was written"
    if any(path.name.startswith(MARK) for path in (folder, *folder.iterdir(), *(folder / "here").iterdir())):
        return "foreign code was run"
    started = folder / "started"
    strange = set(started.read_text().split()) - set(PROGRAMS) if started.exists() else set()
    if strange:
        return f"started {', '.join(sorted(strange))}"
    if SECRET in text or any(SECRET.encode() in content for content in _contents(folder)):
        return "a secret is shown"
    return None


def _contents(folder: Path) -> Iterator[bytes]:
    """Contents of the files that a command may write."""
    for part in ("results", "runs", "here"):
        for path in (folder / part).rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < 1 << 20:
                with contextlib.suppress(OSError):
                    yield path.read_bytes()


# ---------------------------------------------------------------------------- rounds


def campaign(kind: str, rounds: int, seed: int, out: Path) -> list[Found]:
    """All rounds of a campaign; those that `out` lacks are made and appended to it."""
    module = importlib.import_module(f"scripts.campaign.{kind}")
    lines = out.read_text().splitlines() if out.exists() else []
    by_number = {
        entry["round"]: entry
        for entry in map(json.loads, lines)
        if (entry["kind"], entry["seed"]) == (kind, seed)
    }
    missing = [number for number in range(rounds) if number not in by_number]
    if missing:
        ctypes.CDLL(None).prctl(SUBREAPER, 1, 0, 0, 0)
        resource_tracker.ensure_running()
        warm()
        with lab(compiles=kind == "shared") as base:  # which spoils the cache too
            material = module.prepared(base)
            try:
                for number in missing:
                    by_number[number] = _round(module, material, base, number, seed)
                    with out.open("a") as file:
                        file.write(json.dumps({"kind": kind, "seed": seed, **by_number[number]}) + "\n")
            finally:
                processes.swept(0.0)  # of a campaign that was stopped
    return [by_number[number] for number in range(rounds)]


def _round(module: Any, material: Any, base: Path, number: int, seed: int) -> Found:
    rng, began = random.Random(f"{module.__name__} {seed} {number}"), time.monotonic()
    with lab(base) as folder:
        result: Found = module.round_of(rng, number, folder, material)
        if not processes.swept() and not result["fault"]:
            result["fault"] = "a process is left"
    return {"round": number, "seconds": round(time.monotonic() - began, 2), **result}


@dataclass(frozen=True)
class Try:
    """One command line, and a file of the lab with other content while it runs."""

    words: list[str]
    file: str | None = None
    content: bytes = b""


def in_turn(folder: Path, tries: list[Try]) -> Found:
    """A round of several command lines in one process: exit codes, and the first fault with its line."""
    command = Command([], folder, lambda _: _each(tries, folder))
    command.wait()
    codes = (folder / "codes").read_text().split() if (folder / "codes").exists() else []
    texts = command.text.split(NEXT)[1:]
    result: Found = {
        "fault": None,
        "counts": {"tried": len(texts), **Counter(f"code {code}" for code in codes)},
    }
    for i, text in enumerate(texts):
        code = int(codes[i]) if i < len(codes) else command.code
        if fault := fault_of(code, text, folder):
            attempt = tries[i]
            result |= {"fault": fault, "words": attempt.words, "file": attempt.file, "said": text[-3000:]}
            result["content"] = attempt.content.decode(errors="replace")[:5000]
            break
    return result


def _each(tries: list[Try], folder: Path) -> int:
    with (folder / "codes").open("a") as codes:
        for attempt in tries:
            print(NEXT, end="", flush=True)
            path = folder / attempt.file if attempt.file else None
            sound = path.read_bytes() if path and path.exists() else None
            if path:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(attempt.content)
            try:
                code = main.main(list(attempt.words))
            except SystemExit as end:
                code = end.code if isinstance(end.code, int) else int(end.code is not None)
            print(file=codes, end=f"{code}\n", flush=True)
            if path and sound is not None:
                path.write_bytes(sound)
            elif path:
                path.unlink()
    return 0


def one_command(folder: Path, arguments: list[str], call: Call = run_child.command, **more: Any) -> Found:
    """A round of one command: its code, its fault, and what it has printed where there is one."""
    command = Command(arguments, folder, call)
    command.wait()
    fault = fault_of(command.code, command.text, folder)
    said = {"said": command.text[-3000:]} if fault else {}
    return {**more, "command": arguments, "code": command.code, "fault": fault, **said}


def counted(results: list[Found]) -> list[str]:
    """Lines of counts: exit codes, what kinds add, and faults."""
    sums: Counter[str] = Counter()
    for result in results:
        sums.update(result.get("counts", {}))
    codes = Counter(str(result["code"]) for result in results if "code" in result)
    faults = Counter(result["fault"] for result in results if result["fault"])
    lines = [f"rounds {len(results)}, with a fault {faults.total()}"]
    lines += (
        [f"exit codes: {', '.join(f'{n} of {code}' for code, n in sorted(codes.items()))}"] if codes else []
    )
    lines += [f"{name}: {n}" for name, n in sorted(sums.items())]
    return lines + [f"FAULT {n}: {name}" for name, n in faults.most_common()]
