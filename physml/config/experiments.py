"""Experiments as conf/ has them, read without hydra: what each sets, and which files it chooses."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.config.load import read_yaml
from physml.errors import ConfigError, near
from physml.paths import CONF


@dataclass(frozen=True)
class Source:
    """What an experiment says, with what it takes over from those that it starts from.

    Args:
        settings: keys and values, as `model: {dt: 0.1}`.
        choices: the file that it takes for a group, as `model: lem`.
    """

    settings: dict[str, Any]
    choices: dict[str, str]


def names(conf: Path = CONF) -> list[str]:
    folder = conf / "experiment"
    return sorted(path.relative_to(folder).with_suffix("").as_posix() for path in folder.rglob("*.yaml"))


def source(name: str, conf: Path = CONF) -> Source:
    """ConfigError, with near names, where there is no such experiment."""
    path = conf / "experiment" / f"{name}.yaml"
    if not path.is_file():
        raise ConfigError(f"there is no experiment {name}. {near(name, names(conf))}")
    own = read_yaml(path)
    made = Source({}, {})
    choices: dict[str, str] = {}
    for default in own.pop("defaults", None) or []:
        if isinstance(default, dict):
            choices |= {key.removeprefix("override").strip(" /"): str(v) for key, v in default.items()}
        elif default != "_self_":
            base = source(default, conf)
            made = Source(_merged(made.settings, base.settings), made.choices | base.choices)
    return Source(_merged(made.settings, own), made.choices | choices)


def _merged(first: dict[str, Any], second: dict[str, Any]) -> dict[str, Any]:
    """Both, key by key; where both have a value the second counts."""
    inner = {
        key: _merged(first[key], value)
        for key, value in second.items()
        if isinstance(value, dict) and isinstance(first.get(key), dict)
    }
    return first | second | inner
