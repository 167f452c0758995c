"""Records as finished runs leave them, and documents as a terminal shows them, for tests of tables."""

import io
import zlib
from collections.abc import Iterable
from typing import Any

from rich.console import Console

from physml.records.schema import SCHEMA
from physml.report.stats.summary import Values
from physml.report.text.document import Document
from physml.report.text.screen import Screen


def identity(experiment: str) -> str:
    return f"{zlib.crc32(experiment.encode()):08x}"


def ids(*experiments: str) -> dict[str, str | None]:
    return {experiment: identity(experiment) for experiment in experiments}


def by_seed(values: Iterable[Any]) -> Values:
    """The scores of seeds from 0 on, on the first split."""
    return {(0, seed): float(value) for seed, value in enumerate(values)}


def finished(experiment: str, seed: int = 0, *, split: int = 0, **changes: Any) -> dict[str, Any]:
    """A finished run without scores; `changes` are its other keys. `test`: its scores on test data."""
    scores = {"best": {"test": changes.pop("test", {})}, "last": None}
    content = {
        "schema": SCHEMA, "experiment": experiment, "identity": identity(experiment), "split": split,
        "seed": seed, "status": "finished", "reason": None, "protocol": "official", "metrics": scores,
        "data": {"kind": "verified"}, "config": {"profile": "full"}, "short": None,
    }  # fmt: skip
    return content | changes


def on_terminal(document: Document, width: int = 80, *, long: bool = False, rules: bool = False) -> str:
    out = io.StringIO()
    console = Console(file=out, width=width, color_system=None, legacy_windows=False)
    console.print(Screen(document, long, rules))
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"
