"""Plans, ends of runs and aligned lists as plain text, for people and for pipes."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from physml.execution import planning, scheduler
from physml.paths import display_path


def describe(made: dict[str, Any]) -> str:
    """A run's end for a person: what came out, and where the files are."""
    path = Path(made["path"])
    lines = [f"{made['status']}{' already' if made.get('skipped') else ''}: {display_path(path)}"]
    if made["reason"]:
        lines.append(f"  reason: {made['reason']}")
    best = (made["metrics"] or {}).get("best")
    if best:
        numbers = "  ".join(f"{k} {v:.4g}" for k, v in best["test"].items() if v is not None)
        lines.append(f"  test, {made['selected']['rule']} (epoch {made['selected']['epoch']}): {numbers}")
    if made.get("skipped"):
        lines.append("  --force trains it again")
    return "\n".join(lines)


def columns(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Aligned plain text, nothing cut off, for people and for pipes."""
    lines = [header, *rows]
    widths = [max(len(line[i]) for line in lines) for i in range(len(header))]
    return "\n".join("  ".join(map(str.ljust, line, widths)).rstrip() for line in lines)


def show_plan(planned: Sequence[planning.Planned]) -> None:
    rows = []
    for one in planned:
        ms = "" if one.ms_per_step is None else f"{one.ms_per_step:.1f}"
        hours = "" if one.hours is None else f"{one.hours:.3f}"
        rows.append((one.spec.label, ms, hours, one.said))
    print(columns(("run", "ms per step", "hours", "state"), rows))
    todo = [p for p in planned if p.todo]
    known = [p.hours for p in todo if p.hours is not None]
    unknown = f", {len(todo) - len(known)} of unknown time" if len(known) < len(todo) else ""
    print(f"{len(planned)} runs, {len(todo)} to do: {sum(known):.2f} hours one after another{unknown}")


def show_outcomes(planned: Sequence[planning.Planned], outcome: scheduler.Outcome) -> None:
    words = {0: "finished", 75: "stopped, start again to go on"}
    for one in planned:
        label = one.spec.label
        if label in outcome.codes:
            print(f"{label}: {words.get(outcome.codes[label], f'exit {outcome.codes[label]}')}")
        else:
            running = "running" if label in outcome.elsewhere else one.said
            print(f"{label}: {'not started' if label in outcome.left else running}")
