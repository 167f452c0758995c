"""Ranks and interquartile means across columns, against what the literature prints and by property."""

import math

import numpy as np
import pytest
import scipy.stats

from physml.base.errors import InputError
from physml.report.stats import across
from physml.report.stats.across import Ranks, interquartile_mean, mean_ranks, rank_gaps


def test_ranks_follow_the_direction_and_share_ties_and_what_is_not_a_number_is_last_together() -> None:
    scores = {"a": [1.0] * 5, "b": [2.0] * 5, "c": [2.0] * 5, "d": [3.0] * 5}
    assert mean_ranks(scores, ["lower"] * 5).mean == {"a": 1.0, "b": 2.5, "c": 2.5, "d": 4.0}
    assert list(mean_ranks(scores, ["higher"] * 5).mean) == ["d", "b", "c", "a"]
    mixed = {"a": [1, 1, 1, 1, 9.0], "b": [2, 2, 2, 2, 5.0], "c": [3, 3, 3, 3, 1.0]}
    assert mean_ranks(mixed, ["lower"] * 4 + ["higher"]).mean == {"a": 1.0, "b": 2.0, "c": 3.0}
    first, second = (0.1 + 0.2 + 0.3) / 3, (0.3 + 0.2 + 0.1) / 3
    assert first != second  # means of the same values in another order
    scores = {"a": [first] * 5, "b": [second] * 5, "c": [1.0] * 5}
    assert mean_ranks(scores, ["lower"] * 5).mean == {"a": 1.5, "b": 1.5, "c": 3.0}
    nan = float("nan")
    scores = {"a": [1.0] * 4 + [nan], "b": [2.0] * 4 + [nan], "c": [3.0] * 5}
    for better in ("lower", "higher"):
        ranks = mean_ranks(scores, ["lower"] * 4 + [better]).mean
        assert ranks == pytest.approx({"a": (4 + 2.5) / 5, "b": (8 + 2.5) / 5, "c": (12 + 1) / 5})


def test_gaps_of_ranks_speak_of_the_runs() -> None:
    rng = np.random.default_rng(3)
    levels = {"near": 0.1, "first": 0.0, "far": 9.0, "untrained": 20.0}
    rows: dict[str, list[list[float] | None]]
    rows = {row: [*rng.normal(level, 1, size=(6, 5)).tolist()] for row, level in levels.items()}
    rows["untrained"][0] = None
    gaps = rank_gaps(rows, ["lower"] * 6)
    means = {row: [float(np.mean(runs or 20.0)) for runs in all_] for row, all_ in rows.items()}
    ranks = mean_ranks(means, ["lower"] * 6).mean
    best = next(iter(ranks))
    assert set(gaps) == set(rows) - {best}
    for row, gap in gaps.items():
        assert gap.mean == pytest.approx(ranks[row] - ranks[best]) and gap.low <= gap.mean <= gap.high
    assert gaps["far"].low > 0.5 and gaps["untrained"].low > 1.5
    turned = {row: [runs and [-v for v in runs] for runs in all_] for row, all_ in rows.items()}
    assert rank_gaps(turned, ["higher"] * 6) == gaps
    other = list(gaps)[-1]
    ahead = rank_gaps(rows, ["lower"] * 6, other)
    assert ahead[best].mean == -gaps[other].mean and ahead[best].high == -gaps[other].low
    assert list(ahead) == sorted(ahead, key=lambda row: ahead[row].mean) and other not in ahead
    for few in (1, 4):  # other numbers of runs
        assert rank_gaps({**rows, "far": [[9.0] * few] * 6}, ["lower"] * 6) == {}


def test_gaps_are_wider_for_more_rows_and_reach_to_where_the_draws_do() -> None:
    rows = {"first": [[1.0, 1.1, 1.2, 1.3, 1.4]] * 5, "near": [[1.3] * 5] * 5, "last": [[9.0] * 5] * 5}
    three, four = (rank_gaps(rows | more, ["lower"] * 5)["near"] for more in ({}, {"d": [[99.0] * 5] * 5}))
    wider = scipy.stats.studentized_range.ppf(0.95, [3, 4], 5 * (5 - 1))
    assert (four.mean - four.low) / (three.mean - three.low) == pytest.approx(wider[1] / wider[0])
    assert three.mean - three.low > 2 * (three.high - three.mean) > 0, "seldom is the second one ahead"


