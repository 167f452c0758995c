"""Timing in rounds: everyone runs in turn, again and again, so that a noisy minute hits all alike."""

import gc
import math
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Mapping, Sequence
from typing import Any, TypeVar

import numpy as np
import torch

Name = TypeVar("Name", bound=Hashable)
Call = Callable[[], object]
AT_LEAST = 3  # samples of anyone, however slow
SAMPLE_S = 0.02  # a sample is the mean over as many calls as fill this
SLOW_S = 1.0  # the first call of anyone slower counts as a sample; of others it warms up and no more


def facts(samples: Sequence[tuple[float, float]], calls: int) -> dict[str, Any]:
    """Samples in numbers: `ms` of the processor (CPU time) or the GPU (events), `wall_ms` of the clock."""
    ms, wall_ms = zip(*samples, strict=True)
    low, median, high = np.percentile(ms, (25, 50, 75))
    return {
        "ms": _short(median),
        "ms_q25": _short(low),
        "ms_q75": _short(high),
        "ms_min": _short(min(ms)),
        "wall_ms": _short(float(np.median(wall_ms))),
        "n": len(ms),
        "calls": calls,
    }


def _short(value: float) -> float:
    """Five significant digits: more are noise."""
    return float(f"{value:.5g}")


class Elsewhere(ABC):
    """A step in another process, which times itself."""

    @abstractmethod
    def sample(self, calls: int) -> tuple[float, float]:
        """Milliseconds per call, as returned by the function `sample`."""


def not_run(error: Exception) -> dict[str, str]:
    """Why something did not run, in one line."""
    lines = str(error).strip().splitlines()
    return {"not_run": lines[0] if lines else type(error).__name__}


def sample(step: Call | Elsewhere, calls: int, device: str) -> tuple[float, float]:
    """Milliseconds per call: of the device, and of the wall clock."""
    if isinstance(step, Elsewhere):
        return step.sample(calls)
    if device.startswith("cuda"):
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize(device)
        wall = time.perf_counter()
        begin.record()
        for _ in range(calls):
            step()
        end.record()
        torch.cuda.synchronize(device)
        wall = time.perf_counter() - wall
        return begin.elapsed_time(end) / calls, 1000 * wall / calls
    wall, processor = time.perf_counter(), time.process_time()
    for _ in range(calls):
        step()
    processor, wall = time.process_time() - processor, time.perf_counter() - wall
    return 1000 * processor / calls, 1000 * wall / calls


def plan(costs: Mapping[Name, float], rounds: int, budget_s: float) -> dict[Name, int]:
    """How many samples of `costs` seconds each: up to `rounds`, the slower sharing what the faster leave.

    Example:
        >>> plan({"fast": 0.02, "slow": 7.0}, rounds=9, budget_s=30.0)
        {'fast': 9, 'slow': 4}
    """
    counts, left = dict.fromkeys(costs, 0), budget_s
    for k, name in enumerate(sorted(costs, key=lambda name: costs[name])):
        share = left / (len(costs) - k)
        counts[name] = min(rounds, max(AT_LEAST, int(share / max(costs[name], 1e-9))))
        left = max(0.0, left - counts[name] * costs[name])
    return counts


def interleave(
    steps: Mapping[Name, Call | Elsewhere],
    rounds: int,
    budget_s: float,
    device: str = "cpu",
    settle: bool = False,
) -> dict[Name, dict[str, Any]]:
    """Facts of every step's samples, or why it did not run. Whoever gets fewer is spread over the rounds.

    `settle`: a call that is not timed goes before every sample.
    """
    refused: dict[Name, dict[str, str]] = {}
    samples: dict[Name, list[tuple[float, float]]] = {}
    calls: dict[Name, int] = {}
    costs: dict[Name, float] = {}
    for name, step in steps.items():
        try:
            first = sample(step, 1, device)
        except Exception as error:  # one that fails must not take the others with it
            refused[name] = not_run(error)
            continue
        busy, once = first[0] / 1000, first[1] / 1000
        calls[name] = max(1, math.ceil(SAMPLE_S / max(busy, 1e-6)))
        costs[name] = once * calls[name]
        samples[name] = [first] if busy > SLOW_S else []
    counts = {name: n - len(samples[name]) for name, n in plan(costs, rounds, budget_s).items()}
    names = list(counts)
    n_rounds = max(counts.values(), default=0)
    for k in range(n_rounds):
        gc.collect()  # so that less of it falls into a sample
        for name in names[k % len(names) :] + names[: k % len(names)]:
            if (k + 1) * counts[name] // n_rounds > k * counts[name] // n_rounds:
                if settle:
                    sample(steps[name], 1, device)
                samples[name].append(sample(steps[name], calls[name], device))
    return {name: refused.get(name) or facts(samples[name], calls[name]) for name in steps}
