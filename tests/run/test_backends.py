"""What the run-wide choice of a backend does to a run, and what the record says of it."""

import json
import shutil
import signal
from typing import get_args, get_type_hints

import pytest
import run_harness as h
import torch

from physml.base import paths
from physml.base.errors import InputError
from physml.config import build
from physml.config.schema import RuntimeKeys
from physml.ops import backend
from physml.queue import planning, scheduler, worker
from physml.training import trainer


def lem(*overrides, **arguments):
    return [o for o in h.odd("model=lem", *overrides, **arguments) if o != "model=lstm"]


def log_of(spec):
    return (spec.work_folder / "log.txt").read_text()


def test_names_are_those_of_the_dispatcher_and_what_cannot_be_done_is_refused(prints) -> None:
    assert get_args(get_type_hints(RuntimeKeys)["backend"]) == backend.CHOICES
    error = prints(2, "run", *lem("model.backend=triton", "runtime.device=cpu")).err.splitlines()[-1]
    assert error.startswith("error: lem with backend='triton': ")
    assert error.endswith("Use backend='auto', the fastest that can.")
    with pytest.raises(InputError, match=r"runtime\.backend must be one of .*Did you mean native"):
        h.spec_of(lem("runtime.backend=natve"))


@pytest.mark.parametrize("name", ["reference", "torch"])
def test_the_record_says_what_ran(name):
    spec = h.spec_of(lem(f"runtime.backend={name}"))
    before = backend.ran()
    assert h.make(spec)["backend"] == name
    assert log_of(spec) == "" and backend.ran() == before


def test_a_wish_that_nothing_can_fulfil_and_a_fall_back_are_one_line_in_the_log():
    spec = h.spec_of(h.odd("model=own", "model._target_=odd_tasks.Plain", "runtime.backend=native"))
    record = h.make(spec)
    assert (record["status"], record["backend"]) == ("finished", "torch")
    (line,) = log_of(spec).splitlines()
    assert "runtime.backend=native: this net has a single backend, plain torch, which has run." in line
    # Triton needs a GPU: on a CPU the wish for it is not fulfilled.
    spec = h.spec_of(lem("runtime.backend=triton", "runtime.device=cpu"))
    record = h.make(spec)
    assert record["status"] == "finished" and "triton" not in record["backend"]
    assert len([line for line in log_of(spec).splitlines() if "lem: runtime.backend=triton: " in line]) == 1


def test_a_layers_own_backend_goes_first_and_one_without_a_keyword_hears_the_wish_too():
    spec = h.spec_of(lem("model.backend=reference", "runtime.backend=torch"))
    assert h.make(spec)["backend"] == "reference"
    spec = h.spec_of([o for o in h.odd("model=fastrnn", "runtime.backend=reference") if o != "model=lstm"])
    assert h.make(spec)["backend"] == "reference" and log_of(spec) == ""


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_a_run_ends_with_one_line_more_and_a_layer_that_demands_c_says_why(prints):
    """LEM computes in C where it can; where it can't, the same run is made by torch."""
    error = prints(2, "run", *lem("model.backend=native", "runtime.device=cpu", "seed=1")).err
    assert "lem with backend='native': no C compiler" in error
    spec = h.spec_of(lem("runtime.device=cpu"))
    prints(0, "run", *lem("runtime.device=cpu"))
    assert json.loads(spec.record_path.read_text())["backend"] == "torch"
    (line,) = log_of(spec).splitlines()
    assert "lem: no C compiler: CC=/nonexistent is not there, and " in line
    assert line.endswith(" 5 to 30 times as long. Backend torch computes it.")


@pytest.mark.skipif(shutil.which("cc") is None, reason="there is no C compiler")
def test_runs_that_start_at_once_compile_once(forked, tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "empty"))
    specs = h.specs_of(lem("seed=0,1", "runtime.device=cpu"))
    assert scheduler.carry_out(planning.plan(specs), jobs=2).exit_code == 0
    assert [json.loads(spec.record_path.read_text())["backend"] for spec in specs] == ["native"] * 2
    assert [log_of(spec) for spec in specs] == ["", ""]
    assert len(list((paths.cache_root() / "native").glob("lem-float-*.so"))) == 1


def test_a_run_that_went_on_with_another_backend_tells_both():
    slow = h.spec_of(lem("runtime.backend=reference", "runtime.checkpoint_every_s=0", step_s=0.05))
    process = h.start(slow)
    h.until(lambda: h.steps_done(slow) > 0)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    assert h.make(h.spec_of(lem("runtime.backend=torch", step_s=0.05)))["backend"] == "reference+torch"


def test_the_probe_times_the_backend_that_will_run(monkeypatch):
    chosen, real = [], backend.Op._chosen

    def watched(self, *arguments):
        chosen.append(real(self, *arguments))
        return chosen[-1]

    monkeypatch.setattr(backend.Op, "_chosen", watched)
    worker.probe(h.spec_of(lem("runtime.backend=reference")).config)
    assert set(chosen) == {"reference"}


def test_the_least_numbers_are_zero_in_training_and_nowhere_else(monkeypatch):
    """Gates that shut are full of them, and a processor takes a hundred times as long for each."""
    seen = []

    def least() -> float:
        return float(torch.tensor(1e-30) * torch.tensor(1e-10))

    def build_net(parts, task, whole=build.build_net):
        seen.append(least())
        return whole(parts, task)

    def fit(self, whole=trainer.Trainer.fit):
        seen.append(least())
        whole(self)

    monkeypatch.setattr(build, "build_net", build_net)
    monkeypatch.setattr(trainer.Trainer, "fit", fit)
    h.make(h.spec_of(h.odd()))
    before, training = seen
    assert before > 0.0 and training == 0.0 and least() > 0.0
