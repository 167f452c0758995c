"""Random search on validation data: equal budgets, all trials kept, the result is an experiment file.

`conf/search/<id>.yaml` names an experiment, a space and a budget. Trials are runs like any other, of which
only the validation metric is read; test data are not scored. Optuna draws the points and keeps the study.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from physml import files
from physml.config.compose import HEADER, compose
from physml.config.load import build
from physml.config.yaml_file import read_yaml
from physml.errors import ConfigError, RunFailed, suggest
from physml.execution import planning, run_state, scheduler
from physml.execution.run import existing
from physml.execution.run_spec import RunSpec
from physml.paths import CONF, display_path, results_root, work_root
from physml.records.record import Place


@dataclass(frozen=True)
class Range:
    """Uniform, or log-uniform, between low and high."""

    low: float
    high: float
    log: bool = False


@dataclass(frozen=True)
class SearchSpec:
    id: str
    experiment: str
    metric: str  # on validation data, e.g. rmse
    better: str  # lower or higher
    trials: int
    seed: int  # of the sampler, and of every trial's run
    trial: dict[str, Any]  # what a trial changes of the experiment, e.g. trainer.epochs: 60
    space: dict[str, Any]  # config key -> a range, or a list to choose from


def search_ids() -> list[str]:
    return sorted(p.stem for p in (CONF / "search").glob("*.yaml"))


def load_search(name: str) -> SearchSpec:
    if name not in search_ids():
        raise ConfigError(f"there is no search {name}. {suggest(name, search_ids())}")
    path = CONF / "search" / f"{name}.yaml"
    spec = build(SearchSpec, {"id": name, **read_yaml(path)}, path.name)
    if spec.better not in ("lower", "higher"):
        raise ConfigError(f"{path.name}: better must be lower or higher; got {spec.better!r}.")
    if spec.trials < 1 or not spec.space:
        raise ConfigError(f"{path.name}: a search needs at least one trial and a space.")
    return spec


def search(name: str, *, jobs: int | None, max_hours: float | None = None, verify: str = "bytes") -> int:
    """Run all trials, write all of them to results/search, and the best into the experiment file."""
    spec = load_search(name)
    points = draw(spec)
    specs = [trial_spec(spec, i, point, verify) for i, point in enumerate(points)]
    _check_metric(spec, specs[0])
    run_state.refuse_blocked(specs[0])
    print(f"{name}: {len(points)} trials, best {spec.metric} on validation data counts")
    outcome = scheduler.carry_out(planning.plan(specs), jobs=jobs, max_hours=max_hours)
    if outcome.exit_code == 75:
        return 75
    rows = [_row(spec, i, point, one) for i, (point, one) in enumerate(zip(points, specs, strict=True))]
    path = results_root() / "search" / f"{name}.json"
    files.write_json(path, {"search": read_yaml(CONF / "search" / f"{name}.yaml"), "trials": rows})
    keep(spec, rows)
    scored = [row for row in rows if row["value"] is not None]
    if not scored:
        raise RunFailed(f"no trial of {name} gave a number; see {display_path(path)}.")
    best = min(scored, key=lambda row: row["value"] if spec.better == "lower" else -row["value"])
    written = write_experiment(spec, best, len(scored))
    for row in rows:
        result = row["status"] if row["value"] is None else row["value"]
        print(f"  {row['trial']:3d}  {result}  {row['point']}")
    print(f"best: trial {best['trial']}, valid/{spec.metric} {best['value']:.4g}")
    print(f"written: {display_path(written)}, {display_path(path)}")
    return 0


def _check_metric(spec: SearchSpec, first: RunSpec) -> None:
    from physml.config.build import build_task

    better = build_task(first.config).better
    if spec.metric not in better:
        raise ConfigError(f"search {spec.id}: no metric {spec.metric}. {suggest(spec.metric, better)}")
    if spec.better != better[spec.metric]:
        raise ConfigError(f"search {spec.id}: {better[spec.metric]} {spec.metric} is better, says the task.")


def draw(spec: SearchSpec) -> list[dict[str, Any]]:
    """All points at once, from the seed alone: a search that was stopped goes on with the same ones."""
    import optuna

    optuna.logging.set_verbosity(optuna.logging.WARNING)
    study = optuna.create_study(sampler=optuna.samplers.RandomSampler(seed=spec.seed))
    trials = [study.ask(distributions(spec)) for _ in range(spec.trials)]
    return [{key: _rounded(value) for key, value in trial.params.items()} for trial in trials]


def keep(spec: SearchSpec, rows: list[dict[str, Any]]) -> Path:
    """The trials as an Optuna study in SQLite, for Optuna's own plots and dashboard."""
    import optuna

    path = work_root() / "search" / f"{spec.id}.db"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    directions = optuna.study.StudyDirection
    direction = directions.MINIMIZE if spec.better == "lower" else directions.MAXIMIZE
    study = optuna.create_study(storage=f"sqlite:///{path}", study_name=spec.id, direction=direction)
    states = optuna.trial.TrialState
    for row in rows:
        trial = optuna.trial.create_trial(
            params=row["point"],
            distributions=distributions(spec),
            value=row["value"],
            state=states.FAIL if row["value"] is None else states.COMPLETE,
        )
        study.add_trial(trial)
    return path


