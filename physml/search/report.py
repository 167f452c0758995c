"""Report on a search in stages: every sentence is made from the file of its results."""

import statistics
from collections.abc import Sequence
from typing import Any

Content = dict[str, Any]


def stage_text(stage: dict[str, Any]) -> str:
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


def note(content: Content) -> str:
    """For the provenance of the row: how the settings were found."""
    search, best = content["search"], content["best"]
    total, scored = len(content["trials"]), content["scored"]
    stages = "; ".join(stage_text(stage) for stage in content["stages"])
    spread = "" if best["sd"] is None else f", sd {best['sd']:.2g}"
    changes = ", ".join(f"{key} {value}" for key, value in search["trial"].items())
    parts = [
        f"{_kind(search)} in stages: {total} trials ({scored} finished){f', {changes}' if changes else ''}: "
        f"{stages}; sampler seed {content['sampler_seed']}; best {_mean(best)}valid/{search['metric']} "
        f"{best['value']:.3g}{spread} (trial {best['trial']}).",
        _splits(content),
        _bounds(content),
    ]
    return " ".join(part for part in parts if part)


def lines(content: Content, repeats: Sequence[Content] = (), behind: Sequence[str] = ()) -> list[str]:
    """The report that a finished search prints.

    repeats: results of this search with several sampler seeds. behind: searches of the group with fewer
    trials.
    """
    search, best = content["search"], content["best"]
    ends = [row["status"] for row in content["trials"]]
    counts = ", ".join(f"{ends.count(end)} {end}" for end in ("finished", "pruned", "diverged"))
    hours = sum(stage["cpu_hours"] for stage in content["stages"])
    made = [f"{search['experiment']}: {len(ends)} trials ({counts}), {hours:.2f} CPU hours"]
    for i, stage in enumerate(content["stages"]):
        made.append(
            f"  stage {i + 1}: {stage_text(stage)}: {_count(stage['runs'], 'run')}, "
            f"{stage['cpu_hours']:.2f} CPU hours"
        )
    for i, one in enumerate(content["rounds"][1:]):
        moved = [_bound(bound) for bound in content["rounds"][i]["bounds"] if bound["widened"] is not None]
        why = "; ".join(moved) or "granted to every search of the group, for a bound of another one"
        made.append(f"  {_count(one['trials'], 'extra trial')}: {why}")
    finished = [row for row in content["trials"] if row["status"] == "finished"]
    sign = 1 if search["better"] == "lower" else -1
    ordered = sorted(finished, key=lambda row: sign * row["value"])
    made += [f"  trial {row['trial']:3d}  {row['value']:.4g}  {row['point']}" for row in ordered[:5]]
    spread = "" if best["sd"] is None else f", sd {best['sd']:.2g} over {len(best['values'])} runs"
    made.append(
        f"best: trial {best['trial']}, {_mean(best)}valid/{search['metric']} {best['value']:.4g}{spread}"
    )
    made.append(_bounds(content))
    made += [text] if (text := _splits(content)) else []
    made += _repeated(repeats, best)
    if behind:
        made.append(
            f"equal trials: {_list(behind)} lacks extra trials that this search has. "
            f"Go on with: physml search {' '.join(behind)}"
        )
    elif search["equal"]:
        made.append(f"equal trials: {len(ends)} for each of {len(search['equal'])} searches, as far as made")
    made.append(f"written: {', '.join(content['written'])}")
    return made


def _kind(search: dict[str, Any]) -> str:
    return f"TPE search, {tpe['first']} at random first," if (tpe := search["tpe"]) else "Random search"


def _mean(best: dict[str, Any]) -> str:
    return "mean " if len(best["values"]) > 1 else ""


def _bounds(content: Content) -> str:
    """The best values that are on a bound at the end, and what was widened before."""
    moved = [_bound(one) for made in content["rounds"][:-1] for one in made["bounds"] if one["widened"]]
    at_end = [_bound(one) for one in content["rounds"][-1]["bounds"]]
    text = f"Best value on a bound: {'; '.join(at_end)}." if at_end else "No best value is on a bound."
    return f"Widened: {'; '.join(moved)}. {text}" if moved else text


def _bound(one: dict[str, Any]) -> str:
    from physml.search.space import Bound

    return str(Bound(**one))


def _splits(content: Content) -> str:
    splits = content["stages"][-1]["splits"]
    if splits == [0]:
        return ""
    return (
        f"The validation data of splits {_list(splits)} decided; "
        "final runs on these splits share them, those on other splits may score nodes of them."
    )


def _repeated(repeats: Sequence[Content], best: dict[str, Any]) -> list[str]:
    if len(repeats) < 2:
        return []
    values = [one["best"]["value"] for one in repeats]
    found = ", ".join(f"{one['sampler_seed']}: {one['best']['value']:.4g}" for one in repeats)
    spread = f"sd between searches {statistics.stdev(values):.2g}"
    if best["sd"] is not None:
        spread += f", between the runs of this best setting {best['sd']:.2g}"
    return [f"sampler seeds: {found}; {spread}"]


def _count(number: int, what: str) -> str:
    return f"{number} {what}{'' if number == 1 else 's'}"


def _list(items: Sequence[Any]) -> str:
    return ", ".join(map(str, items))
