"""A campaign against shared folders: hostile files in place of those of a run, and a command after each.

    python scripts/hostile.py --rounds 500 --seed 1 --out hostile.jsonl

Each round copies a small lab with one finished run, puts something hostile in place of one of its files, runs
one command in a process of its own and looks at the end. The same seed gives the same rounds; rounds that are
in the file already are not made again. A command may refuse: what counts as a fault is a traceback, a command
that does not end, memory without bound, another file that was changed, or control characters on the terminal.
"""

import argparse
import contextlib
import gzip
import json
import os
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
from pathlib import Path

from physml.cli import main

RUN = ("model=lem", "task=adding", "profile=smoke", "tracker=none", "runtime.save_model=true")
WAIT_S, MEMORY = 120, 6 << 30  # of address space: torch maps some of it without use
CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]")
ESCAPE = "\x1b]0;x\x07\x1b[2J"
VICTIM = "kept"

# Names of files that a run has now and then, beside those that it has left.
NAMES: tuple[str, ...] = (
    *("lock", "lease/1", "lease/2", "log.txt", "output.txt", "metrics.jsonl", "progress.json", "last.pt"),
    *("attempts.json", "forced", "spec.json"),
)


def _sparse(path: Path, victim: Path) -> None:
    with path.open("wb") as file:
        file.write(b"{}\n")
        file.truncate(1 << 40)


def _changed(path: Path, victim: Path) -> None:
    """The file itself with a few bytes changed."""
    content = bytearray(path.read_bytes() if path.is_file() else b"{}")
    for _ in range(4):
        if content:
            content[random.randrange(len(content))] = random.randrange(256)
    path.write_bytes(content)


KINDS: dict[str, Callable[[Path, Path], object]] = {
    "link": lambda path, victim: path.symlink_to(victim),
    "link to nothing": lambda path, victim: path.symlink_to(victim.with_name("new")),
    "link to zeros": lambda path, victim: path.symlink_to("/dev/zero"),
    "FIFO": lambda path, victim: os.mkfifo(path),
    "folder": lambda path, victim: path.mkdir(),
    "nothing": lambda path, victim: path.write_bytes(b""),
    "a terabyte": _sparse,
    "a bomb": lambda path, victim: path.write_bytes(gzip.compress(bytes(64 << 20))),
    "escape sequences": lambda path, victim: path.write_text(
        json.dumps({"host": ESCAPE, "reason": ESCAPE, "spec": ESCAPE, "done": ESCAPE}) + ESCAPE
    ),
    "depth": lambda path, victim: path.write_text("[" * 100_000),
    "digits": lambda path, victim: path.write_text('{"schema": ' + "9" * 9000 + "}"),
    "odd values": lambda path, victim: path.write_text(
        '{"schema": 5, "in_vain": [], "done": "x", "now": {}}'
    ),
    "changed bytes": _changed,
}
COMMANDS: tuple[tuple[str, ...], ...] = (
    ("run", *RUN),
    ("run", *RUN, "--force"),
    ("run", *RUN, "seed=1"),
    ("run", *RUN, "--plan"),
    ("run", "-m", *RUN, "seed=0,2"),
    ("status",),
    ("logs",),
    ("failed",),
    ("plot", "{record}"),
    ("table", "lem-9", "--smoke", "--no-run"),
)


@contextlib.contextmanager
def lab(source: Path | None) -> Iterator[Path]:
    """A folder with results, work folders and a cache, and the variables that name them."""
    with tempfile.TemporaryDirectory(prefix="physml-hostile-") as name:
        folder = Path(name)
        if source:
            shutil.copytree(source, folder, dirs_exist_ok=True)
        names = {f"PHYSML_{kind.upper()}": str(folder / kind) for kind in ("results", "runs", "cache")}
        before = {key: os.environ.get(key) for key in names}
        os.environ |= names
        try:
            yield folder
        finally:
            for key, value in before.items():
                os.environ.pop(key)
                if value is not None:
                    os.environ[key] = value


def carried_out(arguments: list[str], output: Path) -> int | None:
    """Exit code of a command in a fork of this process; None where it did not end in time."""
    child = os.fork()
    if child == 0:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
        with output.open("wb") as file:
            for stream in (1, 2):
                os.dup2(file.fileno(), stream)
        code = 70
        try:
            code = main.main(arguments)
        except SystemExit as end:
            code = int(end.code or 0)
        except BaseException:  # as Python itself would show it
            sys.excepthook(*sys.exc_info())
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    until = time.monotonic() + WAIT_S
    while time.monotonic() < until:
        ended, status = os.waitpid(child, os.WNOHANG)
        if ended:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.killpg(child, signal.SIGKILL)
    os.waitpid(child, 0)
    return None


def round_of(number: int, seed: int, base: Path) -> dict[str, object]:
    """One round; `fault` is what went wrong, or None."""
    random.seed(f"{seed} {number}")
    with lab(base) as folder:
        (folder / "output").unlink(missing_ok=True)
        left = [path.relative_to(folder) for path in sorted(folder.rglob("*")) if path.is_file()]
        work = next(path.parent for path in sorted((folder / "runs").rglob("metrics.jsonl")))
        places = [*left, *((work / name).relative_to(folder) for name in NAMES)]
        place, kind = random.choice(places), random.choice(sorted(KINDS))
        record = next((str(path) for path in sorted((folder / "results").rglob("*-seed0.json"))), "none.json")
        arguments = [word.format(record=record) for word in random.choice(COMMANDS)]
        victim, path = folder / "victim.txt", folder / place
        victim.write_text(VICTIM)
        path.parent.mkdir(parents=True, exist_ok=True)
        if kind != "changed bytes":
            path.unlink(missing_ok=True)
        KINDS[kind](path, victim)
        code = carried_out(arguments, folder / "output")
        text = (folder / "output").read_text(errors="replace")
        fault = _fault(code, text, victim)
        made = {"round": number, "place": str(place), "kind": kind, "command": " ".join(arguments[:1])}
        return made | {"code": code, "fault": fault, "said": text[-2000:] if fault else ""}


def _fault(code: int | None, text: str, victim: Path) -> str | None:
    if code is None:
        return "does not end"
    if code not in (0, 1, 2, 75):
        return f"ends with {code}"
    if "Traceback" in text:
        return "traceback"
    if CONTROL.search(text.replace("\r", "")):
        return "control characters"
    if victim.read_text() != VICTIM or victim.with_name("new").exists():
        return "another file was written"
    return None


def campaign(rounds: int, seed: int, out: Path) -> Counter[str]:
    """Rounds that are not in `out` yet are made and appended; the faults of all, by kind."""
    with lab(None) as base:
        if code := carried_out(["run", *RUN], base / "output"):
            raise SystemExit(f"the run of the lab ends with {code}: {(base / 'output').read_text()}")
        lines = out.read_text().splitlines() if out.exists() else []
        done = {made["round"]: made for made in map(json.loads, lines) if made["seed"] == seed}
        for number in range(rounds):
            if number not in done:
                done[number] = {"seed": seed, **round_of(number, seed, base)}
                with out.open("a") as file:
                    file.write(json.dumps(done[number]) + "\n")
    return Counter(str(done[number]["fault"] or "none") for number in range(rounds))


def _parsed() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Hostile files in place of those of a run.")
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=Path("hostile.jsonl"))
    return parser.parse_args()


if __name__ == "__main__":
    options = _parsed()
    faults = campaign(options.rounds, options.seed, options.out)
    for name, count in faults.most_common():
        print(f"{count:6} {'rounds without a fault' if name == 'none' else name}")
    sys.exit(int(set(faults) != {"none"}))
