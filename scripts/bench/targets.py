"""Targets of the kernels, and whether they are reached. Ratios within one interleaved run, 1 CPU thread."""

import operator
from collections.abc import Mapping
from typing import Any

Result = Mapping[str, Any]  # one workload of the results file
Goals = dict[str, float]  # kind of target -> the ratio to reach
WORDS = {
    "loop": "loop : {fast}",
    "lstm": "LSTM : {fast}",
    "lstm_warm": "LSTM : {fast}, warm",
    "share": "GEMM, torch : {fast}",
    "share_best": "GEMM, best : {fast}",
    "torch": "loop : torch",
    "threads": "1 : 2 threads",
    "memory_loop": "memory : loop's",
    "memory_lstm": "memory : LSTM's",
}
SIGNS = {"memory_loop": "≤", "memory_lstm": "<"}  # of the others: ≥
COMPARE = {"≤": operator.le, "<": operator.lt, "≥": operator.ge}

CPU: dict[str, Goals] = {
    "cornn-psmnist-128": {"loop": 2.0, "lstm": 3.0, "share": 0.80, "torch": 1.1, "threads": 1.7},
    "cornn-psmnist-256": {"loop": 1.7, "lstm": 3.0, "share": 0.90, "torch": 1.1, "threads": 1.7},
    "cornn-ncifar": {"loop": 2.1, "lstm": 4.0, "share": 0.80, "torch": 1.1, "threads": 1.7},
    "lem-smnist": {"loop": 2.1, "lstm": 1.7, "share": 0.80, "torch": 1.1, "threads": 1.7},
    "lem-fhn": {"loop": 45.0, "lstm": 2.0, "torch": 5.0},
    "lem-eigenworms": {"loop": 60.0, "lstm": 3.0, "share": 0.45, "torch": 1.0},
    "lem-ptb": {"loop": 1.4, "lstm": 1.0, "share": 0.88, "torch": 1.1, "threads": 1.7},
    "unicornn-psmnist": {"loop": 2.5, "lstm": 8.0, "share": 0.65, "torch": 1.0, "threads": 1.7},
    "unicornn-eigenworms": {"loop": 55.0, "lstm": 6.5, "torch": 1.0},
}
CUDA: dict[str, Goals] = {
    "lem-smnist": {"loop": 20.0, "lstm": 1.0},
    "cornn-psmnist-128": {"loop": 20.0, "lstm": 1.0},
    **{name: {"lstm": 1.0} for name in ("cornn-psmnist-256", "cornn-ncifar")},
    **{name: {"lstm": 1.0} for name in ("lem-fhn", "lem-eigenworms", "lem-ptb")},
    **{name: {"lstm": 5.0} for name in ("unicornn-psmnist", "unicornn-eigenworms")},
}


def goals(device: str, workload: str) -> Goals:
    """The goals of one workload, by kind, in the order of WORDS.

    Those for the share of the GEMM limit were set with torch's products as the best there were; they are
    judged against the best that there are now as well. Likewise the goals against nn.LSTM, which were set
    with the system's allocator: they are judged with one that keeps its memory too.
    """
    if device.startswith("cuda"):
        return CUDA.get(workload, {})
    own = CPU.get(workload, {})
    every = own | {"memory_loop": 0.5, "memory_lstm": 1.0, "share_best": own.get("share", 0.0)}
    every["lstm_warm"] = own.get("lstm", 0.0)
    return {kind: every[kind] for kind in WORDS if every.get(kind)}


def fast(device: str) -> str:
    """The kernel that the targets speak of."""
    return "triton" if device.startswith("cuda") else "native"


def time_of(result: Result, variant: str, part: str = "variants") -> float | None:
    value = result.get(part, {}).get(variant, {}).get("ms")
    return None if value is None else float(value)


def loop_of(result: Result) -> str:
    """The plain loop to compare with: as the official code has it, or the reference where there is none."""
    return "official" if "ms" in result.get("variants", {}).get("official", {}) else "reference"


def limit(result: Result, library: str | None = None) -> float | None:
    """The GEMM limit in ms: all products at the best rate, of one library or of all, of the same run."""
    rates = {name: facts["best_gflops"] for name, facts in result.get("gemm", {}).items()}
    rate = max(rates.values(), default=None) if library is None else rates.get(library)
    return None if not rate else float(result["flops"] / rate / 1e6)


def quotient(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def value(kind: str, result: Result, device: str) -> float | None:
    """The ratio reached; None where one of its two sides did not run."""
    kernel, loop = fast(device), loop_of(result)
    fast_ms, loop_ms = time_of(result, kernel), time_of(result, loop)
    walls = result.get("threads", {}).get("variants", {}).get(kernel, {})
    peaks = {v: facts.get("mib") for v, facts in result.get("memory", {}).get("variants", {}).items()}
    sides: dict[str, tuple[float | None, float | None]] = {
        "loop": (loop_ms, fast_ms),
        "lstm": (time_of(result, "lstm"), fast_ms),
        "lstm_warm": (time_of(result, "lstm", "warm"), time_of(result, kernel, "warm")),
        "share": (limit(result, "torch"), fast_ms),
        "share_best": (limit(result), fast_ms),
        "torch": (loop_ms, time_of(result, "torch")),
        "threads": (walls.get("1", {}).get("wall_ms"), walls.get("2", {}).get("wall_ms")),
        "memory_loop": (peaks.get(kernel), peaks.get(loop)),
        "memory_lstm": (peaks.get(kernel), peaks.get("lstm")),
    }
    return quotient(*sides[kind])


def verdict(kind: str, reached: float | None, goal: float) -> str:
    """met, not met or not run; compared to two decimals, as they are printed."""
    if reached is None:
        return "not run"
    return "met" if COMPARE[SIGNS.get(kind, "≥")](round(reached, 2), goal) else "not met"


def judged(results: Mapping[str, Result], device: str) -> list[dict[str, Any]]:
    """Every target of a device with what was reached."""
    rows = []
    for workload in CUDA if device.startswith("cuda") else CPU:
        for kind, goal in goals(device, workload).items():
            reached = value(kind, results.get(workload, {}), device)
            rows.append(
                {
                    "workload": workload,
                    "kind": kind,
                    "what": WORDS[kind].format(fast=fast(device)),
                    "goal": goal,
                    "sign": SIGNS.get(kind, "≥"),
                    "reached": None if reached is None else round(reached, 3),
                    "verdict": verdict(kind, reached, goal),
                }
            )
    return rows
