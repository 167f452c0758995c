"""Paired gains, Holm's correction and the verdicts of claims, against scipy and by property."""

import dataclasses
import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from made_records import by_seed

from physml.base.errors import InputError
from physml.report.stats import claims
from physml.report.stats.claims import Gain, gain, holm, less, order_verdict, tie_verdict
from physml.report.stats.verdict import Settings, tried_less, tuned_alike


def test_a_paired_gain_takes_out_what_seeds_share_and_has_the_p_values_of_scipy() -> None:
    rough = by_seed([5.0, 1.0, 9.0, 3.0])
    better = {at: value - 0.5 + 0.01 * at[1] for at, value in rough.items()}
    ahead = gain(better, rough, "lower")
    assert ahead.mean == pytest.approx(0.485)
    assert order_verdict(ahead, ahead.p_value(), settled=True) == "holds"
    behind = gain(rough, better, "lower")
    assert order_verdict(behind, behind.p_value(), settled=True) == "contradicted"
    assert order_verdict(behind, behind.p_value(), settled=False) == "not seen with our settings"
    rng = np.random.default_rng(3)
    first, second = rng.normal(0.8, 1.0, 8), rng.normal(0.0, 1.0, 8)
    paired = gain(by_seed(first), by_seed(second), "higher")
    assert paired.p_value() == pytest.approx(scipy.stats.ttest_rel(first, second).pvalue)
    difference = first - second
    below = scipy.stats.ttest_1samp(difference, 2.0, alternative="less").pvalue
    above = scipy.stats.ttest_1samp(difference, -2.0, alternative="greater").pvalue
    assert paired.p_value(2.0) == pytest.approx(max(below, above))


def test_a_ratio_is_that_of_geometric_means_and_is_held_against_a_factor() -> None:
    first, second = by_seed([0.20, 0.25, 0.16, 0.22]), by_seed([0.61, 0.72, 0.50, 0.63])
    ratio: Any = claims.log_ratio(first, second, "lower")
    logs = np.log([*second.values()]) - np.log([*first.values()])
    assert ratio.mean == pytest.approx(logs.mean()) and math.exp(ratio.mean) == pytest.approx(2.97, abs=0.01)
    words = {2.0: "holds", 6.0: "contradicted", math.exp(ratio.mean): "cannot be told apart"}
    for factor, word in words.items():
        shifted = less(ratio, math.log(factor))
        expected = scipy.stats.ttest_1samp(logs, math.log(factor)).pvalue
        assert shifted.p_value() == pytest.approx(expected, abs=1e-9)
        assert order_verdict(shifted, shifted.p_value(), settled=True) == word
    ends = Gain(5, mean=3.0, sd=2.0, low=1.0, high=5.0, new_low=0.0, new_high=6.0)
    assert less(ends, 1.5) == Gain(5, mean=1.5, sd=2.0, low=-0.5, high=3.5, new_low=-1.5, new_high=4.5)
    assert claims.log_ratio(first | {(0, 0): 0.0}, second, "lower") is None
    assert claims.log_ratio(first, second | {(0, 0): -1.0}, "lower") is None


def test_starts_are_averaged_before_splits_are_paired() -> None:
    first = {(j, k): 10.0 * j + k for j in range(4) for k in range(5)}
    second = {(j, k): 10.0 * j + k - 1.0 - 0.1 * j for j in range(4) for k in range(5)}
    paired = gain(first, second, "higher", "splits", test_to_train=0.5)
    assert paired.n == 4  # not 20
    assert paired.mean == pytest.approx(1.15)
    half = scipy.stats.t.ppf(0.975, 3) * np.std([1.0, 1.1, 1.2, 1.3], ddof=1)
    assert paired.high == pytest.approx(1.15 + half * math.sqrt(1 / 4))
    assert paired.new_high == pytest.approx(1.15 + half * math.sqrt(1 / 4 + 0.5))
    assert paired.new_low == pytest.approx(1.15 - half * math.sqrt(1 / 4 + 0.5))
    starts = gain({at: x for at, x in first.items() if at[0] == 0}, second, "higher", "splits")
    assert (starts.n, starts.p_value()) == (1, None), "starts of one split are no splits"
    alone = gain(first, second, "higher")
    assert (alone.n, alone.new_high) == (20, None)


@given(st.dictionaries(st.integers(0, 30).map(str), st.floats(0, 1), max_size=12))
def test_holm_keeps_the_order_and_never_lowers(p_values: dict[str, float]) -> None:
    adjusted = holm(p_values)
    assert adjusted.keys() == p_values.keys()
    ranked = sorted(p_values, key=lambda key: p_values[key])
    assert [adjusted[key] for key in ranked] == sorted(adjusted.values())
    assert all(adjusted[key] >= p for key, p in p_values.items())
    if ranked:
        assert adjusted[ranked[0]] == pytest.approx(min(1.0, p_values[ranked[0]] * len(ranked)))


