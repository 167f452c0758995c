"""Joules of a training, by `runtime.energy=true`: from counters that the hardware keeps.

On a CPU these are the package domains of RAPL, on a GPU the counter of its board by NVML. Both count all that
runs there, other processes included. Where neither can be read, the record has null, and one line says why.
"""

import contextlib
import ctypes
import logging
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol

POWERCAP = Path("/sys/class/powercap")
EVERY_S = 10.0  # between two looks; at 300 W the smallest counters start anew after 200 s

log = logging.getLogger("physml")


class Counter(Protocol):
    """Joules since some moment; after `span` of them it starts anew at 0."""

    span: float

    def read(self) -> float: ...


class Unmeasurable(Exception):
    """There is no counter that may be read; says why, in one sentence."""


class Package:
    """A processor package as RAPL of Linux shows it, on Intel and AMD."""

    def __init__(self, folder: Path) -> None:
        self.file = folder / "energy_uj"
        self.span = int((folder / "max_energy_range_uj").read_text()) / 1e6

    def read(self) -> float:
        return int(self.file.read_text()) / 1e6


class Board:
    """A GPU of NVIDIA, by the library of its driver."""

    span = 2**64 / 1e3  # is never reached

    def __init__(self, device: str) -> None:
        import torch

        self.handle = ctypes.c_void_p()
        name = f"GPU-{torch.cuda.get_device_properties(device).uuid}"
        self.library = ctypes.CDLL("libnvidia-ml.so.1")
        self._call("nvmlInit_v2")
        self._call("nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(self.handle))

    def read(self) -> float:
        found = ctypes.c_ulonglong()
        self._call("nvmlDeviceGetTotalEnergyConsumption", self.handle, ctypes.byref(found))
        return found.value / 1e3

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self.library, name)(*arguments):
            raise OSError(f"{name} of NVML ended with code {code}")


def packages(root: Path) -> list[Package]:
    """All processor packages; memory and parts of a package have domains of their own, which are left out."""
    folders = sorted(root.glob("intel-rapl:*"))
    names = {folder: folder / "name" for folder in folders}
    return [Package(folder) for folder, name in names.items() if name.read_text().startswith("package-")]


def counters_of(device: str) -> tuple[str, Sequence[Counter]]:
    """The source, and its counters, read once. Unmeasurable where there is none."""
    source = "nvml" if device.startswith("cuda") else "rapl"
    try:
        found: Sequence[Counter] = [Board(device)] if source == "nvml" else packages(POWERCAP)
        for one in found:
            one.read()
    except PermissionError as error:
        raise Unmeasurable(
            f"{error.filename} may not be read. An administrator can allow it: chmod a+r {error.filename}"
        ) from error
    except (OSError, ValueError, AttributeError) as error:
        raise Unmeasurable(f"the {source} counter cannot be read: {error}") from error
    if not found:
        raise Unmeasurable(f"{POWERCAP} has no package of RAPL, as in most virtual machines and containers")
    return source, found


class Meter:
    """Sums what counters count while `running`, over all attempts at a run.

    A thread looks at them every few seconds, so that no counter starts anew twice between two looks.
    """

    def __init__(self, device: str) -> None:
        self.source: str | None = None
        self.counters: Sequence[Counter] = ()
        self.joules = 0.0
        self.last: list[float] | None = None  # of each counter; None: not running
        self.lock = threading.Lock()
        try:
            self.source, self.counters = counters_of(device)
        except Unmeasurable as error:
            self._give_up(str(error))

    def resume(self, state: dict[str, Any]) -> None:
        """Go on from a checkpoint; null where the steps before it were not measured in the same way."""
        if self.source is None:
            return
        if state.get("energy_source") == self.source:
            self.joules = float(state["energy_j"])
        else:
            self._give_up("the steps before the last stop were not measured in this way")

    @contextlib.contextmanager
    def running(self) -> Iterator[None]:
        ended = threading.Event()

        def watch() -> None:
            while not ended.wait(EVERY_S):
                self._look()

        watcher = threading.Thread(target=watch, name="energy", daemon=True)
        with self.lock:
            self._read()
        watcher.start()
        try:
            yield
        finally:
            ended.set()
            watcher.join()
            self._look()
            self.last = None

    def cost(self) -> dict[str, Any]:
        """For the record, and for a checkpoint."""
        self._look()
        with self.lock:
            joules = None if self.source is None else round(self.joules, 3)
            return {"energy_j": joules, "energy_source": self.source}

    def _look(self) -> None:
        """Add what was counted since the last look."""
        with self.lock:
            if self.source is None or self.last is None:
                return
            before = self.last
            self._read()
            if self.last is not None:
                pairs = zip(self.counters, before, self.last, strict=True)
                self.joules += sum(passed(old, new, counter.span) for counter, old, new in pairs)

    def _read(self) -> None:
        try:
            self.last = [counter.read() for counter in self.counters]
        except (OSError, ValueError) as error:
            self.last = None
            self._give_up(f"the {self.source} counter can no longer be read: {error}")

    def _give_up(self, why: str) -> None:
        self.source = None
        log.warning("runtime.energy: %s. The record has cost.energy_j: null.", why)


def passed(before: float, after: float, span: float) -> float:
    """Amount counted by a counter; it starts anew at 0 after `span`.

    Example:
        >>> passed(10.0, 15.0, 100.0), passed(95.0, 5.0, 100.0)
        (5.0, 10.0)
    """
    return after - before if after >= before else after - before + span
