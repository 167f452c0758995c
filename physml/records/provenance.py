"""Provenance of a number: code, packages, machine."""

import platform
from contextlib import suppress
from datetime import UTC, datetime
from functools import lru_cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from physml import __version__
from physml.base.git import asked
from physml.base.paths import INSTALLED, ROOT

PACKAGES = ("torch", "numpy", "scipy", "hydra-core", "torch_geometric")


def now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@lru_cache(maxsize=1)
def code() -> dict[str, Any]:
    """Commit of the checkout; `dirty` looks at code and config alone, not at results. None: not known.

    An installed wheel has a version and no commit, even where it lies inside some other repository.
    """
    if INSTALLED:
        return {"commit": None, "dirty": None, "version": __version__}
    commit = asked(ROOT, "rev-parse", "HEAD")
    changed = asked(ROOT, "status", "--porcelain", "--", "physml", "tasks", "conf", "pyproject.toml")
    dirty = None if commit is None or changed is None else bool(changed)
    return {"commit": commit, "dirty": dirty, "version": __version__}


def packages() -> dict[str, str]:
    versions = {}
    for name in PACKAGES:
        with suppress(PackageNotFoundError):
            versions[name] = version(name)
    return versions


def cpu_model() -> str:
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as file:  # noqa: PTH123 - a pseudo file
            return next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        return platform.processor() or "unknown"
