"""The papers' printed tables and settings, in tests/reference: read once per process."""

import functools
from pathlib import Path
from typing import Any

import yaml

REFERENCE = Path(__file__).parents[1] / "reference"


@functools.cache
def paper_tables() -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in _load("paper_tables.yaml")}


@functools.cache
def paper_recipes() -> dict[str, dict[str, Any]]:
    return {entry["id"]: entry for entry in _load("recipes.yaml")["recipes"]}


def _load(name: str) -> Any:
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    return yaml.load((REFERENCE / name).read_text(encoding="utf-8"), loader)
