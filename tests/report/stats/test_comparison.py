"""Differences to printed numbers: intervals against scipy and by simulation, outcomes at every border."""

import math
from collections.abc import Iterable
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given, settings
from hypothesis import strategies as st
from refusals import refuses

from physml.base.errors import InputError
from physml.records.searches import SearchSpread
from physml.report.outcome import State
from physml.report.stats import comparison
from physml.report.stats import summary as stats
from physml.report.stats.comparison import Comparison, Margin, Reading, best_quantile
from physml.report.stats.summary import Published
from physml.report.stats.verdict import Settings, settings_of, verdict


def compare(values: Iterable[float], *printed: Any, better: Any = "higher", margin: float = 0.0) -> Any:
    number, *searches = printed
    return comparison.compare(stats.summarise([*values], better), number, margin, better, *searches)


def test_the_interval_is_welchs_or_without_the_spread_ours_and_wider_by_repeated_searches() -> None:
    rng = np.random.default_rng(1)
    ours, theirs = rng.normal(1.0, 1.0, 9), rng.normal(0.0, 3.0, 9)
    printed = Published(float(theirs.mean()), sd=float(theirs.std(ddof=1)), n=9, statistic="mean")
    (reading,) = compare(ours, printed).readings
    expected = scipy.stats.ttest_ind(ours, theirs, equal_var=False).confidence_interval(0.95)
    assert (reading.low, reading.high) == pytest.approx(tuple(expected))
    values = [1.0, 2.0, 4.0]
    result = compare(values, Published(0.0, n=5, statistic="mean"))
    half = scipy.stats.t.ppf(0.975, 2) * np.std(values, ddof=1) * math.sqrt(1 / 3 + 1 / 5)
    assert result.readings[0].high == pytest.approx(np.mean(values) + half)
    # By the t-quantile of their number times the sd between them, at both levels.
    ours, spread = [1.0, 2.0, 4.0], SearchSpread("rmse", "lower", (1.0, 2.0, 3.0))
    far, near = (Published(value, n=5, statistic="mean") for value in (9.0, 2.3))
    narrow, wide = (compare(ours, far, searches, better="lower") for searches in (None, spread))
    assert (narrow.outcome, wide.delta, wide.outcome) == ("better", narrow.delta, "cannot be told apart")
    half = scipy.stats.t.ppf(0.975, 2) * 1.0
    assert wide.readings[0].high - narrow.readings[0].high == pytest.approx(half)
    assert narrow.readings[0].low - wide.readings[0].low == pytest.approx(half)
    for searches, word in ((None, "agrees"), (spread, "cannot be told apart")):
        assert compare(ours, near, searches, better="lower", margin=4.0).outcome == word


@pytest.mark.parametrize(
    ("n", "k", "sd", "capped"), [(3, 20, 0.1, True), (9, 4, 0.2, False), (4, 9, 2.0, False)]
)
def test_welchs_degrees_of_freedom_are_at_most_twice_the_fewer(
    n: int, k: int, sd: float, capped: bool
) -> None:
    ours = np.random.default_rng(n).normal(0.0, sd, n)
    a, b = ours.var(ddof=1) / n, 1.0 / k
    welch, most = (a + b) ** 2 / (a**2 / (n - 1) + b**2 / (k - 1)), 2 * (min(n, k) - 1)
    assert (welch > most) == capped
    df = most if capped else welch
    half = scipy.stats.t.ppf(0.975, df) * math.sqrt(a + b)
    (reading,) = compare(ours, Published(0.0, sd=1.0, n=k, statistic="mean")).readings
    assert (reading.low, reading.high) == pytest.approx((ours.mean() - half, ours.mean() + half))


