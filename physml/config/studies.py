"""Studies: the experiments of one paper on one task, as rows of conf/study/<paper>/<task>.yaml.

The row `g2_gcn` of g2/texas is the experiment g2/texas-g2_gcn; the row `mine` of a study at a path is the
experiment ./study.yaml:mine. Its settings are the study's `common` ones, or
those of the row in `base`; then its own in `set`; then what a search found, in <task>.searched.yaml beside
the study, which only `physml search` writes. Reads YAML alone: no torch, no hydra.
"""

import functools
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

from physml.base.errors import ConfigError, suggest
from physml.base.files import cached_by_file
from physml.base.paths import display_path
from physml.config import conf_files
from physml.config.conf_files import absolute, find, is_file, is_path
from physml.config.load import read_yaml, refuse_unknown, structure
from physml.config.search_schema import Search

SEARCHED = ".searched.yaml"
ProvenanceKind = Literal["paper", "official-code", "searched-here", "own"]
SETTINGS = (
    *("model", "net", "task", "trainer", "optim", "runtime", "data", "precision", "arrays", "measures"),
    *("n_parameters_printed", "short"),
)
_STUDY = re.compile(r"\w+/\w+", re.ASCII)
_NAME = re.compile(r"(\w+/\w+)-(\w[\w.-]*)", re.ASCII)


@dataclass(frozen=True)
class Found:
    """The best trial of a row's search."""

    trial: int
    search: str  # the file of all trials
    set: dict[str, Any]  # config key -> value
    drawn: int  # all trials
    trials: int  # those that gave a number
    seeds: int  # runs whose mean has decided

    @property
    def facts(self) -> dict[str, Any]:
        """All that is known but the settings, for the provenance of the row and for its file."""
        return {key: value for key, value in vars(self).items() if key != "set"}


@dataclass(frozen=True, kw_only=True)
class Chosen:
    """Config files by group, and the source of the settings."""

    model: str | None = None
    task: str | None = None
    net: str | None = None
    optim: str | None = None
    provenance: dict[str, Any] = field(default_factory=dict)

    @property
    def choices(self) -> dict[str, str]:
        groups = ("model", "task", "net", "optim")
        return {group: name for group in groups if (name := getattr(self, group)) is not None}


@dataclass(frozen=True, kw_only=True)
class Row(Chosen):
    """One experiment: what differs from the study or from the base, and the search that is made."""

    base: str | None = None  # a row of this study, or the name of an experiment
    set: dict[str, Any] = field(default_factory=dict)
    note: str | None = None  # of the provenance; not taken over from the base
    search: str | None = None  # one of the study's


@dataclass(frozen=True, kw_only=True)
class Study(Chosen):
    rows: dict[str, Row]
    common: dict[str, Any] = field(default_factory=dict)
    search: dict[str, Any] = field(default_factory=dict)  # keys that all searches share
    searches: dict[str, dict[str, Any]] = field(default_factory=dict)
    searches_of: str | None = None  # another study, whose searches are made here too, beside its own
    plugins: list[str] = field(default_factory=list)  # Python files, of a study of one's own


@dataclass(frozen=True)
class Experiment:
    """Config files by group, and the settings that are put over them."""

    choices: dict[str, str]
    settings: dict[str, Any]


def names() -> list[str]:
    """All experiments of conf/study, and of one's own folder, sorted."""
    return sorted(f"{study}-{row}" for study in studies() for row in load(study).rows)


def is_name(name: str) -> bool:
    """True if an experiment exists; reads no other study."""
    study, row = _split(name)
    if study is None or not (is_file(Path(study)) if is_path(study) else find("study", study)):
        return False
    return row in load(study).rows


def _split(name: str) -> tuple[str, str] | tuple[None, None]:
    """Study and row by the name's form alone."""
    if at := conf_files.row_at(name):
        return absolute(at[0]), at[1]
    match = _NAME.fullmatch(name)
    return (match[1], match[2]) if match else (None, None)


def studies() -> list[str]:
    """All studies, g2/texas and so on."""
    return sorted(name for name in conf_files.files("study") if not f"{name}.yaml".endswith(SEARCHED))


def load(study: str) -> Study:
    """A study, checked. ConfigError names the file, and the key with near names."""
    path = file_of(study)
    if not _STUDY.fullmatch(study) and not is_path(study):
        raise ConfigError(f"{path}: a study is <paper>/<task>, of letters, digits and `_`. Rename the file.")
    return _reader(conf_files.folders())(path)


def file_of(study: str) -> Path:
    """The file of a study by its name or path, which need not be there."""
    if not is_path(study):
        return find("study", study) or conf_files.CONF / "study" / f"{study}.yaml"
    return Path(absolute(study))


