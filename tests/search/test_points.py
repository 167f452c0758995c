"""Points cover their space evenly, equally often in each category, and a rare good category is found."""

import math
import random
import statistics
import subprocess
import sys
import warnings
from collections import Counter

import optuna
import pytest

from physml.base.paths import ROOT
from physml.search.points import combination_of, combinations, designed, estimated, importances, promoted

SPACE = {
    "optim.lr": {"low": 1e-3, "high": 1e-1, "log": True},
    "model.dt": {"low": 0.0, "high": 1.0},
    "model.init": ["joint", "separate"],
    "model.chrono": [None, 100],
    "model.n_layers": [1, 2, 4],
}


def counts(space, points):
    return Counter(combination_of(space, point) for point in points)


def test_every_combination_of_categories_has_equally_many_points():
    """Lists of numbers are no categories; points that are given count."""
    assert len(combinations(SPACE)) == 4
    earlier = designed(SPACE, [], 3, seed=5)
    points = [*earlier, *designed(SPACE, earlier, 37, seed=5)]
    assert counts(SPACE, points) == dict.fromkeys(range(4), 10)
    assert {*map(len, (earlier, points))} == {3, 40} and len({str(point) for point in points}) == 40
    assert all({*point} == {*SPACE} for point in points)


def test_points_depend_on_the_seed_go_on_where_they_ended_and_are_of_low_discrepancy():
    points = designed(SPACE, [], 24, seed=5)
    assert designed(SPACE, [], 24, seed=5) == points != designed(SPACE, [], 24, seed=6)
    assert [*points[:9], *designed(SPACE, points[:9], 15, seed=5)] == points
    # Of 16 points each sixteenth of a range has one, on its scale; random draws leave a third empty.
    space = {key: SPACE[key] for key in ("optim.lr", "model.dt")}
    for seed in range(5):
        points = designed(space, [], 16, seed)
        parts = [math.log10(point["optim.lr"] / 1e-3) / 2 for point in points]
        assert len({min(int(16 * part + 1e-3), 15) for part in parts}) >= 15  # rounded to three digits
        assert len({min(int(16 * point["model.dt"]), 15) for point in points}) >= 15


INTERRUPTED = """
import signal
import numpy as np
from physml.search.points import designed

space = {"optim.lr": {"low": 1e-4, "high": 1e-1, "log": True}, "model.a": {"low": 0.0, "high": 1.0}}
read = np.lib.npyio.NpzFile.__getitem__

def interrupted(file, key):
    signal.raise_signal(signal.SIGINT)
    return read(file, key)

signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell's background process ignores it

np.lib.npyio.NpzFile.__getitem__ = interrupted
try:
    designed(space, [], 4, 0)
except KeyboardInterrupt:
    print("stopped", len(designed(space, [], 4, 0)))
"""


def test_ctrl_c_while_scipy_reads_its_numbers_is_not_lost() -> None:
    """SciPy drops an exception there; all points of the process would be equal."""
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, cwd=ROOT)
    assert done.stdout == "stopped 4\n", done.stderr


def test_values_have_three_digits_within_their_range_and_lists_end_when_all_are_drawn() -> None:
    space = {
        "optim.lr": {"low": 1.2345e-3, "high": 1.2391e-3, "log": True},
        "model.bound": [1.00354, 6.283185307179586],
    }
    points = designed(space, [], 6, seed=0)
    assert {point["model.bound"] for point in points} == {1.00354, 6.283185307179586}
    assert all(1.2345e-3 <= point["optim.lr"] <= 1.2391e-3 for point in points)
    more = estimated(space, [(point, float(i)) for i, point in enumerate(points * 2)], 2, 0, "lower")
    assert all(point["model.bound"] in space["model.bound"] for point in more)
    space = {"a": [1, 2, 3], "b": ["x", "y"]}
    points = designed(space, [], 20, seed=1)
    assert len(points) == len({str(point) for point in points}) == 6
    assert designed(space, points, 4, seed=1) == []
    assert estimated(space, [(point, 1.0) for point in points], 4, 1, "lower") == []
    numbers = {"a": list(range(7)), "b": list(range(7))}
    for seed in range(5):
        assert len(designed(numbers, [], 49, seed)) == 49, "the sequence alone leaves some out"
    assert designed({"b": ["x", "y"]}, [], 5, seed=1) in ([{"b": "x"}, {"b": "y"}], [{"b": "y"}, {"b": "x"}])


def test_tpe_draws_near_good_points_and_leaves_no_category_out():
    """A diverged region is left; a given point outside its range does no harm."""
    space = {key: SPACE[key] for key in ("optim.lr", "model.dt", "model.init")}

    def value(point):
        if point["optim.lr"] > 0.05:
            return None
        worse = 10.0 if point["model.init"] == "joint" else 0.0
        return worse + abs(math.log10(point["optim.lr"]) + 2) + 4 * abs(point["model.dt"] - 0.2)

    points = [{"optim.lr": 0.5, "model.dt": 0.5, "model.init": "joint"}]
    points += designed(space, points, 39, seed=3)
    while len(points) < 80:
        points += estimated(space, [(point, value(point)) for point in points], 8, 3, "lower")
    assert counts(space, points) == {0: 40, 1: 40}
    for init in space["model.init"]:
        losses = [value(point) for point in points if point["model.init"] == init]
        first, later = losses[1:20], losses[30:]
        assert statistics.median(filter(None, later)) < statistics.median(filter(None, first))
        assert later.count(None) <= first.count(None)


