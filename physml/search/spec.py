"""A search of an experiment: how its study states it, its id, and the runs of its trials and its winner."""

import fnmatch
import functools
import hashlib
import itertools
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import yaml

from physml.base import files
from physml.base.check import is_number
from physml.base.errors import ConfigError, suggest
from physml.base.lock import held
from physml.base.paths import INSTALLED, display_path, work_root
from physml.config import conf_files, studies
from physml.config.compose import Composed, compose
from physml.config.load import read_yaml
from physml.config.overrides import GROUPS
from physml.config.search_schema import Search
from physml.config.studies import Found
from physml.queue.planning import at_places
from physml.records.searches import is_done, recorded, repeat_id
from physml.report.table import spec as tables
from physml.report.table.spec import natural
from physml.run.spec import RunSpec, checked_specs
from physml.search.points import Point
from physml.search.space import Range, range_of

WRITTEN = "# Written by `physml search`: the best trial of each search. Do not edit."
DESIGN = "sobol"  # how points are drawn; in results of earlier versions: random
FINALS = 5  # runs of a winner whose experiment is in no table


@dataclass(frozen=True)
class SearchSpec(Search):
    """A search of one experiment. `id` names its results and trials."""

    id: str = field(kw_only=True)
    experiment: str = field(kw_only=True)

    def range(self, key: str) -> Range | None:
        """The range of `key`, or None if it is a list of choices."""
        return range_of(self.space, key, f"search {self.id}")

    def sampler_seed(self, repeat: int) -> int:
        """Seed of the points: differs between rows, data sets and repeats, so that they share no luck.

        Studies of one task config and data set share the seeds of equal rows: else recorded searches would be
        others.
        """
        study, row = studies.row_of(self.experiment)
        content = studies.load(study)
        task = [content.rows[row].task or content.task, content.common.get("task", {}).get("name")]
        name = " ".join(map(str, filter(None, [row, *task, str(repeat)])))
        return int(hashlib.sha256(name.encode()).hexdigest()[:8], 16)

    @property
    def described(self) -> dict[str, Any]:
        """The search as its study has it, for the file of its results."""
        described = {key: value for key, value in asdict(self).items() if key != "id"}
        shown = [*map(conf_files.shown, self.equal)]
        return described | {"experiment": conf_files.shown(self.experiment), "equal": shown}

    @property
    def budget(self) -> tuple[Any, ...]:
        """Budget that all searches of a group share."""
        stages = [(stage.keep, stage.seeds or [self.seed], stage.splits) for stage in self.stages]
        return self.trials, self.tpe, self.widen, stages

    @property
    def results(self) -> dict[str, Any] | None:
        """The results of this search; None where it was made otherwise, or not at all."""
        content = recorded(self.id)
        alike = content and content["design"] == DESIGN and content["search"] == self.described
        return content if alike else None

    def repeats_to_do(self, most: int, *, missing: bool) -> list[int]:
        """Numbers of the repeats 1 to `most`; `missing`: without those made as the study is now."""
        results = [recorded(repeat_id(self.id, number)) for number in range(1, most + 1)]
        ended = [content and content["final"] and content["search"] == self.described for content in results]
        return [number for number, done in enumerate(ended, 1) if not (missing and done)]

    @property
    def granted(self) -> int:
        """Extra rounds that searches of the group want, as far as they have been made."""
        results = [load_search(name).results for name in self.equal or [self.experiment]]
        return max((content["wants"] for content in results if content), default=0)

    @property
    def behind(self) -> bool:
        """True if the search has been made and lacks extra trials that its group has been granted since."""
        content = self.results
        return content is not None and len(content["rounds"]) <= self.granted

    @functools.cached_property
    def given(self) -> list[Point]:
        """The points that are always tried: the study's, and the setting that the row has without a search.

        The latter only where it has a value for each key: a choice of its list, or a number on its scale.
        """
        config = _composed(self.experiment, []).config
        own = {key: functools.reduce(_part, key.split("."), config) for key in self.space}
        if own in self.points or not all(self._fits(key, value) for key, value in own.items()):
            return self.points
        return [*self.points, own][: self.trials]

    def _fits(self, key: str, value: Any) -> bool:
        if (span := self.range(key)) is None:
            return value in self.space[key]
        low, high = span.hard
        if not is_number(value) or (span.log and value <= 0):
            return False
        return (low is None or low <= value) and (high is None or value <= high)