def searched_file(study: str) -> Path:
    """The file beside a study of what searches have found for its rows."""
    return file_of(study).with_suffix(SEARCHED)


def is_own(name: str) -> bool:
    """True if an experiment belongs to a study outside conf/."""
    return conf_files.is_own(file_of(row_of(name)[0]))


def named(name: str, study: str) -> str:
    """The experiment that a study means: by a row of its own, by a path from its folder, or by a name."""
    if is_path(name):
        return absolute(name, file_of(study).parent)
    if "/" in name:
        return name
    return f"{study}:{name}" if is_path(study) else f"{study}-{name}"


@functools.cache
def _reader(_folders: tuple[Path, ...]) -> Callable[[Path], Study]:
    return cached_by_file(_study)


def _study(path: Path) -> Study:
    study = structure(Study, read_yaml(path), str(path))
    refuse_unknown(study.common, SETTINGS, f"{path}: common: there is no setting ")
    searches = _searches(study, path)
    for name in study.searches:
        structure(Search, searches[name], f"{path}: searches.{name}")
    for name, row in study.rows.items():
        if not _NAME.fullmatch(f"a/b-{name}"):
            raise ConfigError(f"{path}: a row's name has letters, digits and `_.-` alone; got {name!r}.")
        refuse_unknown(row.set, SETTINGS, f"{path}: rows.{name}.set: there is no setting ")
        if row.search is not None:
            refuse_unknown([row.search], searches, f"{path}: rows.{name}: there is no search ")
    choosing: dict[str, Chosen] = {"": study}
    choosing |= {f"rows.{name}: ": row for name, row in study.rows.items()}
    for where, chosen_files in choosing.items():
        for group, chosen in chosen_files.choices.items():
            if not find(group, chosen):
                known = conf_files.files(group)
                raise ConfigError(f"{path}: {where}there is no {group} {chosen}. {suggest(chosen, known)}")
    return study


def _searches(study: Study, path: Path) -> dict[str, dict[str, Any]]:
    """Keys of each search that rows can name: those of another study, and its own."""
    own = {name: _search(study.search, keys) for name, keys in study.searches.items()}
    if study.searches_of is None:
        return own
    other = absolute(study.searches_of, path.parent)
    if not is_file(file_of(other)):
        hint = suggest(other, studies())
        raise ConfigError(f"{path}: searches_of: there is no study {study.searches_of}. {hint}")
    if further := conf_files.content(file_of(other)).get("searches_of"):
        raise ConfigError(f"{path}: searches_of names a study whose own searches are those of {further}.")
    shared = load(other)
    common = shared.search | study.search
    return {name: _search(common, keys) for name, keys in shared.searches.items()} | own


def _search(common: dict[str, Any], keys: dict[str, Any]) -> dict[str, Any]:
    """Keys of a search, with those that all share. Their spaces are joined; a point that lacks a key of the
    common one takes the first choice of its list.
    """
    space = common.get("space")
    if not isinstance(space, dict) or not isinstance(keys.get("space", {}), dict):
        return common | keys
    first = {key: choices[0] for key, choices in space.items() if isinstance(choices, list) and choices}
    points = (common | keys).get("points", [])
    if isinstance(points, list) and all(isinstance(point, dict) for point in points):
        points = [first | point for point in points]
    return common | keys | {"space": space | keys.get("space", {}), "points": points}


def found(study: str) -> dict[str, Found]:
    """The best trials of the searches that rows of a study have."""
    path = searched_file(study)
    if not path.is_file():
        return {}
    best = _found(path)
    refuse_unknown(best, load(study).rows, f"{path}: there is no row ")
    return best


@cached_by_file
def _found(path: Path) -> dict[str, Found]:
    best = {row: structure(Found, data, f"{path}: {row}") for row, data in read_yaml(path).items()}
    for row, trial in best.items():
        groups = [key.partition(".")[0] for key in trial.set]
        refuse_unknown(groups, SETTINGS, f"{path}: {row}.set: there is no setting ")
        if not re.fullmatch(r"results/search/\w[\w.-]*\.json", trial.search, re.ASCII):
            raise ConfigError(f"{path}: {row}.search must be results/search/NAME.json; got {trial.search}.")
    return best


