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
ROWS, WIDEST = 25, 40  # of the page, and of the name of an operation


class ProfilingReporter:
    """Passes all reports on, and switches the profiler on and off by the steps that they count."""

    def __init__(self, report: Reporter, folder: Path, device: str) -> None:
        self.report, self.folder, self.on_gpu = report, folder, device.startswith("cuda")
        self.note, self.row, self.close = report.note, report.row, report.close
        self.profiler: Any = None
        self.first = 0  # the step before the first one that is profiled
        self.done = 0  # steps so far, of those that are profiled
        self.began = 0.0
        self.written: str | None = None  # the name of the summary

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
        elif done == self.first:
            self._begin()

    def _begin(self) -> None:
        from torch.profiler import ProfilerActivity, profile

        os.environ.setdefault("KINETO_LOG_LEVEL", "99")  # else it writes of its inner life
        gpu = [ProfilerActivity.CUDA] if self.on_gpu else []
        self.profiler = profile(activities=[ProfilerActivity.CPU, *gpu])
        self.profiler.start()
        self.began = time.monotonic()

    def end(self) -> None:
        """Write both files, where a step was profiled. Training goes on where they cannot be written."""
        if self.profiler is None:
            return
        profiler, self.profiler = self.profiler, None
        profiler.stop()
        if not self.done:
            return
        key = f"self_{'device' if self.on_gpu else 'cpu'}_time_total"
        try:
            with files.writing(self.folder / TRACE) as temporary:
                packed = temporary.with_name(f"{temporary.name}.gz")  # by this ending torch packs it
                profiler.export_chrome_trace(str(packed))
                packed.replace(temporary)
            table = profiler.key_averages().table(key, ROWS, max_name_column_width=WIDEST)
            head = f"Training steps: {self.done}, from step {self.first + 1} on. The trace: {TRACE}.\n"
            files.write_text(self.folder / SUMMARY, head + table)
            self.written = SUMMARY
        except OSError as error:
            log.warning("the profile could not be written: %s.", error.strerror or error)
