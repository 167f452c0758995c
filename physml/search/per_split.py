"""A search for each split, on its own validation nodes alone, and a final run with what was found.

The settings of a row hold for all splits, found on the first few. This shows what a choice for each split
would change; the settings of the row stay as they are.
"""

import statistics
import time
from dataclasses import replace
from typing import Any

from physml.base import files
from physml.base.errors import ConfigError
from physml.base.paths import display_path
from physml.config.compose import compose
from physml.config.search_schema import Stage
from physml.queue import plan as planning
from physml.queue import scheduler
from physml.records.schema import Record
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec, checked_specs
from physml.search import plain as search
from physml.search.plain import SearchSpec
from physml.search.results import final_runs
from physml.search.staged import Lacking, StagedSearch, Trainer
from physml.search.state import results_path


def carry_out(name: str, *, jobs: int | None, max_hours: float | None = None, verify: str = "bytes") -> int:
    """Search and train on each split that the tables of an experiment have.

    Writes results/search/<id>-per_split.json. Returns the exit code, as for a search in stages.
    """
    spec = search.load_search(name)
    search.in_this_checkout(spec.experiment)
    runs = _finals(spec)
    until = None if max_hours is None else time.monotonic() + 3600 * max_hours
    finals: dict[int, list[RunSpec]] = {}
    for split in sorted({split for split, _ in runs}):
        made = StagedSearch(_on_split(spec, split), verify, split=split)
        made.check()
        made.refuse_blocked()
        try:
            made.advance(Trainer(made, jobs, _left(until)).train)
        except Lacking as error:
            return error.code
        best = made.write()["best"]
        seeds = [seed for at, seed in runs if at == split]
        finals[split] = [_final(spec, best["point"], split, seed, verify) for seed in seeds]
    wanted = [one for of_split in finals.values() for one in of_split]
    todo = [one for one in wanted if _ended(one) is None]
    outcome = scheduler.carry_out(planning.plan(todo), jobs=jobs, max_hours=_left(until))
    records = {one.label: _ended(one) for one in wanted}
    if lacking := [label for label, made in records.items() if made is None]:
        print(f"{spec.id}: {len(lacking)} final runs lack a result. The same command makes them.")
        return outcome.exit_code or 75
    print("\n".join(_report(spec, finals, records)))
    return 0


def _finals(spec: SearchSpec) -> list[tuple[int, int]]:
    """Split and seed of the final runs."""
    runs = sorted(final_runs(spec.experiment))
    if spec.stages is None or len({split for split, _ in runs}) < 2:
        raise ConfigError(
            f"search {spec.id}: --per-split is for a search with stages, of a row that tables train on "
            "several splits."
        )
    return runs


def _on_split(spec: SearchSpec, split: int) -> SearchSpec:
    """The same search on one split; where several splits decide, as many seeds do."""
    stages = [
        Stage(
            stage.keep, stage.set, stage.seeds or [spec.seed + i for i in range(len(stage.splits))], [split]
        )
        for stage in spec.stages or []
    ]
    return replace(spec, stages=stages, equal=[])


def _final(spec: SearchSpec, point: dict[str, Any], split: int, seed: int, verify: str) -> RunSpec:
    changes = {"data.verify": verify, **spec.set, **spec.trial, **point}
    overrides = [f"{key}={search.written(value)}" for key, value in changes.items()]
    (made,) = checked_specs([compose([f"experiment={spec.experiment}", "tracker=none", *overrides])])
    place = replace(made.place, folder=f"adhoc/per_split/{spec.id}", split=split, seed=seed)
    return replace(made, config=made.config | {"split": split, "seed": seed}, place=place)


def _ended(one: RunSpec) -> Record | None:
    made = existing(one)
    return made if made is not None and made["status"] in DONE else None


def _left(until: float | None) -> float | None:
    return None if until is None else max((until - time.monotonic()) / 3600, 1e-9)


def _report(
    spec: SearchSpec, finals: dict[int, list[RunSpec]], records: dict[str, Record | None]
) -> list[str]:
    """Writes the file too: the test scores of each split, whose search has a file of its own."""
    scores: dict[int, list[float]] = {}
    for split, runs in finals.items():
        best = [made["metrics"]["best"] for one in runs if (made := records[one.label])]
        values = [one["test"].get(spec.metric) for one in best if one]
        scores[split] = [value for value in values if value is not None]
    means = [statistics.fmean(values) for values in scores.values() if values]
    mean = statistics.fmean(means) if means else None
    sd = statistics.stdev(means) if len(means) > 1 else None
    path = results_path(f"{spec.id}-per_split")
    rows = [
        {"split": split, "search": f"{spec.id}-split{split}", "test": values}
        for split, values in scores.items()
    ]
    metric = f"test/{spec.metric}"
    content = {"search": search.described(spec), "metric": metric, "mean": mean, "sd": sd, "splits": rows}
    files.write_json(path, content)
    lines = [
        f"  split {split}: {', '.join(f'{x:.4g}' for x in values) or 'no number'}"
        for split, values in scores.items()
    ]
    whole = "no run gave a number"
    if mean is not None:
        whole = f"{mean:.4g}" + ("" if sd is None else f" ± {sd:.2g} over {len(means)} splits")
    return [
        f"{spec.id}: {metric}, settings chosen on each split's own validation data:",
        *lines,
        f"  {whole}",
        f"written: {display_path(path)}",
    ]
