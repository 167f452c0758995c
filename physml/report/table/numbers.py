"""Words for numbers: results with their spread, intervals, differences, durations."""

import math
from collections.abc import Callable, Iterable

from physml.report.stats.claims import Gain
from physml.report.stats.summary import Published, Summary
from physml.report.table.collect import CellResult, Table
from physml.report.table.spec import Column
from physml.report.text.document import NONE

BRIEF = 5  # characters of a number in a narrow table without printed ones; of a head one more
NO_PRINT = "none printed"


def decimals(table: Table, column: Column) -> int:
    """The digits after the point: two of the smallest spread, but not fewer than the paper prints in this
    column (or in this unit), and at most two more; of single runs, without a spread, one more.
    """
    if column.decimals is not None:
        return column.decimals
    alike = [c.key for c in table.spec.columns if c.unit == column.unit]

    def printed(keys: Iterable[str]) -> list[int]:
        published = (cell.published for cell in table.cells if cell.column in keys)
        return [p.digits for p in published if p is not None and p.digits is not None]

    spreads = [cell.summary.sd for cell in table.column(column.key) if cell.summary and cell.summary.sd]
    meant = 1 - math.floor(math.log10(min(spreads))) if spreads else None
    digits = printed([column.key]) or printed(alike)
    if not digits:
        return 4 if meant is None else min(6, max(0, meant))
    least = max(digits)
    return least + 1 if meant is None else min(least + 2, max(least, meant))


def printed_text(published: Published | None) -> str:
    """The printed number with its spread alone: `92.3 ± 1.8`."""
    if published is None:
        return NONE
    form = "g" if published.digits is None else f".{max(0, published.digits)}f"
    value = f"{published.value:{form}}"
    return value if published.sd is None else f"{value} ± {published.sd:{form}}"


def published_text(published: Published | None) -> str:
    """The printed number with what is known of it: `1.2 (mean or best?)`, `92.3 ± 1.8 (mean of 5)`."""
    if published is None:
        return NO_PRINT
    value = printed_text(published)
    if published.quoted:
        return f"{value} (quoted: {published.quoted})"
    if published.statistic == "unknown":
        return f"{value} (mean or best?)"
    return f"{value} ({published.statistic} of {published.n or 'unknown n'})"


def value_text(value: float | None, places: int) -> str:
    return NONE if value is None else f"{value:.{places}f}"


def mean_text(summary: Summary | None, places: int) -> str:
    if summary is None:
        return NONE
    mean = f"{summary.mean:.{places}f}"
    return mean if summary.sd is None else f"{mean} ± {summary.sd:.{places}f}"


def bare_mean(summary: Summary | None, places: int) -> str:
    """The mean alone."""
    return mean_text(summary, places).partition(" ±")[0]


def brief_mean(summary: Summary | None, places: int) -> str:
    """The mean alone, with fewer digits where it would be longer than `BRIEF`."""
    while len(text := bare_mean(summary, places)) > BRIEF and places:
        places -= 1
    return text


def labelled(row: str, extra: bool) -> str:
    """The label of a row, with a word on one that was given on the command line."""
    return f"{row} (not in the paper)" if extra else row


def solved_text(cell: CellResult, column: Column) -> str:
    """`, solved 3 of 5 (at most 1)`, where some runs solve the task and some do not; else nothing."""
    if not cell.solved or cell.solved == cell.done:
        return ""
    bound = "at least" if column.better == "higher" else "at most"
    return f", solved {cell.solved} of {cell.done} ({bound} {column.solved:g})"


def interval_text(summary: Summary | None, places: int) -> str:
    if summary is None or summary.low is None or summary.high is None:
        return NONE
    return f"[{summary.low:.{places}f}, {summary.high:.{places}f}]"


def difference_text(cell: CellResult, column: Column, places: int) -> str:
    """Ours - published with its interval, the widest of all readings."""
    comparison = cell.comparison
    if comparison is None:
        return NONE
    low, high = min(r.low for r in comparison.readings), max(r.high for r in comparison.readings)
    if column.better == "lower":
        return gain_text(-comparison.delta, -high, -low, places)
    return gain_text(comparison.delta, low, high, places)


def gain_text(mean: float, low: float | None, high: float | None, places: int) -> str:
    return _with_interval(lambda value: signed(value, f".{places}f"), mean, low, high)


def ratio_text(gain: Gain) -> str:
    """How many times better, of a gain of logarithms.

    Example:
        >>> ratio_text(Gain(5, math.log(2), 0.1, math.log(1.5), math.log(2.67)))
        '2.00 [1.50, 2.67]'
    """
    return _with_interval(lambda value: f"{math.exp(value):.2f}", gain.mean, gain.low, gain.high)


def _with_interval(form: Callable[[float], str], mean: float, low: float | None, high: float | None) -> str:
    return form(mean) if low is None or high is None else f"{form(mean)} [{form(low)}, {form(high)}]"


def signed(value: float, form: str) -> str:
    """With its sign, but no minus before zeros."""
    text = f"{value:+{form}}"
    return text.replace("-", "+") if not text.strip("+-0.%") else text


def cell_texts(cell: CellResult, column: Column, places: int) -> dict[str, str]:
    """Texts of a cell, by the names that `--latex --show` and templates of the site have for them.

    time: the median over runs of the whole training (`costs.seconds`), and of one step. memory:
    the median of the peak: of the process on a CPU, of the device's memory on a GPU.
    """
    ours, time = NONE if cell.params_ours is None else f"{cell.params_ours:,}", NONE
    if cell.train_s is not None and cell.ms_per_step is not None:
        time = f"{span_text(cell.train_s)}, {span_text(cell.ms_per_step / 1000)}"
    return {
        "published": published_text(cell.published),
        "ours": mean_text(cell.summary, places),
        "runs": f"{cell.done}/{cell.wanted}" if cell.wanted else NONE,
        "interval": interval_text(cell.summary, places),
        "best": value_text(cell.summary.best if cell.summary else None, places),
        "difference": difference_text(cell, column, places),
        "settings": NONE if cell.settings is None else str(cell.settings),
        "parameters": f"{ours} (paper {cell.params_paper})" if cell.params_paper else ours,
        "time": time,
        "memory": NONE if cell.peak_memory_mib is None else size_text(cell.peak_memory_mib),
    }


def span_text(seconds: float) -> str:
    """A duration, as short as a person would say it.

    Example:
        >>> span_text(0.0123), span_text(42.4), span_text(812.4), span_text(9000)
        ('12.3 ms', '42 s', '14 min', '2.5 h')
    """
    if seconds < 1:
        return f"{1000 * seconds:.1f} ms"
    if seconds < 120:
        return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.1f} s"
    return f"{seconds / 60:.0f} min" if seconds < 7200 else f"{seconds / 3600:.1f} h"


def size_text(mib: float) -> str:
    """A size of memory.

    Example:
        >>> size_text(3.26), size_text(512.4), size_text(20480.0)
        ('3.3 MiB', '512 MiB', '20.0 GiB')
    """
    if mib >= 10_000:
        return f"{mib / 1024:.1f} GiB"
    return f"{mib:.0f} MiB" if mib >= 10 else f"{mib:.1f} MiB"
