"""Statistics against scipy's own, and verdicts at every border."""

import math

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st

from physml.errors import InputError
from physml.reporting import stats
from physml.reporting.stats import Published, Summary

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(numbers, min_size=2, max_size=20))
def test_summary_is_that_of_numpy_and_scipy(values: list[float]) -> None:
    ours = stats.summarise(values, "lower")
    scale = max(1.0, max(map(abs, values)))
    assert ours.sd is not None and ours.half_width is not None
    assert math.isclose(ours.mean, np.mean(values), rel_tol=1e-9, abs_tol=1e-9 * scale)
    assert math.isclose(ours.sd, np.std(values, ddof=1), rel_tol=1e-6, abs_tol=1e-9 * scale)
    half = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1)
    assert math.isclose(ours.half_width, half, rel_tol=1e-6, abs_tol=1e-8 * scale)
    assert ours.best == min(values)


def test_direction_decides_the_best() -> None:
    assert stats.summarise([1.0, 3.0], "higher").best == 3.0
    assert stats.summarise([1.0, 3.0], "lower").best == 1.0


def test_one_run_has_no_spread() -> None:
    assert stats.summarise([2.0], "lower") == Summary(1, 2.0, None, None, None, 2.0)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_summary_of_nothing_or_of_a_diverged_run(values: list[float]) -> None:
    with pytest.raises(InputError, match=r"must be finite|at least one value"):
        stats.summarise(values, "lower")


def test_spread_over_splits_is_of_the_means_over_seeds() -> None:
    values = {(j, k): 10.0 * j + k for j in range(3) for k in range(4)}
    ours = stats.summarise_runs(values, "higher", "splits")
    means = [10.0 * j + 1.5 for j in range(3)]
    assert (ours.n, ours.mean, ours.sd) == (3, np.mean(means), np.std(means, ddof=1))
    assert ours.best == 23.0  # of a single run
    assert stats.summarise_runs(values, "higher").n == 12


@pytest.mark.parametrize(
    ("published", "margins", "expected"),
    [
        (Published(1.2, digits=1), {}, 0.05),
        (Published(31.0, digits=0), {}, 0.5),
        (Published(2.0), {}, 0.0),
        (Published(1.2, digits=1), {"margin": 0.3}, 0.35),
        (Published(1.2, digits=1), {"relative_margin": 0.1}, 0.17),
        # sd and n printed: the paper's own interval takes the place of the margin
        (
            Published(92.3, digits=1, sd=1.8, n=5, statistic="mean"),
            {"margin": 7.0},
            0.05 + scipy.stats.t.ppf(0.975, 4) * 1.8 / math.sqrt(5),
        ),
        # an sd without its n, or of one run, makes no interval
        (Published(92.3, digits=1, sd=1.8), {"margin": 0.5}, 0.55),
        (Published(92.3, digits=1, sd=1.8, n=1), {"margin": 0.5}, 0.55),
    ],
)
def test_tolerance(published: Published, margins: dict[str, float], expected: float) -> None:
    assert stats.tolerance(published, **margins) == pytest.approx(expected, rel=1e-12)


def interval(low: float, high: float, n: int = 3, best: float = 0.0) -> Summary:
    return Summary(n, (low + high) / 2, 1.0, low, high, best)


@pytest.mark.parametrize(
    ("low", "high", "lower", "higher"),
    [
        (0.9, 1.1, "agrees", "agrees"),
        (0.8, 1.2, "agrees", "agrees"),  # both borders belong to it
        (0.5, 0.79, "better", "worse"),
        (1.21, 1.4, "worse", "better"),
        (0.7, 0.9, "inconclusive", "inconclusive"),
        (1.1, 1.3, "inconclusive", "inconclusive"),
        (0.1, 9.0, "inconclusive", "inconclusive"),  # wider than the tolerance on both sides
        (0.7, 0.8, "inconclusive", "inconclusive"),  # touches from outside
    ],
)
def test_verdict_of_a_mean(low: float, high: float, lower: str, higher: str) -> None:
    for statistic in ("mean", "unknown"):
        published = Published(1.0, statistic=statistic)
        assert stats.verdict(interval(low, high), published, 0.2, "lower") == lower
        assert stats.verdict(interval(low, high), published, 0.2, "higher") == higher


