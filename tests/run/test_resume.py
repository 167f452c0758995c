"""A run that is stopped or killed, and started again, ends with the same bits as an undisturbed one."""

import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest
import run_harness as h
import torch
from refusals import refuses

from physml.base.errors import Preempted, RecordError
from physml.cli.console import describe
from physml.records import record
from physml.run import record as run_record
from physml.run.perform import existing
from physml.run.state import state_of
from physml.training import checkpoint
from physml.training.trainer import Trainer

RATES, OWN_RATES = "torch.optim.lr_scheduler", "physml.training.schedules"
SCHEDULES = {
    "steps": f"{{_target_: {RATES}.MultiStepLR, milestones: [1, 3], gamma: 0.3}}",
    "plateau": f"{{_target_: {OWN_RATES}.CumulativePlateau, mode: min, factor: 0.5, patience: 2, start: 2}}",
    "cosine": f"{{_target_: {RATES}.CosineAnnealingLR, T_max: 5}}",
    "cycle": f"{{_target_: {RATES}.OneCycleLR, max_lr: 0.05, total_steps: 8}}",
}
NET = ["net.dropout=0.3", "trainer.clip_norm=0.5", "trainer.epochs=6", "optim.lr=0.05"]
PATIENCE = "trainer.stop={_target_: physml.training.selection.Patience, epochs: 2, metric: null}"
ALWAYS = "runtime.checkpoint_every_s=0"
STOPS = {signal.SIGTERM: "SIGTERM", signal.SIGUSR1: "SIGUSR1", signal.SIGINT: "Ctrl-C"}


def undisturbed(overrides, monkeypatch, tmp_path):
    """The same run with nothing in its way, and without pauses, in other roots."""
    spec = h.spec_of(h.odd(*overrides))
    with monkeypatch.context() as context:
        for name in ("results", "runs"):
            context.setenv(f"PHYSML_{name.upper()}", str(tmp_path / "undisturbed" / name))
        return h.numbers(h.make(spec)), h.curve(spec)


def result(spec):
    done = h.make(spec)
    assert done["skipped"] and not checkpoint.exists(spec.work_folder)
    return h.numbers(done), h.curve(spec)


class Stop:
    """SIGTERM to this process, the first time that it is called with a true value."""

    sent = False

    def __call__(self, now=True):
        if now and not self.sent:
            self.sent = True
            os.kill(os.getpid(), signal.SIGTERM)


def new_checkpoint(spec):
    """A condition: a checkpoint has been written since this call."""

    def number():
        try:
            return (spec.work_folder / "last.pt").stat().st_ino
        except FileNotFoundError:  # not yet, or the run has ended
            return None

    before = number()
    return lambda: number() not in (None, before)


EVERY_S = {"steps": 0, "plateau": 0, "cosine": 0.03, "cycle": 0.03}


@pytest.mark.parametrize(("schedule", "every_s"), EVERY_S.items())
def test_killed_at_random_moments(schedule, every_s, monkeypatch, tmp_path):
    rate = f"trainer.schedule={SCHEDULES[schedule]}"
    overrides = (*NET, rate, PATIENCE, f"runtime.checkpoint_every_s={every_s}")
    want = undisturbed(overrides, monkeypatch, tmp_path)
    spec = h.spec_of(h.odd(*overrides, step_s=0.005))
    chance, kills = random.Random(schedule), 0
    for _ in range(4):
        process, saved = h.start(spec), new_checkpoint(spec)
        h.until(lambda process=process, saved=saved: saved() or process.poll() is not None)
        time.sleep(chance.uniform(0.0, 0.08))
        process.kill()
        kills += process.wait() == -signal.SIGKILL
    assert kills >= 2
    assert h.start(spec).wait() == 0
    assert result(spec) == want


def test_a_run_that_goes_on_on_another_device_says_both(monkeypatch):
    spec, stop, step = h.spec_of(h.odd(*NET)), Stop(), Trainer._step

    def patched(self, batch):
        stop(self.step == 3)
        return step(self, batch)

    with monkeypatch.context() as context, pytest.raises(Preempted, match="SIGTERM"):
        context.setattr(run_record, "device_name", lambda _: "NVIDIA H200")
        context.setattr(Trainer, "_step", patched)
        h.make(spec)
    whole = h.make(spec)
    assert whole["machine"]["device"] == "NVIDIA H200 + cpu" and whole["cost"]["sgemm_gflops"] is None
    assert h.make(h.spec_of(h.odd()))["machine"]["device"] == "cpu"


