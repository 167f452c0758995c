"""Random search on validation data: equal budgets, all trials kept, the best one becomes the setting.

A row of conf/study names its search: a space and a budget. Trials are runs like any other, of which only the
validation metric is read; test data are not scored. Optuna draws the points and keeps them. The best trial is
written to <task>.searched.yaml beside the study; files that a person wrote are never changed.
A search is done when every trial has finished or diverged; one that was killed or has failed is made again.
"""

import fnmatch
import sys
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import yaml

from physml.base import files
from physml.base.errors import ConfigError, RunFailed, suggest
from physml.base.lock import held
from physml.base.paths import CONF, INSTALLED, display_path, results_root, work_root
from physml.config import conf_files, studies
from physml.config.compose import compose
from physml.config.load import read_yaml
from physml.config.search_schema import Search
from physml.config.studies import Found
from physml.queue import planning, scheduler
from physml.report.table.spec import natural
from physml.run import state as run_state
from physml.run.attempt import DONE
from physml.run.perform import existing
from physml.run.spec import RunSpec, checked_specs
from physml.search.points import Point, Tried, keep, random_points
from physml.search.space import Range, range_of
from physml.search.state import is_done

KEYS = ("metric", "better", "trials", "seed", "set", "trial", "points", "space", "sampler", "pruner")
UNUSED = {"set": {}, "points": [], "sampler": "random", "pruner": "none"}
KINDS = {"random": "Random", "tpe": "TPE", "gp": "Gaussian process", "cmaes": "CMA-ES"}
WRITTEN = "# Written by `physml search`: the best trial of each search. Do not edit."


@dataclass(frozen=True)
class SearchSpec(Search):
    """A search of one experiment. `id` names its results and trials."""

    id: str = field(kw_only=True)
    experiment: str = field(kw_only=True)

    def range(self, key: str) -> Range | None:
        """The range of `key`, or None if it is a list of choices."""
        return range_of(self.space, key, f"search {self.id}")


def load_search(name: str) -> SearchSpec:
    """The search of an experiment, by the experiment's name or by the id of its results.

    Errors: ConfigError for an unknown name, with near names, and for a space that cannot be drawn from.
    """
    ident, experiment = studies.search_named(name, CONF)
    study, _ = studies.row_of(experiment, CONF)
    content = vars(studies.search_of(experiment, CONF))
    content["equal"] = [studies.named(one, study, CONF) for one in content["equal"]]
    spec = SearchSpec(**content, id=ident, experiment=experiment)
    if spec.better not in ("lower", "higher"):
        raise ConfigError(f"search {ident}: better must be lower or higher; got {spec.better!r}.")
    if spec.trials < 1 or not spec.space:
        raise ConfigError(f"search {ident}: a search needs at least one trial and a space.")
    for key, value in spec.space.items():
        if value == []:
            raise ConfigError(f"search {ident}: {key}: an empty list leaves nothing to choose from.")
        span = spec.range(key)
        for point in spec.points:
            if not (span.low <= point[key] <= span.high if span else point[key] in value):
                raise ConfigError(f"search {ident}: points: {key} {point[key]} is not in its range.")
    return spec


def named(names: list[str], *, missing: bool) -> list[str]:
    """Names of searches, with the experiments that fit a pattern such as sequence/recall-*, each once.

    Args:
        names: as `load_search` takes them, or patterns.
        missing: leave out those that are done.
    Errors: ConfigError for a pattern that fits none, and with `missing` for an unknown name.
    """
    found: list[str] = []
    for name in names:
        fitting = [name]
        if not conf_files.is_path(name) and set(name) & set("*?["):
            fitting = fnmatch.filter(studies.searches(CONF).values(), name)
            if not fitting:
                raise ConfigError(f"no search fits {name}. `physml list searches` shows all.")
        found += fitting
    found = list(dict.fromkeys(found))
    return [name for name in found if not is_done(studies.search_named(name, CONF)[0])] if missing else found


def described(spec: SearchSpec) -> dict[str, Any]:
    """The search as its study has it, for the file of its results. What is not used is left out."""
    made = {"experiment": conf_files.shown(spec.experiment)} | {key: getattr(spec, key) for key in KEYS}
    return {key: value for key, value in made.items() if key not in UNUSED or value != UNUSED[key]}


def in_this_checkout(experiment: str) -> None:
    """ConfigError where its study is part of an installed package, which a search must not change."""
    if INSTALLED and not studies.is_own(experiment, CONF):
        raise ConfigError(
            "a search writes its best settings into conf/, which an installed physml does not change. "
            "Copy the study to a folder of yours and name it: physml search ./study.yaml:ROW."
        )


