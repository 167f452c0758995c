"""Weight averaging and calibration: what is evaluated, selected, kept and resumed."""

import itertools

import pytest
import run_harness as h
import torch
from refusals import refuses
from torch import nn

from physml.base.errors import ConfigError, Preempted
from physml.models.sequence.orthogonal import ExpRNN
from physml.training import checkpoint
from physml.training.averaging import Triggered, in_place, refuse_bases
from physml.training.interrupt import Interrupt

AVERAGE = (
    "trainer.average={_target_: physml.training.averaging.Triggered, epochs: null, latest: 2, metric: null}"
)
NET = ("trainer.epochs=5", "optim.lr=0.05", "net.dropout=0.2")


def weights(net):
    return {name: p.detach().clone() for name, p in net.named_parameters()}


def row(epoch, value):
    return {"epoch": epoch, "valid/mse": value}


@pytest.mark.parametrize(
    ("epochs", "latest", "values", "begins"),
    [
        (2, None, [3, 2, 2, 2, 1], 4),
        (2, 3, [3, 2, 2, 2, 1], 3),
        (None, 1, [3, 2], 1),
        (3, 9, [5, 4, 3, 2, 1], None),
        (1, None, [3, 4, 1, 1], 2),  # once begun it goes on, whatever comes
        (2, 3, [None] * 4, 3),  # at the end of its epoch, without an evaluation too
    ],
)
def test_the_trigger(epochs, latest, values, begins):
    average = Triggered(epochs=epochs, latest=latest, metric=None)
    average.bind("mse", {"mse": "lower"})
    active = []
    for epoch, value in enumerate(values, 1):
        average.after_epoch(epoch, None if value is None else row(epoch, value))
        active.append(average.active)
    assert active == [begins is not None and i >= begins for i in range(1, len(values) + 1)]


def test_the_mean_is_that_of_all_weights_since_the_trigger():
    torch.manual_seed(0)
    net = nn.Linear(3, 2).double()
    average = Triggered(epochs=None, latest=1, metric=None)
    average.bind("mse", {"mse": "lower"})
    average.after_step(net)  # before the trigger: not counted
    average.after_epoch(1, row(1, 1.0))
    seen = []
    for _ in range(5):
        with torch.no_grad():
            net.weight += torch.randn_like(net.weight)
        average.after_step(net)
        seen.append(net.weight.detach().clone())
    own = net.weight.detach().clone()
    with in_place(average, net):
        torch.testing.assert_close(net.weight.detach(), torch.stack(seen).mean(0), rtol=0, atol=1e-14)
    assert torch.equal(net.weight, own)
    with pytest.raises(KeyError), in_place(average, net):
        raise KeyError
    assert torch.equal(net.weight, own)


def test_averaging_evaluates_selects_and_keeps_the_mean_and_trains_as_without():
    plain, rows = h.odd_trainer(h.spec_of(h.odd(*NET))), []
    plain.fit()
    averaged = h.odd_trainer(h.spec_of(h.odd(*NET, AVERAGE)), rows=rows)
    steps = {}
    after = averaged.average.after_step
    averaged.average.after_step = lambda net: (steps.update({len(steps): weights(net)}), after(net))
    averaged.fit()
    per_epoch = averaged.steps_per_epoch
    assert len(steps) == 5 * per_epoch
    own, mean = steps[len(steps) - 1], weights(averaged.net)
    for name, p in plain.net.named_parameters():
        assert torch.equal(own[name], p)
        since = torch.stack([steps[i][name] for i in range(2 * per_epoch, len(steps))])
        torch.testing.assert_close(mean[name], since.mean(0), rtol=1e-5, atol=1e-6)
        assert not torch.equal(mean[name], p)
    assert [r["valid/mse"] for r in rows[:2]] == [r["valid/mse"] for r in plain.rows[:2]]
    assert rows[4]["valid/mse"] != plain.rows[4]["valid/mse"]
    assert rows[4]["valid/mse"] == averaged.metrics("valid", 5)["mse"]  # after fit the net has the mean
    best = min(rows, key=lambda r: r["valid/mse"])
    assert averaged.kept["row"] == best
    averaged.net.load_state_dict(averaged.kept["weights"])
    assert averaged.metrics("valid", 5)["mse"] == best["valid/mse"]