@pytest.mark.parametrize("rows", [2, 4])
def test_an_interval_is_widened_for_the_fewest_runs_all_degrees_of_freedom_and_all_pairs_of_rows(
    rows: int,
) -> None:
    drawn = np.linspace(2.0, 4.0, 201)  # from 2.05 to 3.95 in 95 %
    degrees = (5 - 1) + (3 - 1)
    quantile = scipy.stats.studentized_range.ppf(0.95, rows, degrees) / math.sqrt(2)
    if rows == 2:
        assert quantile == pytest.approx(scipy.stats.t.ppf(0.975, degrees))
    half = 0.95 * math.sqrt(3 / 2) * quantile / scipy.stats.norm.ppf(0.975)
    middle = across._interval(10.0, drawn, [5, 3], rows)
    assert (middle.mean, middle.low, middle.high) == pytest.approx((10.0, 10.0 - half, 10.0 + half))


def test_the_p_value_of_ranks_is_friedmans() -> None:
    scores = {name: list(np.random.default_rng(k).normal(k, 1.0, 6)) for k, name in enumerate("abc")}
    expected = scipy.stats.friedmanchisquare(*scores.values()).pvalue
    ranks = mean_ranks(scores, ["lower"] * 6)
    assert ranks.p == pytest.approx(expected) and 0.0 < ranks.p < 0.5 and ranks.n_columns == 6


def test_critical_differences_are_those_of_demsar_and_too_little_for_ranks_is_refused() -> None:
    # Demsar 2006, section 3.2.2: k = 4 classifiers on N = 14 data sets, q = 2.569, CD = 1.25
    rng = np.random.default_rng(0)
    scores = {name: list(rng.normal(size=14)) for name in "abcd"}
    assert mean_ranks(scores, ["higher"] * 14).critical == pytest.approx(1.25, abs=0.005)
    ranks = Ranks({"a": 1.0, "b": 1.5, "c": 2.0, "d": 4.5, "e": 4.6}, 6, 0.01, 1.2)
    assert ranks.groups() == [("a", "b", "c"), ("d", "e")]
    for numbers, message in (
        ({"a": 4, "b": 4, "c": 4}, "at least 5 columns and 3 rows; got 4 and 3"),
        ({"a": 5, "b": 5}, "got 5 and 2"),
        ({"a": 5, "b": 5, "c": 1}, "c has fewer"),
    ):
        with pytest.raises(InputError, match=message):
            mean_ranks({row: [1.0] * n for row, n in numbers.items()}, ["higher"] * numbers["a"])


def test_alike_rows_are_seldom_told_apart_and_tied_ones_never() -> None:
    rng = np.random.default_rng(1)
    drawn = ({name: list(rng.normal(size=6)) for name in "abcde"} for _ in range(200))
    all_ranks = [mean_ranks(scores, ["higher"] * 6) for scores in drawn]
    apart = [max(ranks.mean.values()) - min(ranks.mean.values()) > ranks.critical for ranks in all_ranks]
    assert sum(apart) / 200 <= 0.07
    assert mean_ranks(dict.fromkeys("abc", [100.0] * 5), ["higher"] * 5).p == 1.0


def test_the_interval_of_the_interquartile_mean_holds_the_truth_and_one_wild_run_hardly_moves_it() -> None:
    rng = np.random.default_rng(2)
    intervals = [interquartile_mean(rng.normal(size=(3, 10)).tolist()) for _ in range(60)]
    assert sum(interval.low <= 0.0 <= interval.high for interval in intervals) / 60 >= 0.85
    rng = np.random.default_rng(3)
    columns = [list(rng.normal(size=8)) for _ in range(4)]
    tame = interquartile_mean(columns).mean
    columns[0][0] = 1e6
    assert abs(interquartile_mean(columns).mean - tame) < 0.5
    with pytest.raises(InputError, match="at least 3 runs"):
        interquartile_mean([[1.0], [1.0, 2.0]])


@pytest.mark.parametrize("n", [3, 5])
def test_few_runs_have_intervals_wide_enough(n: int) -> None:
    rng = np.random.default_rng(4)
    middles = [interquartile_mean(rng.normal(size=(5, n)).tolist()) for _ in range(100)]
    assert sum(middle.low <= 0.0 <= middle.high for middle in middles) >= 90


def test_equal_rows_are_seldom_behind_the_one_that_luck_put_first() -> None:
    rng = np.random.default_rng(5)
    samples = (dict(enumerate(rng.normal(size=(10, 5, 5)).tolist())) for _ in range(8))
    drawn = [rank_gaps(rows, ["lower"] * 5) for rows in samples]
    assert sum(gap.low > 0 for gaps in drawn for gap in gaps.values()) <= 0.08 * 8 * 9
    assert rank_gaps({"a": [[1.0, 2.0]] * 5, "b": [[2.0, 3.0]] * 5}, ["lower"] * 5) == {}
