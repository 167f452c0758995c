"""Plans, ends of runs and aligned lists as plain text, for people and for pipes."""

import codecs
import errno
import io
import math
import os
import shlex
import shutil
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base.paths import display_path, work_root
from physml.base.text import digits, plain, shown, terminal, wrapped
from physml.training.interrupt import close_terminal

if TYPE_CHECKING:
    from physml.queue.planning import Planned
    from physml.queue.requested import RequestedRuns

PIPE = 400  # columns of a table in a pipe
NARROW = 40  # columns that text beside others must have
_ASCII = {"–": "-", "±": "+-", "×": "x", "…": ".", "†": "+",
    "✓": "=", "≈": "~", "△": ">", "▽": "<", "✕": "!", "·": ".",
}  # fmt: skip


def write_what_the_terminal_can(arguments: Sequence[str] = ()) -> None:
    """Characters that the output's encoding lacks are written in others instead of ending the command.

    arguments: words of the command line; where they have a password in an address, no address shows one.
    """
    codecs.register_error("physml", _substitute)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if type(stream) is io.TextIOWrapper:
            if stream.isatty():
                raw = _Terminal(stream.fileno(), "wb", closefd=False)
                stream = io.TextIOWrapper(io.BufferedWriter(raw), stream.encoding, line_buffering=True)
            stream.reconfigure(errors="physml")
            setattr(sys, name, _Plain(stream))
        if isinstance(stream := getattr(sys, name), _Plain):
            stream.hides = any(shown(word) != word for word in arguments)


class _Terminal(io.FileIO):
    """A terminal: once it is closed, what is written goes nowhere; SIGHUP may come later or be ignored."""

    def write(self, data: Any, /) -> int:
        try:
            return super().write(data)
        except OSError as error:
            if error.errno != errno.EIO:
                raise
        close_terminal()
        return super().write(data)


