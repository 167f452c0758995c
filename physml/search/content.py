"""All that is known of a search, for its file of results, and the curves beside it."""

import csv
import io
import statistics
from dataclasses import asdict
from pathlib import Path

from physml.base import files
from physml.base.errors import RecordError
from physml.records import curves
from physml.records.searches import Content, results_path
from physml.run.spec import RunSpec
from physml.search.spec import DESIGN
from physml.search.trials import SearchTrials

CURVE = 12  # rows of a curve that are kept


def content_of(made: SearchTrials) -> Content:
    """All that is known of the search, for its file; `best` is there once there is one."""
    rows = [_row(made, trial) for trial in range(len(made.points))]
    last = len(made.stages) - 1
    best = None
    if any(row["status"] == "finished" for row in rows):
        row = rows[made.best]
        values = [made.score(one) for one in made.specs(last, row["trial"])]
        sd = statistics.stdev(values) if len(values) > 1 else None  # type: ignore[type-var]
        best = {key: row[key] for key in ("trial", "point", "value")} | {"sd": sd, "values": values}
    return {
        "search": made.spec.described,
        "design": DESIGN,
        "sampler_seed": made.seed,
        "scored": sum(made.mean(0, trial) is not None for trial in range(len(made.points))),
        "wants": made.wants,
        "best": best,
        "stages": [_stage(made, i) for i in range(len(made.stages))],
        "rounds": [asdict(one) for one in made.rounds],
        "trials": rows,
        "final": _final(made) if best and made.running == len(made.stages) else None,
    }


def _final(made: SearchTrials) -> Content | None:
    """Test scores of the final runs of a repeat's winner; None before all have ended."""
    scores = {one.label: made.score(one, "test") for one in made.finals}
    values = [value for value in scores.values() if value is not None]
    if not values or not all(made.record(one) for one in made.finals):
        return None
    sd = statistics.stdev(values) if len(values) > 1 else None
    return {
        "metric": made.spec.metric,
        "mean": statistics.fmean(values),
        "sd": sd,
        "values": values,
        "runs": len(scores),
    }


def _row(made: SearchTrials, trial: int) -> Content:
    reached = made.last_stage[trial]
    means = [made.mean(stage, trial) for stage in range(reached + 1)]
    final = reached == len(made.stages) - 1
    ended = all(made.record(one) for one in made.specs(reached, trial))
    status = "missing"
    if ended and means[-1] is None:
        status = "diverged"
    elif ended:
        status = "finished" if final else "waiting" if reached >= made.running else "pruned"
    return {
        "trial": trial,
        "point": made.points[trial],
        "value": means[-1] if status == "finished" else None,
        "status": status,
        "stage": reached + 1,
        "means": means,
        "identity": made.specs(reached, trial)[0].place.identity,
    }


def _stage(made: SearchTrials, i: int) -> Content:
    stage = made.stages[i]
    trials = [trial for trial, reached in enumerate(made.last_stage) if reached >= i]
    costs = [
        cost
        for trial in trials
        for one in made.specs(i, trial)
        if (record := made.record(one)) and (cost := record["cost"])
    ]
    seconds = sum(cost.get("cpu_s", cost["train_s"]) for cost in costs)
    return {
        "set": stage.set,
        "seeds": made.seeds(stage),
        "splits": stage.splits,
        "trials": len(trials),
        "runs": sum(len(made.specs(i, trial)) for trial in trials),
        "cpu_hours": round(seconds / 3600, 4),
    }


def write_curves(made: SearchTrials) -> Path:
    """The validation metric of every run over its steps, thinned."""
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(["trial", "stage", "split", "seed", "step", f"valid/{made.spec.metric}"])
    for trial, reached in enumerate(made.last_stage):
        for stage in range(reached + 1):
            for one in made.specs(stage, trial):
                about = [trial, stage + 1, one.place.split, one.place.seed]
                table.writerows([*about, step, value] for step, value in _curve(made, one))
    path = results_path(made.id).with_suffix(".curves.csv")
    files.write_text(path, text.getvalue())
    return path


def _curve(search: SearchTrials, one: RunSpec) -> list[tuple[int, str]]:
    made = search.record(one)
    try:
        if made is None:
            return []
        steps, values = curves.read_curve(made, f"valid/{search.spec.metric}")
    except RecordError:  # a run that diverged before its first evaluation has none
        return []
    last = len(steps) - 1
    kept = sorted({round(last * i / (CURVE - 1)) for i in range(CURVE)})
    return [(int(steps[i]), f"{values[i]:.4g}") for i in kept]
