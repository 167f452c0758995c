"""The configs that there are, read from conf/ alone: models, tasks, tables, figures, experiments.

A new config file shows up here by itself. Nothing is imported but YAML: no torch, no hydra.
"""

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.config import conf_files, studies
from physml.config.identity import class_source
from physml.config.load import coerce
from physml.listing import tasks as task_facts
from physml.report.table.spec import natural

_OPEN = "???"  # a value that the user must give


@dataclass(frozen=True)
class Entry:
    """One config file: its name, what it is in one line, and what belongs beside that.

    `target` is the class it builds, null for a template whose class the user names.
    """

    name: str
    about: str
    facts: str = ""
    target: str | None = None
    below: tuple[str, ...] = ()  # further lines


def models() -> list[Entry]:
    return _all_built("model")


def tasks() -> list[Entry]:
    """Below: protocols, sizes of the parts, trivial references, as far as they were measured."""
    return [replace(e, below=tuple(task_facts.lines(e.name))) if e.target else e for e in _all_built("task")]


def tables() -> list[Entry]:
    """Facts: the other ids a table answers to."""
    return _published("table")


def figures() -> list[Entry]:
    return _published("figure")


def experiments(named: str | None = None) -> list[Entry]:
    """About: model, task and where the settings come from. Facts: the provenance's kind. Below: the settings.

    named: studies that cannot have such an experiment are not read. A row of a file: it alone.
    """
    words = [
        f"*{word.partition('-')[0]}*" for word in (named or "").split() if "/" in word and "[" not in word
    ]
    fitting = [s for s in studies.studies() if all(fnmatchcase(s, word) for word in words)]
    names = [f"{study}-{row}" for study in fitting for row in studies.load(study).rows]
    if named and conf_files.is_path(named):
        names = [named]
    listed = []
    for name in sorted(names, key=natural):
        row = studies.experiment(name)
        provenance, source = row.settings["provenance"], row.settings["provenance"].get("source")
        about = f"{row.choices.get('model', '?')} on {row.choices.get('task', '?')}"
        about += f"; {source}" if source else ""
        of = conf_files.folder_mark(studies.file_of(studies.row_of(name)[0]))
        listed.append(Entry(name, about, ", ".join(filter(None, (provenance.get("kind"), of)))))
    return listed


def searches(named: str | None = None) -> list[Entry]:
    """Each experiment that names a search; about: how far it is, and its best trial.

    named: only that of a row of a file, ./study.yaml:ROW.
    """
    from physml.records.searches import state_text

    if named and conf_files.is_path(named):
        return [Entry(named, state_text(studies.search_named(named)[0]))]
    ids = {experiment: ident for ident, experiment in studies.searches().items()}
    return [Entry(name, state_text(ids[name])) for name in sorted(ids, key=natural)]


KINDS: dict[str, Callable[..., list[Entry]]] = {
    kind.__name__: kind for kind in (models, tasks, tables, experiments, figures, searches)
}


def entries(kind: str, named: str | None = None, *, settings: bool = False) -> list[Entry]:
    """The entries of one kind, all or those with each word of `named` in their name; wildcards are words too.

    settings: below each experiment, what it sets.

    Errors: ConfigError for an unknown kind, and where no name fits, with near names.
    """
    if kind not in KINDS:
        raise ConfigError(f"there is no list of {kind}. {suggest(kind, KINDS)}")
    if settings and kind != "experiments":
        raise ConfigError(f"--settings is for experiments alone; got {kind}.")
    rows = kind in ("experiments", "searches")
    listed = KINDS[kind](named) if rows else KINDS[kind]()
    words = [] if rows and named and conf_files.is_path(named) else (named or "").split()
    fitting = [entry for entry in listed if all(fnmatchcase(entry.name, f"*{w}*") for w in words)]
    if named is not None and not fitting:
        listed = KINDS[kind]()
        hint = suggest(named, [entry.name for entry in listed])
        raise ConfigError(f"none of the {len(listed)} {kind} has {named} in its name. {hint}")
    if settings:
        return [replace(entry, below=settings_lines(entry.name)) for entry in fitting]
    return fitting


def _configs(group: str) -> list[tuple[Path, dict[str, Any]]]:
    """Path and content of every file of a group; `_comment` is its first line, `_folder` one's own folder."""
    files = conf_files.files(group)
    if not files:
        raise ConfigError(
            f"there are no configs in {conf_files.CONF / group}: physml is not whole. Install it again."
        )
    return [(files[name], _read(files[name])) for name in sorted(files, key=natural)]


def _read(path: Path) -> dict[str, Any]:
    content = conf_files.content(path)  # which says what is wrong with the file
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    comment = first.removeprefix("#").strip() if first.startswith("#") else ""
    comment = "" if comment.startswith("@package") else comment
    return content | {"_comment": comment, "_folder": conf_files.folder_mark(path)}


def _all_built(group: str) -> list[Entry]:
    """Told by their class; where one class serves several configs, by the comment that says which this is."""
    contents = _configs(group)
    users = Counter(str(content.get("_target_")) for _, content in contents)
    listed = []
    for path, content in contents:
        target, about = content.get("_target_"), content["_comment"]
        if not isinstance(target, str):
            raise ConfigError(f"{path}: `_target_` must name a class; it is {target!r}.")
        if target != _OPEN and (users[target] == 1 or not about):
            source = class_source(content, [Path(plugin) for plugin in content.get("plugins") or ()])
            about = " ".join(((source.doc if source else "").partition("\n\n")[0] or about).split())
        target = None if target == _OPEN else target
        listed.append(Entry(path.stem, about, content["_folder"], target))
    return listed


def _published(group: str) -> list[Entry]:
    listed = []
    for path, content in _configs(group):
        if not (about := content.get("title") or content["_comment"]):
            raise ConfigError(f"{path}: it needs a `title`.")
        aliases = coerce(content.get("aliases") or [], list[str], f"{path}: aliases")
        facts = ", ".join(filter(None, [*aliases, content["_folder"]]))
        listed.append(Entry(path.stem, coerce(about, str, f"{path}: title"), facts))
    return listed


def settings_lines(name: str) -> tuple[str, ...]:
    """One line for each group that an experiment changes: `model: n_layers 6, p 1.53`."""
    settings = studies.experiment(name).settings.items()
    return tuple(f"{group}: {_short(value)}" for group, value in settings if group != "provenance")


def _short(value: Any, inside: bool = False) -> str:
    if isinstance(value, list):
        return f"[{', '.join(_short(part, inside=True) for part in value)}]"
    if not isinstance(value, dict):
        return "null" if value is None else str(value)
    inner = ", ".join(f"{key} {_short(v, inside=True)}" for key, v in value.items() if key != "_target_")
    if "_target_" in value:
        return f"{str(value['_target_']).rpartition('.')[2]}({inner})"
    return f"({inner})" if inside else inner