class _Plain(io.TextIOWrapper):
    """A stream that writes texts of others as `plain` makes them; `raw_text` is the stream itself."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        super().__init__(
            stream.buffer,
            encoding=stream.encoding,
            errors=stream.errors,
            line_buffering=stream.line_buffering,
            write_through=True,  # so that nothing is left when `raw_text` writes
        )
        self.raw_text = stream
        self.hides = False  # passwords in addresses

    def write(self, text: str, /) -> int:
        super().write(plain(shown(text) if self.hides else text))
        return len(text)

    def close(self) -> None:  # the other stream may still be needed
        self.flush()


def _substitute(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    lacking, after = error.object[error.start : error.end], error.object[error.end :]
    joined = lacking.endswith("±") and after.startswith(" ")  # 1 +-2 is as wide as 1 ± 2: columns stay
    return "".join(map(_in_ascii, lacking)), error.end + joined


def _in_ascii(letter: str) -> str:
    r"""A letter without its accent, a Greek one by its name, any other as Python writes it: `\u2800`."""
    import unicodedata

    *_, name = unicodedata.name(letter, "").split(" LETTER ")
    greek = name.lower() if letter.islower() else name.capitalize()
    bare = unicodedata.normalize("NFKD", letter).encode("ascii", "ignore").decode()
    return _ASCII.get(letter) or bare or (greek if greek.isalpha() else ascii(letter)[1:-1])


# ---------------------------------------------------------------------------- aligned text


@dataclass(frozen=True)
class Line:
    """Cells of one line. below: lines under the last cell. whole: it is not wrapped."""

    cells: tuple[str, ...]
    below: tuple[str, ...] = ()
    whole: bool = False


def aligned(lines: Sequence[Line | str], width: int | None = None) -> str:
    """Columns two spaces apart, nothing cut off; text alone is a heading.

    width: at which the last cells are wrapped, each continued below itself, or all of it below its line where
        there is no room; None: never.
    """
    cells = [line.cells[:-1] for line in lines if isinstance(line, Line)]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    before = sum(widths) + 2 * len(widths)
    longest = max((len(line.cells[-1]) for line in lines if isinstance(line, Line)), default=0)
    under = width is not None and width - before < NARROW < longest
    before = 4 if under else before
    room = None if width is None else max(width - before, NARROW)
    rows: list[str] = []
    for line in lines:
        if isinstance(line, str):
            rows += _wrapped(line, width, "    ")
            continue
        *firsts, last = line.cells
        first, *more = _wrapped(last, None if line.whole else room)
        more += [part for below in line.below for part in _wrapped(below, room, "    ")]
        head = "".join(f"{cell:<{n}}  " for cell, n in zip(firsts, widths, strict=True))
        first, more = ("", [first, *more]) if under and first else (first, more)
        rows += [head + first, *(" " * before + part for part in more)]
    return "\n".join(map(str.rstrip, rows))


def one_line(rows: Sequence[tuple[str, ...]]) -> str:
    """Aligned columns, one line a row: cut to the width of a terminal, whole in a pipe."""
    whole = aligned([Line(row) for row in rows])
    if not sys.stdout.isatty():
        return whole
    width = terminal_width(80)
    return "\n".join(
        line if len(line) <= width else f"{line[: width - 2].rstrip()} …" for line in whole.splitlines()
    )


def print_document(document: Any, *, long: bool, rules: bool) -> None:
    """A table or comparison; a row is never broken in a pipe, where `grep` reads, unless COLUMNS says so."""
    from rich.console import Console

    from physml.report.text.screen import Screen

    width = None if sys.stdout.isatty() or "COLUMNS" in os.environ else PIPE
    Console(file=terminal(sys.stdout), width=width).print(Screen(document, long, rules))


def _wrapped(text: str, room: int | None, hanging: str = "") -> list[str]:
    """Lines of at most `room` characters; those after the first stand further in than it by `hanging`."""
    if room is None or len(text) <= room:
        return [text]
    return wrapped(text, room, hanging)


def terminal_width(otherwise: int) -> int:
    return shutil.get_terminal_size((otherwise, 24)).columns


# ---------------------------------------------------------------------------- runs


def describe(record: dict[str, Any], typed: "Sequence[str]" = ()) -> str:
    """A run's end for a person: what came out, with the settings that were typed, and where the files are."""
    path = Path(record["path"])
    lines = [f"{record['status']}{' already' if record.get('skipped') else ''}: {display_path(path)}"]
    if record["reason"]:
        lines.append(f"  reason: {record['reason']}")
    best = (record["metrics"] or {}).get("best")
    if best:
        part = "test" if best["test"] else "valid"  # runtime.score_test=false asks for none on test
        numbers = "  ".join(f"{k} {v:.4g}" for k, v in best[part].items() if v is not None)
        rule = f"{part}, {record['selected']['rule']} (epoch {record['selected']['epoch']})"
        lines.append(f"  {rule}: {numbers}")
    if typed:
        lines.append(f"  with {shlex.join(typed)}")
    lines += _files(record, path)
    if record.get("skipped"):
        lines.append("  --force trains it again")
    return "\n".join(lines)


def _files(record: dict[str, Any], path: Path) -> list[str]:
    """Lines that name the files of a run, as far as they exist."""
    from physml.records.record import below_runs

    lines = []
    if record.get("curve") and (curve := path.with_name(Path(record["curve"]).name)).exists():
        lines.append(f"  curve: {display_path(curve)}; drawn by physml plot {display_path(path)}")
    work = work_root().joinpath(*below_runs(path), path.stem)
    if (picture := work / "curves.png").exists():
        lines.append(f"  picture: {display_path(picture)}")
    if record.get("weights"):
        lines.append(f"  weights: {display_path(work_root() / record['weights'])}; physml.load reads them")
    if record.get("profile"):
        lines.append(f"  profile: {display_path(work_root() / record['profile'])}; the trace lies beside it")
    offline = map(display_path, sorted(work.glob("wandb/offline-run-*")))
    return [*lines, *(f"  W&B, offline: {folder}; wandb sync sends it" for folder in offline)]


