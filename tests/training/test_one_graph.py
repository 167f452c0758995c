"""Runs on one graph: metrics of a training step, rules that read it, and stops in between."""

import os
import signal

import pytest
import run_harness as h
from refusals import refuses

from physml.base.errors import Preempted
from physml.training import checkpoint, selection
from physml.training.trainer import Trainer
from tasks.heterophilic import Heterophilic

NOISY = "noisy_cross_entropy"
LOWER = ("mse", {"mse": "lower", "accuracy": "higher"})


def texas(*overrides: str) -> list[str]:
    rule = f"{{_target_: physml.training.selection.CumulativePatience, epochs: 4, metric: {NOISY}}}"
    select = (f"+trainer.select.metric={NOISY}", f"trainer.stop={rule}")
    return h.texas("trainer.epochs=30", "net.input_dropout=0.5", *select, *overrides)


def worse(values: list[float]) -> list[bool]:
    """For each value, whether it is no strictly better one than all before."""
    return [i > 0 and not value < min(values[:i]) for i, value in enumerate(values)]


@pytest.mark.parametrize(
    ("epochs", "values", "stop"),
    [
        (2, [3, 2, 2, 1, 1, 0], 5),  # the third and the fifth, with a better one between
        (1, [3, 3, 1], 2),
        (3, [5, 6, 4, 6, 3, 3, 2], 6),
        (3, [5, 4, 3, 2, 1], None),
    ],
)
def test_patience_that_is_never_given_back(epochs, values, stop):
    rule = selection.CumulativePatience(epochs=epochs, metric=None)
    rule.bind(*LOWER)
    rows = [{"epoch": i, "valid/mse": float(v)} for i, v in enumerate(values, 1)]
    assert next((row["epoch"] for row in rows if rule.stops(row)), None) == stop


def test_patience_that_is_never_given_back_goes_on_where_it_was():
    rows = [{"epoch": i, "valid/mse": v} for i, v in enumerate([3.0, 3.0, 2.0, 2.0, 1.0, 1.0], 1)]
    first, second = (selection.CumulativePatience(epochs=3, metric=None) for _ in range(2))
    for rule in (first, second):
        rule.bind(*LOWER)
    assert not any(first.stops(row) for row in rows[:4])
    second.load_state_dict(first.state_dict())
    assert [second.stops(row) for row in rows[4:]] == [False, True]


def test_selection_and_stop_by_what_a_step_says_aside():
    spec = h.spec_of(texas())
    record = h.make(spec)
    values = [float(row[f"valid/{NOISY}"]) for row in h.curve(spec)]
    assert sum(worse(values)) == 4 and worse(values)[-1] and len(values) < 30
    best = values.index(min(values)) + 1
    assert record["selected"] == {"rule": f"min valid/{NOISY}", "step": best, "epoch": best}
    clean = [float(row["valid/cross_entropy"]) for row in h.curve(spec)]
    assert all(a != b for a, b in zip(values, clean, strict=True))


def test_it_is_the_loss_of_the_weights_before_the_step():
    """Without dropout: the step's metric is the validation loss that the epoch before ended with."""
    spec = h.spec_of(texas("net.input_dropout=0", "trainer.stop=null", "trainer.epochs=5"))
    h.make(spec)
    rows = h.curve(spec)
    of_step, clean = ([float(row[f"valid/{name}"]) for row in rows] for name in (NOISY, "cross_entropy"))
    assert of_step[1:] == pytest.approx(clean[:-1], rel=1e-5)


@pytest.mark.parametrize("where", ["between step and evaluation", "in a step", "by the checkpoint"])
def test_a_stopped_run_ends_with_the_same_bits(where, monkeypatch, tmp_path):
    overrides = texas("runtime.checkpoint_every_s=0")
    spec = h.spec_of(overrides)
    with monkeypatch.context() as context:
        for name in ("results", "runs"):
            context.setenv(f"PHYSML_{name.upper()}", str(tmp_path / "undisturbed" / name))
        undisturbed = h.spec_of(overrides)
        want = h.numbers(h.make(undisturbed)), h.curve(undisturbed)
    assert want[0]["n_epochs"] > 5
    holder, name = {
        "between step and evaluation": (Trainer, "_evaluation"),
        "in a step": (Heterophilic, "loss"),
        "by the checkpoint": (Trainer, "_save"),
    }[where]
    original, calls = getattr(holder, name), []

    def patched(self, *arguments):
        calls.append(1)
        if len(calls) == 5:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    with monkeypatch.context() as context:
        context.setattr(holder, name, patched)
        refuses(Preempted, "SIGTERM", h.make, spec)
    saved = checkpoint.load(spec.work_folder, spec.place.identity)
    assert saved
    state = saved["trainer"]
    if where == "between step and evaluation":
        assert (state["step"], state["epoch"]) == (5, 4) and NOISY in state["step_metrics"]
    assert len(calls) >= 5 and 0 < state["step"] < want[0]["n_steps"]
    assert (h.numbers(h.make(spec)), h.curve(spec)) == want