def distributions(spec: SearchSpec) -> dict[str, Any]:
    return {key: _distribution(key, value) for key, value in spec.space.items()}


def _distribution(key: str, value: Any) -> Any:
    from optuna.distributions import CategoricalDistribution, FloatDistribution

    if isinstance(value, list):
        return CategoricalDistribution(value)
    span = build(Range, value, key)
    return FloatDistribution(span.low, span.high, log=span.log)


def _rounded(value: Any) -> Any:
    """Three significant digits: what an experiment file can state."""
    return float(f"{value:.3g}") if isinstance(value, float) else value


def trial_spec(spec: SearchSpec, number: int, point: dict[str, Any], verify: str = "bytes") -> RunSpec:
    changes = {"data.verify": verify, **spec.trial, **point, "seed": spec.seed, "runtime.score_test": False}
    overrides = [f"{key}={'null' if value is None else value}" for key, value in changes.items()]
    composed = compose([f"experiment={spec.experiment}", "tracker=none", *overrides])
    from physml.config.identity import identity
    from physml.config.schema import checked

    config = checked(composed.config)
    place = Place(f"adhoc/search/{spec.id}/{number:03d}", identity(config), config["split"], config["seed"])
    return RunSpec(config, composed.choices, place, composed.datasets)


def _row(spec: SearchSpec, number: int, point: dict[str, Any], one: RunSpec) -> dict[str, Any]:
    made = existing(one)
    value, status = None, "missing"
    if made:
        status = made["status"]
        best = (made["metrics"] or {}).get("best")
        value = best["valid"].get(spec.metric) if best and status == "finished" else None
    return {"trial": number, "point": point, "value": value, "status": status, "identity": one.place.identity}


def write_experiment(spec: SearchSpec, best: dict[str, Any], scored: int) -> Path:
    """The experiment file with the best point in it, marked `searched-here`."""
    path = CONF / "experiment" / f"{spec.experiment}.yaml"
    text = path.read_text(encoding="utf-8")
    content = yaml.safe_load(text)
    for key, value in best["point"].items():
        node = content
        *parents, last = key.split(".")
        for parent in parents:
            node = node.setdefault(parent, {})
        node[last] = value
    source = (content.get("provenance") or {}).get("source", "")
    content["provenance"] = {
        "kind": "searched-here",
        "source": source,
        "note": (
            f"Random search: {spec.trials} trials ({scored} finished), {_budget(spec)}, "
            f"sampler seed {spec.seed}; best valid/{spec.metric} {best['value']:.3g} (trial {best['trial']})."
        ),
        "search": f"results/search/{spec.id}.json",
    }
    body = yaml.safe_dump(content, sort_keys=False, allow_unicode=True, width=110)
    files.write_text(path, f"{HEADER}\n{body}")
    return path


def _budget(spec: SearchSpec) -> str:
    return ", ".join(f"{key} {value}" for key, value in spec.trial.items()) or "the full budget"
