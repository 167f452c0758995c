"""How runs are seen: bars with the time left on a terminal, plain lines in a file."""

import contextlib
import json
import math
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from physml.base import files
from physml.base.lock import host
from physml.base.text import terminal
from physml.run.live import Live, Remaining, clock, summary
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

    def note(self, text: str) -> None:
        self._print(text)

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
        from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn
        from rich.table import Column

        def whole() -> Column:  # the news give way on a narrow terminal; bar and time left don't
            return Column(no_wrap=True, min_width=7)

        self.progress = Progress(
            BarColumn(bar_width=14),
            TextColumn("{task.completed}/{task.total}", table_column=whole()),
            TimeElapsedColumn(table_column=whole()),
            TextColumn("{task.fields[speed]}", table_column=whole()),
            TextColumn("{task.fields[news]}", table_column=Column(no_wrap=True, ratio=1), markup=False),
            console=Console(file=terminal(sys.stderr)),
            refresh_per_second=4,
            expand=True,
        )
        self.task: Any = None
        self.live = Live()

    def start(self, label: str, total: int, done: int) -> None:
        self.live = Live(done, total, done, time.time())
        self.task = self.progress.add_task(label, total=total, completed=done, speed="", news="")
        self.progress.start()
        super().start(label, total, done)

    def step(self, done: int) -> None:
        self.live = replace(self.live, step=done, at=time.time())
        speed = self.live.text.partition(", ")[2]
        self.progress.update(self.task, completed=done, speed=speed)

    def row(self, row: dict[str, Any]) -> None:
        self.progress.update(self.task, news=brief(row))

    def close(self, status: str) -> None:
        self.progress.stop()
        super().close(status)

    def _print(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)


class FileReporter(LineReporter):
    """Lines for the log, and a small file that the launcher of many runs reads (`live.Live`)."""

    def __init__(self, path: Path) -> None:
        super().__init__(every_s=30.0)
        self.path = path
        self.written_at = 0.0
        self.news: dict[str, Any] = {"host": host()}
        self._write()  # what an earlier attempt has left is old

    def note(self, text: str) -> None:
        super().note(text)
        self._write(doing=text)

    def start(self, label: str, total: int, done: int) -> None:
        super().start(label, total, done)
        self._write(step=done, steps=total, first=done, began=time.time())

    def step(self, done: int) -> None:
        super().step(done)
        if time.monotonic() - self.written_at > 1.0:
            self._write(step=done)

    def row(self, row: dict[str, Any]) -> None:
        super().row(row)
        if isinstance(loss := row.get("train/loss"), float):
            self.news["loss"] = loss

    def _write(self, **news: Any) -> None:
        self.written_at = time.monotonic()
        self.news |= {**news, "at": time.time()}
        with contextlib.suppress(OSError):  # a full disk must not stop a run because of this
            files.write_text(self.path, json.dumps(self.news))


# ---------------------------------------------------------------------------- many runs


class ManyLines:
    """One line per event, and one a minute for all runs.

    names: of runs, by their labels, where others are shorter.
    """

    def __init__(self, total: int, names: Mapping[str, str] | None = None) -> None:
        self.names = names or {}
        self.remaining = Remaining(total)
        self.shown_at = time.monotonic()
        self.doing: set[str] = set()

    def named(self, label: str) -> str:
        return self.names.get(label, label)

    def show(self, running: dict[str, Live], done: int) -> None:
        for live in running.values():
            if live.doing and not live.steps and live.doing not in self.doing:
                self.doing.add(live.doing)
                self.note(live.doing)
        if time.monotonic() - self.shown_at > 60:
            self.shown_at = time.monotonic()
            named = {self.named(label): live for label, live in running.items()}
            self.note(summary(named, done, self.remaining))

    def note(self, text: str) -> None:
        _say(text)

    def close(self) -> None:
        pass


class ManyBars(ManyLines):
    """A bar for all runs, and a line for each that is running."""

    def __init__(self, total: int, names: Mapping[str, str] | None = None) -> None:
        super().__init__(total, names)
        from rich.console import Console
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        self.progress = Progress(
            TextColumn("{task.description}", table_column=Column(no_wrap=True, max_width=36), markup=False),
            BarColumn(bar_width=8),
            TextColumn("{task.fields[text]}", table_column=Column(no_wrap=True, ratio=1), markup=False),
            console=Console(file=terminal(sys.stderr)),
            refresh_per_second=2,
            expand=True,
        )
        self.all = self.progress.add_task("runs", total=total, text=f"0 of {total} runs done")
        self.bars: dict[str, Any] = {}
        self.progress.start()

    def show(self, running: dict[str, Live], done: int) -> None:
        text = f"{done} of {self.remaining.total} runs done"
        if (seconds := self.remaining.seconds(running, done)) is not None:
            text += f", eta {clock(seconds)}"
        self.progress.update(self.all, completed=done, text=text)
        for label, live in running.items():
            if label not in self.bars:
                self.bars[label] = self.progress.add_task(self.named(label), total=None, text="")
            self.progress.update(
                self.bars[label], completed=live.step, total=live.steps or None, text=live.text
            )
        for label in [b for b in self.bars if b not in running]:
            self.progress.remove_task(self.bars.pop(label))

    def note(self, text: str) -> None:
        self.progress.console.print(text, markup=False, highlight=False)

    def close(self) -> None:
        self.progress.stop()


def many(total: int, names: Mapping[str, str] | None = None) -> ManyLines:
    return (ManyBars if sys.stderr.isatty() else ManyLines)(total, names)


# ---------------------------------------------------------------------------- before anything is run

T = TypeVar("T")


def now_and_then(every_s: float = 2.0, *, at_once: bool = True) -> Callable[[str], None]:
    """Prints texts on standard error, each not sooner than so after another. at_once: the first."""
    printed_at = -math.inf if at_once else time.monotonic()

    def show(text: str) -> None:
        nonlocal printed_at
        if time.monotonic() - printed_at >= every_s:
            printed_at = time.monotonic()
            _say(text)

    return show


def tracked(items: Sequence[T], doing: str, every_s: float = 10.0) -> Iterator[T]:
    """The items one by one, with a bar on a terminal, else with a line on standard error now and then."""
    if sys.stderr.isatty():
        from rich.console import Console
        from rich.progress import track

        yield from track(items, doing, console=Console(file=terminal(sys.stderr)), transient=True)
        return
    show = now_and_then(every_s, at_once=False)
    for i, item in enumerate(items):
        show(f"{doing}: {i}/{len(items)}")
        yield item
