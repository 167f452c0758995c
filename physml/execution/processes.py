"""One worker process per run: forked from a process that has imported torch, or a fresh Python."""

from physml import files
from physml.errors import DataError
from physml.execution.run import pick_device
from physml.execution.run_spec import RunSpec
from physml.execution.run_state import state_of
from physml.execution.starter import Process, Starter, environment, fresh


def threads(spec: RunSpec) -> int:
    return int(spec.config["runtime"]["threads"])


def start_worker(
    spec: RunSpec,
    extra: list[str],
    force: bool = False,
    tables: list[str] | None = None,
    more: dict[str, str] | None = None,
    starter: Starter | None = None,
) -> Process:
    """A worker, from the starter where it can make it."""
    folder = spec.work_folder
    folder.mkdir(parents=True, exist_ok=True)
    options = {"spec": spec.to_json(), "force": force, "tables": tables or []}
    file = folder / "spec.json"
    files.write_json(file, options)
    arguments, output, keys = [str(file), *extra], folder / "output.txt", environment(threads(spec), more)
    if starter is None or not may_fork(spec):
        return fresh(arguments, output, keys)
    return starter.start(arguments, output, keys, lambda: {"done": 0, "stopped": 75}.get(state_of(spec), 1))


def may_fork(spec: RunSpec) -> bool:
    """A GPU asks for a fresh process, and so do threads that a library starts when it is loaded."""
    return threads(spec) == 1 and device_of(spec) == "cpu"


def device_of(spec: RunSpec) -> str:
    try:
        return pick_device(spec.config["runtime"]["device"])
    except DataError:  # the run itself will say it
        return "cpu"
