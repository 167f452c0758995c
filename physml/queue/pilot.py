"""A pilot: one of several processes, on one machine or many, that make the same runs in one shared folder.

It needs nothing but the folder: records say what is done, locks what is under way, checkpoints where to go
on. So a pilot looks at a run's state again before it starts it, comes back to the runs that others hold, and
takes over those that a dead machine has left. The last pilot ends when nothing is left to do.
"""

import contextlib
import os
import random
import time

from physml.queue.planning import Planned
from physml.queue.scheduler import Batch, Outcome, Scheduler, last_words, made_by
from physml.run import history
from physml.run.resources import Slot
from physml.run.spec import RunSpec
from physml.run.state import state_of

LOOK = 5.0  # seconds between two looks at runs that others hold
BEFORE_END = 120.0  # seconds before the end of a job in which no run is started


def sharing(*, wait: bool = True) -> contextlib.AbstractContextManager[None]:
    """Inside, runs are made by a pilot. wait: until the runs that others hold have ended."""
    return made_by(lambda batch: Pilot(batch, wait).work())


def hours_left() -> float | None:
    """Until the job of a cluster ends, less a while in which starting a run is of no use; None: unknown."""
    try:
        end = float(os.environ["SLURM_JOB_END_TIME"])
    except (KeyError, ValueError):
        return None
    return max((end - BEFORE_END - time.time()) / 3600, 1e-9)


class Pilot(Scheduler):
    """A scheduler that shares its runs with others."""

    def __init__(self, batch: Batch, wait: bool) -> None:
        super().__init__(batch)
        self.wait = wait
        self.held: list[Planned] = []  # by others
        self.looked_at = time.monotonic()
        # Not all pilots look for work in the same place.
        begin = random.randrange(len(self.todo) or 1)
        self.todo = self.todo[begin:] + self.todo[:begin]
        if (left := hours_left()) is not None:
            end = time.monotonic() + left * 3600
            self.deadline = end if self.deadline is None else min(self.deadline, end)

    def _more(self) -> bool:
        return super()._more() or (bool(self.held) and self.wait and not self.stopping)

    def work(self) -> Outcome:
        outcome = super().work()
        held = [run.spec.label for run in self.held]
        if self.stopping:  # nobody knows whether the others will end them: this pilot is to be started again
            outcome.left += held
        else:
            outcome.elsewhere += held
        return outcome

    def _start(self) -> None:
        if time.monotonic() - self.looked_at > LOOK:
            self.looked_at = time.monotonic()
            self.todo += self.held
            self.held.clear()
        super()._start()

    def _admitted(self, run: Planned) -> bool:
        """True if a run is still missing: others may have made it since, or may be working on it."""
        spec = run.spec
        state = state_of(spec)
        if state in ("done", "diverged"):
            self.outcome.elsewhere.append(spec.label)
            self.view.note(f"{spec.label}: {state} by another process")
            return False
        if state == "running":
            self._leave(run)
            return False
        if history.given_up(spec):
            self.outcome.codes[spec.label] = 1
            why = f"given up after {history.in_vain(spec.work_folder)} attempts: {last_words(spec)}"
            self.view.note(f"{spec.label}: {why}. physml retry starts it anew")
            return False
        return True

    def _leave(self, run: Planned) -> None:
        self.held.append(run)

    def _start_one(self, run: Planned, slot: Slot) -> None:
        if self._admitted(run):
            super()._start_one(run, slot)

    def _ended(self, spec: RunSpec, code: int) -> bool:
        """False where another process was quicker: its run is not our failure, unless it diverged."""
        if code not in (0, 75) and state_of(spec) in ("done", "running"):
            self._leave(Planned(spec, "running"))
            return False
        return super()._ended(spec, code)
