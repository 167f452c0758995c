"""One run as a process of its own: `python -m physml.queue.worker SPEC.json`. Started by the launcher."""

import atexit
import contextlib
import hashlib
import json
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from physml.base import doing, files, opened
from physml.base.errors import PhysmlError
from physml.queue.cost_probe import probe
from physml.run import live
from physml.run.perform import perform
from physml.run.progress import FileReporter
from physml.run.spec import RunSpec


def main(arguments: list[str]) -> int:
    """SPEC.json makes a run, `SPEC.json --probe OUT.json` times a few steps of it; returns the exit code.

    `--sha256` after the file: of its content, which must be that.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    file, *more = arguments
    content = opened.read_bytes(Path(file))
    if more[:1] == ["--sha256"] and hashlib.sha256(content).hexdigest() != more[1]:
        print(f"error: {file} was changed by another process. Start the command again.", file=sys.stderr)
        return 2
    options = json.loads(content)
    spec = RunSpec.from_json(options["spec"])
    report = FileReporter(spec.work_folder / live.NAME)
    try:
        if "--probe" in more:
            kept = Path(more[-1])
            named = None if spec.place.folder.startswith("adhoc/") else spec.config["experiment"]
            key = {"key": kept.stem.rpartition("-")[0], "experiment": named}
            with doing.shown_by(report.note):
                files.write_json(kept, key | probe(spec.config))
            return 0
        record = perform(spec, report, force=options["force"], tables=options["tables"])
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if record["status"] == "finished" else 1


def keep_niceness() -> None:
    """Give the worker's session the nice value of its process: Linux may weigh sessions, not processes.

    Runs of `nice physml ...` have sessions of their own, and would compete as if they were not nice.
    """
    if (nice := os.nice(0)) > 0:
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(f"{nice}\n", encoding="ascii")


def as_process(arguments: list[str]) -> NoReturn:
    """`main` as a whole process, which ends without taking torch apart: that would last a second."""
    keep_niceness()
    code = 1
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    shutdown: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]  # waits for threads
    for end in (shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        with contextlib.suppress(Exception):
            end()
    os._exit(code)


if __name__ == "__main__":
    as_process(sys.argv[1:])
