"""Steps in a process whose allocator keeps its memory, to be timed beside the same steps in this one.

glibc gives a large block back to the system when it is freed, and the next batch pays for fresh pages again.
The native kernels keep their blocks (`physml.ops.native.pool`), so against code that does not, part of their
lead is the allocator's. In this process nothing goes back, for anyone, and blocks may lie in huge pages, as
theirs do.
"""

import gc
import multiprocessing
import os
import platform
import resource
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from multiprocessing.connection import Connection
from typing import Any
from unittest import mock

from scripts.bench.rounds import Elsewhere
from scripts.bench.workloads import Workload

# One heap for all threads, no block by mmap; never trim it, and ask for huge pages.
TUNABLES = {"arena_max": 1, "mmap_max": 0, "trim_threshold": 1 << 62, "hugetlb": 1}
ENVIRONMENT = {"GLIBC_TUNABLES": ":".join(f"glibc.malloc.{key}={value}" for key, value in TUNABLES.items())}
WARM_UPS = 4  # rounds, at most, until the heap has found its size ...
FEW_FAULTS = 100  # ... and a round takes hardly any fresh page
Refused = dict[str, dict[str, str]]


class _Remote(Elsewhere):
    def __init__(self, connection: "Connection[Any, Any]", name: str) -> None:
        self.connection, self.name = connection, name

    def sample(self, calls: int) -> tuple[float, float]:
        self.connection.send((self.name, calls))
        try:
            answer: tuple[float, float] | str = self.connection.recv()
        except EOFError:
            raise RuntimeError("its process was killed, perhaps for the memory it took") from None
        if isinstance(answer, str):
            raise RuntimeError(answer)
        return answer


def refusal(device: str) -> str | None:
    """Why there is no such process; None if there is."""
    if device != "cpu":
        return "torch keeps a GPU's memory by itself"
    return None if platform.libc_ver()[0] == "glibc" else "only glibc's allocator can be told to keep memory"


@contextmanager
def steps_kept(
    workload: Workload, variants: Sequence[str], device: str, threads: int, inference: bool = False
) -> Iterator[tuple[dict[str, Elsewhere], Refused]]:
    """Same as `variants.steps_of`, in a process of its own that lives as long as the context."""
    if reason := refusal(device):
        yield {}, {v: {"not_run": reason} for v in variants}
        return
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(
        target=_serve, args=(theirs, workload, variants, threads, inference), daemon=True
    )
    with mock.patch.dict(os.environ, ENVIRONMENT):
        process.start()
    theirs.close()
    try:
        names, refused = ours.recv()
        yield {name: _Remote(ours, name) for name in names}, refused
    finally:
        process.kill()
        process.join()


def _serve(
    connection: "Connection[Any, Any]",
    workload: Workload,
    variants: Sequence[str],
    threads: int,
    inference: bool,
) -> None:
    import torch

    from scripts.bench.rounds import not_run, sample
    from scripts.bench.variants import steps_of

    torch.set_num_threads(threads)
    steps, refused = steps_of(workload, variants, "cpu", inference)
    for _ in range(WARM_UPS):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        for name in list(steps):
            try:
                steps[name]()
            except Exception as error:  # one that fails must not take the others with it
                refused[name] = not_run(error)
                del steps[name]
        if resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before < FEW_FAULTS:
            break
    connection.send((list(steps), refused))
    with suppress(EOFError):
        while True:
            name, calls = connection.recv()
            gc.collect()
            try:
                connection.send(sample(steps[name], calls, "cpu"))
            except Exception as error:  # the parent goes on with the next
                connection.send(not_run(error)["not_run"])
