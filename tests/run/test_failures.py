"""What goes wrong in a run: bad data stop it with exit code 2, all else becomes its status and reason."""

import pytest
import run_harness as h
import torch
from refusals import refuses

from physml.base.errors import ConfigError, DataError
from physml.cli import main
from physml.queue.planning import on_cpu
from physml.records.record import read, write
from physml.run import perform
from physml.run.attempt import explained
from physml.run.resources import pick_device
from physml.run.state import state_of


def run(overrides, *flags):
    return main.main(["run", *overrides, *flags])


def record(overrides):
    return read(h.spec_of(overrides).record_path)


def test_a_loss_that_is_not_a_number_is_divergence(capsys):
    overrides = h.odd(trouble="nan_loss", at=6)
    assert run(overrides) == 1
    diverged, reason = record(overrides), "the loss is not finite in epoch 2, by step 8"
    assert (diverged["status"], diverged["reason"]) == ("diverged", reason)
    assert diverged["metrics"]["last"] is None and diverged["metrics"]["best"]["test"]["mse"] < 10
    assert diverged["selected"]["epoch"] == 1 and diverged["references"]
    assert run(overrides) == 1
    assert "diverged already" in capsys.readouterr().out
    assert record(overrides) == diverged  # not trained again
    assert run(overrides, "--force") == 1
    assert record(overrides)["reason"] == diverged["reason"]


def test_an_endless_learning_rate_and_no_finite_number_on_valid_are_divergence():
    endless = h.odd("optim=sgd", "optim.lr=1e38", "optim.momentum=0.9", "runtime.save_model=true")
    assert run(endless) == 1
    assert record(endless)["status"] == "diverged" and record(endless).get("weights") is None
    last = [*endless, "trainer.max_steps=1", "trainer.select._target_=physml.training.selection.Last"]
    assert run(last) == 1  # the loss of its only step is a number
    overrides = h.odd(trouble="nan_score")
    assert run(overrides) == 1
    ended = record(overrides)
    assert (ended["status"], ended["reason"]) == ("diverged", "no evaluation on valid gave a finite number")
    assert ended["metrics"]["best"] is None and ended["selected"] is None


@pytest.mark.parametrize(
    ("trouble", "said"),
    [
        ("nan_train", "Odd: the train inputs hold NaN or infinite values."),
        ("nan_valid", "Odd: the valid inputs hold NaN or infinite values."),
        ("few_batches", "Odd: an epoch has 4 batches, but steps_per_epoch says 5."),
    ],
)
def test_bad_data_are_told_and_nothing_is_recorded(trouble, said, capsys):
    overrides = h.odd(trouble=trouble)
    assert run(overrides) == 2
    assert f"error: {said}" in capsys.readouterr().err
    assert not h.spec_of(overrides).record_path.exists()


def test_nan_on_valid_and_a_choice_by_test_that_is_not_scored_are_refused_before_training() -> None:
    spec = h.spec_of(h.odd(trouble="nan_valid", step_s=60.0))
    with pytest.raises(DataError):
        h.make(spec)
    select = "trainer.select._target_=physml.training.selection.BestTest"
    spec = h.spec_of(h.odd(select, "runtime.score_test=false"))
    refuses(ConfigError, "BestTest looks at test data", h.make, spec)


def test_out_of_memory_is_a_status_and_is_tried_again(monkeypatch, capsys):
    overrides = h.odd(trouble="memory", at=5)
    assert run(overrides) == 1
    ended = record(overrides)
    reason = "out of memory: OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB"
    assert (ended["status"], ended["reason"]) == ("failed", reason)
    assert "failed: " in capsys.readouterr().out
    with monkeypatch.context() as context:
        context.setattr(h.task_class("Odd"), "at", property(lambda _: 100, lambda *_: None), raising=False)
        assert run(overrides) == 0
    assert record(overrides)["status"] == "finished"
    assert run(overrides) == 0  # done


def test_a_failure_hides_no_result_of_another_results_folder(monkeypatch, roots):
    spec = h.spec_of(h.odd())
    h.make(spec)
    monkeypatch.setattr(perform, "results_roots", lambda: [roots / "own", roots / "results"])
    monkeypatch.setenv("PHYSML_RESULTS", str(roots / "own"))
    write(spec.record_path, {**read(roots / "results" / spec.place.relative), "status": "failed"})
    assert perform.existing(spec)["status"] == "finished" and state_of(spec) == "done"
    (roots / "results" / spec.place.relative).unlink()
    assert perform.existing(spec)["status"] == "failed"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("18 GiB"),
        torch.OutOfMemoryError("CUDA out of memory"),
        RuntimeError("[enforce fail] DefaultCPUAllocator: can't allocate memory: 9 bytes"),
        RuntimeError("CUDA error: out of memory"),
        RuntimeError("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling cublasCreate"),
    ],
)
def test_every_kind_of_out_of_memory_is_known(error):
    assert explained(error).startswith("out of memory: ")


def test_other_errors_are_called_by_their_name():
    assert explained(RuntimeError("sizes do not match\nmore lines")) == "RuntimeError: sizes do not match"


def test_a_mistake_in_an_own_model_and_data_that_cannot_be_made_are_a_status():
    overrides = [o for o in h.odd("model=own", "model._target_=odd_tasks.Broken") if o != "model=lstm"]
    assert run(overrides) == 1
    failed = record(overrides)
    assert failed["status"] == "failed" and failed["reason"].startswith("RuntimeError: ")
    assert "Traceback" in (h.spec_of(overrides).work_folder / "log.txt").read_text()
    assert failed["n_parameters"] == 2 * 5 + 5 + 1
    overrides = h.odd(trouble="load")
    assert run(overrides) == 1
    failed = record(overrides)
    assert (failed["status"], failed["reason"]) == ("failed", "RuntimeError: the data cannot be made")
    assert failed["n_parameters"] is None and failed["cost"] is None


def test_a_split_or_a_device_that_is_not_there_is_bad_input(capsys, monkeypatch) -> None:
    assert run(h.odd("split=2")) == 2
    assert "Odd has 2 split(s), counted from 0; split=2 is not there." in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    assert run(h.odd("runtime.device=cuda")) == 2
    assert "sees no CUDA device. Use runtime.device=cpu." in capsys.readouterr().err
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    refuses(DataError, "sees 2 CUDA devices, counted from 0. Use", pick_device, "cuda:2")
    refuses(DataError, "sees 1 CPU device. Use", pick_device, "cpu:1")
    monkeypatch.setattr(torch.mps, "device_count", lambda: 0)
    assert run(h.odd("runtime.device=mps")) == 2
    assert "runtime.device=mps, but torch" in capsys.readouterr().err
    assert pick_device("cpu:0") == "cpu" and on_cpu(h.spec_of(h.odd("runtime.device=cpu:0")))
    assert run(h.odd("runtime.device=toaster")) == 2
    assert "runtime.device must be auto, cpu or cuda; got 'toaster'" in capsys.readouterr().err


def test_a_file_that_is_not_there_is_bad_input_not_a_failed_run(monkeypatch, capsys):
    """What a task says with DataError, such as missing data, reaches the person as it is."""

    def load(*_):
        raise DataError("eigenworms.ts: not found. Run `physml data get eigenworms`.")

    overrides = h.odd()
    monkeypatch.setattr(h.task_class("Odd"), "load", load)
    assert run(overrides) == 2
    assert "error: eigenworms.ts: not found." in capsys.readouterr().err
