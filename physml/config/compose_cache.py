"""Compositions that were made before: Hydra takes longer for one than many commands for all else.

They lie in `composed/` of the cache root, in a folder for each state of conf/: a file that was changed, added
or taken away makes another state. Nothing depends on them; where they can't be kept, all is composed anew.
"""

import hashlib
import json
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from importlib import metadata
from pathlib import Path
from typing import Any

from physml import files
from physml.paths import cache_root

Made = tuple[dict[str, Any], dict[str, str | None]]  # a config, and the files that it was made of
STATES = 4  # that are kept
OTHERS = ("dataset", "figure", "search", "table")  # folders of conf/ that no composition reads

_taken: dict[Path, str] | None = None  # the states that hold within `steady`


@contextmanager
def steady() -> Iterator[None]:
    """Within it conf/ is taken as it is at the first look: a plan of many runs looks at its files once."""
    global _taken
    before = _taken
    _taken = {} if before is None else before
    try:
        yield
    finally:
        _taken = before


def kept(overrides: list[str], conf: Path, make: Callable[[list[str]], Made]) -> Made:
    """make(overrides), or what it gave before for the same files of `conf`."""
    folder = cache_root() / "composed" / _state(conf)
    file = folder / f"{hashlib.sha256(json.dumps(overrides).encode()).hexdigest()[:32]}.json"
    with suppress(OSError, ValueError, KeyError):
        found = json.loads(file.read_text(encoding="utf-8"))
        return found["config"], found["choices"]
    config, choices = make(overrides)
    text = json.dumps({"config": config, "choices": choices})
    if json.loads(text) == {"config": config, "choices": choices}:  # no key that is a number, say
        with suppress(OSError):
            if not folder.exists():
                _forget_old(folder.parent)
            folder.mkdir(parents=True, exist_ok=True)
            files.write(file, lambda handle: handle.write(text.encode()))
    return config, choices


def _state(conf: Path) -> str:
    """A name for the files of conf/ as they are now, and for what reads them."""
    if _taken is None:
        return _state_now(conf)
    if conf not in _taken:
        _taken[conf] = _state_now(conf)
    return _taken[conf]


def _state_now(conf: Path) -> str:
    others = tuple(f"{conf / name}{os.sep}" for name in OTHERS)
    told = [str(conf), metadata.version("hydra-core"), metadata.version("omegaconf")]
    told += sorted(stamp for stamp in _stamps(conf) if not stamp.startswith(others))
    return hashlib.sha256("\n".join(told).encode()).hexdigest()[:16]


def _stamps(folder: Path | str) -> Iterator[str]:
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                yield from _stamps(entry.path)
            else:
                yield f"{entry.path} {files.fingerprint(entry)}"


def _forget_old(root: Path) -> None:
    """Leave the latest states but one, before another one comes."""
    folders = sorted(root.iterdir(), key=lambda path: path.stat().st_mtime) if root.is_dir() else []
    for folder in folders[: -(STATES - 1)]:
        shutil.rmtree(folder, ignore_errors=True)
