"""One run as a process of its own: `python -m physml.worker SPEC.json`. Started by the launcher."""

import json
import logging
import sys
from pathlib import Path

from physml import atomic
from physml.errors import PhysmlError
from physml.progress import FileReporter
from physml.run import perform
from physml.runspec import RunSpec


def main(arguments: list[str]) -> int:
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    if "--probe" in arguments:
        return _probe(arguments[0], Path(arguments[2]))
    options = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    spec = RunSpec.from_json(options["spec"])
    report = FileReporter(spec.work_folder / "progress.json")
    try:
        made = perform(spec, report, force=options["force"], tables=options["tables"])
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0 if made["status"] == "finished" else 1


def _probe(file: str, out: Path) -> int:
    from physml.probe import probe

    spec = RunSpec.from_json(json.loads(Path(file).read_text(encoding="utf-8"))["spec"])
    try:
        atomic.write_json(out, probe(spec.config))
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
