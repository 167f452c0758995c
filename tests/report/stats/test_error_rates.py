"""How often the rule of verdicts is wrong when the truth is known: the rates of docs/verdicts.md.

`PYTHONPATH=tests/harness python tests/report/stats/test_error_rates.py` prints the table of docs/verdicts.md
anew.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from each import each

from physml.base.paths import ROOT
from physml.report.stats.comparison import Outcome, compare
from physml.report.stats.summary import Published, summarise

REPEATS = 1000
MARGIN = 1.25  # printed standard deviations


@dataclass(frozen=True)
class Case:
    """A paper that trains k runs of spread `spread` (ours: 1) and prints so much of them."""

    text: str
    k: int
    best: bool = False
    prints_sd: bool = False
    prints_n: bool = True
    says_which: bool = True
    spread: float = 1.0

    def published(self, rng: np.random.Generator) -> Published:
        return self.prints(rng.normal(0.0, self.spread, self.k))

    def prints(self, values: np.ndarray) -> Published:
        return Published(
            float(values.max() if self.best else values.mean()),
            sd=float(values.std(ddof=1)) if self.prints_sd else None,
            n=self.k if self.prints_n else None,
            statistic=("best" if self.best else "mean") if self.says_which else "unknown",
        )


EQUAL = [
    *(Case(f"mean, sd and n = {k}", k, prints_sd=True) for k in (3, 5, 10)),
    Case("mean and sd, n unsaid (5)", 5, prints_sd=True, prints_n=False),
    Case("mean of 5, no sd", 5),
    Case("mean, n unsaid (5), no sd", 5, prints_n=False),
    *(Case(f"best of {k}", k, best=True) for k in (5, 10)),
    *(Case(f"best, n unsaid ({k})", k, best=True, prints_n=False) for k in (5, 10)),
    *(Case(f"unsaid which (mean of {k})", k, prints_n=False, says_which=False) for k in (1, 5, 10)),
    *(Case(f"unsaid which (best of {k})", k, True, prints_n=False, says_which=False) for k in (5, 10)),
]
UNEQUAL = [
    *(Case(f"mean, sd and n = 5, spread x{s:g}", 5, prints_sd=True, spread=s) for s in (0.5, 2.0)),
    *(Case(f"mean of 5, no sd, spread x{s:g}", 5, spread=s) for s in (0.5, 2.0)),
    *(Case(f"best of 5, spread x{s:g}", 5, best=True, spread=s) for s in (0.5, 2.0)),
]
OUTCOMES: tuple[Outcome, ...] = ("agrees", "better", "worse", "cannot be told apart", "not decidable")


def rates(case: Case, n: int, shift: float = 0.0, margin: float = MARGIN) -> dict[Outcome, float]:
    """The share of each outcome when our n runs have the mean `shift` and theirs 0."""
    rng = np.random.default_rng([n, case.k, round(100 * case.spread), round(100 * abs(shift))])
    counts: Counter[Outcome] = Counter()
    for _ in range(REPEATS):
        ours = summarise(list(rng.normal(shift, 1.0, n)), "higher")
        comparison = compare(ours, case.published(rng), margin, "higher")
        assert comparison is not None
        counts[comparison.outcome] += 1
    return {outcome: counts[outcome] / REPEATS for outcome in OUTCOMES}


@each("n", [3, 5, 10])
@each("case", EQUAL)
def test_equal_methods_are_seldom_told_apart(case: Case, n: int) -> None:
    shares = rates(case, n, margin=0.0)  # a margin only turns some of them into agreement
    assert shares["better"] + shares["worse"] <= 0.07


def test_different_methods_differ() -> None:
    case = Case("mean, sd and n = 10", 10, prints_sd=True)
    assert rates(case, 10)["agrees"] >= 0.60
    assert rates(case, 10, shift=2.0)["better"] >= 0.80
    assert rates(case, 10, shift=-2.0)["worse"] >= 0.80


# Rates that docs/verdicts.md has in words, by 10,000 to 20,000 repeats; a test allows three standard errors.


def close(share: float, expected: float, repeats: int) -> bool:
    return abs(share - expected) <= 3 * (expected * (1 - expected) / repeats) ** 0.5


@each(
    "k, n, worse, better",
    [(5, 3, 0.118, 0.592), (5, 5, 0.252, 0.720), (10, 3, 0.101, 0.710), (10, 5, 0.225, 0.803)],
)
def test_a_best_hides_what_is_worse_as_often_as_the_docs_say(
    k: int, n: int, worse: float, better: float
) -> None:
    case = Case(f"best of {k}", k, best=True)
    assert close(rates(case, n, shift=-2.0)["worse"], worse, REPEATS)
    assert close(rates(case, n, shift=2.0)["better"], better, REPEATS)


def test_a_spread_that_is_twice_ours_and_not_printed_raises_errors_as_the_docs_say() -> None:
    (case,) = (case for case in UNEQUAL if case.text == "best of 5, spread x2")
    shares = rates(case, 10, margin=0.0)
    assert close(shares["better"] + shares["worse"], 0.297, REPEATS)


@each(
    "case, n, expected",
    [
        *(
            (Case("a mean without sd", k), 5, share)
            for k, share in ((3, 0.092), (5, 0.095), (10, 0.105), (20, 0.116))
        ),
        (Case("a mean without sd", 3), 10, 0.060),
        (Case("a single run", 1), 5, 0.074),
        (Case("a single run, unsaid", 1, prints_n=False, says_which=False), 5, 0.072),
        (Case("a mean of any number", 5, prints_n=False), 3, 0.039),
        (Case("mean and sd", 10, prints_sd=True), 5, 0.035),
        (Case("a best", 5, best=True), 3, 0.024),
    ],
)
def test_failing_runs_raise_false_verdicts_as_often_as_the_docs_say(
    case: Case, n: int, expected: float
) -> None:
    """One run in five of both sides ends five deviations below."""
    rng = np.random.default_rng([n, case.k])
    repeats = 4 * REPEATS

    def runs(number: int) -> np.ndarray:
        return rng.normal(0.0, 1.0, number) - 5.0 * (rng.random(number) < 0.2)

    better = 0
    for _ in range(repeats):
        comparison = compare(summarise(list(runs(n)), "higher"), case.prints(runs(case.k)), 0.0, "higher")
        better += comparison is not None and comparison.outcome == "better"
    assert close(better / repeats, expected, repeats)


def table() -> list[str]:
    """The lines of docs/verdicts.md: shares in per cent."""
    columns: list[tuple[str, Callable[[Case, int], float]]] = [
        ("agrees", lambda case, n: rates(case, n)["agrees"]),
        ("better", lambda case, n: rates(case, n, margin=0.0)["better"]),
        ("worse", lambda case, n: rates(case, n, margin=0.0)["worse"]),
        ("not decidable", lambda case, n: rates(case, n, margin=0.0)["not decidable"]),
        ("2 sd better: found", lambda case, n: rates(case, n, 2.0)["better"]),
    ]
    lines = [f"| the paper prints | our n | {' | '.join(name for name, _ in columns)} |"]
    lines.append("| --- | --- |" + " --- |" * len(columns))
    for case in [*EQUAL, *UNEQUAL]:
        for n in (3, 5, 10):
            numbers = " | ".join(f"{100 * rate(case, n):.0f}" for _, rate in columns)
            lines.append(f"| {case.text} | {n} | {numbers} |")
    return lines


def test_the_docs_print_a_rate_for_every_case() -> None:
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    for case in [*EQUAL, *UNEQUAL]:
        assert page.count(f"| {case.text} | ") == 3, case.text
    case = EQUAL[2]
    rate = round(100 * rates(case, 10)["agrees"])
    (line,) = (text for text in page.splitlines() if text.startswith(f"| {case.text} | 10 | "))
    assert abs(int(line.split("|")[3]) - rate) <= 1
    words = " ".join(page.split())
    for text in (
        "found in 10 to 25 % of cases at n = 3 to 5, truly better in 59 to 80 %",
        "errors reach 30 %",
        "in 6 to 12 % of cases where a mean of 3 to 20 is printed without sd",
        "(9 % for a mean of 3, 12 % for one of 20)",
        "in 7 % where a single run is printed, said or not; and in up to 4 % otherwise",
    ):
        assert text in words, text


if __name__ == "__main__":
    print("\n".join(table()))