def test_what_is_not_printed_is_taken_for_the_least() -> None:
    ours = [1.0, 2.0, 4.0]
    sd, mean = float(np.std(ours, ddof=1)), 7 / 3

    def reading(**printed: Any) -> tuple[str, float, float]:
        (only,) = compare(ours, Published(0.0, **printed)).readings
        return only.assumption.partition(",")[0], mean - only.low, only.high - mean

    half = scipy.stats.t.ppf(0.975, 2) * sd * math.sqrt(1 / 3 + 1)
    assert reading(statistic="mean") == ("mean of any number", *[pytest.approx(half)] * 2)
    few, five = reading(sd=sd, n=3), reading(sd=sd, n=5)
    assert few[0] == "mean of 3" and few[1] == pytest.approx(
        scipy.stats.t.ppf(0.975, 4) * sd * math.sqrt(2 / 3)
    )
    assert reading(sd=sd) == ("mean of at least 3", *few[1:])
    assert reading(sd=sd, n=100, independent=5) == five, "starts of a split are no splits"
    assert reading(sd=sd, n=1) == ("mean of 1", math.inf, math.inf)
    best = tuple(sd * best_quantile(3, 7, p) for p in (0.025, 0.975))
    assert reading(n=7, statistic="best") == ("best of 7", pytest.approx(-best[0]), pytest.approx(best[1]))


def test_outcomes_at_the_borders_of_margin_and_rounding() -> None:
    def outcome(value: float, margin: float = 0.3, *searches: Any) -> str:
        result: Any = compare([value] * 3, Published(1.0, digits=1, sd=0.0, n=5), *searches, margin=margin)
        (reading,) = result.readings
        if not searches:  # no spread: half a digit to each side
            assert (reading.low, reading.high) == pytest.approx((value - 1.05, value - 0.95))
        return str(result.outcome)

    assert [outcome(value) for value in (0.64, 0.65, 1.35, 1.36)] == ["worse", "agrees", "agrees", "better"]
    words = [outcome(value, 0.0) for value in (0.94, 0.96, 1.0, 1.04, 1.06)]
    assert words == ["worse", *["cannot be told apart"] * 3, "better"], "without a margin nothing agrees"
    searches = SearchSpread("rmse", "lower", (1.0, 2.0, 3.0))  # by 2.92 at 90 %, by 4.30 at 95 %
    assert [outcome(1.0, margin, searches) for margin in (2.8, 2.9)] == ["cannot be told apart", "agrees"]


@pytest.mark.parametrize(("n", "k"), [(3, 5), (5, 10), (10, 10)])
def test_quantiles_of_the_best_are_those_of_a_simulation(n: int, k: int) -> None:
    rng = np.random.default_rng(n * 100 + k)
    x = rng.normal(size=(200_000, n))
    pivot = (rng.normal(size=(200_000, k)).max(axis=1) - x.mean(axis=1)) / x.std(axis=1, ddof=1)
    for p in (0.05, 0.5, 0.95):
        assert np.mean(pivot <= best_quantile(n, k, p)) == pytest.approx(p, abs=0.003)


def test_the_best_of_one_is_one_more_run_and_rounding_widens_the_interval() -> None:
    for n in (3, 10):
        expected = scipy.stats.t.ppf(0.975, n - 1) * math.sqrt(1 + 1 / n)
        assert best_quantile(n, 1, 0.975) == pytest.approx(expected, rel=1e-3)
    exact, rounded = (compare([1.0, 2.0, 3.0], Published(2.0, digits=n, sd=1.0, n=3)) for n in (None, 0))
    assert rounded.readings[0].low == pytest.approx(exact.readings[0].low - 0.5)


def test_readings_of_a_number_of_unknown_kind_may_disagree_and_a_margin_decides() -> None:
    ours = [1.0, 1.1, 1.2, 1.3, 1.4]
    names = [r.assumption.partition(",")[0] for r in compare(ours, Published(1.5)).readings]
    assert names == ["mean of any number", "best of 5", "best of 10"]
    for few in ([1.0], [1.0, 1.1]):
        assert compare(few, Published(1.0, digits=1), margin=0.5) is None
    (best,) = compare(ours, Published(1.5, statistic="best", n=7)).readings
    assert best.assumption == "best of 7, spread as ours"
    (best,) = compare(ours, Published(1.5, sd=0.1, statistic="best", n=7)).readings  # whatever its sd is of
    assert best.assumption == "best of 7, spread as ours"
    ours = [1.0, 1.01, 0.99, 1.02, 0.98, 1.0, 1.01, 0.99, 1.0, 1.0]
    result = compare(ours, Published(0.99))  # low for a best of 10, usual for a mean
    assert result.outcome == "not decidable"
    assert {r.outcome for r in result.readings} == {"cannot be told apart", "better"}
    printed = Published(0.99, sd=0.001, n=10, statistic="mean")
    for margin, word in ((0.0, "better"), (0.1, "agrees")):
        assert compare([1.00, 1.001, 0.999, 1.0], printed, margin=margin).outcome == word


