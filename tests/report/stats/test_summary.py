"""Statistics against numpy's and scipy's own."""

import math
from typing import Any

import numpy as np
import pytest
import scipy.stats
from hypothesis import given
from hypothesis import strategies as st
from refusals import refuses

from physml.base.errors import InputError
from physml.report.stats import summary as stats
from physml.report.stats.summary import Published, Summary
from physml.report.table.spec import Column

numbers = st.floats(-1e6, 1e6, allow_nan=False)


@given(st.lists(numbers, min_size=2, max_size=20))
def test_summary_is_that_of_numpy_and_scipy(values: list[float]) -> None:
    ours: Any = stats.summarise(values, "lower")
    scale = max(1.0, max(map(abs, values)))
    assert math.isclose(ours.mean, np.mean(values), rel_tol=1e-9, abs_tol=1e-9 * scale)
    assert math.isclose(ours.sd, np.std(values, ddof=1), rel_tol=1e-6, abs_tol=1e-9 * scale)
    half = scipy.stats.sem(values) * scipy.stats.t.ppf(0.975, len(values) - 1)
    assert math.isclose(ours.mean - ours.low, half, rel_tol=1e-6, abs_tol=1e-8 * scale)
    assert ours.best == min(values)


@pytest.mark.parametrize("values", [[], [1.0, math.nan], [math.inf]])
def test_no_summary_of_nothing_or_of_a_diverged_run(values: list[float]) -> None:
    refuses(InputError, r"must be finite|at least one value", stats.summarise, values, "lower")


def test_direction_decides_the_best_one_run_has_no_spread_and_an_interval_ends_where_values_do() -> None:
    assert stats.summarise([1.0, 3.0], "higher").best == 3.0
    assert stats.summarise([1.0, 3.0], "lower").best == 1.0
    assert stats.summarise([2.0], "lower") == Summary(1, 2.0, None, None, None, 2.0)
    assert stats.summarise([31.900000000000002] * 5, "higher").sd == 0.0  # of numpy 4e-15
    assert stats.summarise([100.0, 100.00001, 100.00002], "higher").sd == pytest.approx(1e-5, rel=1e-6)
    ours = stats.summarise([99.0, 100.0, 100.0], "higher", bounds=(0.0, 100.0))
    assert ours.high == 100.0 and ours.low is not None and ours.low < ours.mean
    assert stats.summarise([0.1, 0.9, 0.2], "lower", bounds=(0.0, math.inf)).low == 0.0


def test_spread_over_splits_is_of_the_means_over_seeds_and_on_fixed_ones_of_starts_alone() -> None:
    values = {(j, k): 10.0 * j + k for j in range(3) for k in range(4)}
    ours = stats.summarise_runs(values, "higher", "splits")
    means = [10.0 * j + 1.5 for j in range(3)]
    assert (ours.n, ours.mean, ours.sd) == (3, np.mean(means), np.std(means, ddof=1))
    assert ours.best == 23.0  # of a single run
    assert stats.summarise_runs(values, "higher", "splits", bounds=(0.0, 22.0)).high == 22.0
    assert stats.summarise_runs(values, "higher").n == 12
    rng = np.random.default_rng(0)
    starts = rng.normal(size=(5, 4)) + 10.0 * np.arange(5)[:, None]
    low, high = stats.within_splits(dict(np.ndenumerate(starts))) or (math.nan, math.nan)
    error = math.sqrt(float(np.var(starts, axis=1, ddof=1).sum()) / 4) / 5
    assert math.isclose((low + high) / 2, starts.mean())
    assert math.isclose((high - low) / 2, scipy.stats.t.ppf(0.975, 15) * error)
    assert stats.within_splits({(0, 0): 1.0, (1, 0): 2.0}) is None
    unequal = {(0, 0): 1.0, (0, 1): 3.0, (1, 0): 10.0, (1, 1): 12.0, (1, 2): 14.0}  # variances 2 and 4
    half = scipy.stats.t.ppf(0.975, 3) * math.sqrt(2 / 2 + 4 / 3) / 2
    assert stats.within_splits(unequal) == pytest.approx((7.0 - half, 7.0 + half)), "each split counts alike"
    assert stats.within_splits(unequal | {(2, 0): 1.0}) is None


def test_a_deviation_with_n_below_the_root_is_corrected_and_undeclared_digits_are_refused() -> None:
    values = [1.0, 2.0, 4.0, 9.0]
    printed = Published(4.0, sd=float(np.std(values)), n=4, sd_denominator="n")
    assert math.isclose(printed.sample_sd or 0.0, np.std(values, ddof=1))
    assert Published(4.0, sd=2.0, n=4).sample_sd == 2.0
    assert Published(4.0, sd=2.0, sd_denominator="n").sample_sd == 2.0  # n is not printed
    assert Published(4.0, sd=2.0, n=1, sd_denominator="n").sample_sd == 2.0
    refuses(InputError, "more than digits=1", Published, 1.25, digits=1)
    refuses(InputError, "n must be at least 1; got 0", Published, 1.0, n=0)
    refuses(InputError, "independent must be at least 1; got 0", Published, 1.0, independent=0)
    refuses(InputError, "sd must not be negative", Published, 1.0, sd=-0.1)


@pytest.mark.parametrize(
    ("metric", "better", "unit", "bounds"),
    [
        ("test/accuracy", "higher", "%", (0.0, 100.0)),
        ("test/rmse", "lower", "", (0.0, math.inf)),
        ("test/log10_mse", "lower", "log10 MSE", (-math.inf, math.inf)),
        ("test/r2", "higher", "", (-math.inf, math.inf)),
    ],
)
def test_an_interval_is_cut_where_no_value_can_be(metric, better, unit, bounds):
    assert Column("a", metric, better, "clean", unit=unit, scale=100.0).bounds == bounds


@given(st.lists(numbers, min_size=5, max_size=12))
def test_two_groups_are_all_runs_with_a_gap_wider_than_either(values: list[float]) -> None:
    if groups := stats.two_groups(values):
        low, high = groups
        assert low + high == sorted(values)
        assert high[0] - low[-1] > 4 * max(low[-1] - low[0], high[-1] - high[0])
        assert stats.two_groups([-value for value in values])
    assert stats.two_groups([1.0, 1.0, 1.0, 9.0]) is None  # four
    assert stats.two_groups([93.4, 93.4, 93.4, 93.4, 95.0]) is None  # a gap that is small beside the values
    assert stats.two_groups([-93.4, -93.4, -93.4, -93.4, -95.0]) is None


def test_few_runs_without_groups_are_taken_for_such() -> None:
    draws = np.random.default_rng(0).normal(size=(2000, 5))
    assert sum(stats.two_groups(draw) is not None for draw in draws.tolist()) < 0.04 * len(draws)
