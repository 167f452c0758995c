"""A profile of a few training steps, by `runtime.profile=true`: a trace, and one page on what costs most.

torch's profiler watches the steps and changes no number. Both files lie in the run's work folder.
"""

import logging
import os
import time
from pathlib import Path
from typing import Any

from physml.base import files
from physml.training.reporter import Reporter

log = logging.getLogger("physml")
TRACE, SUMMARY = "profile.trace.json.gz", "profile.txt"
SKIPPED = 5  # steps of warm-up
STEPS = 10  # at most
LONGEST_S = 10.0  # no further step begins after it, as long sequences have millions of operations
ROWS = 25
HEADS = ("operation", "calls", "ms/step", "share")


class ProfilingReporter:
    """Passes all reports on, and profiles a few of the steps that they count.

    `start`, `step` and `close` switch the profiler on and off, so the loop need not know of it.
    """

    def __init__(self, report: Reporter, folder: Path, device: str) -> None:
        self.report, self.folder, self.on_gpu = report, folder, device.startswith("cuda")
        self.profiler: Any = None
        self.first = 0  # the step before the first one that is profiled
        self.done = self.rows = 0  # steps and evaluations so far, of those that are profiled
        self.began = 0.0
        self.ended = False
        self.written: str | None = None  # the name of the summary

    def note(self, text: str) -> None:
        self.report.note(text)

    def start(self, label: str, total: int, done: int) -> None:
        self.report.start(label, total, done)
        if not done:
            for name in (TRACE, SUMMARY):  # of an earlier run
                (self.folder / name).unlink(missing_ok=True)
        self.first = done + min(SKIPPED, (total - done) // 2)
        if done == self.first < total:
            self._begin()

    def step(self, done: int) -> None:
        self.report.step(done)
        if self.profiler is not None:
            self.done += 1
            if self.done >= STEPS or time.monotonic() - self.began > LONGEST_S:
                self.end()
        elif done == self.first and not self.ended:
            self._begin()

    def row(self, row: dict[str, Any]) -> None:
        self.report.row(row)
        self.rows += self.profiler is not None

    def close(self, status: str) -> None:
        self.end()
        self.report.close(status)

    def end(self) -> None:
        """Write both files, where a step was profiled. Training goes on where they cannot be written."""
        if self.profiler is None:
            return
        profiler, self.profiler, self.ended = self.profiler, None, True
        profiler.stop()
        if not self.done:
            return
        try:
            with files.writing(self.folder / TRACE) as temporary:
                packed = temporary.with_name(f"{temporary.name}.gz")  # by this ending torch packs it
                profiler.export_chrome_trace(str(packed))
                packed.replace(temporary)
            files.write_text(self.folder / SUMMARY, self._summary(profiler.key_averages()))
            self.written = SUMMARY
        except OSError as error:
            log.warning("the profile could not be written: %s.", error.strerror or error)

    def _begin(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes of its inner life
        gpu = [ProfilerActivity.CUDA] if self.on_gpu else []
        self.profiler = profile(activities=[ProfilerActivity.CPU, *gpu])
        self.profiler.start()
        self.began = time.monotonic()

    def _summary(self, events: Any) -> str:
        key = "self_device_time_total" if self.on_gpu else "self_cpu_time_total"
        used = {event.key: (float(getattr(event, key)), int(event.count)) for event in events}
        between = f"; with them {self.rows} evaluations" if self.rows else ""
        where = "the GPU" if self.on_gpu else "the CPU"
        head = (
            f"Training steps: {self.done}, from step {self.first + 1} on{between}.\n"
            f"Time on {where} within each operation, without those that it calls.\n"
            f"The trace: {TRACE}, for https://ui.perfetto.dev.\n"
        )
        return f"{head}\n{costliest(used, self.done)}"


def costliest(used: dict[str, tuple[float, int]], n_steps: int) -> str:
    """The operations that take longest, one to a line.

    Args:
        used: operation -> its microseconds, and its calls.
        n_steps: over which they were summed.

    Example:
        >>> print(costliest({"aten::mm": (3000.0, 4), "aten::add": (1000.0, 2)}, 2))
        operation                                          calls    ms/step    share
        aten::mm                                               4      1.500    75.0%
        aten::add                                              2      0.500    25.0%
        2 operations                                           6      2.000   100.0%
        <BLANKLINE>
    """
    times, counts = zip(*used.values(), strict=True) if used else ((), ())
    whole = sum(times) or 1.0
    ranked = sorted(used.items(), key=lambda entry: (-entry[1][0], entry[0]))[:ROWS]
    total = (f"{len(used)} operations", (sum(times), sum(counts)))
    lines = [f"{HEADS[0]:44}{HEADS[1]:>12}{HEADS[2]:>11}{HEADS[3]:>9}"]
    for name, (us, calls) in (*ranked, total):
        lines.append(f"{name[:43]:44}{calls:12,}{us / 1000 / n_steps:11.3f}{us / whole:9.1%}")
    return "\n".join(lines) + "\n"