@pytest.mark.parametrize(
    ("layer", "kept"),
    [
        (nn.BatchNorm1d(3), "running statistics"),
        (ExpRNN(1, 4, base="start", rebase_every=20), "a base that moves"),
    ],
)
def test_weights_whose_mean_fits_nothing_are_refused(layer, kept):
    with pytest.raises(ConfigError, match=rf"{type(layer).__name__} has {kept} beside them"):
        refuse_bases(nn.Sequential(nn.Linear(3, 3), layer))
    refuse_bases(nn.Sequential(nn.BatchNorm1d(3, track_running_stats=False), ExpRNN(1, 4)))


def test_a_stop_anywhere_changes_no_bit(tmp_path):
    spec = h.spec_of(h.odd(*NET, AVERAGE))
    whole = h.odd_trainer(spec)
    whole.fit()
    for at in range(1, whole.total_steps, 3):
        stop = Interrupt()
        first = h.odd_trainer(spec, stop, lambda s: checkpoint.save(tmp_path, {"identity": "", "t": s}))
        step = first._step

        def counted(batch, first=first, stop=stop, step=step, at=at):
            step(batch)
            if first.step + 1 == at:
                stop.reason = "test"

        first._step = counted
        with pytest.raises(Preempted):
            first.fit()
        second = h.odd_trainer(spec)
        second.load_state_dict(checkpoint.load(tmp_path, "")["t"])
        second.fit()
        for name, p in whole.net.named_parameters():
            assert torch.equal(p, dict(second.net.named_parameters())[name])
        assert h.times_off(second.rows) == h.times_off(whole.rows)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("epochs: null, latest: null, metric: null", "both null"),
        ("epochs: 0, latest: null, metric: null", "epochs must be at least 1"),
        ("epochs: 1, latest: null, metric: mes", "trainer.average.metric: no metric mes"),
    ],
)
def test_an_average_that_cannot_be(arguments, says):
    rule = f"trainer.average={{_target_: physml.training.averaging.Triggered, {arguments}}}"
    refuses(ConfigError, says, lambda: h.odd_trainer(h.spec_of(h.odd(*NET, rule))))


# ---------------------------------------------------------------------------- calibration
def test_calibration_comes_before_test_and_is_recorded(monkeypatch):
    """The task looks at what the selected and the last weights say to valid; that counts from then on."""
    task = h.task_class("Odd")
    seen = []

    def calibrate(self, outputs):
        answers = torch.cat([output for output, _ in outputs("valid")])
        seen.append(self.draws[-1])
        self.shift = float(answers.mean())
        return {"shift": self.shift}

    def finish(self, sums):
        return {"mse": sums["error_sum"] / sums["n"] + 100 * hasattr(self, "shift")}

    monkeypatch.setattr(task, "calibrate", calibrate, raising=False)
    plain = h.make(h.spec_of(h.odd(*NET, "seed=3")), force=True)
    assert seen and set(seen) == {"valid"}
    assert set(plain["calibration"]) <= {"best", "last"} and plain["calibration"]["last"]["shift"]
    monkeypatch.setattr(task, "finish", finish)
    shifted = h.make(h.spec_of(h.odd(*NET, "seed=3")), force=True)
    for which, part in itertools.product(("best", "last"), ("valid", "test")):
        before, after = (run["metrics"][which][part]["mse"] for run in (plain, shifted))
        assert after == pytest.approx(before + 100), (which, part)


def test_a_search_calibrates_nothing(monkeypatch):
    monkeypatch.setattr(h.task_class("Odd"), "calibrate", lambda self, outputs: 1 / 0, raising=False)
    record = h.make(h.spec_of(h.odd(*NET, "runtime.score_test=false")))
    assert record["status"] == "finished" and "calibration" not in record
