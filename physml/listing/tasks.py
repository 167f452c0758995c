"""The tasks of conf/ in numbers: sizes of the parts, trivial references. Kept in results/tasks.

Reading what was measured (`lines`) imports neither torch nor numpy; `measure` loads the data.
"""

import contextlib
import datetime
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from physml.base import files, opened
from physml.base.errors import DataError
from physml.base.paths import results_root, results_roots
from physml.config import conf_files, studies
from physml.config.identity import class_source
from physml.data.locate import blocked
from physml.data.store import Store, store_of


def file_of(root: Path, task: str) -> Path:
    return root / "tasks" / f"{task}.json"


def settings(task: str) -> dict[str, dict[str, Any]]:
    """Protocol -> what an experiment of conf/ changes in the task for it; that of conf/task changes nothing.

    Where experiments of the same protocol differ, the first by name stands for them.
    """
    by_protocol: dict[str, dict[str, Any]] = {str(_content(task).get("protocol")): {}}
    for chosen, changes in _of_experiments():
        if task == chosen and "protocol" in changes:
            by_protocol.setdefault(str(changes["protocol"]), changes)
    return by_protocol


@cache
def _of_experiments() -> list[tuple[str | None, dict[str, Any]]]:
    """The task of every experiment, and the settings of the task that it changes."""
    rows = [studies.experiment(name) for name in studies.names()]
    return [(row.choices.get("task"), row.settings.get("task") or {}) for row in rows]


def measure(task: str, verify: str) -> None:
    """Load a task at its full size under each protocol, and write what it says of itself.

    Errors: DataError where its data are not at hand, or not sound.
    """
    from physml.config.build import build_task
    from physml.config.compose import compose

    measured = []
    for protocol, changes in settings(task).items():
        overrides = [f"task.{key}={json.dumps(value)}" for key, value in changes.items()]
        composed = compose([f"task={task}", "+model._target_=none", f"data.verify={verify}", *overrides])
        if reason := blocked(composed.datasets, Store.from_env()):
            raise DataError(f"{task}: data absent: {reason}")
        built = build_task(composed.config)
        built.load(store_of(composed.config), 0)
        facts = built.facts()
        of_class = {key: getattr(built, key) for key in ("version", "n_splits", "d_in", "d_out")}
        data = {key: facts[key] for key in ("kind", "sha256", "fingerprint") if facts.get(key)}
        more = {"sizes": facts["sizes"], "data": data, "references": built.references()}
        measured.append({"protocol": protocol, "changes": changes} | of_class | more)
    today = datetime.datetime.now(datetime.UTC).date().isoformat()
    content = {"task": task, "config": _plain(task), "measured": measured, "date": today}
    files.write_json(file_of(results_root(), task), content)


def lines(task: str) -> list[str]:
    """One line for each protocol: sizes and trivial references, or why they are not known."""
    content = _plain(task)
    reads = content.get("datasets") or []
    measured = _read(task)
    absent = blocked(reads, Store.from_env())
    data_lines = [f"data: {', '.join(reads)}" + (f" (absent: {absent})" if absent else "")] if reads else []
    again = f"physml list tasks --measure {task}"
    source = class_source(content, [Path(plugin) for plugin in _content(task).get("plugins") or ()])
    version = source.version if source else None
    if measured is None:
        unknown = [] if absent else [f"not measured yet: {again}"]
    elif measured[0] != content or measured[1] - {version}:
        unknown = [f"measured before it was changed: {again}"]
    else:
        return data_lines + measured[2]
    return [*data_lines, f"protocols: {', '.join(settings(task))}", *unknown]


def _lines_of(protocol: dict[str, Any]) -> Iterator[str]:
    sizes = ", ".join(f"{part} {n:,}" for part, n in protocol["sizes"].items())
    kind = protocol["data"].get("kind")
    known = f" [{kind}]" if kind not in (None, "verified") else ""
    yield f"{protocol['protocol']}: {sizes}; d_in {protocol['d_in']}, d_out {protocol['d_out']}{known}"
    for name, metrics in protocol["references"].items():
        yield f"  {name}: " + ", ".join(f"{metric} {_number(value)}" for metric, value in metrics.items())


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"


def _plain(task: str) -> dict[str, Any]:
    """The settings of conf/task, without those that move no number at full size."""
    return {key: v for key, v in _content(task).items() if key not in ("smoke", "plugins")}


def _content(task: str) -> dict[str, Any]:
    return conf_files.content(conf_files.find("task", task) or conf_files.CONF / "task" / f"{task}.yaml")


def _read(task: str) -> tuple[dict[str, Any], set[int], list[str]] | None:
    """Settings, versions of the class and lines of what was measured; None where nothing sound was kept."""
    for root in results_roots():
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError, AttributeError):
            content: dict[str, Any] = opened.read_json(file_of(root, task))
            measured = content["measured"]
            of_protocols = [line for protocol in measured for line in _lines_of(protocol)]
            return content["config"], {protocol["version"] for protocol in measured}, of_protocols
    return None
