"""One run as a process of its own: `python -m physml.queue.worker SPEC.json`. Started by the launcher."""

import atexit
import contextlib
import hashlib
import json
import logging
import os
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any, NoReturn

from physml.base import doing, files, opened
from physml.base.errors import Busy, PhysmlError
from physml.run import live
from physml.run.perform import perform
from physml.run.progress import FileReporter
from physml.run.spec import RunSpec

STEPS = 6  # after one that warms up
BATCHES = 3  # of each part that is evaluated
BUSY = 3  # exit code where another process works on the run, or has begun to
LONGEST_S = 20.0  # no further step or batch is measured after it, but one


def main(arguments: list[str]) -> int:
    """SPEC.json makes a run, `SPEC.json --probe OUT.json` times a few steps of it; returns the exit code.

    `--sha256` after the file: of its content, which must be that.
    """
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    file, *more = arguments
    content = opened.read_bytes(Path(file))
    if more[:1] == ["--sha256"] and hashlib.sha256(content).hexdigest() != more[1]:
        print(f"error: {file} was changed by another process. Start the command again.", file=sys.stderr)
        return BUSY
    options = json.loads(content)
    spec = RunSpec.from_json(options["spec"])
    report = FileReporter(spec.work_folder / live.NAME)
    try:
        if "--probe" in more:
            kept = Path(more[-1])
            named = None if spec.place.folder.startswith("adhoc/") else spec.config["experiment"]
            key = {"key": kept.stem.rpartition("-")[0], "experiment": named}
            with doing.shown_by(report.note):
                files.write_json(kept, key | probe(spec.config))
            return 0
        record = perform(spec, report, force=options["force"], tables=options["tables"])
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return BUSY if isinstance(error, Busy) else error.exit_code
    return 0 if record["status"] == "finished" else 1


def keep_niceness() -> None:
    """Give the worker's session the nice value of its process: Linux may weigh sessions, not processes.

    Runs of `nice physml ...` have sessions of their own, and would compete as if they were not nice.
    """
    if (nice := os.nice(0)) > 0:
        with contextlib.suppress(OSError):
            Path("/proc/self/autogroup").write_text(f"{nice}\n", encoding="ascii")


def as_process(arguments: list[str]) -> NoReturn:
    """`main` as a whole process, which ends without taking torch apart: that would last a second."""
    keep_niceness()
    code = 1
    try:
        code = main(arguments)
    except BaseException:
        traceback.print_exc()
    shutdown: Callable[[], None] = threading._shutdown  # type: ignore[attr-defined]  # waits for threads
    for end in (shutdown, atexit._run_exitfuncs, sys.stdout.flush, sys.stderr.flush):
        with contextlib.suppress(Exception):
            end()
    os._exit(code)


# ---------------------------------------------------------------------------- the cost of a run


def probe(config: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds per step, core-hours of all steps and evaluations, and memory. Nothing is recorded.

    On a CPU, CPU seconds of all threads count, as other work moves them little; on a GPU the clock.
    A run that a rule may stop takes at most so long. `memory_mib` is the peak of the process; `gpu_mib`, 0 on
    a CPU, that of what torch has reserved.
    """
    import torch

    from physml.ops import backend
    from physml.records.provenance import cpu_facts
    from physml.run.attempt import loaded
    from physml.run.progress import LineReporter
    from physml.run.record import peak_memory_mib, sgemm_gflops
    from physml.training.interrupt import Interrupt

    with backend.running(config["runtime"]["backend"], config["precision"]):
        trainer = loaded(config, None, report=LineReporter(), save=None, stop=Interrupt(), on_row=None)
        on_gpu = trainer.device.startswith("cuda")
        clock = time.perf_counter if on_gpu else time.process_time
        step_s = _step_s(trainer, clock)
        hours = (trainer.total_steps * step_s + _evaluations_s(trainer, clock)) / 3600
    return {
        "ms_per_step": round(1000 * step_s, 3),
        "n_steps": trainer.total_steps,
        "hours": round(hours, 9),
        "memory_mib": round(peak_memory_mib("cpu"), 1),
        "gpu_mib": torch.cuda.max_memory_reserved(trainer.device) / 2**20 if on_gpu else 0,
        "sgemm_gflops": None if on_gpu else round(sgemm_gflops(), 1),
        "microarchitecture": None if on_gpu else cpu_facts().get("microarchitecture"),
    }


def _step_s(trainer: Any, clock: Callable[[], float]) -> float:
    """Mean over different batches, as their lengths may differ."""
    batches = _endless(lambda: trainer.train_batches(_stream()))

    def step() -> None:
        trainer._step(next(batches).to(trainer.device))
        float(trainer.loss_sum)  # waits for the device

    return _mean_s(step, STEPS, clock)


def _evaluations_s(trainer: Any, clock: Callable[[], float]) -> float:
    """All evaluations of a run, those in training and the final ones."""
    keys, task = trainer.keys, trainer.task
    epochs = max(1, -(-trainer.total_steps // max(trainer.steps_per_epoch, 1)))
    valid = -(-epochs // keys["eval_every"])  # the last epoch always
    test = 0
    if trainer.scores_test:
        every = keys["test_every"]
        within = valid if trainer.selector.needs_test else epochs // every if every else 0
        last_and_best = 0 if within == valid else 2
        test = within + 2 * len(task.perturbations) + last_and_best
    parts = {"valid": valid, "test": test}
    return sum(times * _part_s(trainer, part, clock) for part, times in parts.items() if times)


def _part_s(trainer: Any, part: str, clock: Callable[[], float]) -> float:
    from physml.training.evaluate import evaluate

    def all_batches() -> Iterator[Any]:
        return trainer.task.batches(part, trainer.keys["eval_batch_size"], _stream())

    n = sum(1 for _ in all_batches())
    batches = _endless(all_batches)
    if not n:
        return 0.0
    return n * _mean_s(
        lambda: evaluate(trainer.net, trainer.task, islice(batches, 1), trainer.device),
        min(n, BATCHES),
        clock,
    )


def _mean_s(work: Callable[[], Any], times: int, clock: Callable[[], float]) -> float:
    """Mean of so many times after the first, as far as they fit into LONGEST_S."""
    work()
    began, first = time.monotonic(), clock()
    done = 0
    while done < times and (not done or time.monotonic() - began < LONGEST_S):
        work()
        done += 1
    return (clock() - first) / done


def _endless(batches: Callable[[], Iterator[Any]]) -> Iterator[Any]:
    while True:
        yield from batches()


def _stream() -> Any:
    import torch

    return torch.Generator().manual_seed(0)


if __name__ == "__main__":
    as_process(sys.argv[1:])
