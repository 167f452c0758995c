"""Two rows compared, in words: a `Document` with a sentence for each column, or with a summary of many."""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from physml.base.errors import InputError
from physml.report.compare.rows import MOST, POWER, RowComparison, RowVerdict, Side, compare_runs, corrected
from physml.report.stats.budgets import differences
from physml.report.stats.claims import ALPHA, p_text
from physml.report.stats.summary import N_FOR_VERDICT, Spread
from physml.report.table.numbers import gain_text, signed
from physml.report.table.spec import Cell, Column
from physml.report.text.document import NONE, Block, Document, Grid, Lines, blocks, grouped

MANY = 4  # columns from which the first sight has a summary
LONGEST = 30  # runs that are listed one by one
FEWEST_SIGNS = 6  # pairs: with fewer, no p-value of Wilcoxon's test can be below 5 %
HEADS = (
    "column", "pairs", "A", "B", "difference", "95 % interval", "on new splits", "d_z", "t test",
    "Wilcoxon", "outcome", "more pairs",
)  # fmt: skip
FOLDED = ((0, 1), (2, 3), (4, 5, 6), (7, 8, 9), (10, 11))
FIRST_HEADS = (0, 2, 3, 4, 5, 10, 11)  # of many columns, a line each
CSV_HEADS = (
    "table", "first", "second", "column", "metric", "unit", "better", "protocol", "split", "seed",
    "value_first", "value_second", "difference", "pairs", "over", "sd", "low", "high", "new_low", "new_high",
    "d_z", "p_t", "p_holm", "p_wilcoxon", "more_pairs", "state",
)  # fmt: skip


@dataclass(frozen=True)
class Rows:
    """Two rows, and what was found in each column: a comparison, or why there is none."""

    id: str  # id of the table; `compare` for two experiments
    names: tuple[str, str]  # names of the two rows
    comparisons: tuple[RowComparison, ...]  # one for each column, corrected for being several
    missing: dict[str, str]  # column -> why there is no comparison
    settings: tuple[str, ...] = ()  # those of the two rows
    facts: tuple[str, ...] = ()  # what else stands below


def compared(
    id: str,
    columns: Sequence[Column],
    sides: Mapping[str, tuple[Side, Side]],
    cells: Mapping[str, tuple[Cell, Cell]],
    spread: Spread,
    hint: str,
) -> Rows:
    """Every column in which both rows have runs; InputError, with the hint what to do, where there is none.

    sides, cells: of both rows, by the key of the column.
    """
    comparisons, missing = [], {}
    for column in columns:
        result = compare_runs(column, *sides[column.key], spread, cells.get(column.key, (Cell(), Cell())))
        if isinstance(result, str):
            missing[column.title] = result
        else:
            comparisons.append(result)
    names = next((first.label, other.label) for first, other in sides.values())
    if not comparisons:
        reasons = "; ".join(dict.fromkeys(missing.values()))
        raise InputError(
            f"a comparison needs finished runs of both rows with equal split and seed; {reasons}. {hint}"
        )
    settings, unlike = tuple(_settings(sides)), tuple(_unlike(columns, sides))
    return Rows(id, names, tuple(corrected(comparisons)), missing, settings, unlike)


def _settings(sides: Mapping[str, tuple[Side, Side]]) -> Iterator[str]:
    """Whose settings each row has: where they differ, a search may be what is compared."""
    for letter, row in zip("AB", zip(*sides.values(), strict=True), strict=True):
        with_runs = [side for side in row if side.runs.finished]
        experiments = dict.fromkeys(side.runs.experiment for side in with_runs)
        settings = dict.fromkeys(str(side.runs.settings) for side in with_runs)
        parts = [name for name in experiments if name != row[0].label] + [f"settings: {', '.join(settings)}"]
        yield f"{letter}: {row[0].label} ({', '.join(parts)})"


