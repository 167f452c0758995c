"""All that is known of a search, for its file of results."""

import statistics
from dataclasses import asdict

from physml.records.searches import Content
from physml.search.spec import DESIGN
from physml.search.trials import SearchTrials


def content_of(search: SearchTrials) -> Content:
    """All that is known of the search, for its file; `best` is there once there is one."""
    rows = [_row(search, trial) for trial in range(len(search.points))]
    last = len(search.stages) - 1
    best = None
    if any(row["status"] == "finished" for row in rows):
        row = rows[search.best]
        values = [search.score(spec) for spec in search.specs(last, row["trial"])]
        sd = statistics.stdev(values) if len(values) > 1 else None  # type: ignore[type-var]
        best = {key: row[key] for key in ("trial", "point", "value")} | {"sd": sd, "values": values}
    return {
        "search": search.spec.described,
        "design": DESIGN,
        "sampler_seed": search.seed,
        "scored": sum(search.mean(0, trial) is not None for trial in range(len(search.points))),
        "wants": search.wants,
        "best": best,
        "stages": [_stage(search, i) for i in range(len(search.stages))],
        "rounds": [asdict(draw) for draw in search.rounds],
        "trials": rows,
        "final": _final(search) if best and search.running == len(search.stages) else None,
    }


def _final(search: SearchTrials) -> Content | None:
    """Test scores of the final runs of a repeat's winner; None before all have ended."""
    scores = {spec.label: search.score(spec, "test") for spec in search.finals}
    values = [value for value in scores.values() if value is not None]
    if not values or not all(search.record(spec) for spec in search.finals):
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {
        "metric": search.spec.metric,
        "mean": statistics.fmean(values),
        "sd": sd,
        "values": values,
        "runs": len(scores),
    }


def _row(search: SearchTrials, trial: int) -> Content:
    reached = search.last_stage[trial]
    means = [search.mean(stage, trial) for stage in range(reached + 1)]
    final = reached == len(search.stages) - 1
    ended = all(search.record(spec) for spec in search.specs(reached, trial))
    status = "missing"
    if ended and means[-1] is None:
        status = "diverged"
    elif ended:
        status = "finished" if final else "waiting" if reached >= search.running else "pruned"
    return {
        "trial": trial,
        "point": search.points[trial],
        "value": means[-1] if status == "finished" else None,
        "status": status,
        "stage": reached + 1,
        "means": means,
        "identity": search.specs(reached, trial)[0].place.identity,
    }


def _stage(search: SearchTrials, i: int) -> Content:
    stage = search.stages[i]
    trials = [trial for trial, reached in enumerate(search.last_stage) if reached >= i]
    costs = [
        cost
        for trial in trials
        for spec in search.specs(i, trial)
        if (record := search.record(spec)) and (cost := record["cost"])
    ]
    seconds = sum(cost.get("cpu_s", cost["train_s"]) for cost in costs)
    return {
        "set": stage.set,
        "seeds": search.seeds(stage),
        "splits": stage.splits,
        "trials": len(trials),
        "runs": sum(len(search.specs(i, trial)) for trial in trials),
        "cpu_hours": round(seconds / 3600, 4),
    }
