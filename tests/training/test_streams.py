"""Randomness is separate, precision is explicit, and a run is the same wherever it is made."""

import json

import pytest
import run_harness as h
import torch
from refusals import refuses
from variants import variants

from physml.base.errors import ConfigError
from physml.queue.worker import probe
from physml.records import record
from physml.training.trainer import Trainer, set_precision


def first_losses(overrides, n=4):
    """Losses of the first steps, and the batches they were made of."""
    spec = h.spec_of(overrides)
    losses, inputs = [], []
    task = h.task_class("Odd")
    with pytest.MonkeyPatch.context() as patch:
        loss = task.loss

        def watched(self, output, batch):
            value = loss(self, output, batch)
            losses.append(value.item())
            inputs.append(batch.input.flatten().tolist())
            return value

        patch.setattr(task, "loss", watched)
        h.make(spec)
    return losses[:n], inputs[:n]


def test_the_same_seed_gives_the_same_first_losses_and_another_one_other_weights_and_order():
    overrides = h.odd("net.dropout=0.3")
    first = first_losses(overrides)
    torch.rand(7)  # whatever the process drew before
    h.spec_of(overrides).record_path.unlink()
    assert first_losses(overrides) == first
    losses, inputs = first_losses(h.odd())
    other_losses, other_inputs = first_losses(h.odd("seed=1"))
    assert losses != other_losses and inputs != other_inputs
    _, of_large = first_losses(h.odd("model.d_hidden=50", "net.n_layers=2", "net.dropout=0.5"))
    assert of_large == inputs


def test_the_first_weights_do_not_depend_on_the_data(monkeypatch):
    drawn = []
    step = Trainer._step

    def watched(self, batch):
        drawn.append([p.detach().clone() for p in self.net.parameters()])
        return step(self, batch)

    monkeypatch.setattr(Trainer, "_step", watched)
    for n in (8, 16):
        h.make(h.spec_of(h.odd("trainer.max_steps=1", n=n)))
    assert all(torch.equal(a, b) for a, b in zip(*drawn, strict=True))


def test_evaluating_more_often_changes_no_weights():
    often = h.make(h.spec_of(h.odd("net.dropout=0.3", "trainer.test_every=1")))
    seldom = h.make(h.spec_of(h.odd("net.dropout=0.3", "trainer.eval_every=3")))
    assert often["metrics"]["last"] == seldom["metrics"]["last"]


def test_a_worker_process_makes_the_same_record(monkeypatch, tmp_path):
    spec = h.spec_of(h.odd("net.dropout=0.3"))
    here = h.make(spec)
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "other"))
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / "other runs"))
    assert h.start(spec).wait() == 0
    theirs = record.read(spec.record_path)
    differing = {key.partition(".")[0] for key, _, _ in record.differences(here, theirs)}
    assert differing <= {"cost", "started", "ended", "path", "code"}
    assert here["code"]["version"] == theirs["code"]["version"]
    assert json.loads((spec.work_folder / "progress.json").read_text())["steps"] == 12


# ---------------------------------------------------------------------------- precision, determinism
@pytest.mark.parametrize(("precision", "allowed"), [("fp32", False), ("tf32", True), ("bf16", False)])
def test_tf32_is_on_or_off_by_config_alone(precision, allowed, monkeypatch):
    set_precision("fp32" if allowed else "tf32")  # whatever stood before
    run = h.make(h.spec_of(h.odd(f"precision={precision}")))
    assert torch.backends.cuda.matmul.allow_tf32 is allowed
    assert torch.backends.cudnn.allow_tf32 is allowed
    assert run["precision"] == precision and run["machine"]["tf32"] is allowed
    set_precision("fp32")


@pytest.mark.parametrize(
    "model", variants(["lstm", "lem", "exprnn"], ["gru", "cornn", "unicornn", "lipschitz"])
)
def test_bf16_trains(model):
    overrides = [o for o in h.odd("precision=bf16") if not o.startswith("model.")]
    overrides[0] = f"model={model}"
    run = h.make(h.spec_of(overrides))
    assert run["status"] == "finished", run["reason"]
    full = h.make(h.spec_of([o for o in overrides if o != "precision=bf16"]))
    best, exact = (m["metrics"]["last"]["valid"]["mse"] for m in (run, full))
    assert best != exact and best == pytest.approx(exact, rel=0.1)


def test_products_of_bf16_are_a_precision_of_their_own():
    runs = [h.make(h.spec_of(h.odd("model=lem", f"precision={p}"))) for p in ("fp32", "bf16-products")]
    plain, rounded = (m["metrics"]["last"]["valid"]["mse"] for m in runs)
    assert runs[1]["precision"] == "bf16-products" and runs[1]["backend"] == "native"
    assert runs[0]["identity"] != runs[1]["identity"]
    assert rounded != plain and rounded == pytest.approx(plain, rel=0.05)


def test_a_net_without_products_in_c_is_refused_before_training():
    overrides = [o for o in h.odd("precision=bf16-products") if not o.startswith("model")]
    spec = h.spec_of([*overrides, "model=own", "model._target_=odd_tasks.Plain"])
    refuses(ConfigError, r"Plain has computed none\. Set precision=fp32", h.make, spec)


def test_the_deterministic_option_reaches_torch(monkeypatch):
    monkeypatch.delenv("CUBLAS_WORKSPACE_CONFIG", raising=False)
    seen = []
    step = Trainer._step

    def watched(self, batch):
        seen.append(torch.are_deterministic_algorithms_enabled())
        return step(self, batch)

    monkeypatch.setattr(Trainer, "_step", watched)
    on = h.make(h.spec_of(h.odd("runtime.deterministic=true", "seed=0")))
    assert set(seen) == {True} and on["machine"]["deterministic"] is True
    seen.clear()
    off = h.make(h.spec_of(h.odd("runtime.deterministic=false", "seed=1")))
    assert set(seen) == {False} and off["machine"]["deterministic"] is False


def test_the_number_of_threads_is_set():
    h.make(h.spec_of(h.odd("runtime.threads=2", "trainer.max_steps=1")))
    assert torch.get_num_threads() == 2
    h.make(h.spec_of(h.odd("runtime.threads=1", "seed=1")))
    assert torch.get_num_threads() == 1


def test_a_probe_tells_time_and_leaves_nothing(tmp_path):
    estimate = probe(h.spec_of(h.odd("trainer.epochs=10000")).config)
    assert estimate["n_steps"] == 40_000
    assert estimate["hours"] >= 0.999 * estimate["ms_per_step"] * 40_000 / 3.6e6 > 0
    assert not (tmp_path / "results").exists()
