"""Results of searches: their files, in the form of every version, and what they say. Reads JSON alone.

A search that goes on has a file beside it, which git ignores. Both are made from the records.
"""

import statistics
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, NotRequired, TypedDict

from physml.base import opened
from physml.base.check import is_number
from physml.base.errors import RecordError
from physml.base.paths import display_path, results_root, results_roots
from physml.base.text import digits, shown
from physml.records import record, schema, shipped

Content = dict[str, Any]  # of a file: what SearchFile says


class Described(TypedDict):
    """A search as its study has it."""

    experiment: str | None
    metric: str
    better: Literal["lower", "higher"]
    trials: int
    seed: int
    set: dict[str, Any]
    trial: dict[str, Any]
    points: list[dict[str, Any]]
    space: dict[str, Any]
    stages: list[dict[str, Any]]
    equal: list[str]


class Interval(TypedDict):
    """A range of numbers. hard: ends beyond which it is never widened."""

    low: float
    high: float
    log: NotRequired[bool]
    hard: NotRequired[list[float | None] | None]


class AtBound(TypedDict):
    """A best value on a bound, and where the bound has moved."""

    key: str
    side: str
    value: float
    bound: float
    widened: float | None
    reason: str | None


class Draw(TypedDict):
    """Trials drawn from one space, and the winner when they had run."""

    trials: int
    space: dict[str, Interval | list[Any]]
    best: int | None
    bounds: list[AtBound]


class StageDone(TypedDict):
    """A stage, and what it took."""

    set: dict[str, Any]
    seeds: list[int]
    splits: list[int]
    trials: int
    runs: int
    cpu_hours: float | None


class Trial(TypedDict):
    """A trial. means: of the validation metric over seeds and splits, by stage."""

    trial: int
    point: dict[str, Any]
    value: float | None
    status: Literal["finished", "pruned", "diverged", "missing", "waiting", "running"]
    stage: int
    means: list[float | None]


class Best(TypedDict):
    """The trial that won, and its values in the last stage."""

    trial: int
    point: dict[str, Any]
    value: float
    sd: float | None
    values: list[float]


class Final(TypedDict):
    """Test scores of the final runs of a repeat."""

    metric: str
    mean: float
    sd: float | None
    values: list[float]
    runs: int
    means: NotRequired[dict[str, float]]


class SearchFile(TypedDict):
    """The file of a search, in the present form."""

    search: Described
    design: str
    sampler_seed: int
    scored: int
    wants: int
    best: Best | None
    stages: list[StageDone]
    rounds: list[Draw]
    trials: list[Trial]
    final: Final | None


def results_path(ident: str) -> Path:
    """The file to which a search that ends here writes its results."""
    return results_root() / "search" / f"{ident}.json"


def unfinished_path(ident: str) -> Path:
    """File of a search that has not ended; git ignores it."""
    return results_root() / "search" / f"{ident}.unfinished.json"


def recorded(ident: str) -> Content | None:
    """The results of a search that has ended, here or, as of records, in the checkout or wheel."""
    path = _recorded_path(ident)
    return _read(path) if path else None


def _recorded_path(ident: str) -> Path | None:
    paths = (root / "search" / f"{ident}.json" for root in results_roots())
    return next((path for path in paths if path.exists() or shipped.lines(path)), None)


def content_of_file(ident: str) -> Content | None:
    """The results of a search, or what there is of one that goes on; None: it was not begun."""
    path = unfinished_path(ident)
    if path.exists():
        return _read(path)
    return recorded(ident)


def _read(path: Path) -> Content:
    try:
        lines = shipped.lines(path)
        stored = opened.parsed(lines[0].decode()) if lines else opened.read_json(path, opened.LARGE)
        if "check" in stored and stored["check"] != record.check_of(stored):
            raise ValueError(f"its content has the hash {record.check_of(stored)}, not {stored['check']}")
        content = converted(stored)
        if fault := schema.problem(content, SearchFile) or _mismatch(content):
            raise ValueError(fault)
        return content
    except (OSError, ValueError, KeyError, TypeError, IndexError, AttributeError) as error:
        known = error.strerror if isinstance(error, OSError) else str(error)
        why = f": {shown(known)}" if known and isinstance(error, OSError | ValueError) else ""
        raise RecordError(f"{display_path(path)} is not the file of a search{why}. Move it away.") from error


def _mismatch(content: Content) -> str | None:
    """The first thing that does not fit the rest in a file whose values have the right types."""
    rows, draws = content["trials"], content["rounds"]
    spaces = [draw["space"] for draw in draws for _ in range(draw["trials"])]
    if not content["stages"] or len(spaces) != len(rows):
        return f"it has {len(content['stages'])} stages, and {len(rows)} trials of {len(spaces)}"
    if [row["trial"] for row in rows] != [*range(len(rows))]:
        return "its trials are not numbered in order"
    named = [draw["best"] for draw in draws] + ([content["best"]["trial"]] if content["best"] else [])
    if any(number is not None and not 0 <= number < len(rows) for number in named):
        return "its best trial is none of its trials"
    for row, space in zip(rows, spaces, strict=True):
        for key, values in space.items():
            point = row["point"].get(key)
            if isinstance(values, dict) and not is_number(point):
                return f"trial {row['trial']} has {point!r} for {key}, a range"
    return None


