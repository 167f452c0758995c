"""A command whose runs are made elsewhere: it submits pilots once, and watches the shared folder."""

import contextlib
import time
from collections.abc import Callable, Iterator, Sequence
from contextvars import ContextVar
from dataclasses import replace

from physml.base.errors import ConfigError, Preempted
from physml.base.text import digits
from physml.queue.engines.job import Engine, Job, Submission, job_of
from physml.queue.planning import Planned
from physml.queue.scheduler import Batch, Outcome, last_words, made_by
from physml.run import history
from physml.run.live import Live
from physml.run.progress import many
from physml.run.spec import RunSpec
from physml.run.state import state_of

LOOK = 5.0  # seconds between two looks at the folder
_SESSION: ContextVar["Session | None"] = ContextVar("session", default=None)


def current() -> "Session | None":
    """The session of the command that runs; None where it makes its runs itself."""
    return _SESSION.get()


class Session:
    """One command on an engine.

    Args:
        command: The arguments of physml with which a pilot makes the same runs.
        detach: Leave once they are submitted.
    """

    def __init__(self, engine: Engine, command: Sequence[str], detach: bool = False) -> None:
        self.engine, self.command, self.detach = engine, tuple(command), detach
        self.submission: Submission | None = None

    @contextlib.contextmanager
    def active(self) -> Iterator[None]:
        token = _SESSION.set(self)
        try:
            with made_by(self.make):
                yield
        finally:
            _SESSION.reset(token)
            if self.submission:
                self.submission.close()

    def describe(self, planned: Sequence[Planned]) -> str:
        """A text that shows what would be submitted for these runs, and how they are packed."""
        todo = [run for run in planned if run.todo]
        blocked = [run for run in planned if run.state == "blocked"]
        if not todo and blocked:
            return (
                f"Nothing would be submitted: {len(blocked)} runs are blocked. Without that it would be:\n"
                f"{self.engine.describe(self._job(blocked))}"
            )
        if not todo:
            return f"Nothing is to do: {len(planned)} of {len(planned)} runs are there."
        job = self._job(todo)
        each = f"{job.cpus} core(s)" + (f", {job.gpus} GPU(s)" if job.gpus else "")
        hours = "unknown" if job.total_hours is None else digits(job.total_hours, 2)
        packing = (
            f"{job.runs} runs, {hours} hours in all, by {job.workers} pilot(s) of {each}, "
            f"{digits(job.memory_gib, 3)} GiB and {digits(job.hours, 2)} h: "
            f"about {digits(job.runs / job.workers, 3)} runs each"
        )
        return f"{self.engine.describe(job)}\n{packing}"

    def make(self, batch: Batch) -> Outcome:
        """Wait until pilots have made the runs; the first call submits them.

        Raises:
            Preempted: Ctrl-C, or --detach.
        """
        if self.submission is None or not self.submission.alive():
            if self.submission:
                self.submission.close()
            self.submission = self.engine.submit(self._job(batch.todo))
            print(self.submission.text, flush=True)
        if self.detach:
            raise Detached("submitted; physml status shows how far the runs are.")
        try:
            return self._watched([run.spec for run in batch.todo], self.submission, batch.ended)
        except KeyboardInterrupt as error:
            if self.submission.attached:
                raise Preempted("the pilots are stopped; the same command goes on.") from error
            raise Preempted(f"the runs go on: {self.submission.text}.") from error

    def _job(self, todo: Sequence[Planned]) -> Job:
        return replace(job_of(self.engine.settings, self.command, todo), detach=self.detach)

    def _watched(
        self, specs: list[RunSpec], submission: Submission, ended: Callable[[RunSpec], str] | None
    ) -> Outcome:
        outcome, left, view = Outcome(), {spec.label: spec for spec in specs}, many(len(specs))
        try:
            while left:
                alive = submission.alive()  # before the states: a run may end between the two
                running = {}
                for label, spec in list(left.items()):
                    state = state_of(spec)
                    if state == "running":
                        running[label] = Live.read(spec.work_folder)
                    ends = state in ("done", "diverged") or (state == "failed" and not alive)
                    hopeless = state in ("failed", "stopped", "missing") and history.given_up(spec)
                    if ends or hopeless:
                        del left[label]
                        outcome.codes[label] = 0 if state == "done" else 1
                        more = f"; {ended(spec)}" if ended else ""
                        words = f"given up: {last_words(spec)}" if hopeless else state
                        view.note(f"{label}: {'finished' if state == 'done' else words}{more}")
                view.show(running, len(outcome.codes))
                if not alive:
                    break
                if left:
                    time.sleep(LOOK)
        finally:
            view.close()
        outcome.left = list(left)
        return outcome


class Detached(Preempted):
    """The pilots were submitted, and nobody waits for them."""

    exit_code = 0


def engine_of(name: str, changes: Sequence[str]) -> Engine:
    """`slurm`, `slurm/<site>` or `ray`.

    Raises:
        ConfigError: There is no such engine.
    """
    kind, _, site = name.partition("/")
    if kind == "slurm":
        from physml.queue.engines.slurm import Slurm

        return Slurm(site or None, changes)
    if kind == "ray" and not site:
        from physml.queue.engines.ray import Ray

        return Ray(changes)
    raise ConfigError(f"there is no engine {name}. It is local, pilot, slurm, slurm/SITE or ray.")
