"""Parts of all benchmarks with a file of their own: measure, print, write `results/bench/<name>-<class>`."""

import argparse
import sys
from collections.abc import Callable
from typing import Any

from physml.base import files
from physml.base.errors import PhysmlError
from physml.base.paths import display_path
from scripts.bench import store

Result = dict[str, Any]


def parser(module: str, doc: str | None) -> argparse.ArgumentParser:
    """The parser of `python -m scripts.bench.<module>`, with the first line of its docstring."""
    purpose = (doc or "").partition("\n")[0]
    return argparse.ArgumentParser(prog=f"python -m scripts.bench.{module}", description=purpose)


def run(
    name: str,
    options: argparse.Namespace,
    measure: Callable[[argparse.Namespace], Result],
    text: Callable[[Result], str],
    joined: Callable[[Result, Result], Result] | None = None,
) -> int:
    """Measure, print, and write unless `options.no_write`. Returns the exit code.

    Args:
        name: of the file, before the class of the machine.
        options: of the command line.
        measure: gives the result, with its `class`.
        text: of a result, for the terminal and for Markdown.
        joined: what is written, of the result that is there ({} if none) and the new one.
    """
    try:
        result = measure(options)
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    print(text(result))
    if not options.no_write:
        path = store.path_of(f"{name}-{result['class']}")
        if joined is not None:
            result = joined(store.read(path), result)
        files.write_json(path, result)
        files.write_text(path.with_suffix(".md"), text(result) + "\n")
        print(f"\nWritten: {display_path(path)}, and the same with .md.")
    return 0
