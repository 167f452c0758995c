"""Folders. Every root can be moved by an environment variable."""

import contextlib
import os
from pathlib import Path

from physml.base import opened
from physml.base.errors import ConfigError, DataError, InputError
from physml.base.text import brief

PACKAGE = Path(__file__).resolve().parents[1]
ROOT = PACKAGE.parent  # the checkout, or the site-packages of an installed wheel
INSTALLED = (PACKAGE / "_conf").is_dir()  # a wheel ships conf/ and tasks/ inside the package
CONF = PACKAGE / "_conf" if INSTALLED else ROOT / "conf"
TASKS = PACKAGE / "_tasks" if INSTALLED else ROOT / "tasks"
CONSTRAINTS = PACKAGE / "_constraints.txt" if INSTALLED else ROOT / "constraints.txt"
SHIPPED = PACKAGE / "_records.jsonl.xz"  # in a wheel: its runs, read as a results folder
HOME = Path.cwd() if INSTALLED else ROOT  # what is written goes below: never into site-packages
OWN_RESULTS = HOME / "results"
LONGEST_NAME = 255  # bytes


def expanded(text: str) -> Path:
    """The path, `~` as a home folder. InputError where that has none, or no file can be called so."""
    if "\0" in text or any(len(os.fsencode(part)) > LONGEST_NAME for part in Path(text).parts):
        raise ConfigError(f"{brief(repr(text), 60)}: no file can be called so.")
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise InputError(f"{text}: there is no home folder for {Path(text).parts[0]}.") from error


def results_root() -> Path:
    """The folder of new records, tables and figures: $PHYSML_RESULTS, else results/ of the checkout.

    Without a checkout, of an installed wheel: results/ of the working folder.
    """
    return expanded(os.environ.get("PHYSML_RESULTS") or str(OWN_RESULTS)).absolute()


def results_roots() -> list[Path]:
    """The folders of records to read: the root of new ones, that of the checkout or working folder, and in
    a wheel the runs that it ships.
    """
    return list(dict.fromkeys([results_root(), OWN_RESULTS, *([SHIPPED] if SHIPPED.exists() else [])]))


def in_results(folder: str, name: str) -> Path | None:
    """A file of the results: that of the root of new ones before that of the checkout; None if neither is."""
    paths = (root / folder / name for root in results_roots())
    return next((path for path in paths if path.exists()), None)


def work_root() -> Path:
    """Locks, logs, checkpoints, metrics.jsonl: $PHYSML_RUNS, else work/ in $PHYSML_RESULTS, else runs/."""
    if runs := os.environ.get("PHYSML_RUNS"):
        return expanded(runs).absolute()
    if results := os.environ.get("PHYSML_RESULTS"):
        return expanded(results).absolute() / "work"
    return HOME / "runs"


def work_variable() -> str:
    """The variable that moves `work_root` and all else that must be written."""
    return "PHYSML_RUNS" if os.environ.get("PHYSML_RUNS") else "PHYSML_RESULTS"


def cache_root() -> Path:
    """The folder of data that can be made again: $PHYSML_CACHE, else ~/.cache/physml.

    What lies there is believed, compiled code too. InputError where others than we and root may write it.
    """
    folder = expanded(os.environ.get("PHYSML_CACHE") or "~/.cache/physml").absolute()
    with contextlib.suppress(OSError):
        folder.mkdir(mode=0o700, parents=True)
    with contextlib.suppress(OSError):  # not there, and cannot be made: whoever needs it says so
        if why := opened.of_others(folder):
            raise InputError(
                f"the cache {folder} is not used: {why}. Set PHYSML_CACHE to a folder of your own; "
                "data sets to share belong into PHYSML_DATA."
            )
    return folder


def data_root() -> Path | None:
    """A folder of downloaded data sets, which may be read-only: $PHYSML_DATA, else none."""
    data = os.environ.get("PHYSML_DATA")
    return expanded(data).absolute() if data else None


def own_conf() -> Path | None:
    """A folder of configs of one's own, with the groups of conf/: $PHYSML_CONF, else none."""
    own = os.environ.get("PHYSML_CONF")
    return expanded(own).absolute() if own else None


def unwritable(folder: Path, error: OSError, variable: str = "PHYSML_RESULTS") -> DataError:
    why = error.strerror or error
    return DataError(
        f"{display_path(folder)} cannot be written: {why}. Free space, or set {variable} to another folder."
    )


def display_path(path: Path) -> str:
    """The path as a person in the working folder would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def own_folders(folder: Path) -> dict[str, str]:
    """The variables that put results, work folders and caches below `folder`, where compiled C is shared."""
    share_compiled(folder / "cache")
    return {f"PHYSML_{name.upper()}": str(folder / name) for name in ("results", "runs", "cache")}


def share_compiled(cache: Path) -> None:
    """Give the folder `cache` the compiled C of the usual one. Call it before PHYSML_CACHE is set to it."""
    usual = cache_root() / "native"
    with contextlib.suppress(OSError):  # then C is compiled anew
        usual.mkdir(parents=True, exist_ok=True)
        cache.mkdir(parents=True, exist_ok=True)
        (cache / "native").symlink_to(usual)
