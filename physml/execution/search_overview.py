"""What there is of searches: their state in a list, and the picture of one."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from physml.errors import ConfigError, RecordError
from physml.execution.search import SearchSpec, load_search
from physml.execution.search_points import importances
from physml.execution.search_results import results_path, unfinished_path
from physml.paths import display_path
from physml.reporting.search_plot import write_search_plot

Content = dict[str, Any]


def content_of_file(ident: str) -> Content | None:
    """The results of a search, or what there is of one that goes on; None: it was not begun."""
    for path in (unfinished_path(ident), results_path(ident)):
        if path.exists():
            try:
                made: Content = json.loads(path.read_text(encoding="utf-8"))
                made["search"]["trials"], made["trials"][0]["point"]
            except (ValueError, KeyError, TypeError, IndexError) as error:
                raise RecordError(
                    f"{display_path(path)} is not the file of a search. Move it away."
                ) from error
            return made
    return None


def state_text(ident: str) -> str:
    """How far a search is, and its best trial."""
    content = content_of_file(ident)
    if content is None:
        return "not made"
    trials, wanted = content["trials"], content["search"]["trials"]
    best = _best(content)
    ends = Counter(one["status"] for one in trials)
    under_way = sum(ends[status] for status in ("missing", "waiting", "running"))
    done = f"{len(trials) - under_way} of {max(wanted, len(trials))} trials" if under_way else "done"
    metric = f"valid/{content['search']['metric']}"
    return f"{done}, trial {best['trial']}: {metric} {best['value']:.4g}" if best else done


def _best(content: Content) -> Content | None:
    """The trial that won, or is ahead in the furthest stage."""
    if content.get("best"):
        return content["best"]
    sign = 1 if content["search"]["better"] == "lower" else -1
    scored = [row for row in content["trials"] if (row["value"] or _stage_values(row))]
    if not scored:
        return None
    row = min(scored, key=lambda row: (-len(_stage_values(row)), sign * _value(row)))
    return row | {"value": _value(row)}


def _stage_values(row: Content) -> list[float]:
    return [value for value in row.get("means", []) if value is not None]


def _value(row: Content) -> float:
    value: float = row["value"] if row["value"] is not None else _stage_values(row)[-1]
    return value


def picture(ident: str, spec: SearchSpec | None = None) -> tuple[Path, dict[str, float]]:
    """Draw results/search/<id>.png; the file, and the importance of each key.

    Trials of a search in stages count by their value in the first stage, which all of them have.

    Raises:
        ConfigError: Nothing of the search is there.
    """
    spec = spec or load_search(ident)
    content = content_of_file(spec.id)
    if content is None:
        raise ConfigError(f"search {spec.id} has no trials yet. Make some: physml search {ident}")
    staged = bool(content["search"].get("stages"))
    trials = [row | {"value": row["means"][0] if staged else row["value"]} for row in content["trials"]]
    space = content["rounds"][-1]["space"] if staged else content["search"]["space"]
    tried = [(row["point"], row["value"]) for row in trials if row["value"] is not None]
    parts = importances(space, tried, content["search"]["better"])
    best = _best(content)
    metric = f"valid/{content['search']['metric']}" + (", first stage" if staged else "")
    path = results_path(spec.id).with_suffix(".png")
    number = best["trial"] if best else None
    return write_search_plot(spec.id, metric, space, trials, number, parts, path), parts
