"""The points of a search: a low-discrepancy design, then estimates near good points, within categories.

A choice among words, switches or nothing is a category; a list of numbers is a dimension like a range. The
combinations of categories share the trials equally, so none is dropped because its first trials were unlucky.
Within a combination the first points are a scrambled Sobol sequence, which covers the other dimensions evenly
(Owen 1998), and later ones are proposed by the tree-structured Parzen estimator (Bergstra et al. 2011).
"""

import itertools
import math
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from physml.base.check import is_number
from physml.base.errors import needed_by
from physml.search.space import Range, range_of
from physml.training.interrupt import deferred

Point = dict[str, Any]  # config key -> value
Space = dict[str, Any]  # config key -> a range, or a list to choose from

ESTIMATED_FROM = 10  # trials of a combination; before, its Sobol sequence goes on
TRIES = 16  # proposals of TPE beyond the points that are wanted, which may have been tried before


def is_category(offered: Any) -> bool:
    """True for a list to choose from that is not all numbers."""
    return isinstance(offered, list) and not all(map(is_number, offered))


def combinations(space: Space) -> list[Point]:
    """Each combination of the categories; one empty one where there are none.

    Example:
        >>> combinations({"init": ["joint", "separate"], "dt": [0.1, 1.0]})
        [{'init': 'joint'}, {'init': 'separate'}]
    """
    offered = {key: value for key, value in space.items() if is_category(value)}
    return [dict(zip(offered, chosen, strict=True)) for chosen in itertools.product(*offered.values())]


def combination_of(space: Space, point: Point) -> int:
    """Number of the combination that a point belongs to."""
    return combinations(space).index({key: point[key] for key in space if is_category(space[key])})


def designed(space: Space, earlier: Sequence[Point], number: int, seed: int) -> list[Point]:
    """Points of the Sobol sequence of each combination, with equal numbers for all, `earlier` ones counted.

    The sequences go on where `earlier` points of the same seed ended. Fewer come where a space of lists alone
    has no more.
    """
    return _shared(
        space, earlier, number, seed, lambda share: _sobol(space, share, seed, len(earlier) + number)
    )


def estimated(
    space: Space, earlier: Sequence[tuple[Point, float | None]], number: int, seed: int, better: str
) -> list[Point]:
    """Points near good ones of the same combination, by TPE; all combinations get equally many.

    Depends on the earlier points, their values and the seed alone.

    Args:
        earlier: Points with their values; None, which is worse than every number, for a run that diverged.
        better: lower or higher.
    """
    points = [point for point, _ in earlier]

    def proposals(share: int) -> Iterator[Point]:
        known = [(point, value) for point, value in earlier if combination_of(space, point) == share]
        if len(known) >= ESTIMATED_FROM and len(space) > len(combinations(space)[share]):
            yield from itertools.islice(_tpe(space, share, known, seed + len(points), better), number + TRIES)
        yield from _sobol(space, share, seed, len(points) + number)

    return _shared(space, points, number, seed, proposals)


def _shared(
    space: Space, earlier: Sequence[Point], number: int, seed: int, drawn: Callable[[int], Iterator[Point]]
) -> list[Point]:
    """New points, each for the combination that has the fewest so far, in an order of the seed."""
    shares = combinations(space)
    counts = [0] * len(shares)
    for earlier_point in earlier:
        counts[combination_of(space, earlier_point)] += 1
    order = [int(i) for i in np.random.default_rng(seed).permutation(len(shares))]
    sources = {share: drawn(share) for share in order}
    points: list[Point] = []
    known = list(earlier)
    while sources and len(points) < number:
        share = min(sources, key=lambda i: (counts[i], order.index(i)))
        point: Point | None = next((new for new in sources[share] if new not in known), None)
        if point is None:  # lists alone, and all tried
            del sources[share]
            continue
        counts[share] += 1
        points.append(point)
        known.append(point)
    return points


def _sobol(space: Space, share: int, seed: int, most: int) -> Iterator[Point]:
    from scipy.stats import qmc

    chosen = combinations(space)[share]
    free = [key for key in space if key not in chosen]
    if not free:
        yield dict(chosen)
        return
    with deferred():  # the first one reads SciPy's direction numbers; interrupted there, all points are equal
        sequence = qmc.Sobol(len(free), rng=np.random.default_rng([seed, share]))
    for row in sequence.random_base2(math.ceil(math.log2(2 * most + 2))):
        parts = dict(zip(free, map(float, row), strict=True))
        yield {key: chosen[key] if key in chosen else _at(space, key, parts[key]) for key in space}
    if all(range_of(space, key) is None for key in free):  # what the sequence has not met of a grid
        for values in itertools.product(*(space[key] for key in free)):
            parts = dict(zip(free, values, strict=True))
            yield {key: chosen[key] if key in chosen else parts[key] for key in space}