def test_rounding_error_does_not_move_a_border() -> None:
    assert 0.35 < 0.4 - 0.05  # so a plain comparison would say inconclusive
    assert stats.verdict(interval(0.35, 0.4), Published(0.4), 0.05, "lower") == "agrees"


@pytest.mark.parametrize(("best", "expected"), [(1.1, "agrees"), (0.5, "better"), (1.3, "worse")])
def test_a_published_best_is_held_against_our_best(best: float, expected: str) -> None:
    published = Published(1.0, statistic="best", n=3)
    assert stats.verdict(interval(5.0, 6.0, best=best), published, 0.2, "lower") == expected


@pytest.mark.parametrize("values", [[1.0], [1.0, 1.0]])
def test_no_verdict_below_three_runs(values: list[float]) -> None:
    ours = stats.summarise(values, "lower")
    assert stats.verdict(ours, Published(1.0, digits=1), 0.5, "lower") is None
    assert stats.order_verdict(ours) is None
    assert stats.tie_verdict(ours, 5.0) is None


@given(
    st.lists(st.floats(0.1, 10), min_size=3, max_size=8),
    st.floats(0.1, 10),
    st.floats(0, 2),
    st.floats(-5, 5),
)
def test_mirroring_swaps_better_and_worse(
    values: list[float], published: float, tol: float, shift: float
) -> None:
    lower = stats.verdict(stats.summarise(values, "lower"), Published(published), tol, "lower")
    mirrored = stats.summarise([-v for v in values], "higher")
    assert stats.verdict(mirrored, Published(-published), tol, "higher") == lower


def test_paired_gain_takes_out_what_seeds_share() -> None:
    rough = {(0, k): v for k, v in enumerate([5.0, 1.0, 9.0, 3.0])}
    better = {at: value - 0.5 + 0.01 * at[1] for at, value in rough.items()}
    gain = stats.paired(better, rough, "lower")
    assert gain.mean == pytest.approx(0.485)
    assert stats.order_verdict(gain) == "holds"
    assert stats.order_verdict(stats.paired(rough, better, "lower")) == "contradicted"
    assert stats.order_verdict(stats.paired(better, rough, "higher")) == "contradicted"
    unpaired = stats.summarise(list(better.values()), "lower"), stats.summarise(list(rough.values()), "lower")
    assert unpaired[0].high > unpaired[1].low  # type: ignore[operator]  # apart they could not be told


def test_only_common_runs_are_paired() -> None:
    gain = stats.paired({(0, 0): 1.0, (0, 7): 99.0}, {(0, 0): 2.0, (1, 0): 50.0}, "lower")
    assert (gain.n, gain.mean) == (1, 1.0)
    with pytest.raises(InputError, match="share none"):
        stats.paired({(0, 0): 1.0}, {(0, 1): 1.0}, "lower")


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.1, 0.2, "holds"),
        (0.3, 0.4, "contradicted"),
        (-0.4, -0.3, "contradicted"),
        (0.1, 0.3, "inconclusive"),
    ],
)
def test_tie(low: float, high: float, expected: str) -> None:
    assert stats.tie_verdict(interval(low, high), 0.2) == expected


@pytest.mark.parametrize(
    ("parts", "expected"),
    [
        (["holds", "holds"], "holds"),
        (["holds", "inconclusive"], "inconclusive"),
        (["holds", None], None),
        (["contradicted", None], "contradicted"),  # one is enough
        ([], None),
    ],
)
def test_a_claim_of_several_parts(parts: list[stats.ClaimVerdict | None], expected: str | None) -> None:
    assert stats.all_verdict(parts) == expected


def test_a_value_with_more_digits_than_declared_is_refused() -> None:
    with pytest.raises(InputError, match="more than digits=1"):
        Published(1.25, digits=1)
