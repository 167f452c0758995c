"""Tables of settings: what a paper prints beside what conf/ says. No torch, no hydra, no runs.

`conf/table/<id>.yaml` with `kind: settings`. A printed setting is typed once, there; ours are read from the
experiment that a cell names, or from the results of searches, so the table can't be out of step with what is
trained.
"""

import dataclasses
import fnmatch
import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal, InvalidOperation
from pathlib import Path
from typing import Any, Literal

from physml.base.check import is_number
from physml.base.errors import ConfigError, suggest
from physml.config import conf_files, studies
from physml.config.load import content_of, load
from physml.records.searches import recorded
from physml.report.outcome import State
from physml.report.table.spec import check_rows

# Why an experiment's setting is none of the paper's, by its provenance, where the table gives no reason.
OURS = {"searched-here": "searched here", "own": "chosen here, not searched"}

Reads = Literal["value", "use", "range", "distribution"]
Spaces = dict[str, Mapping[str, Any]]  # search -> key of a setting -> what it is drawn from


@dataclass(frozen=True)
class SettingColumn:
    """One kind of setting.

    reads: `value`; `use`, YES where the key is set and NO where it is null or false; `range` of a search, or
    `distribution` that it is drawn from.
    """

    key: str
    label: str | None = None
    setting: str | None = None  # key of our value, as `model.dt.1`; a row or cell may override it
    reads: Reads = "value"

    @property
    def title(self) -> str:
        return self.label or self.key


@dataclass(frozen=True)
class SettingCell:
    """One setting of a row, as the paper prints it."""

    printed: str | None = None  # the value in the paper, as text, since its digits count
    code: str | None = None  # the value in the official code, if it differs or the paper prints nothing
    experiment: str | None = None  # by default that of the row
    setting: str | None = None  # by default that of the row, else of the column
    differs: str | None = None  # the reason why our value differs


@dataclass(frozen=True)
class SettingRow:
    label: str
    experiment: str | None = None
    setting: str | None = None
    cells: dict[str, SettingCell] = field(default_factory=dict)


@dataclass(frozen=True)
class SettingsSpec:
    id: str
    title: str
    source: str
    columns: tuple[SettingColumn, ...]
    rows: tuple[SettingRow, ...]
    searches: tuple[str, ...] = ()  # for columns that read ranges; also patterns: g2-*
    claim: str | None = None
    notes: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        check_rows([column.key for column in self.columns], self.rows)
        for row in self.rows:
            for column in self.columns:
                if self.cell(row, column).setting is None:
                    raise ConfigError(
                        f"row {row.label}, column {column.key}: `setting` must say what to read."
                    )

    def cell(self, row: SettingRow, column: SettingColumn) -> SettingCell:
        """The cell as it counts: what it leaves out is taken from its row, then from its column."""
        cell = row.cells.get(column.key, SettingCell())
        return dataclasses.replace(
            cell,
            experiment=cell.experiment or row.experiment,
            setting=cell.setting or row.setting or column.setting,
        )


@dataclass(frozen=True)
class SettingResult:
    """One cell. `ours` and `where` are None if there is nothing of ours to read."""

    row: str
    column: SettingColumn
    printed: str | None
    code: str | None
    ours: str | None
    where: str | None  # lem/smnist-lem: model.dt
    state: State


@dataclass(frozen=True)
class SettingsTable:
    spec: SettingsSpec
    cells: tuple[SettingResult, ...]  # row by row

    @property
    def state(self) -> str:
        """One line: how many of the printed settings are as printed."""
        printed = [cell.state.word for cell in self.cells if cell.printed is not None]
        words = ", ".join(f"{count} {word}" for word, count in Counter(printed).items())
        return f"{len(printed)} settings printed" + (f"; {words}" if words else "")


def load_settings(path: Path | str) -> SettingsSpec:
    """The config of one table of settings. ConfigError names file and key of whatever is wrong in it."""
    path = Path(path)
    if (kind := content_of(path).get("kind", "runs")) != "settings":
        raise ConfigError(f"{path.name}: kind must be settings; got {kind}.")
    return conf_files.placed(load(SettingsSpec, path, ignore=("kind",), id=path.stem), path.parent)


