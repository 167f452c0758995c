"""How far the runs of a table or figure are, told by the shared folder alone. No scheduler is asked."""

import time
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from physml.queue.planning import Planned
from physml.queue.scheduler import last_words
from physml.run import history
from physml.run.live import Live
from physml.run.perform import existing
from physml.run.spec import RunSpec

STALE = 300.0  # seconds without news after which a run is called silent


@dataclass(frozen=True)
class Seen:
    """One run."""

    spec: RunSpec  # the run
    state: str  # done, diverged, running, stopped, failed, given up, missing or blocked
    host: str | None = None  # that works on it, or did last
    step: int = 0  # steps that are made; 0 where nothing is known
    steps: int = 0  # how many it has
    hours_left: float | None = None  # at the speed since it was begun; None: unknown
    silent_s: float | None = None  # seconds since its last news, where they are many
    reason: str | None = None  # reason of a failure, or of what blocks it

    @property
    def text(self) -> str:
        """Facts known beside the state.

        Example:
            >>> Seen(None, "running", "node1", 50, 200, 1.5).text
            'node1, step 50 of 200, 1 h 30 min left'
        """
        parts = [self.host] if self.host else []
        if self.steps:
            parts.append(f"step {self.step} of {self.steps}")
        if self.hours_left is not None:
            parts.append(f"{duration(self.hours_left)} left")
        if self.silent_s is not None:
            parts.append(f"no news for {duration(self.silent_s / 3600)}")
        return ", ".join(parts + ([self.reason] if self.reason else []))


def duration(hours: float) -> str:
    """In the two largest units.

    Example:
        >>> duration(0.004), duration(0.5), duration(26.0)
        ('14 s', '30 min', '1 d 2 h')
    """
    seconds = round(hours * 3600)
    if seconds < 60:
        return f"{seconds} s"
    minutes = round(seconds / 60)
    if minutes < 60:
        return f"{minutes} min"
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60} min"
    return f"{minutes // 1440} d {minutes % 1440 // 60} h"


def seen(planned: Planned) -> Seen:
    spec, state = planned.spec, str(planned.state)
    if state in ("done", "diverged"):
        return Seen(spec, state)
    if state == "blocked":
        return Seen(spec, state, reason=planned.reason)
    live = Live.read(spec.work_folder)
    host = live.host or history.last_host(spec.work_folder)
    if state == "running":
        left = live.seconds_left
        silent = time.time() - live.at if live.at else 0.0
        hours = None if left is None else left / 3600
        return Seen(spec, state, host, live.step, live.steps, hours, silent if silent > STALE else None)
    reason = None
    if state == "failed":
        record = existing(spec)
        reason = record["reason"] if record else None
    if history.given_up(spec):
        count = history.in_vain(spec.work_folder)
        state, reason = "given up", f"{count} attempts in vain: {reason or last_words(spec)}"
    elif state == "missing" and history.in_vain(spec.work_folder):
        state, reason = "failed", f"ended without a result: {last_words(spec)}"
    if state == "missing":
        return Seen(spec, state)
    return Seen(spec, state, host, live.step, live.steps, reason=reason)


def summary(name: str, runs: Sequence[Seen], planned: Iterable[Planned]) -> str:
    """Counts, and the hours that are left as far as they are known."""
    counts = Counter(run.state for run in runs)
    words = ", ".join(f"{count} {state}" for state, count in counts.most_common())
    waiting = [run.cost.hours for run in planned if run.todo]
    known = [hours for hours in waiting if hours is not None]
    hours = sum(known) + sum(run.hours_left or 0.0 for run in runs if run.state == "running")
    text = f"{name}: {len(runs)} run{'s' if len(runs) != 1 else ''}: {words or 'none'}"
    if waiting or counts["running"]:
        unknown = len(waiting) - len(known)
        left = [f"{duration(hours)} of work left"] if known or counts["running"] else []
        left += [f"{unknown} of unknown time"] if unknown else []
        text += f"; {', and '.join(left)}"
    return text
