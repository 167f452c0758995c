"""Composed configs of a small run, with anything put into them, and files that configs are read from."""

from pathlib import Path
from typing import Any

import yaml

from physml.config.compose import compose


def run_config(*overrides: str) -> dict[str, Any]:
    return compose(["model=lem", "task=adding", "profile=smoke", *overrides]).config


def put(config: dict[str, Any], where: str, value: Any) -> dict[str, Any]:
    """The config with `value` where `where` says, keys divided by dots."""
    *parents, last = where.split(".")
    node = config
    for parent in parents:
        node = node[parent]
    node[last] = value
    return config


def write(path: Path, content: Any) -> Path:
    """A file with this text, or with this content as YAML."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
    return path