def test_killed_between_its_record_and_the_end(monkeypatch, tmp_path):
    spec = h.spec_of(h.odd(*NET))
    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "remove", lambda folder: None)
        h.make(spec)
    assert checkpoint.exists(spec.work_folder)
    assert h.make(spec)["skipped"] and not checkpoint.exists(spec.work_folder)


@pytest.mark.parametrize("number", STOPS)
def test_stopped_within_an_epoch(number, monkeypatch, tmp_path):
    overrides = (*NET, f"trainer.schedule={SCHEDULES['steps']}")
    want = undisturbed(overrides, monkeypatch, tmp_path)
    spec = h.spec_of(h.odd(*overrides, step_s=0.04))
    process = h.start(spec)
    h.until(lambda: h.begun(spec))
    time.sleep(0.3)
    process.send_signal(number)
    assert process.wait() == 75
    assert f"stopped by {STOPS[number]}; start the same command again" in process.text()
    assert 0 < h.steps_done(spec) < 24 and not spec.record_path.exists()
    assert h.start(spec).wait() == 0
    assert result(spec) == want


@pytest.mark.parametrize("where", ["a step", "the evaluation that reaches it", "the last checkpoint"])
def test_a_run_that_ends_at_a_value_ends_there_after_a_stop(where, monkeypatch, tmp_path):
    curve = undisturbed(NET, monkeypatch, tmp_path)[1]
    values = [float(row["valid/mse"]) for row in curve[:4]]
    end = values.index(min(values)) + 1
    assert end > 1
    value = min(values) * (1 + 1e-5)  # curves have six digits
    rule = f"trainer.stop={{_target_: physml.training.selection.Reached, value: {value!r}, metric: null}}"
    want = undisturbed((*NET, rule), monkeypatch, tmp_path)
    assert (want[0]["n_epochs"], want[1]) == (end, curve[:end])
    spec, stop = h.spec_of(h.odd(*NET, rule)), Stop()
    names = {"a step": "_step", "the evaluation that reaches it": "_evaluation"}
    name = names.get(where, "_advance_schedule")
    original = getattr(Trainer, name)

    def patched(self, *arguments):
        stop(self.epoch == end - (name != "_advance_schedule"))
        return original(self, *arguments)

    with monkeypatch.context() as context, pytest.raises(Preempted, match="SIGTERM"):
        context.setattr(Trainer, name, patched)
        h.make(spec)
    assert stop.sent and (h.numbers(h.make(spec)), h.curve(spec)) == want


@pytest.mark.parametrize("option", ["data.verify=off", "runtime.score_test=false"])
def test_what_lacks_verified_data_or_a_test_score_counts_only_where_no_more_is_asked_for(option):
    asked, free = h.spec_of(h.odd(*NET)), h.spec_of(h.odd(*NET, option))
    assert asked.place == free.place
    trained = h.make(free)
    if option == "data.verify=off":
        kept = {key: value for key, value in trained.items() if key != "path"}
        record.write(Path(trained["path"]), kept | {"data": {"kind": "unverified data"}})
    else:
        assert not trained["metrics"]["best"]["test"] and "  valid, min valid/" in describe(trained)
    assert h.make(free)["skipped"] and state_of(free) == "done"
    assert existing(asked) is None and state_of(asked) == "missing"
    again = h.make(asked)
    assert "skipped" not in again and again["path"] == trained["path"] and again["metrics"]["best"]["test"]
    assert option != "data.verify=off" or h.numbers(again) == h.numbers(trained)
    assert h.make(asked)["skipped"] and h.make(free)["skipped"]


def test_a_stopped_run_of_unverified_data_is_not_gone_on_with_where_more_is_asked_for(monkeypatch, tmp_path):
    want = undisturbed(NET, monkeypatch, tmp_path)
    asked, free = h.spec_of(h.odd(*NET)), h.spec_of(h.odd(*NET, "data.verify=off"))
    original, seen = Trainer._step, []

    def stopped(self, *arguments):
        seen.append(self.step)
        if len(seen) == 3:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "_step", stopped)
        with pytest.raises(Preempted):
            h.make(free)
        seen.append(None)
        assert h.numbers(h.make(asked)) == want[0]
    assert seen[seen.index(None) + 1] == 0


