"""Folders of a test's own, but for compiled C: compiling takes seconds, and few tests are about it."""

import contextlib
from pathlib import Path

from physml.paths import cache_root


def own_folders(folder: Path) -> dict[str, str]:
    """Variables for results, work folders and caches in `folder`, but for compiled C."""
    share_compiled(folder / "cache")
    return {f"PHYSML_{name.upper()}": str(folder / name) for name in ("results", "runs", "cache")}


def share_compiled(cache: Path) -> None:
    """Give a test's own cache folder the compiled C of the usual one. Call it before PHYSML_CACHE is set."""
    usual = cache_root() / "native"
    with contextlib.suppress(OSError):  # then the test compiles
        usual.mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "native").symlink_to(usual)
