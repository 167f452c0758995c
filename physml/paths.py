"""Where things lie. Every root can be moved by an environment variable."""

import os
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
TASKS = ROOT / "tasks"
OWN_RESULTS = ROOT / "results"


def results_root() -> Path:
    """Where new records, tables and figures go: $PHYSML_RESULTS, else results/ of the checkout."""
    return Path(os.environ.get("PHYSML_RESULTS") or OWN_RESULTS).expanduser().absolute()


def results_roots() -> list[Path]:
    """Where records are read: the root for new ones, and the checkout's own."""
    return list(dict.fromkeys([results_root(), OWN_RESULTS]))


def work_root() -> Path:
    """Locks, logs, checkpoints, metrics.jsonl: $PHYSML_RUNS, else beside the results."""
    if runs := os.environ.get("PHYSML_RUNS"):
        return Path(runs).expanduser().absolute()
    if results := os.environ.get("PHYSML_RESULTS"):
        return Path(results).expanduser().absolute() / "work"
    return ROOT / "runs"


def work_variable() -> str:
    """The variable that moves `work_root` and all else that must be written."""
    return "PHYSML_RUNS" if os.environ.get("PHYSML_RUNS") else "PHYSML_RESULTS"


def cache_root() -> Path:
    """What can be made again: $PHYSML_CACHE, else ~/.cache/physml."""
    return Path(os.environ.get("PHYSML_CACHE") or "~/.cache/physml").expanduser().absolute()


def data_root() -> Path | None:
    """A folder of downloaded data sets, which may be read-only: $PHYSML_DATA, else none."""
    data = os.environ.get("PHYSML_DATA")
    return Path(data).expanduser() if data else None


def display_path(path: Path) -> str:
    """The path as a person in the working folder would type it."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)