def _at(space: Space, key: str, part: float) -> Any:
    """The value at a part of a range, on its scale, with three significant digits, or of a list."""
    span = range_of(space, key)
    if span is None:
        return space[key][min(int(part * len(space[key])), len(space[key]) - 1)]
    if span.log:
        return rounded(span.low * (span.high / span.low) ** part, span)
    return rounded(span.low + part * (span.high - span.low), span)


def rounded(value: float, span: Range) -> float:
    """Three significant digits, within the range."""
    return min(max(float(f"{value:.3g}"), span.low), span.high)


# ---------------------------------------------------------------------------- TPE


def _tpe(
    space: Space, share: int, earlier: Sequence[tuple[Point, float | None]], seed: int, better: str
) -> Iterator[Point]:
    """Proposals; each asks for another one nearby, since those that were asked for count as bad."""
    optuna = optuna_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(
            seed=(seed + share) % 2**32, multivariate=True, constant_liar=True, n_startup_trials=1
        )
    chosen = combinations(space)[share]
    free = {key: _dimension(space, key) for key in space if key not in chosen}
    study = optuna.create_study(sampler=sampler, direction=direction(better))
    states = optuna.trial.TrialState
    for point, value in earlier:
        params = {key: _place(space, key, point[key]) for key in free}
        if all(dimension._contains(params[key]) for key, dimension in free.items()):
            state = states.PRUNED if value is None else states.COMPLETE  # pruned ones are the worst to TPE
            trial = optuna.trial.create_trial(state=state, value=value, params=params, distributions=free)
            study.add_trial(trial)
    while True:
        asked = study.ask(free).params
        yield {key: chosen[key] if key in chosen else _value(space, key, asked[key]) for key in space}


def _dimension(space: Space, key: str) -> Any:
    from optuna.distributions import FloatDistribution, IntDistribution

    span = range_of(space, key)
    if span is None:
        return IntDistribution(0, len(space[key]) - 1)
    return FloatDistribution(span.low, span.high, log=span.log)


def _place(space: Space, key: str, value: Any) -> Any:
    """A value of a range, or the place in a list."""
    return value if range_of(space, key) else space[key].index(value)


def _value(space: Space, key: str, asked: Any) -> Any:
    span = range_of(space, key)
    return space[key][asked] if span is None else rounded(asked, span)


# ---------------------------------------------------------------------------- promotion


def promoted(space: Space, points: Sequence[Point], ranked: Sequence[int], keep: int) -> list[int]:
    """The trials that go on to the second stage: an equal share of each combination, then the best others.

    Args:
        ranked: Numbers of the trials with a value, best first.
    """
    share = max(1, keep // len(combinations(space)))
    taken: dict[int, int] = {}
    first = []
    for trial in ranked:
        of = combination_of(space, points[trial])
        if taken.setdefault(of, 0) < share:
            taken[of] += 1
            first.append(trial)
    others = [trial for trial in ranked if trial not in first]
    kept = {*[*first, *others][:keep]}
    return [trial for trial in ranked if trial in kept]


# ---------------------------------------------------------------------------- Optuna


def importances(space: Space, tried: Sequence[tuple[Point, float]], better: str) -> dict[str, float]:
    """The part of the values' variance that each key explains, by fANOVA; empty for too few trials.

    Values that are all positive count by their logarithm.
    """
    optuna = optuna_module()
    values = [value for _, value in tried]
    if len(set(values)) < max(4, len(space)):
        return {}
    if min(values) > 0:
        values = [math.log(value) for value in values]
    study = optuna.create_study(direction=direction(better))
    kinds = distributions(space, *(point for point, _ in tried))  # alike in all, or Optuna drops the key
    for (point, _), value in zip(tried, values, strict=True):
        study.add_trial(optuna.trial.create_trial(value=value, params=point, distributions=kinds))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def distributions(space: Space, *points: Point) -> dict[str, Any]:
    """Optuna's distribution for each key of a space, wide enough for points that lie outside."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    kinds: dict[str, Any] = {}
    for key, offered in space.items():
        if span := range_of(space, key):
            tried = [point[key] for point in points]
            kinds[key] = FloatDistribution(min(span.low, *tried), max(span.high, *tried), log=span.log)
        else:
            kinds[key] = CategoricalDistribution(offered)
    return kinds


def optuna_module() -> Any:
    """Optuna without its messages on standard error."""
    with needed_by("a search"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def direction(better: str) -> str:
    return "minimize" if better == "lower" else "maximize"
