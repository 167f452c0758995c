"""A results file in words: tables in Markdown, for the terminal too."""

import statistics
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from scripts.bench import targets
from scripts.bench.gemm import LIBRARIES
from scripts.bench.store import machine_name
from scripts.bench.variants import VARIANTS
from scripts.bench.workloads import WORKLOADS

Result = Mapping[str, Any]
LABELS = {
    "official": "official loop",
    "authors": "authors' cell",
    "reference": "reference loop",
    "torch": "torch Function",
    "native": "native",
    "triton": "triton",
    "lstm": "nn.LSTM",
    "gru": "nn.GRU",
    "jax": "JAX, lax.scan",
    "onnx": "onnxruntime, LSTM",
}


def table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> list[str]:
    """A Markdown table whose columns line up in plain text too; all but the first are right-aligned."""
    cells = [list(heads), *(list(row) for row in rows)]
    widths = [max(3, *(len(row[i]) for row in cells)) for i in range(len(heads))]

    def line(row: Sequence[str]) -> str:
        first, *others = zip(row, widths, strict=True)
        return f"| {first[0].ljust(first[1])} | " + " | ".join(t.rjust(w) for t, w in others) + " |"

    rule = f"| {'-' * widths[0]} | " + " | ".join("-" * (w - 1) + ":" for w in widths[1:]) + " |"
    return [line(cells[0]), rule, *(line(row) for row in cells[1:])]


def number(value: float | None, digits: int = 3) -> str:
    """Significant digits without an exponent; a dash for nothing.

    Example:
        >>> number(1234.5), number(0.0123), number(None)
        ('1234', '0.0123', '–')
    """
    if value is None:
        return "–"
    text = f"{value:.{digits}g}"
    return f"{value:.0f}" if "e+" in text or abs(value) >= 10**digits else text


def ratio(value: float | None) -> str:
    return "–" if value is None else f"{value:.2f}" if value < 10 else f"{value:.1f}"


def per_run(rounds: Sequence[Mapping[str, float]], n_runs: int) -> dict[str, float]:
    """Medians over rounds of n runs, for one run."""
    return {key: statistics.median(measured[key] for measured in rounds) / n_runs for key in rounds[0]}


def title(name: str) -> str:
    return next((w.title for w in WORKLOADS if w.name == name), name)


def times(result: Result, device: str) -> list[str]:
    """One workload: a line per variant, with its ratio to the fast kernel and its shares of the limits."""
    kernel = targets.fast(device)
    limits = {library: limit for library in LIBRARIES if (limit := targets.limit(result, library))}
    rows, refused = [], []
    for variant in VARIANTS:
        facts, label = result["variants"].get(variant), LABELS[variant]
        if facts is None:
            continue
        if "ms" not in facts:
            refused.append(f"{label}: {facts['not_run'].rstrip('.')}.")
            continue
        quartiles = f"{number(facts['ms_q25'])} .. {number(facts['ms_q75'])}"
        to_fast = ratio(targets.quotient(facts["ms"], targets.time_of(result, kernel)))
        shares = [f"{100 * limit / facts['ms']:.0f} %" for limit in limits.values()]
        shares = ["–"] * len(limits) if variant in ("lstm", "gru") else shares
        ms, wall_ms = number(facts["ms"]), number(facts["wall_ms"])
        warm_ms = targets.time_of(result, variant, "warm")
        warm = [number(warm_ms), ratio(targets.quotient(warm_ms, targets.time_of(result, kernel, "warm")))]
        rows.append([label, ms, quartiles, wall_ms, str(facts["n"]), to_fast, *warm, *shares])
    unit = "GPU ms" if device.startswith("cuda") else "CPU ms"
    heads = ["", unit, "quartiles", "wall ms", "n", f": {kernel}", "warm ms", f": {kernel}, warm"]
    lines = table([*heads, *(f"of limit, {library} GEMM" for library in limits)], rows)
    return [*lines, "", "Not run. " + " ".join(refused)] if refused else lines