def _unlike(columns: Sequence[Column], sides: Mapping[str, tuple[Side, Side]]) -> Iterator[str]:
    """How the rows were trained, where it differs: then it may be what is compared."""
    pairs = [[side.runs.first.get("config") for side in sides[column.key]] for column in columns]
    differing = [differences(first, [second]) for first, second in pairs if first and second]
    first = differing[0].values() if differing else ()
    everywhere = [text for text in first if all(text in of.values() for of in differing)]
    if everywhere:
        yield f"A and B differ in: {', '.join(everywhere)}"
    common = {text.partition(" ")[0] for text in everywhere}
    if by_column := dict.fromkeys(key for of in differing for key in of if key not in common):
        yield f"A and B differ, by column, in: {', '.join(by_column)}"


def document(rows: Rows) -> Document:
    """Sentences and a line for each column; of many columns a summary. The single runs below."""
    first, second = rows.names
    lines = tuple(map(_line, rows.comparisons))
    whole = Grid(HEADS, lines, folded=FOLDED)
    sentences = Lines(tuple(_sentences(rows)), look="strong")
    shown = blocks(sentences, whole, Lines((*rows.settings, *rows.facts)))
    rest: tuple[Block, ...] = ()
    more = "the runs, pair by pair"
    if len(rows.comparisons) >= MANY:
        short = whole.without(set(range(len(HEADS))).difference(FIRST_HEADS))
        rest = blocks(sentences, whole, Lines(rows.settings))
        shown = blocks(Lines(tuple(_summary(rows)), look="strong"), short, Lines(rows.facts))
        more = "a sentence and all numbers of each column, settings, the runs"
    return Document(
        id=rows.id,
        title=f"{first} (A) against {second} (B)",
        first=shown,
        long=(*rest, *map(_runs, rows.comparisons)),
        rules=(Lines(tuple(_rule(rows)), look="items"),),
        more={"--long": more, "--rules": "how they are compared"},
        values=(CSV_HEADS, *_values(rows)),
    )


# --- sentences


def _summary(rows: Rows) -> Iterator[str]:
    """In which of many columns each row is better, and in how many neither."""
    first, second = rows.names
    by_verdict = grouped((result.verdict, result) for result in rows.comparisons)
    many = len(rows.comparisons)
    won_columns: tuple[tuple[str, str, RowVerdict], ...] = (
        (first, second, "first better"),
        (second, first, "second better"),
    )
    for row, other, verdict in won_columns:
        if won := by_verdict.get(verdict):
            by = ", ".join(f"{result.column.title} ({_by(result)})" for result in won)
            yield f"{row} is better than {other} in {len(won)} of {many} columns: {by}."
    open_columns: tuple[tuple[RowVerdict, str], ...] = (
        ("cannot be told apart", "the two cannot be told apart"),
        ("equal", "they are equal in every pair of runs"),
        ("too few pairs", f"there is no verdict: {N_FOR_VERDICT} pairs are the fewest"),
    )
    for verdict, says in open_columns:
        if undecided := by_verdict.get(verdict):
            yield f"In {len(undecided)} of {many} columns {says}."
    yield f"Outcomes are corrected for {many} columns, intervals are not."
    yield from _reasons(
        grouped((why, result.column.title) for result in rows.comparisons for why in result.caveats)
    )
    yield from _reasons(grouped((f"not compared: {why}", title) for title, why in rows.missing.items()))


def _reasons(titles: Mapping[str, Sequence[str]]) -> Iterator[str]:
    for reason, columns in titles.items():
        yield f"{', '.join(columns)}: {reason}"


def _sentences(rows: Rows) -> Iterator[str]:
    for result in rows.comparisons:
        yield f"{result.column.title}: {sentence(result, rows.names, len(rows.comparisons))}"
        for caveat in result.caveats:
            yield f"{result.column.title}: {caveat}"
    for title, reason in rows.missing.items():
        yield f"{title}: not compared: {reason}"