def _part(config: Any, key: str) -> Any:
    return config.get(key) if isinstance(config, dict) else None


def load_search(name: str) -> SearchSpec:
    """The search of an experiment, by the experiment's name or by the id of its results.

    Errors: ConfigError for an unknown name, with near names, and for a space that cannot be drawn from.
    """
    ident, experiment = studies.search_named(name)
    study, _ = studies.row_of(experiment)
    content = vars(studies.search_of(experiment))
    content["equal"] = [studies.named(other, study) for other in content["equal"]]
    spec = SearchSpec(**content, id=ident, experiment=experiment)
    if spec.better not in ("lower", "higher"):
        raise ConfigError(f"search {ident}: better must be lower or higher; got {spec.better!r}.")
    if spec.trials < 1 or not spec.space:
        raise ConfigError(f"search {ident}: a search needs at least one trial and a space.")
    for key, value in spec.space.items():
        if value == []:
            raise ConfigError(f"search {ident}: {key}: an empty list leaves nothing to choose from.")
        span = spec.range(key)
        for at in (point[key] for point in spec.points):
            if not (is_number(at) and span.low <= at <= span.high if span else at in value):
                raise ConfigError(f"search {ident}: points: {key} {at} is not in its range.")
    return spec


def named(names: list[str], *, missing: bool) -> list[str]:
    """Names of searches, with the experiments that fit a pattern such as sequence/recall-*, each once.

    Args:
        names: as `load_search` takes them, or patterns.
        missing: leave out those that are done.
    Errors: ConfigError for a pattern that fits none, and for an unknown name.
    """
    kept: list[str] = []
    for name in names:
        fitting = [name]
        if not conf_files.is_path(name) and set(name) & set("*?["):
            fitting = fnmatch.filter(studies.searches().values(), name)
            if not fitting:
                raise ConfigError(f"no search fits {name}. `physml list searches` shows all.")
        kept += fitting
    idents = {name: studies.search_named(name)[0] for name in kept}
    return [name for name, ident in idents.items() if not (missing and is_done(ident))]


# ---------------------------------------------------------------------------- before a search


def check(spec: SearchSpec, *, run: bool = False) -> None:
    """ConfigError for a group that is not searched alike, a seed of the final runs, or an unknown metric.

    run: whether code of plugins may be run; else a metric of a task that is of one may be any.
    """
    for other in spec.equal:
        if load_search(other).budget != spec.budget:
            raise ConfigError(
                f"search {spec.id}: {other} has other trials, stages or extra trials; "
                "searches of one `equal` must have the same."
            )
    if spec.equal and spec.experiment not in spec.equal:
        raise ConfigError(f"search {spec.id}: `equal` must name {spec.experiment} itself.")
    if shared := seeds(spec) & {seed for _, seed in final_runs(spec.experiment)}:
        raise ConfigError(
            f"search {spec.id}: seeds {sorted(shared)} are those of the final runs. Use others."
        )
    from physml.config.build import build_task

    if (task := build_task(run_of(spec, {}).config, run=run)) is None:
        return
    better = task.in_rows
    if spec.metric not in better:
        raise ConfigError(f"search {spec.id}: no metric {spec.metric}. {suggest(spec.metric, better)}")
    if spec.better != better[spec.metric]:
        raise ConfigError(f"search {spec.id}: {better[spec.metric]} {spec.metric} is better, says the task.")


def in_this_checkout(experiment: str) -> None:
    """ConfigError where its study is part of an installed package, which a search must not change."""
    if INSTALLED and not studies.is_own(experiment):
        raise ConfigError(
            "a search writes its best settings into conf/, which an installed physml does not change. "
            "Copy the study to a folder of yours and name it: physml search ./study.yaml:ROW."
        )