def test_the_command_says_what_happened(tmp_path):
    """75, then 0, then `finished already`."""
    arguments = ["run", *h.odd(ALWAYS, step_s=0.05)]
    spec = h.spec_of(arguments[1:])
    first = h.start_command(arguments, tmp_path / "first")
    h.until(lambda: h.steps_done(spec) > 0)
    first.send_signal(signal.SIGINT)
    assert first.wait() == 75
    assert "error: stopped by Ctrl-C; start the same command again to go on." in first.text()
    for name, said in (
        ("second", ("continuing at step", "finished: ")),
        ("third", ("finished already: ", "--force trains it again")),
    ):
        again = h.start_command(arguments, tmp_path / name)
        assert again.wait() == 0 and all(words in again.text() for words in said)


AFTER = {"an evaluation": "score", "the data": "load"}


@pytest.mark.parametrize("after", [*AFTER, "the last step"])
def test_a_stop_does_not_wait(after, monkeypatch, tmp_path):
    """Not for a long evaluation, nor for data that are made, nor for the test part; the bits are the same."""
    overrides = (*NET, "trainer.eval_batch_size=1", f"trainer.schedule={SCHEDULES['steps']}")
    want = undisturbed(overrides, monkeypatch, tmp_path)
    spec, stop = h.spec_of(h.odd(*overrides)), Stop()
    task, last = h.task_class("Odd"), after == "the last step"
    cls, name = (Trainer, "_advance_schedule") if last else (task, AFTER[after])
    original = getattr(cls, name)

    def patched(self, *arguments):
        if not last:
            stop()
        returned = original(self, *arguments)
        if last:
            stop(self.done)
        return returned

    with monkeypatch.context() as context, pytest.raises(Preempted, match="SIGTERM"):
        context.setattr(cls, name, patched)
        h.make(spec)
    assert stop.sent
    state = checkpoint.load(spec.work_folder, spec.place.identity)
    if after == "the data":
        assert state is None
    else:
        at = tuple(state["trainer"][key] for key in ("epoch", "step", "step_in_epoch"))
        assert at == ((6, 24, 0) if last else (0, 4, 4))
    assert (h.numbers(h.make(spec)), h.curve(spec)) == want


def test_a_stop_is_a_stop_whatever_the_interrupted_makes_of_it(monkeypatch):
    def load(*_):
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(1)
        except Exception as error:
            raise RuntimeError("the solver failed") from error

    monkeypatch.setattr(h.task_class("Odd"), "load", load)
    spec = h.spec_of(h.odd())
    refuses(Preempted, "SIGTERM", h.make, spec)
    assert not spec.record_path.exists()


def test_a_second_ctrl_c_does_not_wait_for_the_step(monkeypatch):
    def step(*_):
        for _ in range(2):
            os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
        raise AssertionError("the second Ctrl-C was not heard")

    monkeypatch.setattr(Trainer, "_step", step)
    refuses(Preempted, "Ctrl-C", h.make, h.spec_of(h.odd()))


def test_signals_are_given_back():
    before = [signal.getsignal(number) for number in STOPS]
    h.make(h.spec_of(h.odd()))
    assert [signal.getsignal(number) for number in STOPS] == before


def test_a_forced_run_that_is_stopped_goes_on(tmp_path):
    spec = h.spec_of(h.odd(step_s=0.03))
    first = h.make(spec)
    process = h.start(spec, force=True)
    h.until(lambda: (spec.work_folder / "metrics.jsonl").stat().st_size == 0)
    time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75 and h.steps_done(spec) > 0
    assert h.make(spec)["skipped"]  # the first record still stands
    again = h.start(spec, force=True)
    assert again.wait() == 0 and "continuing at step" in again.text()
    assert h.numbers(h.make(spec)) == h.numbers(first)
    assert not (spec.work_folder / "forced").exists()


def test_numbers_of_numpy_do_not_spoil_a_checkpoint(tmp_path):
    """Those of measures and of training steps, which classes of the user may return."""

    class Measure:
        def measure(self, net, task, device):
            return {"mine/x": np.float64(0.5)}

    spec = h.spec_of(h.odd())
    trainer = h.odd_trainer(spec, save=lambda state: checkpoint.save(tmp_path, state | {"identity": "x"}))
    trainer.measures = [Measure()]
    trainer.training.train_step_metrics = lambda output, batch: {"own": np.float64(0.25)}
    trainer.fit()
    assert checkpoint.load(tmp_path, "x")["rows"][-1]["mine/x"] == 0.5


def test_a_checkpoint_of_other_code_is_refused_with_what_to_do():
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    other = {"identity": spec.place.identity, "started": "", "trainer": {"net": {"a": torch.ones(1)}}}
    checkpoint.save(spec.work_folder, other)
    refuses(RecordError, r"does not fit the code as it is now.*--force", h.make, spec)
    assert h.make(spec, force=True)["status"] == "finished"