def sentence(result: RowComparison, names: tuple[str, str], columns: int = 1) -> str:
    """The comparison in one of the columns, for all of which p-values are corrected."""
    first, second = names
    verdict, gap = result.verdict, result.gain
    what = _counted(gap.n, result)
    if result.p is None or result.p_adjusted is None:
        return f"no verdict from {what}; {N_FOR_VERDICT} are the fewest."
    if verdict == "equal":
        return f"{first} and {second} are equal in every one of {what}."
    ahead, behind = (first, second) if gap.mean > 0 else (second, first)
    by = _by(result)
    interval = _ahead(result, gap.low, gap.high)
    evidence = f"95 % interval {interval}, {what}, {p_text(result.p)}"
    if columns > 1:
        evidence += f", corrected {p_text(result.p_adjusted).removeprefix('p ').removeprefix('= ')}"
    if verdict != "cannot be told apart":
        text = f"{ahead} is better than {behind} by {by} ({evidence})."
        if gap.new_low is not None and gap.new_high is not None:
            known = "can be expected" if gap.new_low > 0 or gap.new_high < 0 else "is not certain"
            new = _ahead(result, gap.new_low, gap.new_high)
            text += f" On new splits the same order {known}: 95 % interval {new}."
        return text + _other_test(result)
    if gap.mean == 0:
        return f"{first} and {second} have the same mean ({evidence})."
    text = f"{first} and {second} cannot be told apart: {ahead} is ahead by {by} on average ({evidence})."
    return text + _more(result, columns) + _other_test(result)


def _more(result: RowComparison, columns: int) -> str:
    level = "5 %" + (f" over all {columns} columns" if columns > 1 else "")
    if result.more is None:
        return ""
    many = f"more than {MOST}" if result.more > MOST else str(result.more)
    return (
        f" If difference and spread stay as they are, {many} more {_noun(result, result.more)} would find it "
        f"at {level} with a power of {100 * POWER:.0f} %."
    )


def _other_test(result: RowComparison) -> str:
    """A word on Wilcoxon's test where it disagrees and could agree."""
    if result.p is None or result.p_wilcoxon is None or result.gain.n < FEWEST_SIGNS:
        return ""
    if (result.p < ALPHA) == (result.p_wilcoxon < ALPHA):
        return ""
    return f" Wilcoxon's test disagrees with the t test: {p_text(result.p_wilcoxon)}."


def _by(result: RowComparison) -> str:
    """`2.1 points`"""
    return f"{abs(result.gain.mean):.{_places(result)}f}{_unit(result.column)}"


def _unit(column: Column) -> str:
    if column.unit == "%":
        return " points"
    times = "× " if column.unit[:1].isdigit() else ""  # 0.04 × 1e-2
    return f" {times}{column.unit}" if column.unit else ""


def _noun(result: RowComparison, n: int) -> str:
    noun = "split" if result.over == "splits" else "pair"
    return noun if n == 1 else f"{noun}s"


def _counted(n: int, result: RowComparison) -> str:
    return f"{n} {_noun(result, n)}" + (" of runs" if result.over == "runs" else "")


def _interval(low: float | None, high: float | None, places: int) -> str:
    """`[+0.5, +2.1]`"""
    if low is None or high is None:
        return NONE
    return gain_text(0.0, low, high, places).partition(" ")[2]


def _ahead(result: RowComparison, low: float | None, high: float | None) -> str:
    """An interval of the difference, positive where the row with the better mean is better."""
    if low is not None and high is not None and result.gain.mean < 0:
        low, high = -high, -low
    return _interval(low, high, _places(result))


def _places(result: RowComparison) -> int:
    """Digits after the point: those of the table, else two of the spread."""
    if result.column.decimals is not None:
        return result.column.decimals
    scale = result.gain.sd or max(abs(result.first), abs(result.second)) / 100
    return min(15, max(0, 1 - math.floor(math.log10(scale)))) if scale else 4


# --- tables