def converted(content: Content) -> Content:
    """The file of any version in the form of the present one: a search without stages has one.

    Raises:
        KeyError, TypeError, IndexError: It is no file of a search.
    """
    search, rows = content["search"], content["trials"]
    rows[0]["point"], search["trials"], search["metric"], search["better"], search["space"]
    only_stage: Content = {"keep": None, "set": {}, "seeds": [], "splits": [0]}
    defaults: Content = {
        "experiment": None,
        "set": {},
        "trial": {},
        "points": [],
        "stages": [only_stage],
        "tpe": None,
    }
    search = defaults | {"widen": None, "equal": []} | search
    if "rounds" in content:
        return {"design": "random", "final": None} | content | {"search": search}
    rows = [{"stage": 1, "means": [row["value"]]} | row for row in rows]
    ends = [row for row in rows if row["status"] == "finished" and row["value"] is not None]
    best = None
    if ends:
        row = min(ends, key=lambda row: _sign(search) * row["value"])
        best = {key: row[key] for key in ("trial", "point", "value")} | {"sd": None, "values": [row["value"]]}
    number = {"trials": len(rows)}
    stage = {"set": {}, "seeds": [search["seed"]], "splits": [0], "runs": len(rows), "cpu_hours": None}
    drawn = {"space": search["space"], "best": best and best["trial"], "bounds": []}
    return {
        "search": search,
        "design": "random",
        "sampler_seed": search["seed"],
        "scored": len(ends),
        "wants": 0,
        "best": best,
        "stages": [number | stage],
        "rounds": [number | drawn],
        "trials": rows,
        "final": None,
    }


# ---------------------------------------------------------------------------- what it says


def is_done(ident: str) -> bool:
    """True if a search has ended."""
    return _recorded_path(ident) is not None and not unfinished_path(ident).exists()


def state_text(ident: str) -> str:
    """How far a search is, and its best trial."""
    content = content_of_file(ident)
    if content is None:
        return "not made"
    trials, planned = content["trials"], content["search"]["trials"]
    best = best_trial(content)
    ends = Counter(trial["status"] for trial in trials)
    under_way = sum(ends[status] for status in ("missing", "waiting", "running"))
    done = "done"
    if under_way or not is_done(ident):  # else it was stopped before it drew its next trials
        done = f"{len(trials) - under_way} of {max(planned, len(trials))} trials"
    if content["design"] == "random":
        done += f" in an earlier form, {len(trials)} trials"
    metric = f"valid/{content['search']['metric']}"
    return f"{done}, trial {best['trial']}: {metric} {best['value']:.4g}" if best else done


def best_trial(content: Content) -> Content | None:
    """The trial that won, or is ahead in the furthest stage, with the value that says so."""
    if content["best"]:
        return content["best"]
    scored = [(row, value) for row in content["trials"] if (value := last_value(row)) is not None]
    if not scored:
        return None
    sign = _sign(content["search"])
    row, value = min(scored, key=lambda pair: (-_stages_of(pair[0]), sign * pair[1]))
    return row | {"value": value}


def last_value(row: Content) -> float | None:
    """Value of a trial in the last stage in which it has one."""
    return next((value for value in reversed(row["means"]) if value is not None), None)


def _stages_of(row: Content) -> int:
    """In how many stages a trial has a value: one that goes on to the next has none there at first."""
    return sum(mean is not None for mean in row["means"])


def _sign(search: Content) -> int:
    return 1 if search["better"] == "lower" else -1


# ---------------------------------------------------------------------------- repeats


@dataclass(frozen=True)
class SearchSpread:
    """Final test scores of one search repeated with other points: how much depends on luck."""

    metric: str  # such as rmse, on test data
    better: str  # lower or higher
    values: tuple[float, ...]  # the mean final score of each repeat

    @property
    def best(self) -> float:
        return (min if self.better == "lower" else max)(self.values)

    @property
    def worst(self) -> float:
        return (max if self.better == "lower" else min)(self.values)

    @property
    def ratio(self) -> float:
        """Worst over best, or best over worst where higher is better; 1 if all found settings as good."""
        low, high = sorted((self.best, self.worst))
        return high / low if low > 0 else float("nan")

    @property
    def sd(self) -> float:
        return statistics.stdev(self.values)

    def scaled(self, factor: float) -> "SearchSpread":
        """In another unit, such as per cent."""
        return replace(self, values=tuple(factor * value for value in self.values))

    def __str__(self) -> str:
        return (
            f"test/{self.metric} of {len(self.values)} repeats: best {self.best:.4g}, "
            f"worst {digits(self.worst, 4)}, ratio {digits(self.ratio, 3)}, sd {digits(self.sd, 2)}"
        )


def repeat_id(ident: str, repeat: int) -> str:
    """Id of a repeat of a search; 0 is the search itself."""
    return f"{ident}-repeat{repeat}" if repeat else ident


def repeats_of(ident: str) -> list[Content]:
    """Results of all repeats that have ended with their final runs and were searched as the first was."""
    ended: list[Content] = []
    while content := recorded(repeat_id(ident, len(ended) + 1)):
        ended.append(content)
    return [content for content in ended if content["final"] and content["search"] == ended[0]["search"]]


def spread_of_search(ident: str, metric: str = "", better: str = "") -> SearchSpread | None:
    """How much a final test score depends on the search's luck; None for fewer than two repeats that have it.

    Args:
        ident: id of a search, which is the name of its file: `fitzhugh_nagumo-cornn`.
        metric: a metric on test data, such as `rmse_last128`; by default that of the search.
        better: lower or higher, of another metric than the search's.
    """
    if not (repeats := repeats_of(ident)):
        return None
    search = repeats[0]["search"]
    if metric in ("", search["metric"]):
        metric, better = search["metric"], search["better"]
        means = [content["final"]["mean"] for content in repeats]
    else:  # files of earlier versions have the metric of the search alone
        finals = (content["final"].get("means", {}) for content in repeats)
        means = [mean for final in finals if (mean := final.get(f"test/{metric}")) is not None]
    return SearchSpread(metric, better, tuple(means)) if len(means) > 1 else None
