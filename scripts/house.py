"""Size of the packages, and how many files of physml and tasks a command imports and executes.

`python scripts/house.py` prints lines per package, and the files that a tiny run, a table and the plan of a
search touch. `python scripts/house.py table lem-4 --no-run` names those of one command. Executed are files in
which it calls a function: code that runs at import is not counted, nor what other processes do. A run is
followed from its config to its record.
"""

import inspect
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path
from types import CodeType

from physml.base.paths import CONF, PACKAGE, ROOT, TASKS

OURS = (f"{PACKAGE}/", f"{TASKS}/")
CATALOGUES = ("models", "ops")
COMMANDS = (
    ("run", "experiment=lem/fitzhugh_nagumo-cornn", "profile=smoke", "tracker=none"),
    ("table", "lem-4", "--no-run"),
    ("search", "lem/fitzhugh_nagumo-cornn", "--plan"),
)


def main(arguments: list[str]) -> int:
    """The exit code of the command; its files go to standard error. Without arguments the whole report."""
    if not arguments:
        print("\n".join(_sizes()))
        return max(map(_report, COMMANDS))
    executed: set[str] = set()

    def note(code: CodeType) -> None:
        of_function = code.co_flags & inspect.CO_OPTIMIZED  # not of a module or a class
        if of_function and code.co_filename.startswith(OURS):
            executed.add(code.co_filename)

    sys.setprofile(lambda frame, event, _: note(frame.f_code) if event == "call" else None)
    try:
        code = _run(arguments[1:]) if arguments[:1] == ["run"] else _command(arguments)
    finally:
        sys.setprofile(None)
    places = [getattr(module, "__file__", None) or "" for module in list(sys.modules.values())]
    imported = {place for place in places if place.startswith(OURS)}
    for file in sorted(executed):
        print(file.removeprefix(f"{PACKAGE.parent}/"), file=sys.stderr)
    print(f"{len(imported)} files imported, {len(executed)} executed", file=sys.stderr)
    return code


def _sizes() -> list[str]:
    """Lines of Python by package of physml, and of the folders beside it."""
    lines: Counter[str] = Counter()
    for file in PACKAGE.rglob("*.py"):
        package, *inside = file.relative_to(PACKAGE).parts
        lines[package if inside else "(its own files)"] += _length(file)
    rest = sum(n for package, n in lines.items() if package not in CATALOGUES)
    rows = [(f"physml/{name}", n) for name, n in lines.most_common()]
    rows += [("physml without models and ops", rest), ("physml", lines.total())]
    for folder, pattern in ((TASKS, "*.py"), (ROOT / "tests", "*.py"), (CONF, "*.yaml")):
        rows.append((folder.name, sum(map(_length, folder.rglob(pattern)))))
    return [f"{n:7,d} lines  {name}" for name, n in rows]


def _length(file: Path) -> int:
    return file.read_bytes().count(b"\n")


def _report(command: tuple[str, ...]) -> int:
    """Print what a command touches, with folders of its own for what it writes; its exit code."""
    with tempfile.TemporaryDirectory(prefix="physml-house-") as folder:
        places = {"PHYSML_RUNS": f"{folder}/runs"}
        if command[0] == "run":
            places["PHYSML_RESULTS"] = f"{folder}/results"
        process = subprocess.run(
            [sys.executable, __file__, *command], capture_output=True, text=True, env={**os.environ, **places}
        )
    print(f"{' '.join(command)}: {process.stderr.strip().splitlines()[-1]}", flush=True)
    return process.returncode


def _command(arguments: list[str]) -> int:
    from physml.cli.main import main as command

    return command(arguments)


def _run(overrides: list[str]) -> int:
    """One run, from the composed config to its record, without the scheduler."""
    from physml.config.compose import compose
    from physml.run.perform import perform
    from physml.run.progress import LineReporter
    from physml.run.spec import checked_specs

    (spec,) = checked_specs([compose(overrides)], adhoc=True)
    return 0 if perform(spec, LineReporter())["status"] == "finished" else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
