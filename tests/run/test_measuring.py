"""The profile of a run, and the speed of a core: what is written, and what may not move it."""

import gzip
import json
import time

import pytest
import run_harness as h
import torch

from physml.run import profiling
from physml.run.record import sgemm_gflops


def test_a_profile_moves_no_number_and_no_identity() -> None:
    plain = h.spec_of(h.odd("trainer.epochs=6"))
    watched = h.spec_of(h.odd("trainer.epochs=6", "runtime.profile=true"))
    assert plain.record_path == watched.record_path
    before, curve = h.make(plain), h.curve(plain)
    after = h.make(watched, force=True)
    assert h.numbers(before) == h.numbers(after) and before["hashed"] == after["hashed"]
    assert curve == h.curve(watched) and "profile" not in before
    assert json.loads(watched.record_path.read_text())["profile"]


def test_a_profile_has_a_trace_and_one_page(prints) -> None:
    overrides = h.odd("trainer.epochs=10", "runtime.profile=true")
    spec = h.spec_of(overrides)
    assert f"{profiling.SUMMARY}; the trace lies beside it" in prints(0, "run", *overrides).out
    events = json.loads(gzip.decompress((spec.work_folder / profiling.TRACE).read_bytes()))["traceEvents"]
    assert [event.get("name") for event in events].count("Optimizer.step#Adam.step") == profiling.STEPS
    page = (spec.work_folder / profiling.SUMMARY).read_text()
    assert f"Training steps: {profiling.STEPS}, from step {profiling.SKIPPED + 1} on" in page
    assert "aten::" in page and len(page.splitlines()) < 40
    assert not list(spec.work_folder.glob(".*")) and not list(spec.work_folder.glob("*.tmp*"))


def test_a_profile_is_bounded_and_a_short_run_has_one_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(profiling, "LONGEST_S", -1.0)
    spec = h.spec_of(h.odd("runtime.profile=true", "trainer.epochs=1", "trainer.max_steps=1"))
    assert h.make(spec)["status"] == "finished"
    assert (spec.work_folder / profiling.SUMMARY).read_text().startswith("Training steps: 1, from step 1 on")
    longer = h.spec_of(h.odd("runtime.profile=true", "trainer.epochs=5"))
    h.make(longer)
    page = (longer.work_folder / profiling.SUMMARY).read_text()
    assert page.startswith("Training steps: 1, from step 6 on")


def test_a_profile_that_cannot_be_written_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*arguments: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("torch.profiler.profile.export_chrome_trace", full)
    spec = h.spec_of(h.odd("runtime.profile=true"))
    record = h.make(spec)
    assert record["status"] == "finished" and "profile" not in record
    (line,) = (spec.work_folder / "log.txt").read_text().splitlines()
    assert line.endswith("the profile could not be written: No space left on device.")


def test_the_speed_of_a_core_is_its_own_whatever_else_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Waiting for a core is no work of it: a plan made beside other runs was ten times too dear."""
    alone, threads = torch.mm, torch.get_num_threads()

    def kept_waiting(a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
        time.sleep(0.02)
        assert torch.get_num_threads() == 1
        return alone(a, b)

    monkeypatch.setattr(torch, "mm", kept_waiting)
    assert sgemm_gflops() > 2e-9 * 384**3 / 0.02
    assert torch.get_num_threads() == threads
