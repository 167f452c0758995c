"""The schema of a record: keys and types, and the check of a file's content."""

from collections.abc import Callable, Mapping
from functools import cache, partial
from types import NoneType, UnionType
from typing import Any, Literal, NotRequired, Required, TypedDict, get_args, get_origin, get_type_hints

SCHEMA = 2
DEEPEST = 32  # levels of nesting in any record are fewer

Scores = dict[str, float | None]
Status = Literal["finished", "diverged", "failed", "preempted", "blocked"]


class Metrics(TypedDict):
    """By part, `valid` and `test`: with the selected weights, and with the last ones."""

    best: dict[str, Scores] | None
    last: dict[str, Scores] | None


class Selected(TypedDict):
    """The rule of the selection, and where it chose the weights."""

    rule: str
    step: int
    epoch: int


class Cost(TypedDict):
    """Time and memory of a run. cpu_s, eval_cpu_s: CPU seconds of all threads, of training and evaluation."""

    train_s: float
    cpu_s: NotRequired[float]
    eval_s: float
    eval_cpu_s: NotRequired[float]
    ms_per_step: float
    peak_memory_mib: float


class DataFile(TypedDict):
    """A file that was read. `verified` says against what it was compared."""

    name: str
    sha256: str | None
    verified: NotRequired[str]


class Data(TypedDict, total=False):
    """The data of a run. Tasks may add keys of their own."""

    version: int
    sizes: dict[str, int]
    kind: str
    files: list[DataFile]
    fingerprint: str | None
    notes: list[str]


class Code(TypedDict, total=False):
    """The code of a run; `dirty`: with changes that are not committed."""

    commit: str | None
    dirty: bool | None
    version: str


class Record(TypedDict, total=False):
    """A run, as `record.read` gives it: its own file joined with the file of its setting."""

    schema: Required[int]
    experiment: Required[str]
    identity: Required[str]
    split: Required[int]
    seed: Required[int]
    status: Required[Status]
    reason: str | None
    protocol: str | None
    scoring: dict[str, str]
    metrics: Required[Metrics]
    selected: Selected | None
    references: dict[str, Scores]
    calibration: dict[str, Any]
    n_parameters: int | None
    n_parameters_printed: str | int | None
    n_steps: int
    n_epochs: int
    cost: Cost | None
    precision: str
    backend: str | None
    short: str | None
    provenance: dict[str, Any] | None
    data: Data
    curve: str | None
    arrays: str | None
    profile: str  # below the folder of all runs
    code: Code
    packages: dict[str, str]
    machine: dict[str, Any]
    started: str
    ended: str
    wandb: str | None
    choices: dict[str, str | None]
    hashed: dict[str, Any]
    config: Required[dict[str, Any]]
    path: str  # of the run's file; not written


def scores_of(record: Mapping[str, Any]) -> Scores:
    """The scores with the selected weights, by part and name: `test/rmse`."""
    best = (record.get("metrics") or {}).get("best") or {}
    return {f"{part}/{name}": value for part, scores in best.items() for name, value in scores.items()}


# What all runs of a setting have in common: written once, to the file of the setting. Of `config` all but the
# seed and the split, of `data` all but the sizes, which may differ from split to split.
SHARED = (
    *("experiment", "identity", "protocol", "scoring", "n_parameters_printed", "precision", "short"),
    *("provenance", "data", "choices", "hashed", "config"),
)


def problem(content: Any, kind: Any = Record) -> str | None:
    """The first fault in the content of a record or other file, in a few words; None if it is sound."""
    if too_deep(content):
        return f"it is nested more than {DEEPEST} levels deep"
    if (fault := _check_of(kind)(content)) is None:
        return None
    where, text = fault
    return f"its {'.'.join(where)} {text}" if where else f"it {text}"


def too_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEPEST):
        values = [
            container.values() if isinstance(container, dict) else container
            for container in level
            if isinstance(container, dict | list)
        ]
        if not values:
            return False
        level = [inner for of_one in values for inner in of_one]
    return bool(level)


Fault = tuple[tuple[str, ...], str]  # the keys that lead to a value, and what is wrong with it
Check = Callable[[Any], Fault | None]
_NAMES: dict[type, str] = {float: "a number", int: "a whole number", str: "a text", bool: "true or false"}
_NAMES |= {dict: "a mapping", list: "a list", NoneType: "null"}


@cache
def _check_of(kind: Any) -> Check:
    """The check of a JSON value against an annotation of this file."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return lambda value: None
    if origin is UnionType:
        return partial(_check_union, checks=[_check_of(option) for option in inner])
    if origin is Literal:
        names = ", ".join(inner)
        return lambda value: None if value in inner else ((), f"is {_short(value)}, not one of {names}")
    if origin in (list, dict) and inner[-1] is Any:
        return partial(_wrong, kind=origin)
    if origin in (list, dict):
        return partial(_check_each, kind=origin, each=_check_of(inner[-1]))
    if hasattr(kind, "__required_keys__"):
        hints = {key: _check_of(hint) for key, hint in get_type_hints(kind).items()}
        return partial(_check_keys, hints=hints, required=kind.__required_keys__)
    return partial(_wrong, kind=kind)


def _check_union(value: Any, checks: list[Check]) -> Fault | None:
    first = checks[0](value)
    return None if first is None or any(check(value) is None for check in checks[1:]) else first


def _check_each(value: Any, kind: type, each: Check) -> Fault | None:
    """The first fault among the values of a mapping or list."""
    if fault := _wrong(value, kind):
        return fault
    for key, inner in value.items() if kind is dict else enumerate(value):
        if fault := each(inner):
            return (str(key), *fault[0]), fault[1]
    return None


def _check_keys(value: Any, hints: dict[str, Check], required: frozenset[str]) -> Fault | None:
    if fault := _wrong(value, dict):
        return fault
    if missing := required - value.keys():
        return (), f"has no {', '.join(key for key in hints if key in missing)}"
    for key, check in hints.items():
        if key in value and (fault := check(value[key])):
            return (key, *fault[0]), fault[1]
    return None


def _wrong(value: Any, kind: type) -> Fault | None:
    if type(value) is kind:
        return None
    sound = isinstance(value, (float, int) if kind is float else kind)
    if sound and (kind is bool or not isinstance(value, bool)):
        return None
    return (), f"is {_short(value)}, not {_NAMES[kind]}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."


def data_of(facts: Mapping[str, Any]) -> dict[str, Any]:
    """The facts of a task with one list of files in place of mappings from their names.

    Example:
        >>> data_of({"version": 1, "sha256": {"a.zip": "0f3a"}, "verified": {"a.zip": "bytes"}})
        {'version': 1, 'files': [{'name': 'a.zip', 'sha256': '0f3a', 'verified': 'bytes'}]}
    """
    verified = facts.get("verified") or {}
    listed = [
        {"name": name, "sha256": sha256} | ({"verified": verified[name]} if name in verified else {})
        for name, sha256 in (facts.get("sha256") or {}).items()
    ]
    rest = {key: value for key, value in facts.items() if key not in ("sha256", "verified")}
    return rest | ({"files": listed} if listed else {})