@settings(deadline=None)
@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=8),
    st.floats(0.1, 10),
    st.floats(0, 2),
    st.sampled_from(["mean", "unknown"]),
)
def test_mirroring_changes_nothing(values: list[float], value: float, margin: float, statistic: Any) -> None:
    printed, mirrored = (Published(sign * value, statistic=statistic) for sign in (1, -1))
    lower = compare(values, printed, better="lower", margin=margin)
    assert lower.outcome == compare([-v for v in values], mirrored, margin=margin).outcome


def test_a_margin_needs_a_reason_and_no_sign() -> None:
    margin = Margin(value=0.1, relative=0.1, sds=1.0, reason="x")
    assert margin.of(Published(2.0, sd=0.5)) == pytest.approx(0.8)
    refuses(InputError, "reason must say why", Margin, value=0.1)
    refuses(InputError, "relative must not be negative", Margin, relative=-0.1, reason="x")
    for part in ("relative", "sds"):
        refuses(InputError, "reason must say why", Margin, **{part: 0.1})
    assert Margin(relative=0.1, reason="x").of(Published(-2.0)) == pytest.approx(0.2)
    printed = Published(0.0, sd=3.0, n=10, sd_denominator="n")
    assert Margin(sds=1.0, reason="x").of(printed) == pytest.approx(3.0 * math.sqrt(10 / 9))


SEARCHED = Settings("searched here", 22, drawn=24)
WORDS = [
    ("agrees", "agrees", "reached", "context: alike"),
    ("better", "differs: better", "exceeded", "context: ours better"),
    ("worse", "differs: worse", "not reached by our search (24 trials)", "context: theirs better"),
    ("cannot be told apart", "cannot be told apart", "cannot be told apart", "context: cannot be told apart"),
]


@pytest.mark.parametrize(("result", "settled", "searched", "quoted"), WORDS)
def test_words_accuse_no_more_than_settings_permit(result, settled: str, searched: str, quoted: str) -> None:
    def word(settings: Settings, quoted: bool = False) -> str:
        return str(verdict(Comparison(0.0, (Reading("mean of 5", -1.0, 1.0, result),)), settings, quoted))

    assert word(Settings("published")) == word(Settings("official code")) == settled
    assert (word(SEARCHED), word(SEARCHED, quoted=True)) == (searched, quoted)
    if result == "worse":
        assert word(Settings("own")) == "not reached with our settings"


def test_a_constant_that_is_not_beaten_excuses_only_what_is_worse_with_our_settings() -> None:
    def state(outcome: Any, kind: Any, quoted: bool = False) -> Any:
        result = Comparison(0.0, (Reading("mean of 5", -1.0, 1.0, outcome),))
        return verdict(result, Settings(kind), quoted, "majority class")

    excused = State("not shown to beat a constant with our settings", "majority class")
    assert state("worse", "own") == state("worse", "searched here", quoted=True) == excused
    assert [str(state("worse", kind)) for kind in ("published", "official code")] == ["differs: worse"] * 2
    assert str(state("better", "own")) == "exceeded" and str(state("agrees", "own")) == "reached"
    both = Comparison(0.0, (Reading("mean", -1.0, 1.0, "agrees"), Reading("best", -1.0, 1.0, "better")))
    for kind, quoted in (("own", False), ("published", False), ("own", True)):
        assert verdict(both, Settings(kind), quoted).reason == "mean: agrees; best: better"  # type: ignore[arg-type]


def test_settings_are_those_of_the_record() -> None:
    for note, trials in (("24 trials (22 finished)", 22), ("the best of 24 trials", 24)):  # of older records
        old = settings_of({"kind": "searched-here", "note": note})
        assert old == Settings("searched here", trials, 1, 24)
    assert settings_of({"kind": "guessed"}) == Settings("own")
    assert str(settings_of({"kind": "paper"})) == "published"
    assert str(settings_of({"kind": "official-code"})) == "official code"
    searched = settings_of({"kind": "searched-here", "trials": 60, "seeds": 3})
    assert str(searched) == "searched: 60 trials, the best on 3 seeds"
    assert str(settings_of({"kind": "own", "note": "24 trials of another row"})) == "chosen here"
    assert settings_of(None).settled is False
