"""Profiles and energy of a run: what is written, what the record says, and that no number moves."""

import gzip
import json
import logging
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import run_harness as h

from physml.cli import main
from physml.run import energy, profiling
from physml.training import checkpoint


@pytest.fixture
def powercap(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Two packages and a part of one, as Linux shows them."""
    root = tmp_path / "powercap"
    names = {"intel-rapl:0": "package-0", "intel-rapl:0:0": "core", "intel-rapl:1": "package-1"}
    for folder, name in names.items():
        (root / folder).mkdir(parents=True)
        (root / folder / "name").write_text(f"{name}\n")
        (root / folder / "max_energy_range_uj").write_text("100000000\n")
        (root / folder / "energy_uj").write_text("0\n")
    monkeypatch.setattr(energy, "POWERCAP", root)
    return root


def counted(root: Path, package: int, joules: float) -> None:
    folder = root / f"intel-rapl:{package}"
    (folder / "next").write_text(f"{int(joules * 1e6)}\n")
    (folder / "next").replace(folder / "energy_uj")  # whole at any moment, as the one of Linux is


def test_options_of_measuring_move_no_number_and_no_identity(powercap: Path) -> None:
    plain = h.spec_of(h.odd("trainer.epochs=6"))
    watched = h.spec_of(h.odd("trainer.epochs=6", "runtime.profile=true", "runtime.energy=true"))
    assert plain.record_path == watched.record_path
    before = h.make(plain)
    curve = h.curve(plain)
    after = h.make(watched, force=True)
    assert h.numbers(before) == h.numbers(after) and before["hashed"] == after["hashed"]
    assert curve == h.curve(watched)
    assert "profile" not in before and not before["cost"].keys() & {"energy_j", "energy_source"}
    assert (after["cost"]["energy_j"], after["cost"]["energy_source"]) == (0.0, "rapl")
    assert {k: v for k, v in json.loads(watched.record_path.read_text()).items() if k == "profile"}


def test_a_profile_has_a_trace_and_one_page(capsys: pytest.CaptureFixture[str]) -> None:
    overrides = h.odd("trainer.epochs=10", "runtime.profile=true")
    spec = h.spec_of(overrides)
    assert main.main(["run", *overrides]) == 0
    assert f"{profiling.SUMMARY}; the trace lies beside it" in capsys.readouterr().out
    events = json.loads(gzip.decompress((spec.work_folder / profiling.TRACE).read_bytes()))["traceEvents"]
    names = [event.get("name") for event in events]
    assert names.count("Optimizer.step#Adam.step") == profiling.STEPS
    page = (spec.work_folder / profiling.SUMMARY).read_text()
    assert f"Training steps: {profiling.STEPS}, from step {profiling.SKIPPED + 1} on" in page
    assert "aten::" in page and len(page.splitlines()) < 40 and max(map(len, page.splitlines())) <= 80
    assert not list(spec.work_folder.glob(".*")) and not list(spec.work_folder.glob("*.tmp*"))


def test_a_profile_is_bounded_and_a_short_run_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "LONGEST_S", -1.0)
    spec = h.spec_of(h.odd("runtime.profile=true", "trainer.epochs=1", "trainer.max_steps=1"))
    assert h.make(spec)["status"] == "finished"
    assert (spec.work_folder / profiling.SUMMARY).read_text().startswith("Training steps: 1, from step 1 on")
    longer = h.spec_of(h.odd("runtime.profile=true", "trainer.epochs=5"))
    h.make(longer)
    assert (
        (longer.work_folder / profiling.SUMMARY).read_text().startswith("Training steps: 1, from step 6 on")
    )


def test_a_profile_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> str:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(profiling, "costliest", full)
    spec = h.spec_of(h.odd("runtime.profile=true"))
    made = h.make(spec)
    assert made["status"] == "finished" and "profile" not in made
    (line,) = (spec.work_folder / "log.txt").read_text().splitlines()
    assert line.endswith("the profile could not be written: No space left on device.")


def test_energy_is_summed_over_packages_and_beyond_the_end_of_a_counter(powercap: Path) -> None:
    meter = energy.Meter("cpu")
    counted(powercap, 0, 95.0)
    counted(powercap, 1, 20.0)
    with meter.running():
        counted(powercap, 0, 5.0)  # from 95 over 100, where it starts anew
        counted(powercap, 1, 27.5)
        assert meter.cost() == {"energy_j": 17.5, "energy_source": "rapl"}
    counted(powercap, 1, 50.0)  # after the training
    assert meter.cost()["energy_j"] == 17.5


def test_a_thread_looks_at_the_counters(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A counter may start anew many times in a run."""
    monkeypatch.setattr(energy, "EVERY_S", 0.001)
    meter = energy.Meter("cpu")
    with meter.running():
        for joules, whole in ((60.0, 60.0), (20.0, 120.0), (80.0, 180.0)):
            counted(powercap, 0, joules)
            h.until(lambda whole=whole: meter.joules == whole, 10.0)
    assert meter.cost()["energy_j"] == 180.0


@pytest.mark.parametrize(("trouble", "said"), [
    ("nothing", "has no package of RAPL"),
    ("locked", "energy_uj may not be read. An administrator can allow it: chmod a+r"),
    ("damaged", "the rapl counter cannot be read"),
])  # fmt: skip
def test_energy_that_cannot_be_measured_is_one_line_and_null(
    powercap: Path, trouble: str, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if trouble == "nothing":
        monkeypatch.setattr(energy, "POWERCAP", powercap / "none")
    elif trouble == "damaged":
        (powercap / "intel-rapl:0" / "energy_uj").write_text("?")
    else:
        file = str(powercap / "intel-rapl:0" / "energy_uj")

        def locked(self: energy.Package) -> float:
            raise PermissionError(13, "Permission denied", file)

        monkeypatch.setattr(energy.Package, "read", locked)
    spec = h.spec_of(h.odd("runtime.energy=true"))
    made = h.make(spec)
    assert made["status"] == "finished"
    assert made["cost"]["energy_j"] is None and made["cost"]["energy_source"] is None
    (line,) = (spec.work_folder / "log.txt").read_text().splitlines()
    assert said in line and line.endswith("The record has cost.energy_j: null.")


def test_a_counter_that_is_lost_in_training_makes_null(
    powercap: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meter = energy.Meter("cpu")
    with caplog.at_level(logging.WARNING), meter.running():
        (powercap / "intel-rapl:1" / "energy_uj").unlink()
        assert meter.cost() == {"energy_j": None, "energy_source": None}
    assert len(caplog.messages) == 1 and "can no longer be read" in caplog.messages[0]


def test_energy_goes_on_from_a_checkpoint_of_the_same_source(
    powercap: Path, caplog: pytest.LogCaptureFixture
) -> None:
    meter = energy.Meter("cpu")
    meter.resume({"energy_j": 12.0, "energy_source": "rapl"})
    with meter.running():
        counted(powercap, 0, 3.0)
    assert meter.cost()["energy_j"] == 15.0
    for state in ({}, {"energy_j": 12.0, "energy_source": "nvml"}, {"energy_j": None, "energy_source": None}):
        meter = energy.Meter("cpu")
        meter.resume(state)
        assert meter.cost()["energy_j"] is None and "before the last stop" in caplog.messages[-1]


def test_a_checkpoint_keeps_the_energy(powercap: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    saved = []
    save = checkpoint.save
    monkeypatch.setattr(checkpoint, "save", lambda folder, state: (saved.append(state), save(folder, state)))
    h.make(h.spec_of(h.odd("runtime.energy=true")))
    assert saved and all(state["energy"] == {"energy_j": 0.0, "energy_source": "rapl"} for state in saved)


def test_a_gpu_is_asked_by_its_drivers_library(monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules = iter([1000, 2000, 7500])

    def energy_of(handle: object, found: object) -> int:
        found._obj.value = next(millijoules)  # type: ignore[attr-defined]
        return 0

    asked = []
    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByUUID=lambda name, handle: asked.append(name) or 0,
        nvmlDeviceGetTotalEnergyConsumption=energy_of,
    )
    cuda = SimpleNamespace(get_device_properties=lambda device: SimpleNamespace(uuid="12ab"))
    monkeypatch.setitem(sys.modules, "torch", SimpleNamespace(cuda=cuda))
    monkeypatch.setattr(energy.ctypes, "CDLL", lambda name: library)
    meter = energy.Meter("cuda:0")
    with meter.running():
        pass
    assert meter.cost() == {"energy_j": 5.5, "energy_source": "nvml"} and asked == [b"GPU-12ab"]
    library.nvmlInit_v2 = lambda: 9
    assert energy.Meter("cuda:0").cost()["energy_j"] is None


def test_without_a_driver_the_energy_of_a_gpu_is_null(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def missing(device: str) -> None:
        raise OSError("libnvidia-ml.so.1: cannot open shared object file")

    monkeypatch.setattr(energy, "Board", missing)
    assert energy.Meter("cuda:0").cost()["energy_source"] is None
    assert "the nvml counter cannot be read: libnvidia-ml.so.1" in caplog.messages[0]
