"""How runs are seen: bars with the time left on a terminal, plain lines in a file."""

import contextlib
import json
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar

from physml.base import files
from physml.base.lock import host
from physml.base.text import terminal
from physml.training.reporter import Reporter

SHOWN = ("train/", "valid/", "test/")


def reporter() -> Reporter:
    return BarReporter() if sys.stderr.isatty() else LineReporter()


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def brief(row: dict[str, Any]) -> str:
    """`epoch 3  train/loss 0.012  valid/rmse 0.034`; what `measures` log is left to the curve."""
    shown = [f"{k} {v:.4g}" for k, v in row.items() if k.startswith(SHOWN) and isinstance(v, float)]
    return "  ".join([f"epoch {row['epoch']}", *shown])


class LineReporter:
    """One line per evaluation, at most one in `every_s` seconds, and always the last."""

    def __init__(self, every_s: float = 10.0) -> None:
        self.every_s = every_s
        self.printed_at = -every_s
        self.pending: str | None = None
        self.total = 0
        self.done = 0

    def start(self, label: str, total: int, done: int) -> None:
        self.total, self.done = total, done
        self._print(f"{label}: {total} steps" + (f", continuing at step {done}" if done else ""))

    def step(self, done: int) -> None:
        self.done = done

    def row(self, row: dict[str, Any]) -> None:
        self.pending = f"step {self.done}/{self.total}  {brief(row)}"
        if time.monotonic() - self.printed_at >= self.every_s:
            self._flush()

    def close(self, status: str) -> None:
        self._flush()
        self._print(status)

    def _flush(self) -> None:
        if self.pending:
            self._print(self.pending)
            self.printed_at = time.monotonic()
            self.pending = None

    def _print(self, text: str) -> None:
        _say(text)


class BarReporter(LineReporter):
    """A rich progress bar on standard error, with the time left and the newest metrics."""

    def __init__(self) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
        from rich.table import Column

        def whole() -> Column:  # the news give way on a narrow terminal; bar and time left don't
            return Column(no_wrap=True, min_width=7)

        self.progress = Progress(
            BarColumn(bar_width=14),
            TextColumn("{task.completed}/{task.total}", table_column=whole()),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("eta", table_column=Column(min_width=3)),
            TimeRemainingColumn(table_column=whole()),
            TextColumn("{task.fields[news]}", table_column=Column(no_wrap=True, ratio=1)),
            console=Console(file=terminal(sys.stderr)),
            expand=True,
        )
        self.task: Any = None

    def start(self, label: str, total: int, done: int) -> None:
        self.task = self.progress.add_task(label, total=total, completed=done, news="")
        self.progress.start()
        super().start(label, total, done)

    def step(self, done: int) -> None:
        self.progress.update(self.task, completed=done)

    def row(self, row: dict[str, Any]) -> None:
        self.progress.update(self.task, news=brief(row))

    def close(self, status: str) -> None:
        self.progress.stop()
        super().close(status)

    def _print(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)


class FileReporter(LineReporter):
    """Lines for the log, and a small file that the launcher of many runs reads."""

    def __init__(self, path: Path) -> None:
        super().__init__(every_s=30.0)
        self.path = path
        self.written_at = 0.0
        self.start_of: dict[str, Any] = {}

    def start(self, label: str, total: int, done: int) -> None:
        super().start(label, total, done)
        self.start_of = {"host": host(), "began": time.time(), "first": done}
        self._write(done)

    def step(self, done: int) -> None:
        super().step(done)
        if time.monotonic() - self.written_at > 1.0:
            self._write(done)

    def _write(self, done: int) -> None:
        self.written_at = time.monotonic()
        news = {"done": done, "total": self.total, "at": time.time(), **self.start_of}
        with contextlib.suppress(OSError):  # a full disk must not stop a run because of this
            files.write_text(self.path, json.dumps(news))


# ---------------------------------------------------------------------------- many runs


class ManyLines:
    """One line per event, and one per run and minute."""

    def __init__(self) -> None:
        self.said_at = time.monotonic()

    def show(self, running: dict[str, tuple[int, int]], done: int) -> None:
        if time.monotonic() - self.said_at > 60:
            self.said_at = time.monotonic()
            for label, (step, steps) in running.items():
                self.note(f"  {label}: step {step}/{steps}")

    def note(self, text: str) -> None:
        _say(text)

    def close(self) -> None:
        pass


class ManyBars(ManyLines):
    """A bar for all runs and one for each that is running."""

    def __init__(self, total: int) -> None:
        super().__init__()
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

        self.progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.completed}/{task.total}"),
            TimeElapsedColumn(),
            TextColumn("eta"),
            TimeRemainingColumn(),
            console=Console(file=terminal(sys.stderr)),
        )
        self.all = self.progress.add_task("[bold]runs", total=total)
        self.bars: dict[str, Any] = {}
        self.progress.start()

    def show(self, running: dict[str, tuple[int, int]], done: int) -> None:
        self.progress.update(self.all, completed=done)
        for label, (step, steps) in running.items():
            if label not in self.bars:
                self.bars[label] = self.progress.add_task(label, total=None)
            self.progress.update(self.bars[label], completed=step, total=steps or None)
        for label in [b for b in self.bars if b not in running]:
            self.progress.remove_task(self.bars.pop(label))

    def note(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.progress.stop()


def many(total: int) -> ManyLines:
    return ManyBars(total) if sys.stderr.isatty() else ManyLines()


# ---------------------------------------------------------------------------- before anything is run

T = TypeVar("T")


def tracked(items: Sequence[T], doing: str, every_s: float = 10.0) -> Iterator[T]:
    """The items one by one, with a bar on a terminal, else with a line on standard error now and then."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(items, doing, console=Console(file=terminal(sys.stderr)), transient=True)
        return
    printed_at = time.monotonic()
    for i, item in enumerate(items):
        if time.monotonic() - printed_at > every_s:
            printed_at = time.monotonic()
            _say(f"{doing}: {i}/{len(items)}")
        yield item
