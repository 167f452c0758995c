"""Composed experiments in the cache, each for as long as all that it is made of has the same content.

That is: every config that was read or looked for, the sources of its classes, and the code that composes.
"""

import hashlib
import json
import time
from collections.abc import Iterable
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

from physml.base import cache_file, files
from physml.base.cache_file import CacheFile
from physml.base.paths import CONF, own_conf
from physml.config.compose import Composed, compose
from physml.config.conf_files import is_path
from physml.config.identity import identity


class ComposedCache:
    """Composed configs with their identities; those that are new are written by `close`."""

    def __init__(self) -> None:
        self.began = time.time()
        self.content = cache(_content)  # looked up once: most experiments share most of their files
        self.made: dict[
            str, tuple[Composed, str, frozenset[Path]]
        ] = {}  # by this object, with what it is made of
        self.rows = CacheFile("composed.sqlite", _code())
        self.states = {} if own_conf() else self.rows.states(str(CONF))
        self.fresh: list[tuple[str, str, str]] = []

    def compose(self, experiment: str, overrides: list[str]) -> tuple[Composed, str]:
        """The config of an experiment with overrides, and its identity. Shared: not to be altered.

        Errors: ConfigError, as of `compose`.
        """
        whole = [f"experiment={experiment}", *overrides]
        name = "\n".join(whole)
        if name not in self.made:
            self.made[name] = self._kept(name) or self._composed(experiment, whole)
        made, key, sources = self.made[name]
        files.note(*sources)
        return made, key

    def _composed(self, experiment: str, whole: list[str]) -> tuple[Composed, str, frozenset[Path]]:
        with files.noting() as sources:
            made = compose(whole)
            key = identity(made.config)
        if not (own_conf() or is_path(experiment)) and _settled(sources, self.began):
            value = vars(made) | {"datasets": list(made.datasets), "identity": key}
            text = json.dumps(value)
            if json.loads(text) == value:  # else a key is no text
                self.fresh.append(("\n".join(whole), self._state(map(str, sources)), text))
        return made, key, frozenset(sources)

    def _kept(self, name: str) -> tuple[Composed, str, frozenset[Path]] | None:
        try:
            state = self.states[name]
            sources = json.loads(state)
            if self._state(sources) != state:
                return None
            value: dict[str, Any] = json.loads(self.rows.values(str(CONF), [(name, state)])[name])
            made = Composed(value["config"], value["choices"], tuple(value["datasets"]))
            key = str(value["identity"])
        except (KeyError, TypeError, ValueError):  # none, or not ours
            return None
        return made, key, frozenset(map(Path, sources))

    def _state(self, sources: Iterable[str]) -> str:
        return json.dumps({name: self.content(name) for name in sorted(sources)})

    def close(self) -> None:
        """Write what is new."""
        if self.fresh:
            self.rows.put(str(CONF), self.fresh)
        self.rows.close()


@cache
def _code() -> str:
    sources = [*Path(__file__).parent.glob("*.py"), Path(files.__file__)]
    return cache_file.hash_of(
        cache_file.code_hash(*sources), *(version(name) for name in ("omegaconf", "pyyaml"))
    )


def _content(name: str) -> str:
    """The hash of a file, or of the names in a folder; empty where there is neither."""
    path = Path(name)
    if path.is_dir():
        return cache_file.hash_of(*sorted(str(file.relative_to(path)) for file in path.rglob("*.yaml")))
    return _sha256(path) if path.is_file() else ""


@files.cached_by_file
def _sha256(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


def _settled(sources: Iterable[Path], began: float) -> bool:
    """True if every file was last changed safely before reading began."""
    stats = [path.stat() for path in sources if path.exists()]
    return all(max(told.st_mtime, told.st_ctime) < began - files.SETTLED_S for told in stats)