def show_plan(planned: "Sequence[Planned]", names: Mapping[str, str] | None = None) -> None:
    """A line for each setting: its runs, and what each and all that are to do cost.

    Settings without a run come first, and those that cost least first among them. Those of which all runs are
    done are counted. names: of settings, where others are shorter.
    """
    from physml.queue.engines import session
    from physml.queue.planning import on_cpu

    settings: dict[str, list[Planned]] = {}
    for run in planned:
        settings.setdefault(run.spec.setting, []).append(run)
    names = names or {}
    left = {name: runs for name, runs in settings.items() if any(run.state != "done" for run in runs)}
    rows = [_setting(names.get(name, name), runs) for name, runs in left.items()]
    rows.sort(key=lambda row: row[0])
    devices = {on_cpu(run.spec) for run in planned}
    unit = "core-" if devices == {True} else "GPU-" if devices == {False} else ""
    lines = [Line(("setting", "to do", "ms/step", f"{unit or 'core- or GPU-'}h each", "all", "state"))]
    if rows:
        print(aligned([*lines, *(line for _, line in rows)], terminal_width(200)))
    if done := len(settings) - len(left):
        print(f"All runs of {done} {'other ' if rows else ''}setting{'s' if done != 1 else ''} are done.")
    counted = [run for run in planned if run.counts]
    known = [run.cost.hours for run in counted if run.cost.hours is not None]
    unknown = len(counted) - len(known)
    hours = [f"{sum(known):.2f} {unit}hours"] if known or not unknown else []
    hours += [f"{unknown} of unknown time (--plan --probe measures)"] if unknown else []
    useless = sum(run.todo and not run.counts for run in planned)
    more = f"; {useless} more would not count" if useless else ""
    runs = f"{len(planned)} run{'s' if len(planned) != 1 else ''}"
    print(f"{runs}, {len(counted)} to do: {', '.join(hours)}{more}")
    for line in _blocked_lines(planned):
        print(line)
    if elsewhere := session.current():
        print(f"\n{elsewhere.describe(planned)}")


def _blocked_lines(planned: "Sequence[Planned]") -> Iterator[str]:
    """Runs that cannot be made here: how many, for each reason, and how many are done."""
    reasons = Counter(run.reason or "no reason recorded" for run in planned if run.state == "blocked")
    if reasons:
        done = sum(run.state in ("done", "diverged") for run in planned)
        yield f"{done} done, {sum(reasons.values())} blocked:"
        yield from (f"  {n} by {reason}" for reason, n in reasons.most_common())


def _setting(name: str, runs: "list[Planned]") -> tuple[tuple[bool, bool, float], Line]:
    """Runs that differ in split and seed alone: a key that sorts what brings most for least to the front, and
    their line.
    """
    todo = [run for run in runs if run.todo]
    cost = next((run.cost for run in todo or runs if run.cost.hours is not None), runs[0].cost)
    begun = any(run.state in ("done", "diverged", "running") for run in runs)
    order = not any(run.counts for run in runs), begun, math.inf if cost.hours is None else cost.hours
    ms = "" if cost.ms_per_step is None else f"{cost.ms_per_step:.1f}"
    hours = ("", "")
    if cost.hours is not None:
        hours = (digits(cost.hours, 3), digits(len(todo) * cost.hours, 3) if todo else "")
    said = Counter(run.state if run.state == "blocked" else run.said for run in runs)
    states = ", ".join(f"{n} {words}" if len(said) > 1 else words for words, n in said.items())
    return order, Line((name, f"{len(todo)} of {len(runs)}", ms, *hours, states))


def show_requested(requested: "RequestedRuns", *, probe: bool) -> int:
    """The plan of a table or figure; exit code 2 where a row cannot be made."""
    show_plan(list(requested.plan(probe=probe).values()))
    return requested.tell_broken()
