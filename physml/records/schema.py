"""The schema of a record: keys and types, the check of a file's content, the step from the older schema."""

from collections.abc import Mapping
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
    """Time and memory of the training. cpu_s: CPU seconds of all threads, without evaluation."""

    train_s: float
    cpu_s: NotRequired[float]
    eval_s: float
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


REQUIRED = tuple(sorted(Record.__required_keys__, key=list(get_type_hints(Record)).index))

# What all runs of a setting have in common: written once, to the file of the setting. Of `config` all but the
# seed and the split, of `data` all but the sizes, which may differ from split to split.
SHARED = (
    *("experiment", "identity", "protocol", "scoring", "n_parameters_printed", "precision", "short"),
    *("provenance", "data", "choices", "hashed", "config"),
)


def problem(content: Any) -> str | None:
    """What is wrong with the content of a record, in a few words; None if it is sound."""
    if too_deep(content):
        return f"it is nested more than {DEEPEST} levels deep"
    return _mismatch(content, Record, "")


def too_deep(content: Any) -> bool:
    level = [content]
    for _ in range(DEEPEST):
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        ]
    return bool(level)


def _mismatch(value: Any, kind: Any, where: str) -> str | None:
    """The first place in which a JSON value is not of a kind, an annotation of this file."""
    origin, inner = get_origin(kind), get_args(kind)
    if kind is Any:
        return None
    if origin in (Required, NotRequired):
        return _mismatch(value, inner[0], where)
    if origin is UnionType:
        found = [_mismatch(value, one, where) for one in inner if one is not NoneType or value is None]
        return None if None in found else found[0]
    if origin is Literal:
        return None if value in inner else f"its {where} is {_short(value)}, not one of {', '.join(inner)}"
    if origin is dict or hasattr(kind, "__required_keys__"):
        if not isinstance(value, dict):
            return _wrong(value, "a mapping", where)
        if inner and inner[1] is Any:
            return None
        hints = dict.fromkeys(value, inner[1]) if inner else _HINTS[kind]
        missing = (
            [] if inner else [key for key in hints if key in kind.__required_keys__ and key not in value]
        )
        if missing:
            return f"{f'its {where}' if where else 'it'} has no {', '.join(missing)}"
        each = (
            (value[key], hint, f"{where}.{key}" if where else key)
            for key, hint in hints.items()
            if key in value
        )
    elif origin is list:
        if not isinstance(value, list):
            return _wrong(value, "a list", where)
        each = ((one, inner[0], f"{where}.{i}") for i, one in enumerate(value))
    else:
        kinds = (float, int) if kind is float else kind
        sound = isinstance(value, kinds) and (kind is bool or not isinstance(value, bool))
        return None if sound else _wrong(value, _NAMES[kind], where)
    return next((said for one in each if (said := _mismatch(*one))), None)


_NAMES = {float: "a number", int: "a whole number", str: "a text", bool: "true or false", NoneType: "null"}
_HINTS = {
    kind: get_type_hints(kind, include_extras=False)
    for kind in (Record, Metrics, Selected, Cost, Data, DataFile, Code)
}


def _wrong(value: Any, wanted: str, where: str) -> str:
    return (
        f"its {where} is {_short(value)}, not {wanted}" if where else f"it is {_short(value)}, not {wanted}"
    )


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


def upgraded(content: dict[str, Any]) -> dict[str, Any]:
    """A record of schema 1, which was one file, as one of schema 2."""
    data = content.get("data")
    return {**content, "schema": SCHEMA} | ({"data": data_of(data)} if isinstance(data, dict) else {})