def headline(result: Result) -> str:
    sizes = ", ".join(f"{key} {value}" for key, value in result["sizes"].items() if (key, value) != ("L", 1))
    limits = [
        f"{number(limit)} ms at the {number(result['gemm'][library]['best_gflops'])} GFLOP/s of {library}"
        for library in LIBRARIES
        if (limit := targets.limit(result, library))
    ]
    flops = f"{number(result['flops'] / 1e9)} GFLOP of matrix products: {', '.join(limits)}"
    return f"{sizes}; {flops}. {moment(result['run'])}"


def commit_of(run: Result) -> str:
    code = run["code"]
    dirty = ", uncommitted changes" if code["dirty"] else ""
    return f"commit {code['commit'][:10]}{dirty}" if code["commit"] else f"no commit{dirty}"


def packages_of(run: Result) -> str:
    return ", ".join(f"{name} {run[name]}" for name in ("torch", "jax", "onnxruntime") if run.get(name))


def moment(run: Result) -> str:
    tf32 = ", TF32" if run["tf32"] else ""
    return (
        f"{run['date']}, {commit_of(run)}, {packages_of(run)}{tf32}, "
        f"load {run['load_before']} .. {run.get('load_after')}"
    )


def target_table(rows: Iterable[Result]) -> list[str]:
    """Workloads down, kinds of targets across: what was reached and, in brackets, the goal."""
    rows = list(rows)
    kinds = dict.fromkeys(row["what"] for kind in targets.WORDS for row in rows if row["kind"] == kind)
    cells = {(row["workload"], row["what"]): _cell(row) for row in rows}
    names = dict.fromkeys(row["workload"] for row in rows)
    return table(("", *kinds), ([title(n), *(cells.get((n, kind), "") for kind in kinds)] for n in names))


def _cell(row: Result) -> str:
    goal = f"({row['sign']} {row['goal']:g})"
    if row["reached"] is None:
        return f"not run {goal}"
    return f"{ratio(row['reached'])} {goal}{' ✗' if row['verdict'] == 'not met' else ''}"


def _thread_table(results: Mapping[str, Result]) -> list[str]:
    rows = []
    for name, result in results.items():
        for variant, facts in result.get("threads", {}).get("variants", {}).items():
            walls = [facts.get(n, {}).get("wall_ms") for n in ("1", "2")]
            speed_up = ratio(targets.quotient(*walls))
            rows.append((f"{title(name)}, {LABELS[variant]}", *map(number, walls), speed_up))
    return _dated(results, "threads", table(("wall ms", "1 thread", "2 threads", "speed-up"), rows))


def _dated(results: Mapping[str, Result], part: str, lines: list[str]) -> list[str]:
    """The table of a pass below the times and commits of its measurements; nothing if there are none."""
    runs = [r[part]["run"] for r in results.values() if part in r]
    if not runs:
        return []
    dates = sorted(run["date"] for run in runs)
    commits = dict.fromkeys(commit_of(run) for run in runs)
    return [f"{dates[0]} to {dates[-1]}, {', '.join(commits)}, {packages_of(runs[0])}", "", *lines]


def _inference_table(results: Mapping[str, Result]) -> list[str]:
    """Forward alone, nothing recorded: in this process, and with memory that is kept."""
    cells = {name: r["inference"] for name, r in results.items() if "inference" in r}
    used = [v for v in VARIANTS if any("ms" in cell["variants"].get(v, {}) for cell in cells.values())]
    rows = []
    for name, cell in cells.items():
        warm = {v: targets.time_of(cell, v, "warm") for v in used}
        own = [
            f"{number(targets.time_of(cell, v))}{f' / {number(warm[v])}' if warm[v] else ''}" for v in used
        ]
        rows.append((title(name), *own))
    refused = {
        f"{LABELS[v]}: {facts['not_run'].rstrip('.')}."
        for cell in cells.values()
        for v, facts in cell["variants"].items()
        if v not in used
    }
    lines = ["Forward of one batch without gradients; behind the stroke: warm.", ""]
    lines += table(("", *(LABELS[v] for v in used)), rows)
    return _dated(results, "inference", [*lines, *([""] if refused else []), *sorted(refused)])