def search(name: str, *, jobs: int | None, max_hours: float | None = None, verify: str = "bytes") -> int:
    """Run all trials, write all of them to results/search, and the best beside the study.

    Returns the exit code: 1 if a trial failed, 2 for bad input, 75 if trials lack one otherwise.
    """
    spec = load_search(name)
    in_this_checkout(spec.experiment)
    name = spec.id
    points = draw(spec)
    specs = [trial_spec(spec, i, point, verify) for i, point in enumerate(points)]
    check_metric(spec, specs[0])
    run_state.refuse_blocked(specs[0])
    print(f"{name}: {len(points)} trials, best {spec.metric} on validation data counts")
    outcome = scheduler.carry_out(planning.plan(specs), jobs=jobs, max_hours=max_hours)
    rows = [_row(spec, i, point, one) for i, (point, one) in enumerate(zip(points, specs, strict=True))]
    if lacking := [row for row in rows if row["status"] not in DONE]:
        failed = sum(row["status"] == "failed" for row in lacking)
        numbers = ", ".join(str(row["trial"]) for row in lacking)
        print(
            f"{name}: {len(lacking)} of {spec.trials} trials lack a result ({failed} failed): {numbers}. "
            "Nothing is written; the same command makes them.",
            file=sys.stderr,
        )
        code = outcome.exit_code
        return code if code == 2 or (code == 1 and failed) else 75
    path = results_root() / "search" / f"{name}.json"
    files.write_json(path, {"search": described(spec), "trials": rows})
    keep(name, spec.better, [Tried(row["point"], spec.space, row["status"], row["value"]) for row in rows])
    scored = [row for row in rows if row["value"] is not None]
    if not scored:
        raise RunFailed(f"no trial of {name} gave a number; see {display_path(path)}.")
    best = min(scored, key=lambda row: row["value"] if spec.better == "lower" else -row["value"])
    written = write_found(spec, best, len(scored))
    for row in rows:
        result = row["status"] if row["value"] is None else row["value"]
        print(f"  {row['trial']:3d}  {result}  {row['point']}")
    print(f"best: trial {best['trial']}, valid/{spec.metric} {best['value']:.4g}")
    print(f"written: {display_path(written)}, {display_path(path)}")
    return 0


def check_metric(spec: SearchSpec, first: RunSpec) -> None:
    from physml.config.build import build_task

    better = build_task(first.config).better
    if spec.metric not in better:
        raise ConfigError(f"search {spec.id}: no metric {spec.metric}. {suggest(spec.metric, better)}")
    if spec.better != better[spec.metric]:
        raise ConfigError(f"search {spec.id}: {better[spec.metric]} {spec.metric} is better, says the task.")


def draw(spec: SearchSpec) -> list[Point]:
    """The given points, then random ones."""
    return [*spec.points, *random_points(spec.space, spec.trials - len(spec.points), spec.seed)]


def trial_spec(
    spec: SearchSpec,
    number: int,
    point: dict[str, Any],
    verify: str = "bytes",
    of_stage: dict[str, Any] | None = None,
) -> RunSpec:
    """The run of a trial with the search's seed on split 0. of_stage: its changes of the setting."""
    fixed = {"seed": spec.seed, "runtime.score_test": False}
    changes = {"data.verify": verify, **spec.set, **spec.trial, **(of_stage or {}), **point, **fixed}
    overrides = [f"{key}={written(value)}" for key, value in changes.items()]
    (made,) = checked_specs([compose([f"experiment={spec.experiment}", "tracker=none", *overrides])])
    return replace(made, place=replace(made.place, folder=f"adhoc/search/{spec.id}/{number:03d}"))


def written(value: Any) -> str:
    """Format a value as a Hydra override."""
    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {written(one)}' for key, one in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    return "null" if value is None else str(value)


def _row(spec: SearchSpec, number: int, point: dict[str, Any], one: RunSpec) -> dict[str, Any]:
    value, status = None, "missing"
    if made := existing(one):
        status, best = made["status"], made["metrics"]["best"]
        value = best["valid"].get(spec.metric) if best and status == "finished" else None
    return {"trial": number, "point": point, "value": value, "status": status, "identity": one.place.identity}


def write_found(spec: SearchSpec, best: dict[str, Any], scored: int) -> Path:
    """The best trial in the file of searched rows beside the study."""
    budget = ", ".join(f"{key} {value}" for key, value in spec.trial.items()) or "the full budget"
    note = (
        f"{KINDS[spec.sampler]} search: {spec.trials} trials ({scored} finished), {budget}, "
        f"sampler seed {spec.seed}; best valid/{spec.metric} {best['value']:.3g} (trial {best['trial']})."
    )
    settings = spec.set | best["point"]
    return write_row(spec.experiment, Found(best["trial"], settings, note, f"results/search/{spec.id}.json"))


def write_row(experiment: str, found: Found) -> Path:
    """Write the settings found for one row; the other rows of the file stay as they are."""
    study, row = studies.row_of(experiment, CONF)
    path = studies.searched_file(study, CONF)
    with held(
        work_root() / "search" / conf_files.shown(study)
    ):  # another row's search may end at the same time
        rows = read_yaml(path) if path.exists() else {}
        rows[row] = {key: value for key, value in vars(found).items() if value is not None}
        body = [
            yaml.safe_dump({key: rows[key]}, sort_keys=False, allow_unicode=True, width=10_000)
            for key in sorted(rows, key=natural)
        ]
        files.write_text(path, "\n".join([f"{WRITTEN}\n", *body]))
    return path
