"""Report on a search, and its picture: all is made from the file of its results."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError
from physml.base.text import digits
from physml.records.searches import (
    Content,
    best_trial,
    content_of_file,
    repeats_of,
    results_path,
    spread_of_search,
)
from physml.report.figure.pictures import write_search_plot
from physml.search.points import importances
from physml.search.space import Bound
from physml.search.spec import load_search


def stage_text(stage: Content) -> str:
    """The trials and the changes of one stage.

    Example:
        >>> stage_text({"trials": 10, "set": {}, "seeds": [1000, 1001], "splits": [0]})
        '10 trials at full length, seeds 1000, 1001'
    """
    changes = ", ".join(f"{key} {value}" for key, value in stage["set"].items())
    text = f"{_count(stage['trials'], 'trial')} {f'with {changes}' if changes else 'at full length'}"
    for name in ("seed", "split"):
        numbers = stage[f"{name}s"]
        if len(numbers) > 1 or numbers[0] not in (0, 1000):
            text += f", {name}{'s' if len(numbers) > 1 else ''} {_list(numbers)}"
    return text


def lines(content: Content, behind: Sequence[str] = (), written: Sequence[str] = ()) -> list[str]:
    """The report that a finished search prints.

    behind: searches of the group with fewer trials. written: files of the results.
    """
    search, best = content["search"], content["best"]
    ends = [row["status"] for row in content["trials"]]
    counts = ", ".join(f"{ends.count(end)} {end}" for end in ("finished", "pruned", "diverged"))
    hours = sum(stage["cpu_hours"] for stage in content["stages"])
    out = [f"{search['experiment']}: {len(ends)} trials ({counts}), {hours:.2f} CPU hours"]
    for i, stage in enumerate(content["stages"]):
        out.append(
            f"  stage {i + 1}: {stage_text(stage)}: {_count(stage['runs'], 'run')}, "
            f"{stage['cpu_hours']:.2f} CPU hours"
        )
    for i, drawn in enumerate(content["rounds"][1:]):
        moved = [_bound(bound) for bound in content["rounds"][i]["bounds"] if bound["widened"] is not None]
        why = "; ".join(moved) or "granted to every search of the group, for a bound of another one"
        out.append(f"  {_count(drawn['trials'], 'extra trial')}: {why}")
    finished = [row for row in content["trials"] if row["status"] == "finished"]
    sign = 1 if search["better"] == "lower" else -1
    ordered = sorted(finished, key=lambda row: sign * row["value"])
    out += [f"  trial {row['trial']:3d}  {row['value']:.4g}  {row['point']}" for row in ordered[:5]]
    spread = "" if best["sd"] is None else f", sd {digits(best['sd'], 2)} over {len(best['values'])} runs"
    mean = "mean " if len(best["values"]) > 1 else ""
    out.append(f"best: trial {best['trial']}, {mean}valid/{search['metric']} {best['value']:.4g}{spread}")
    out.append(_bounds(content))
    out += [text] if (text := _splits(content)) else []
    if behind:
        out.append(
            f"equal trials: without the extra trials that this search has: {_list(behind)}. "
            f"Go on with: physml search {' '.join(behind)}"
        )
    elif search["equal"]:
        out.append(f"equal trials: {len(ends)} for each of {len(search['equal'])} searches, as far as made")
    if content["final"]:
        out.append(f"final runs: {_final(content)}, sampler seed {content['sampler_seed']}")
    out.append(f"written: {', '.join(written)}")
    return out


def repeat_lines(ident: str) -> list[str]:
    """Settings that the repeats of a search found, and how far their test scores are apart."""
    repeats = repeats_of(ident)
    out = [
        f"  repeat {number}: valid/{run['search']['metric']} {run['best']['value']:.4g}, {_final(run)}, "
        f"{run['best']['point']}"
        for number, run in enumerate(repeats, 1)
    ]
    spread = spread_of_search(ident)
    return [f"{ident}: {len(repeats)} repeats", *out, *([str(spread)] if spread else [])]


def _final(content: Content) -> str:
    final = content["final"]
    sd = "" if final["sd"] is None else f" ± {digits(final['sd'], 2)}"
    return f"test/{final['metric']} {final['mean']:.4g}{sd} ({len(final['values'])} of {final['runs']} runs)"


def _bounds(content: Content) -> str:
    """The best values that are on a bound at the end, and what was widened before."""
    moved = [
        _bound(bound)
        for drawn in content["rounds"][:-1]
        for bound in drawn["bounds"]
        if bound["widened"] is not None
    ]
    at_end = [_bound(bound) for bound in content["rounds"][-1]["bounds"]]
    text = f"Best value on a bound: {'; '.join(at_end)}." if at_end else "No best value is on a bound."
    return f"Widened: {'; '.join(moved)}. {text}" if moved else text


def _bound(bound: Content) -> str:
    return str(Bound(**bound))


def _splits(content: Content) -> str:
    splits = content["stages"][-1]["splits"]
    if splits == [0]:
        return ""
    return (
        f"The validation data of splits {_list(splits)} decided; "
        "final runs on these splits share them, those on other splits may score nodes of them."
    )


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _list(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items))


def picture(name: str) -> tuple[Path, dict[str, float]]:
    """Draw results/search/<id>.png; the file, and the importance of each key.

    Trials count by their value in the first stage, which all of them have.

    Raises:
        ConfigError: Nothing of the search is there.
    """
    spec = load_search(name)
    ident, content = spec.id, content_of_file(spec.id)
    if content is None:
        raise ConfigError(f"search {ident} has no trials yet. Make some: physml search {name}")
    search, space = content["search"], content["rounds"][-1]["space"]
    trials = [row | {"value": row["means"][0]} for row in content["trials"]]
    tried = [(row["point"], row["value"]) for row in trials if row["value"] is not None]
    parts = importances(space, tried, search["better"])
    best = best_trial(content)
    metric = f"valid/{search['metric']}" + (", first stage" if len(content["stages"]) > 1 else "")
    number, path = best["trial"] if best else None, results_path(ident).with_suffix(".png")
    return write_search_plot(ident, metric, space, trials, number, parts, path), parts
