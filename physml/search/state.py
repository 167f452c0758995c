"""State of a search, read from its file: how far it is, and its best trial. Reads JSON alone."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

from physml.base.errors import RecordError
from physml.base.paths import display_path, results_root

Content = dict[str, Any]


def results_path(ident: str) -> Path:
    return results_root() / "search" / f"{ident}.json"


def unfinished_path(ident: str) -> Path:
    """File of a search that has not ended; git ignores it."""
    return results_root() / "search" / f"{ident}.unfinished.json"


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


def is_done(ident: str) -> bool:
    """True if a search has ended."""
    return results_path(ident).exists() and not unfinished_path(ident).exists()


def state_text(ident: str) -> str:
    """How far a search is, and its best trial."""
    content = content_of_file(ident)
    if content is None:
        return "not made"
    trials, wanted = content["trials"], content["search"]["trials"]
    best = best_trial(content)
    ends = Counter(one["status"] for one in trials)
    under_way = sum(ends[status] for status in ("missing", "waiting", "running"))
    done = f"{len(trials) - under_way} of {max(wanted, len(trials))} trials" if under_way else "done"
    metric = f"valid/{content['search']['metric']}"
    return f"{done}, trial {best['trial']}: {metric} {best['value']:.4g}" if best else done


def best_trial(content: Content) -> Content | None:
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
