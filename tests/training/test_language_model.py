"""A language model with all that lamb does is stopped and goes on: state, dropout, mean, temperature."""

import os
import signal

import pytest
import run_harness as h

from physml.base.errors import Preempted
from physml.base.paths import share_compiled
from physml.training import checkpoint
from physml.training.trainer import Trainer

LAMB = [
    *("experiment=lem/ptb_word-lem", "profile=smoke", "tracker=none", "data.verify=off"),
    *("trainer.epochs=4", "trainer.max_steps=null", "optim.lr=0.02", "trainer.average.latest=2"),
]


@pytest.fixture(autouse=True)
def cache(tmp_path_factory, monkeypatch):
    shared = tmp_path_factory.getbasetemp() / "cache"
    share_compiled(shared)
    monkeypatch.setenv("PHYSML_CACHE", str(shared))


@pytest.fixture
def want(monkeypatch, tmp_path):
    spec = h.spec_of(LAMB)
    with monkeypatch.context() as context:
        for name in ("results", "runs"):
            context.setenv(f"PHYSML_{name.upper()}", str(tmp_path / "undisturbed" / name))
        record = h.make(spec)
        return h.numbers(record), record["calibration"], h.curve(spec)


@pytest.mark.parametrize("step", [2, 5, 8, 10])
def test_a_stop_in_the_middle_of_a_turn_changes_no_bit(step, want, monkeypatch):
    """Step 2: a state is carried on; 8 and 10: the mean of the weights has begun."""
    spec = h.spec_of(LAMB)
    original = Trainer._step

    def stopped(self, batch):
        original(self, batch)
        if self.step + 1 == step:
            os.kill(os.getpid(), signal.SIGTERM)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "_step", stopped)
        with pytest.raises(Preempted):
            h.make(spec)
    state = checkpoint.load(spec.work_folder, spec.place.identity)["trainer"]
    assert (state["step"], state["step_in_epoch"]) == (step, (step - 1) % 3 + 1)
    assert state["state"] is not None and (state["average"]["n"] > 0) == (step > 6)
    record = h.make(spec)
    assert (h.numbers(record), record["calibration"], h.curve(spec)) == want


@pytest.mark.parametrize("part", ["valid", "test"])
def test_a_stop_when_it_is_measured_changes_no_bit(part, want, monkeypatch):
    """After the last epoch: before valid is scored anew with the temperature, and before test is."""
    spec = h.spec_of(LAMB)
    seen = []
    original = Trainer.metrics

    def stopped(self, of, epoch):
        if self.done and of == part and not seen:
            seen.append(self.task.temperature)
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, of, epoch)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "metrics", stopped)
        with pytest.raises(Preempted):
            h.make(spec)
    assert seen == [want[1]["last"]["temperature"]] and not spec.record_path.exists()
    record = h.make(spec)
    assert (h.numbers(record), record["calibration"], h.curve(spec)) == want
