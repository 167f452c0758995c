"""The files of searches in stages, and what the searches of one group have in common."""

import json
from dataclasses import asdict
from typing import Any

from physml.config.conf_files import shown
from physml.report.table import spec as tables
from physml.search import plain as search
from physml.search.plain import SearchSpec
from physml.search.state import results_path


def described(spec: SearchSpec) -> dict[str, Any]:
    """The search as its study has it, for the file of its results."""
    made = search.described(spec)
    if spec.stages is None:
        return made
    guided, widen = (asdict(one) if one else None for one in (spec.tpe, spec.widen))
    stages = [asdict(one) for one in spec.stages]
    return made | {"stages": stages, "tpe": guided, "widen": widen, "equal": [*map(shown, spec.equal)]}


def results(spec: SearchSpec) -> dict[str, Any] | None:
    """The results of a search as its study has it now; None where it was made otherwise, or not at all."""
    path = results_path(spec.id)
    if not path.exists():
        return None
    content: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
    return content if content["search"] == described(spec) else None


def granted(spec: SearchSpec) -> int:
    """Extra rounds that searches of the group want, as far as they have been made."""
    made = [results(search.load_search(one)) for one in spec.equal or [spec.experiment]]
    return max((content["wants"] for content in made if content), default=0)


def behind(name: str) -> bool:
    """True if a search has been made and lacks extra trials that its group has been granted since."""
    spec = search.load_search(name)
    content = None if spec.stages is None else results(spec)
    return content is not None and len(content["rounds"]) <= granted(spec)


def budget(spec: SearchSpec) -> tuple[Any, ...]:
    """Budget that all searches of a group share."""
    stages = [(one.keep, one.seeds or [spec.seed], one.splits) for one in spec.stages or []]
    return spec.trials, spec.tpe, spec.widen, stages


def final_runs(experiment: str) -> set[tuple[int, int]]:
    """Split and seed of the runs that tables train of an experiment."""
    runs: set[tuple[int, int]] = set()
    for ident in tables.table_ids(kind="runs"):
        path = tables.find_table(ident)
        if experiment in path.read_text(encoding="utf-8"):
            runs |= {(split, seed) for of, split, seed in tables.load_table(path).runs if of == experiment}
    return runs


def final_seeds(experiment: str) -> set[int]:
    return {seed for _, seed in final_runs(experiment)}