def test_tpe_takes_a_seed_of_any_size_and_each_category_has_its_share_of_the_second_stage() -> None:
    # Rounds and shares are added to the seed of a search, of which NumPy takes 32 bits.
    space = {"a": {"low": 0.0, "high": 1.0}, "b": {"low": 0.0, "high": 1.0}}
    earlier = [({"a": i / 20, "b": i / 30}, float(i)) for i in range(12)]
    drawn = [estimated(space, earlier, 2, seed, "lower") for seed in (2**32 - 1, 2**32 + 1_000_000)]
    assert [len(points) for points in drawn] == [2, 2] and drawn[0] != drawn[1]
    points = [{"a": {"low": 0}, "init": "joint" if i < 8 else "separate"} for i in range(12)]
    space = {"init": ["joint", "separate"]}
    assert promoted(space, points, list(range(12)), 4) == [0, 1, 8, 9]
    assert promoted(space, points, [9, *range(8)], 4) == [9, 0, 1, 2], "what one cannot fill another one does"
    assert promoted(space, points, list(range(12)), 2) == [0, 8]
    assert promoted(space, points, list(range(12)), 1) == [0]
    assert promoted({"a": {}}, points, list(range(12)), 3) == [0, 1, 2]


def test_importance_of_a_setting_is_its_part_of_the_variance_and_bad_looks_hide_no_category() -> None:
    space = {key: SPACE[key] for key in ("optim.lr", "model.dt", "model.init")}
    tried = [(point, 1 + 100 * point["model.dt"]) for point in designed(space, [], 40, seed=1)]
    shares = importances(space, tried, "lower")
    assert max(shares, key=shares.get) == "model.dt" and sum(shares.values()) == pytest.approx(1)
    assert importances(space, tried[:2], "lower") == {}
    outside = {**tried[0][0], "model.dt": 10.0}  # the row's own setting
    assert importances(space, [*tried, (outside, 1001.0)], "lower").keys() == shares.keys()
    # TPE over categories and ranges alike gets stuck in the fair category; ours does not, on any seed.
    scores = []
    for points, best in map(ours, range(6)):
        assert counts(BENCH, points) == {0: TRIALS // 2, 1: TRIALS // 2}
        assert best["init"] == "separate"
        scores.append(bench(best, random.Random(0), 0.0))
    assert max(scores) <= 1.5 * min(scores) and max(scores) < FAIR / 2
    missed = [ordinary(seed) for seed in range(6)]
    assert sum(best["init"] == "joint" for best in missed) >= 2, "the bench tells the two apart"


# ---------------------------------------------------------------------------- a test bench

# `joint` is quickly fair at short length anywhere in its space; `separate` is worse at most points and far
# better in a small region, as coRNN on FitzHugh-Nagumo was. Values are noisy; a lower one is better.
BENCH = {
    "lr": {"low": 1e-3, "high": 1e-1, "log": True},
    "dt": {"low": 0.02, "high": 1.0, "log": True},
    "gamma": {"low": 0.1, "high": 10.0, "log": True},
    "init": ["joint", "separate"],
}
TRIALS, FIRST, BATCH, KEEP = 160, 40, 8, 20
FAIR, GOOD = 1.0, 0.2  # the best of each category, without noise


def bench(point, rng, noise):
    """A value of a run: quadratic in the logarithms around the optimum of the category, times noise."""
    at = [math.log(point[key] / centre) for key, centre in {"lr": 0.02, "dt": 0.4, "gamma": 1.5}.items()]
    far = math.sqrt(sum(x * x for x in at))
    clean = FAIR * (1 + 0.1 * far) if point["init"] == "joint" else GOOD + 3.0 * min(1.0, far / 2.5) ** 1.5
    return clean * math.exp(rng.gauss(0, noise))


def ours(seed):
    """The points of a search, and its winner: those that go on are tried again on several seeds."""
    rng = random.Random(seed)
    points = designed(BENCH, [], FIRST, seed)
    values = [bench(point, rng, 0.3) for point in points]
    while len(points) < TRIALS:
        points += estimated(BENCH, list(zip(points, values, strict=True)), BATCH, seed, "lower")
        values += [bench(point, rng, 0.3) for point in points[len(values) :]]
    kept = promoted(BENCH, points, sorted(range(TRIALS), key=values.__getitem__), KEEP)
    means = {i: statistics.fmean(bench(points[i], rng, 0.1) for _ in range(3)) for i in kept}
    return points, points[min(means, key=means.get)]


def ordinary(seed):
    """The winner of as many trials of Optuna's estimator over categories and ranges alike."""
    rng = random.Random(seed)
    with warnings.catch_warnings(action="ignore"):  # multivariate is called experimental
        sampler = optuna.samplers.TPESampler(seed=seed, n_startup_trials=FIRST, multivariate=True)
    study = optuna.create_study(sampler=sampler)
    for _ in range(TRIALS):
        trial = study.ask()
        ranges = {key: span for key, span in BENCH.items() if key != "init"}
        point = {key: trial.suggest_float(key, **span) for key, span in ranges.items()}
        point["init"] = trial.suggest_categorical("init", BENCH["init"])
        study.tell(trial, bench(point, rng, 0.3))
    kept = sorted(study.trials, key=lambda trial: trial.value)[:KEEP]
    return min(
        kept, key=lambda trial: statistics.fmean(bench(trial.params, rng, 0.1) for _ in range(3))
    ).params