def experiment(name: str, above: tuple[str, ...] = (), *, searched: bool = True) -> Experiment:
    """An experiment by its name; `above` are those that start from it.

    searched: with the settings that a search has found for its row.
    """
    name = absolute(name)
    study, row = row_of(name)
    path = file_of(study)
    if name in above:
        raise ConfigError(f"{path}: {' -> '.join([*above, name])} is a cycle. Change a `base`.")
    content = load(study)
    own = content.rows[row]
    if own.base is None:
        below = Experiment(content.choices, merge({"provenance": content.provenance}, content.common))
    else:
        base = named(own.base, study)
        if not is_name(base):
            known = [*content.rows, *(names() if "/" in base and not is_path(base) else ())]
            raise ConfigError(f"{path}: rows.{row}.base: there is no {own.base}. {suggest(own.base, known)}")
        below = experiment(base, (*above, name))
    settings = merge(below.settings, own.set)
    provenance = below.settings["provenance"] | own.provenance
    if own.note is not None or "note" in provenance:  # that of the base is about the base
        provenance["note"] = own.note
    if searched and (best := found(study).get(row)):
        for key, value in best.set.items():
            settings = merge(settings, _nested(key, value))
        provenance |= {"kind": "searched-here"} | best.facts
        del provenance["trial"]
    if not (provenance.get("kind") in get_args(ProvenanceKind) and provenance.get("source")):
        raise ConfigError(
            f"{path}: row {row} needs a provenance {{kind: ..., source: ...}}, its kind one of "
            f"{', '.join(get_args(ProvenanceKind))}; got {dict(provenance) or 'none'}."
        )
    settings |= {"provenance": provenance}
    if plugins := [*settings.get("plugins", ()), *conf_files.plugins(vars(content), path)]:
        settings |= {"plugins": list(dict.fromkeys(plugins))}
    return Experiment(below.choices | own.choices, settings)


def row_of(name: str) -> tuple[str, str]:
    """Study and row of an experiment."""
    study, row = _split(name)
    if study and row and is_name(name):
        return study, row
    if study is None and is_path(name):
        raise ConfigError(f"{name} names no row of a study. Write it as ./study.yaml:ROW.")
    if study is None or not is_path(study):
        raise ConfigError(f"there is no experiment {name}. {suggest(name, names())}")
    if not is_file(Path(study)):
        raise ConfigError(f"there is no study file {study}. Give its path as ./study.yaml:ROW.")
    raise ConfigError(f"{study} has no row {row!r}. {suggest(row or '', load(study).rows)}")


def searches() -> dict[str, str]:
    """Every search by its id, and the experiment that it is for."""
    return {
        _search_id(study, name): f"{study}-{name}"
        for study in studies()
        for name, row in load(study).rows.items()
        if row.search is not None
    }


def _search_id(study: str, row: str) -> str:
    best = found(study).get(row)
    return Path(best.search).stem if best else f"{study}-{row}".replace("/", "-")


def search_named(name: str) -> tuple[str, str]:
    """Id and experiment of the search that a person means by either; of a study at a path by its row.

    Errors: ConfigError for an unknown name, with near names.
    """
    if is_path(name):
        search_of(name)
        if not is_own(name):
            raise ConfigError(f"{name} is of physml. Name it as an experiment: lem/fitzhugh_nagumo-cornn.")
        return f"adhoc-{conf_files.flat(name)}", absolute(name)  # no id of a shipped search
    if is_name(name):
        search_of(name)  # where it has none the error names what to do
        return _search_id(*row_of(name)), name
    ids = searches()
    if name not in ids:
        raise ConfigError(f"there is no search {name}. {suggest(name, [*ids, *ids.values()])}")
    return name, ids[name]


def search_of(name: str) -> Search:
    """The search of an experiment."""
    study, row = row_of(name)
    content, path = load(study), file_of(study)
    search = content.rows[row].search
    if search is None:
        raise ConfigError(f"{name} has no search. Name one in its row of {display_path(path)}.")
    return structure(Search, _searches(content, path)[search], f"searches.{search}")


def merge(below: Mapping[str, Any], above: Mapping[str, Any], depth: int = 0) -> dict[str, Any]:
    """Settings over others. Inside a group, a part that names its class and a mapping over one that names
    none, such as `task.options`, stand as they are, unmixed.

    Example:
        >>> merge({"model": {"dt": 1, "g": {"_target_": "a", "x": 1}}}, {"model": {"g": {"_target_": "b"}}})
        {'model': {'dt': 1, 'g': {'_target_': 'b'}}}
    """
    out = dict(below)
    for key, value in above.items():
        mixes = isinstance(value, Mapping) and isinstance(out.get(key), Mapping)
        whole = depth > 0 and mixes and ("_target_" in value or "_target_" not in out[key])
        out[key] = merge(out[key], value, depth + 1) if mixes and not whole else value
    return out


def _nested(key: str, value: Any) -> dict[str, Any]:
    for part in reversed(key.split(".")):
        value = {part: value}
    return value