def collect_settings(spec: SettingsSpec) -> SettingsTable:
    """Each cell with our setting and how it stands to the printed one.

    Errors: ConfigError where a named experiment, search or key is not there.
    """
    spaces = _spaces(spec.searches)
    cells = (_result(spec, row, column, spaces) for row in spec.rows for column in spec.columns)
    return SettingsTable(spec, tuple(cells))


# --- what conf/ says


def setting_of(experiment: str, key: str) -> Any:
    """An experiment's setting: its own, else that of the file that is chosen for the group."""
    contents = studies.experiment(experiment)
    group, *inner = key.split(".")
    value = _at(contents.settings, [group, *inner])
    if value is _ABSENT and (chosen := contents.choices.get(group) or _default(group)):
        file = conf_files.find(group, chosen) or conf_files.CONF / group / f"{chosen}.yaml"
        value = _at(content_of(file), inner)
    if value is _ABSENT:
        raise ConfigError(f"experiment {experiment} has no setting {key}.")
    if isinstance(value, str) and "${" in value:
        raise ConfigError(f"experiment {experiment}: {key} is {value}; a table reads plain values only.")
    return value


def _default(group: str) -> str | None:
    """The file that every run takes for a group."""
    defaults = content_of(conf_files.CONF / "run.yaml").get("defaults") or []
    return next((d[group] for d in defaults if isinstance(d, dict) and group in d), None)


def _spaces(patterns: Iterable[str]) -> Spaces:
    """The spaces of the searches that are meant by names and patterns: of those on which runs rest, that were
    made, as they drew from it; where none was, of those that are declared.
    """
    ids = studies.searches() if patterns else {}
    names: dict[str, None] = {}
    for pattern in patterns:
        if not (matching := fnmatch.filter(sorted(ids), pattern)):
            raise ConfigError(f"there is no search {pattern}. {suggest(pattern, ids)}")
        names |= dict.fromkeys(matching)
    drawn = {name: results["search"]["space"] for name in names if (results := recorded(name))}
    return drawn or {name: studies.search_of(ids[name]).space for name in names}


_ABSENT = object()


def _at(node: Any, path: list[str]) -> Any:
    """The value at a path in nested mappings and lists."""
    for part in path:
        if isinstance(node, dict) and part in node:
            node = node[part]
        elif isinstance(node, list) and part.isdigit() and int(part) < len(node):
            node = node[int(part)]
        else:
            return _ABSENT
    return node


# --- one cell


def _result(spec: SettingsSpec, row: SettingRow, column: SettingColumn, spaces: Spaces) -> SettingResult:
    cell = spec.cell(row, column)
    if column.reads in ("range", "distribution"):
        ours, where = _of_searches(spaces, column, cell.setting or "")
        none = State("not searched", cell.differs) if spec.searches else State("no search")
        kind = None
    else:
        ours, where, kind = _of_experiment(column, cell)
        none = State("no experiment")
    state = none if ours is None else _state(cell, ours, kind)
    return SettingResult(row.label, column, cell.printed, cell.code, ours, where, state)


def _of_experiment(column: SettingColumn, cell: SettingCell) -> tuple[str | None, str | None, str | None]:
    """Our setting, where it was read, and where the experiment's settings come from."""
    if cell.experiment is None or cell.setting is None:
        return None, None, None
    value = setting_of(cell.experiment, cell.setting)
    ours = value_text(_use(value) if column.reads == "use" else value)
    kind = studies.experiment(cell.experiment).settings["provenance"]["kind"]
    return ours, f"{conf_files.shown(cell.experiment)}: {cell.setting}", kind