def test_equal_or_few_runs_are_a_tie_or_no_verdict_and_only_common_ones_are_paired() -> None:
    tie = gain(by_seed([1.0] * 5), by_seed([1.0] * 5), "lower")
    assert order_verdict(tie, tie.p_value(), settled=True) == "cannot be told apart"
    assert tie_verdict(tie, tie.p_value(0.1), 0.1, settled=True) == "holds"
    few = Gain(2, 1.0, 0.1, 0.5, 1.5)
    assert order_verdict(few, few.p_value(), settled=True) is None
    assert tie_verdict(few, few.p_value(5.0), 5.0, settled=True) is None
    paired = gain({(0, 0): 1.0, (0, 7): 99.0}, {(0, 0): 2.0, (1, 0): 50.0}, "lower")
    assert (paired.n, paired.mean, paired.p_value()) == (1, 1.0, None)
    with pytest.raises(InputError, match="share none"):
        gain({(0, 0): 1.0}, {(0, 1): 1.0}, "lower")
    same = {(0, seed): 0.1 + 0.2 for seed in range(5)}
    rounded = claims.gain(same, dict.fromkeys(same, 0.3), "higher")
    assert (rounded.mean, rounded.sd, rounded.p_value()) == (0.0, 0.0, 1.0)
    for size in (1e-12, 1.0, 1e12):  # small beside the values, and of small values, is still a difference
        apart = claims.differences(by_seed([size]), by_seed([size * (1 + 1e-8)]), "lower")
        assert apart == {(0, 0): pytest.approx(1e-8 * size, rel=1e-6, abs=0)}
    for n, word in ((5, "cannot be told apart"), (6, "holds")):  # no spread: the sign test
        alike = gain(by_seed([0.4] * n), by_seed([0.3] * n), "higher")
        assert (alike.sd, alike.p_value()) == (0.0, 2 * 0.5**n)
        assert order_verdict(alike, alike.p_value(), settled=True) == word


def test_a_tie_and_that_it_is_contradicted_only_after_correction_for_all_comparisons() -> None:
    def verdict(mean: float, sd: float) -> str | None:
        values = by_seed(mean + sd * x for x in (-1.0, 0.0, 1.0, -1.0, 1.0))
        difference = gain(values, by_seed([0.0] * 5), "higher")
        return tie_verdict(difference, difference.p_value(0.2), 0.2, settled=True)

    assert verdict(0.0, 0.1) == "holds" and verdict(0.1, 1.0) == "cannot be told apart"
    assert verdict(0.5, 0.1) == verdict(-0.5, 0.1) == "contradicted"
    on_the_margin = gain(by_seed([1.1] * 3), by_seed([1.0] * 3), "higher")  # by 0.10000000000000009
    assert tie_verdict(on_the_margin, on_the_margin.p_value(0.1), 0.1, settled=True) == "holds"
    assert on_the_margin.p_value(0.09) == 1.0, "no spread, and beyond the margin"
    assert tie_verdict(Gain(5, 0.0, 0.1), 0.06, 0.2, settled=True) == "cannot be told apart"
    assert tie_verdict(Gain(5, 9.0, 0.1), 1.0, 0.2, settled=False) == "not seen with our settings"
    values = by_seed(0.2 + 0.1 * x for x in (0.4, 0.8, 1.0, 1.2, 1.6))  # above the margin with p = 0.008
    difference = gain(values, by_seed([0.0] * 5), "higher")
    p = difference.p_value(0.2)
    beyond = scipy.stats.ttest_1samp([*values.values()], 0.2).pvalue
    below = gain(by_seed([0.0] * 5), values, "higher")
    for unlike in (difference, below):
        assert claims.unlike_p(unlike, 0.2, 6) == pytest.approx(6 * beyond)
        assert claims.unlike_p(unlike, 0.2, 600) == 1.0
    assert tie_verdict(difference, p, 0.2, settled=True) == "contradicted"
    assert tie_verdict(difference, p, 0.2, settled=True, comparisons=6) == "contradicted"
    assert tie_verdict(difference, p, 0.2, settled=True, comparisons=7) == "cannot be told apart"


def test_a_sign_test_leaves_out_ties_and_a_p_value_has_two_digits() -> None:
    for gains in ([0.0, 1, 1, 1, 1, 1], [1, 1, 1, 1], [-1, 1, 1, 1, 1, 1, 1, 1], [-1, 1, 1, 1, 1, 1, 1]):
        apart = [gain for gain in gains if gain]
        p = scipy.stats.binomtest(sum(gain > 0 for gain in apart), len(apart), alternative="greater").pvalue
        assert claims.mostly_ahead(gains) == (p < 0.05), gains
    assert not claims.mostly_ahead([0.0, 0.0])
    assert [claims.p_text(p) for p in (0.0312, 0.000123, 0.00009)] == [
        "p = 0.031",
        "p = 0.00012",
        "p < 0.0001",
    ]


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "cannot be told apart"], "cannot be told apart"),
        (["not seen with our settings", "cannot be told apart"], "not seen with our settings"),
        (["holds", None], None),
        (["contradicted", None], "contradicted"),  # one is enough
        ([], None),
    ],
)
def test_a_claim_of_several_parts(parts: list[Any], expected: str | None) -> None:
    assert claims.all_verdict(parts) == expected


def test_rows_are_judged_only_where_they_were_tuned_alike() -> None:
    few, many = Settings("searched here", 22, 1, 24), Settings("searched here", 150, 3, 160)
    paper, code, own = Settings("published"), Settings("official code"), Settings("own")
    assert tuned_alike(few, dataclasses.replace(few, trials=24)), "trials that diverge are spent too"
    assert not tuned_alike(few, many) and not tuned_alike(many, dataclasses.replace(many, seeds=1))
    assert tuned_alike(paper, code) and tuned_alike(paper, many) and tuned_alike(own, own)
    assert not tuned_alike(own, paper) and not tuned_alike(few, own)
    assert not tuned_alike(own, own, searched=True) and not tuned_alike(paper, many, searched=True)
    assert tuned_alike(many, many, searched=True)
    assert tried_less(few, dataclasses.replace(many, seeds=few.seeds)) and not tried_less(many, few)
    assert not tried_less(few, many) and not tried_less(own, many)
    unknown = Settings("searched here")
    assert not tuned_alike(unknown, unknown) and not tried_less(many, many)
