"""`make demo`: train LEM on FitzHugh-Nagumo with a fresh seed, and print Table lem-4 with that run in it.

The same as these two commands, with a seed that neither the repository nor an earlier demo has used:
    physml run experiment=lem/fitzhugh_nagumo-lem seed=K --adhoc
    physml table lem-4 --no-run --yours RECORD
A demo that was stopped keeps its seed, and the next one goes on where it was.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from physml.base import files
from physml.base.paths import display_path, results_root, results_roots, work_root
from physml.records import record

EXPERIMENT = "lem/fitzhugh_nagumo-lem"
TABLE = "lem-4"
FIRST_SEED = 100  # the seeds of tables lie below
PREEMPTED = 75


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--smoke", action="store_true", help="tiny sizes, in a temporary folder: seconds")
    arguments = parser.parse_args()
    if not arguments.smoke:
        return _demo([], [])
    with tempfile.TemporaryDirectory(prefix="physml-demo-") as folder:
        os.environ |= {"PHYSML_RESULTS": folder, "PHYSML_RUNS": str(Path(folder) / "work")}
        return _demo(["profile=smoke"], ["--smoke"])


def _demo(overrides: list[str], table_flags: list[str]) -> int:
    note = work_root() / "demo-seed"
    seed, stopped = _seed(note)
    if stopped:
        print(f"Going on with the demo that was stopped: LEM on FitzHugh-Nagumo, seed {seed}.", flush=True)
    else:
        print(f"LEM on FitzHugh-Nagumo, seed {seed}: a run that nobody has made here yet.", flush=True)
        if not overrides:
            print("It takes a few minutes. Ctrl-C stops it; `make demo` then goes on from there.", flush=True)
    files.write_text(note, f"{seed}\n")
    code = _physml("run", f"experiment={EXPERIMENT}", f"seed={seed}", *overrides, "--adhoc")
    if code == PREEMPTED or code >= 128:
        print(f"\nStopped. `make demo` goes on with seed {seed}.", file=sys.stderr)
        return code
    note.unlink(missing_ok=True)
    if code:
        return code
    path = _record_of(seed)
    print(flush=True)
    if code := _physml("table", TABLE, "--no-run", "--yours", str(path), *table_flags):
        return code
    print(f"\nYour run:  {display_path(path)}")
    curve = record.read(path).get("curve")
    if curve:
        print(f"Its curve: {display_path(path.with_name(Path(curve).name))}")
    if overrides:
        print("Both were made at tiny size, to see that everything works, and are removed now.")
    else:
        print("Both stay on this machine: git ignores them, and the table's mean and n leave your run out.")
    return 0


def _seed(note: Path) -> tuple[int, bool]:
    """The seed to run, and whether a stopped demo had it."""
    if note.is_file() and (text := note.read_text(encoding="utf-8").strip()).isdecimal():
        return int(text), True
    used = {
        int(match.group(1))
        for root in results_roots()
        for folder in ("runs/lem", "runs/adhoc")
        for path in record.runs_below(root / folder)
        if (match := re.search(r"-seed(\d+)\.json$", path.name))
    }
    return next(seed for seed in range(FIRST_SEED, FIRST_SEED + len(used) + 1) if seed not in used), False


def _record_of(seed: int) -> Path:
    folder = results_root() / "runs" / "adhoc" / EXPERIMENT
    records = sorted(folder.glob(f"*-split0-seed{seed}.json"), key=lambda path: path.stat().st_mtime)
    if not records:
        raise SystemExit(f"the run ended, but left no record of seed {seed} in {display_path(folder)}.")
    return records[-1]


def _physml(*arguments: str) -> int:
    """Exit code of a physml command that shares this terminal; on Ctrl-C it gets the time to end in order."""
    with subprocess.Popen([sys.executable, "-m", "physml", *arguments]) as process:
        while True:
            try:
                code = process.wait()
                return 128 - code if code < 0 else code
            except KeyboardInterrupt:
                continue  # the terminal has sent it to the command, too


if __name__ == "__main__":
    sys.exit(main())
