"""The points of a search, drawn by Optuna, and its trials kept as an Optuna study."""

import math
import warnings
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from physml.base.errors import needed_by
from physml.base.paths import work_root
from physml.search.space import range_of

Point = dict[str, Any]  # config key -> value
Space = dict[str, Any]  # config key -> a range, or a list to choose from


@dataclass(frozen=True)
class Tried:
    """A trial, for Optuna.

    Args:
        status: finished, pruned or diverged.
        means: Means of its stages, as far as known.
    """

    point: Point
    space: Space
    status: str
    value: float | None
    means: list[float | None] = field(default_factory=list)


def random_points(space: Space, number: int, seed: int) -> list[Point]:
    """All at once, from the seed alone: a search that was stopped goes on with the same ones."""
    optuna = optuna_module()
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=seed))
    return _asked(study, space, number)


def guided_points(
    space: Space, earlier: Sequence[tuple[Point, float | None]], number: int, seed: int, better: str
) -> list[Point]:
    """Points near earlier good ones, by the tree-structured Parzen estimator (TPE) of Optuna.

    Depends on the values of the earlier points and on the seed alone.

    Args:
        earlier: Points with their values; None, which is worse than every number, for a run that diverged.
        better: lower or higher.
    """
    optuna = optuna_module()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", optuna.exceptions.ExperimentalWarning)
        sampler = optuna.samplers.TPESampler(seed=seed, multivariate=True, constant_liar=True)
    study = optuna.create_study(sampler=sampler, direction=_direction(better))
    for point, value in earlier:
        status = "pruned" if value is None else "finished"  # Optuna takes pruned trials for the worst ones
        study.add_trial(_trial(Tried(point, space, status, value)))
    return _asked(study, space, number)


def keep(name: str, better: str, trials: Iterable[Tried]) -> Path:
    """The trials in SQLite, for Optuna's own plots and dashboard."""
    path = work_root() / "search" / f"{name}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    study = optuna_module().create_study(
        storage=f"sqlite:///{path}", study_name=name, direction=_direction(better)
    )
    for one in trials:
        study.add_trial(_trial(one))
    return path


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
    study = optuna.create_study(direction=_direction(better))
    for (point, _), value in zip(tried, values, strict=True):
        study.add_trial(_trial(Tried(point, space, "finished", value)))
    evaluator = optuna.importance.FanovaImportanceEvaluator(seed=0)
    return dict(optuna.importance.get_param_importances(study, evaluator=evaluator))


def optuna_module() -> Any:
    """Optuna without its messages on standard error."""
    with needed_by("a search"):
        import optuna
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    return optuna


def _direction(better: str) -> str:
    return "minimize" if better == "lower" else "maximize"


def _asked(study: Any, space: Space, number: int) -> list[Point]:
    return [rounded(study.ask(distributions(space)).params, space) for _ in range(number)]


def rounded(point: Point, space: Space) -> Point:
    """With three significant digits what was drawn from a range; choices as they are written."""
    return {
        key: float(f"{v:.3g}") if isinstance(v, float) and range_of(space, key) else v
        for key, v in point.items()
    }


def _trial(one: Tried) -> Any:
    import optuna

    states = optuna.trial.TrialState
    return optuna.trial.create_trial(
        state={"finished": states.COMPLETE, "pruned": states.PRUNED, "diverged": states.FAIL}[one.status],
        value=one.value,
        params=one.point,
        distributions=distributions(one.space),
        intermediate_values={i: mean for i, mean in enumerate(one.means) if mean is not None},
    )


def distributions(space: Space) -> dict[str, Any]:
    """Optuna's distribution for each key of a space."""
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    spans = {key: range_of(space, key) for key in space}
    return {
        key: FloatDistribution(span.low, span.high, log=span.log)
        if span
        else CategoricalDistribution(space[key])
        for key, span in spans.items()
    }