def _variant_table(results: Mapping[str, Result], part: str, cell: Any) -> list[str]:
    """Workloads down, variants across, for one pass."""
    having = {name: r[part]["variants"] for name, r in results.items() if part in r}
    used = [v for v in VARIANTS if any(v in cells for cells in having.values())]
    rows = [(title(name), *(cell(cells.get(v, {})) for v in used)) for name, cells in having.items()]
    return _dated(results, part, table(("", *(LABELS[v] for v in used)), rows))


def _growth_table(growth: Result) -> list[str]:
    rows = []
    for name, axes in growth["recurrences"].items():
        for axis, sweep in axes.items():
            for variant, facts in sweep["variants"].items():
                if "slope" in facts:
                    ms = " ".join(number(x) for x in facts["ms"])
                    sizes = " ".join(map(str, sweep["sizes"]))
                    rows.append((f"{name}, {LABELS[variant]}", axis, sizes, ms, f"{facts['slope']:.2f}"))
    return [moment(growth["run"]), "", *table(("", "axis", "sizes", "ms", "slope"), rows)]


def _packing(entry: Result) -> list[str]:
    """Runs per hour, one at a time and packed, as `scripts.bench.packing` measured them."""
    rows = []
    for way, rounds in entry["ways"].items():
        medians = per_run(rounds, entry["runs"])
        rows.append(
            (way, number(3600 / medians["clock_s"]), number(medians["processor_s"]), str(len(rounds)))
        )
    what = f"{entry['experiment']}, {entry['epochs']} epochs, {entry['runs']} runs on {entry['cores']} cores."
    heads = ("", "runs per hour", "processor s per run", "n")
    return [f"{what} {moment(entry['moment'])}", "", *table(heads, rows)]


def markdown(result: Result, device: str) -> str:
    """The whole report of a results file."""
    workloads = result["workloads"]
    results = {w.name: workloads[w.name] for w in WORKLOADS if w.name in workloads} | workloads
    timed = {k: r for k, r in results.items() if "variants" in r}
    rows = targets.judged(results, device)
    words, kernel = [row["verdict"] for row in rows], targets.fast(device)
    lines = [
        f"# Speed on {machine_name(result['machine'])}",
        "",
        "Written by `make bench`; how it is measured: [docs/speed.md](../../docs/speed.md). Forward and",
        "backward of one batch, float32, all variants in turn, medians. A ratio is the time of a line over",
        f"that of {kernel}: above 1, {kernel} is faster. warm: the same in a process whose allocator keeps",
        "its memory, so that only the first batch pays for fresh pages.",
        "",
        f"![Time per batch]({result['class']}.png)",
        "",
        "## Targets",
        "",
        f"{words.count('met')} met, {words.count('not met')} not met (✗), {words.count('not run')} not run.",
        "The goal stands in brackets. loop: as the official code has it, else the reference; LSTM: nn.LSTM",
        "of as many units and layers; GEMM: the time that all matrix products would take at the best rate",
        "measured in the same run, of torch's products or of all; warm: both with memory that is kept;",
        f"threads: wall time; memory: peak added by {kernel}. Other ratios are of CPU or GPU time.",
        "",
        *target_table(rows),
    ]
    for key, workload in timed.items():
        lines += ["", f"## {title(key)}", "", headline(workload), "", *times(workload, device)]
    parts = {
        "Inference, CPU ms": _inference_table(results),
        "Threads": _thread_table(results),
        "Peak memory added, MiB": _variant_table(results, "memory", lambda c: number(c.get("mib"))),
        "Worst relative gradient error against float64": _variant_table(
            results, "errors", lambda c: "–" if "error" not in c else f"{c['error']:.1e}"
        ),
        "Growth": _growth_table(result["growth"]) if "growth" in result else [],
        "Runs per hour": _packing(result["packing"]) if "packing" in result else [],
    }
    for heading, part in parts.items():
        if part:
            lines += ["", f"## {heading}", "", *part]
    return "\n".join(lines) + "\n"
