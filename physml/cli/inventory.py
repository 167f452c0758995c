"""What there is, read from conf/ alone: models, tasks, tables, figures, experiments.

A new config file shows up here by itself. Nothing is imported but YAML: no torch, no hydra.
"""

import shutil
import textwrap
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from physml.cli import task_facts
from physml.config.class_source import read_class
from physml.config.yaml_file import read_yaml
from physml.errors import ConfigError, suggest
from physml.paths import CONF

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
    return [_published("table", name, content) for name, content in _configs("table")]


def figures() -> list[Entry]:
    return [_published("figure", name, content) for name, content in _configs("figure")]


def experiments() -> list[Entry]:
    """About: model, task and where the settings come from. Facts: the provenance's kind."""
    return [_experiment(name, content) for name, content in _configs("experiment")]


KINDS: dict[str, Callable[[], list[Entry]]] = {
    "models": models,
    "tasks": tasks,
    "tables": tables,
    "experiments": experiments,
    "figures": figures,
}


def entries(kind: str, named: str | None = None) -> list[Entry]:
    """The entries of one kind, all or those with each word of `named` in their name; wildcards are words too.

    Errors: ConfigError for an unknown kind, and where no name fits, with near names.
    """
    if kind not in KINDS:
        raise ConfigError(f"there is no list of {kind}. {suggest(kind, KINDS)}")
    found = KINDS[kind]()
    if named is None:
        return found
    fitting = [entry for entry in found if all(fnmatchcase(entry.name, f"*{w}*") for w in named.split())]
    if not fitting:
        hint = suggest(named, [entry.name for entry in found])
        raise ConfigError(f"none of the {len(found)} {kind} has {named} in its name. {hint}")
    return fitting


def text(found: list[Entry], width: int | None = None) -> str:
    """One entry a line, long descriptions continued below; `width` is the terminal's when not given."""
    if not found:
        return "none yet"
    column = max(len(entry.name) for entry in found) + 2
    room = max((width or shutil.get_terminal_size((110, 24)).columns) - column, 40)
    lines = []
    for entry in found:
        about = f"{entry.about} [{entry.facts}]" if entry.facts else entry.about
        first, *more = textwrap.wrap(about, room, break_on_hyphens=False) or [""]
        lines.append(f"{entry.name:<{column}}{first}".rstrip())
        more += [line for below in entry.below for line in _hanging(below, room)]
        lines += [f"{'':<{column}}{line}" for line in more]
    return "\n".join(lines)


def _hanging(line: str, room: int) -> list[str]:
    """Wrapped, and continued four columns further in than it begins."""
    indent = " " * (len(line) - len(line.lstrip()))
    wrapper = textwrap.TextWrapper(
        room,
        initial_indent=indent,
        subsequent_indent=f"{indent}    ",
        break_long_words=False,
        break_on_hyphens=False,
    )
    return wrapper.wrap(line.strip())


def _configs(group: str) -> list[tuple[str, dict[str, Any]]]:
    """Name and content of every file of a group; the first comment line stands under the key `_comment`."""
    folder = CONF / group
    files = {path.relative_to(folder).with_suffix("").as_posix(): path for path in folder.rglob("*.yaml")}
    return [(name, _read(files[name])) for name in sorted(files, key=_natural)]


def _natural(name: str) -> list[tuple[int, str]]:
    """Sorts lem-9 before lem-10."""
    return [(int(part), "") if part.isdecimal() else (-1, part) for part in name.replace(".", "-").split("-")]


def _read(path: Path) -> dict[str, Any]:
    content = read_yaml(path)
    first = path.read_text(encoding="utf-8").partition("\n")[0]
    comment = first.removeprefix("#").strip() if first.startswith("#") else ""
    return content | {"_comment": "" if comment.startswith("@package") else comment}


def _all_built(group: str) -> list[Entry]:
    """Told by their class; where one class serves several configs, by the comment that says which this is."""
    contents = _configs(group)
    found = [_built(group, name, content) for name, content in contents]
    users = Counter(entry.target for entry in found)
    return [
        replace(entry, about=content["_comment"])
        if users[entry.target] > 1 and content["_comment"]
        else entry
        for entry, (_, content) in zip(found, contents, strict=True)
    ]


def _built(group: str, name: str, content: dict[str, Any]) -> Entry:
    target = content.get("_target_")
    if not isinstance(target, str):
        raise ConfigError(f"conf/{group}/{name}.yaml: `_target_` must name a class; it is {target!r}.")
    if target == _OPEN:
        return Entry(name, content["_comment"])
    about = read_class(target).doc.partition("\n\n")[0] or content["_comment"]
    return Entry(name, " ".join(about.split()), target=target)


def _published(group: str, name: str, content: dict[str, Any]) -> Entry:
    about = content.get("title") or content["_comment"]
    if not about:
        raise ConfigError(f"conf/{group}/{name}.yaml: it needs a `title`.")
    aliases = ", ".join(map(str, content.get("aliases") or []))
    return Entry(name, about, aliases)


def _chosen(content: dict[str, Any]) -> dict[str, str]:
    """Model, task and others of an experiment, by group; also those of one that it starts from."""
    chosen: dict[str, str] = {}
    for default in content.get("defaults") or []:
        if isinstance(default, dict):
            chosen |= {key.rpartition("/")[2]: value for key, value in default.items()}  # `override /model`
        elif default != "_self_":
            chosen |= _chosen(read_yaml(CONF / "experiment" / f"{default}.yaml"))
    return chosen


def _experiment(name: str, content: dict[str, Any]) -> Entry:
    chosen = _chosen(content)
    provenance = content.get("provenance") or {}
    about = f"{chosen.get('model', '?')} on {chosen.get('task', '?')}"
    if source := provenance.get("source"):
        about += f"; {source}"
    return Entry(name, about, provenance.get("kind") or "")