def _line(result: RowComparison) -> tuple[str, ...]:
    gap, places = result.gain, _places(result)
    more = NONE if result.more is None else f"> {MOST}" if result.more > MOST else str(result.more)
    outcome = {"first better": "A better", "second better": "B better"}
    return (
        result.column.heading,
        _counted(gap.n, result),
        f"{result.first:.{places}f}",
        f"{result.second:.{places}f}",
        signed(gap.mean, f".{places}f"),
        _interval(gap.low, gap.high, places),
        NONE if gap.new_low is None else f"{_interval(gap.new_low, gap.new_high, places)} (new)",
        NONE if result.d_z is None else f"d_z = {result.d_z:.2f}",
        NONE if result.p is None else p_text(result.p),
        NONE if result.p_wilcoxon is None else f"{p_text(result.p_wilcoxon)} (W)",
        outcome.get(result.verdict, result.verdict),
        NONE if result.more is None else f"{more} more",
    )


def _runs(result: RowComparison) -> Grid:
    """The runs, side by side; of more than 30, how their differences lie."""
    places = _places(result)
    column = result.column
    title = column.title if column.title == column.metric else f"{column.title}: {column.metric}"
    heading = f"{title}, {column.better} is better, runs of equal split and seed"
    if len(result.pairs) > LONGEST:
        values = sorted(pair.difference for pair in result.pairs)
        counts = [sum(v > 0 for v in values), sum(v == 0 for v in values), sum(v < 0 for v in values)]
        points = (values[0], *statistics.quantiles(values, n=4), values[-1])
        heads = ("runs", "A better", "equal", "B better", "least", "quartile", "median", "quartile", "most")
        line = (str(len(values)), *map(str, counts), *(signed(v, f".{places}f") for v in points))
        return Grid(heads, (line,), heading)
    lines = []
    for pair in result.pairs:
        numbers = (f"{pair.first:.{places}f}", f"{pair.second:.{places}f}")
        lines.append((str(pair.split), str(pair.seed), *numbers, signed(pair.difference, f".{places}f")))
    return Grid(("split", "seed", "A", "B", "difference"), tuple(lines), heading)


def _rule(rows: Rows) -> Iterator[str]:
    yield (
        "Differences are between runs of equal split and seed, averaged over the starts of a split where "
        "there are several, and positive where A is better; 95 % t-interval of their mean, "
        "d_z = mean / sd, paired t test, Wilcoxon's signed-rank test (W)."
    )
    if any(result.gain.new_low is not None for result in rows.comparisons):
        yield (
            "On new splits of the same graph (new): the interval allows for training sets that overlap "
            "(Nadeau and Bengio 2003); more splits hardly narrow it."
        )
    if len(rows.comparisons) > 1:
        yield (
            f"Outcomes are by the t test, corrected for {len(rows.comparisons)} columns (Holm); that these "
            "two rows were chosen among others is not corrected for."
        )


def _values(rows: Rows) -> Iterator[tuple[object, ...]]:
    """A line for each column, and one for each pair of runs with the state `pair`, in full precision."""
    first, second = rows.names
    for result in rows.comparisons:
        column, gap = result.column, result.gain
        known: dict[str, object] = {
            "table": rows.id, "first": first, "second": second, "column": column.key, "metric": column.metric,
            "unit": column.unit or "1", "better": column.better, "protocol": column.protocol,
        }  # fmt: skip
        summary = {
            "value_first": result.first, "value_second": result.second, "difference": gap.mean,
            "pairs": gap.n, "over": result.over, "sd": gap.sd, "low": gap.low, "high": gap.high,
            "new_low": gap.new_low, "new_high": gap.new_high, "d_z": result.d_z, "p_t": result.p,
            "p_holm": result.p_adjusted, "p_wilcoxon": result.p_wilcoxon, "more_pairs": result.more,
            "state": result.verdict,
        }  # fmt: skip
        yield tuple((known | summary).get(head) for head in CSV_HEADS)
        for pair in result.pairs:
            run = {
                "split": pair.split, "seed": pair.seed, "value_first": pair.first,
                "value_second": pair.second, "difference": pair.difference, "state": "pair",
            }  # fmt: skip
            yield tuple((known | run).get(head) for head in CSV_HEADS)
