"""Count the files of physml and tasks in which a command executes a function.

`python scripts/files_touched.py table lem-4 --no-run` prints them, and how many they are. Code that runs at
import is not counted, nor what other processes do; a run is followed from its config to its record.
"""

import inspect
import sys
from types import CodeType

from physml.base.paths import PACKAGE, TASKS


def main(arguments: list[str]) -> int:
    """The exit code of the command; the files go to standard error."""
    files: set[str] = set()

    def note(code: CodeType) -> None:
        of_function = code.co_flags & inspect.CO_OPTIMIZED  # not of a module or a class
        if of_function and code.co_filename.startswith((f"{PACKAGE}/", f"{TASKS}/")):
            files.add(code.co_filename)

    sys.setprofile(lambda frame, event, _: note(frame.f_code) if event == "call" else None)
    try:
        code = _run(arguments[1:]) if arguments[:1] == ["run"] else _command(arguments)
    finally:
        sys.setprofile(None)
    for file in sorted(files):
        print(file.removeprefix(f"{PACKAGE.parent}/"), file=sys.stderr)
    print(f"{len(files)} files", file=sys.stderr)
    return code


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