def _of_searches(spaces: Spaces, column: SettingColumn, setting: str) -> tuple[str | None, str | None]:
    """All of our searches that draw this setting; where their ranges differ, each stands there once."""
    texts = {name: _drawn(space[setting], column.reads) for name, space in spaces.items() if setting in space}
    if not texts:
        return None, None
    of = next(iter(texts)) if len(texts) == 1 else "searches"
    return " or ".join(dict.fromkeys(texts.values())), f"{of}: {setting}"


def _drawn(space: Any, reads: Reads) -> str:
    if isinstance(space, list):
        values = space if all(map(is_number, space)) else None
        named = [value_text(v) for v in values] if values else sorted({_use(v) for v in space}, reverse=True)
        return f"{{{', '.join(named)}}}" if reads == "range" else "disc. uniform"
    if reads == "range":
        return f"[{value_text(space['low'])}, {value_text(space['high'])}]"
    return "log uniform" if space.get("log") else "uniform"


def _use(value: Any) -> str:
    return "NO" if value is None or value is False else "YES"


def value_text(value: Any) -> str:
    """A value as papers write it.

    Example:
        >>> value_text(0.0026), value_text(0.21), value_text(128), value_text([1e-5, 0.5]), value_text(None)
        ('2.6e-3', '0.21', '128', '[1e-5, 0.5]', 'none')
    """
    if isinstance(value, list):
        return f"[{', '.join(map(value_text, value))}]"
    if not is_number(value):
        return "none" if value is None else str(value)
    if value == 0 or 0.01 <= abs(value) < 1e5 or not math.isfinite(value):
        return f"{value:.6g}"
    mantissa, _, exponent = f"{value:.5e}".partition("e")
    return f"{mantissa.rstrip('0').rstrip('.')}e{int(exponent)}"


def _state(cell: SettingCell, ours: str, kind: str | None) -> State:
    """The state of our setting against the paper or, if that prints nothing, against the official code."""
    as_code = cell.code is not None and compare(cell.code, ours) in ("same", "rounded")
    if cell.printed is None:
        beside = f"{'as' if as_code else 'other than'} in the official code"
        return State("no printed value at hand", None if cell.code is None else beside)
    word = compare(cell.printed, ours)
    if word not in ("differs", "outside"):
        return State(word)
    reason = cell.differs or ("as in the official code" if as_code else OURS.get(kind or ""))
    return State(word, reason)


def compare(printed: str, ours: str) -> str:
    """`same`, `rounded`, `differs`; of a number beside a printed range `inside` or `outside`.

    Example:
        >>> compare("2.6e-3", "0.0026"), compare("6.6e-4", "6.58e-4"), compare("[1e-2, 1e-1]", "0.016")
        ('same', 'rounded', 'inside')
    """
    number, printed_number = _number(ours), _number(printed)
    if number is not None and printed_number is not None:
        off = abs(printed_number - number)
        half_a_digit = Decimal(1).scaleb(int(printed_number.as_tuple().exponent)) / 2
        return "same" if not off else "rounded" if off <= half_a_digit else "differs"
    numbers = [n for n in map(_number, _parts(printed)) if n is not None]
    if number is not None and numbers:
        within = (
            min(numbers) <= number <= max(numbers) if printed.strip().startswith("[") else number in numbers
        )
        return "inside" if within else "outside"
    return "same" if _plain(printed) == _plain(ours) else "differs"


def _number(text: str) -> Decimal | None:
    """The number in a text; None in any other text, of which infinity and nan are."""
    try:
        return number if (number := Decimal(text)).is_finite() else None
    except InvalidOperation:
        return None


def _parts(text: str) -> list[str]:
    """The parts of [low, high] or {a, b}; none for other text."""
    match = re.fullmatch(r"\[(.+)\]|\{(.+)\}", text.strip())
    return [part.strip() for part in (match[1] or match[2]).split(",")] if match else []


def _plain(text: str) -> Any:
    """Ranges and sets by their numbers, anything else by its letters."""
    parts = [part.casefold() if (n := _number(part)) is None else n for part in _parts(text)]
    if not parts:
        return text.casefold()
    return ("set", frozenset(parts)) if text.strip().startswith("{") else ("range", tuple(parts))