def seeds(spec: SearchSpec) -> set[int]:
    """The seeds of the runs of all stages."""
    return {seed for stage in spec.stages for seed in stage.seeds or [spec.seed]}


def final_runs(experiment: str) -> set[tuple[int, int]]:
    """Split and seed of the runs that tables train of an experiment."""
    runs: set[tuple[int, int]] = set()
    for ident in tables.table_ids(kind="runs"):
        path = tables.find_table(ident)
        if experiment in path.read_text(encoding="utf-8", errors="replace"):
            runs |= {(split, seed) for of, split, seed in tables.load_table(path).runs if of == experiment}
    return runs


# ---------------------------------------------------------------------------- runs


def run_of(
    spec: SearchSpec, point: Point, *, verify: str = "bytes", of_stage: dict[str, Any] | None = None
) -> RunSpec:
    """A run of a trial, with the search's seed on split 0. of_stage: its stage's changes of the setting."""
    fixed = {"seed": spec.seed, "runtime.score_test": False}
    return _run(spec, {"data.verify": verify, **spec.set, **spec.trial, **(of_stage or {}), **point, **fixed})


def runs_of_winner(spec: SearchSpec, point: Point, *, verify: str = "bytes") -> list[RunSpec]:
    """The final runs of a setting that was found, on test data: with the splits and seeds of the tables.

    Five where no table has the experiment, with seeds that the search does not use.
    """
    places = sorted(final_runs(spec.experiment))
    if not places:
        free = (seed for seed in itertools.count() if seed not in seeds(spec))
        places = [(0, seed) for seed in itertools.islice(free, FINALS)]
    return at_places(_run(spec, {"data.verify": verify, **spec.set, **point}), places)


def _run(spec: SearchSpec, changes: dict[str, Any]) -> RunSpec:
    overrides = [f"{key}={value if key in GROUPS else written(value)}" for key, value in changes.items()]
    (run,) = checked_specs([_composed(spec.experiment, overrides)])
    return run


def _composed(experiment: str, overrides: list[str]) -> Composed:
    """The setting of a row without what an earlier search has found for it."""
    return compose([f"experiment={experiment}", "tracker=none", *overrides], searched=False)


def in_folder(run: RunSpec, folder: str) -> RunSpec:
    """The run with its record in a folder of the search."""
    return replace(run, place=replace(run.place, folder=f"adhoc/search/{folder}"))


def written(value: Any) -> str:
    """Format a value as a Hydra override."""
    from hydra.core.override_parser.types import Quote, QuotedString

    if isinstance(value, dict):
        return f"{{{', '.join(f'{key}: {written(item)}' for key, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{', '.join(map(written, value))}]"
    if isinstance(value, str):  # in quotes: else 1 and null are no text, and a comma makes two of one
        return QuotedString(value, Quote.single).with_quotes()
    return "null" if value is None else str(value)


# ---------------------------------------------------------------------------- after a search


def write_found(spec: SearchSpec, best: Found) -> str:
    """Write the settings found for a row, beside its study; the other rows of the file stay as they are."""
    study, row = studies.row_of(spec.experiment)
    path = studies.searched_file(study)
    folder = work_root() / "search" / conf_files.shown(study)
    with held(folder, wait_s=60):  # another row's search may end meanwhile
        rows = {name: Found(**old) for name, old in read_yaml(path).items()} if path.exists() else {}
        rows[row] = best
        body = [
            f"{name}: {_flow(rows[name].facts)[:-1]},\n  set: {_flow(rows[name].set)}}}"
            for name in sorted(rows, key=natural)
        ]
        files.write_text(path, "\n".join([f"{WRITTEN}\n", *body, ""]))
    return display_path(path)


def _flow(value: dict[str, Any]) -> str:
    text = yaml.safe_dump(value, sort_keys=False, allow_unicode=True, default_flow_style=True, width=100_000)
    return text.strip()
