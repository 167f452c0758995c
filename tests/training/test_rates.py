"""Rates that fall with what validation says, and stopping once they are low."""

import pytest
import run_harness as h
import torch
from refusals import refuses
from run_harness import bound, scripted

from physml.base.errors import ConfigError, InputError
from physml.training import selection
from physml.training.schedules import CumulativePlateau

NAN = float("nan")


def rates(values, mode="min", factor=0.5, patience=2, start=1):
    """The rate after each value."""
    opt = torch.optim.SGD([torch.nn.Parameter(torch.zeros(1))], lr=1.0)
    schedule = CumulativePlateau(opt, mode, factor=factor, patience=patience, start=start)
    lrs = []
    for value in values:
        opt.step()
        schedule.step(value)
        lrs.append(opt.param_groups[0]["lr"])
        assert schedule.get_last_lr() == [lrs[-1]]
    return lrs


@pytest.mark.parametrize(
    ("arguments", "values", "after"),
    [
        ({}, [3, 4, 4, 4], [1, 1, 0.5, 0.5]),
        ({}, [3, 4, 2, 4, 4, 4], [1, 1, 1, 0.5, 0.5, 0.25]),  # a better one does not start the count anew
        ({}, [3, 3, 3], [1, 1, 0.5]),  # equal is not better
        ({"start": 4}, [3, 4, 4, 4, 4, 4], [1, 1, 1, 1, 0.5, 0.5]),  # the 4th is the first that counts
        ({"start": 4}, [1, 4, 4, 2, 2], [1, 1, 1, 1, 0.5]),  # best of all, not of those from start on
        ({"patience": 1, "factor": 0.1}, [1, NAN, 2], [1, 0.1, 0.01]),
        ({"mode": "max"}, [3, 2, 4, 4], [1, 1, 1, 0.5]),
    ],
)
def test_the_rate_falls_after_so_many_evaluations_that_were_no_better(arguments, values, after):
    assert rates([float(v) for v in values], **arguments) == pytest.approx(after)


@pytest.mark.parametrize(
    ("worst", "metric", "values", "lrs", "stop"),
    [
        (None, None, [1.0, 1.0, 1.0, 1.0], [1.0, 0.2, 0.09, 0.08], 3),
        (None, None, [1.0, 1.0, 1.0], [0.01, 0.01, 0.1], None),  # not before start, and not at the bound
        (20.0, None, [30.0, 30.0, 20.0, 20.5], [1.0] * 4, 4),
        (0.2, "accuracy", [0.1, 0.1, 0.2, 0.1], [1.0] * 4, 4),
        (20.0, None, [1.0, 1.0, NAN], [1.0] * 3, None),
    ],
)
def test_a_low_rate_stops(worst, metric, values, lrs, stop):
    rule = bound(selection.LowRate(below=0.1, worst=worst, start=3, metric=metric))
    pairs, key = enumerate(zip(values, lrs, strict=True), 1), f"valid/{metric or 'mse'}"
    rows = [{"epoch": i, key: value, "next_lr": lr} for i, (value, lr) in pairs]
    assert next((row["epoch"] for row in rows if rule.stops(row)), None) == stop


def test_wrong_arguments_a_rate_that_nothing_is_below_and_a_plateau_of_another_direction_are_refused():
    for wrong in ({"patience": 0}, {"factor": 1.0}):
        refuses(InputError, next(iter(wrong)), rates, [1.0], **wrong)
    below = {"below": 0.0, "worst": None, "start": 1, "metric": None}
    refuses(InputError, r"trainer\.stop\.below must be positive; got 0", selection.LowRate, **below)
    plateau = "{_target_: torch.optim.lr_scheduler.ReduceLROnPlateau, mode: max}"
    spec = h.spec_of(h.odd(f"trainer.schedule={plateau}"))
    refuses(ConfigError, r"trainer\.schedule\.mode must be min for mse; got max", h.odd_trainer, spec)


def test_a_run_ends_before_an_epoch_of_a_rate_that_is_too_low(monkeypatch):
    """Epochs 2 and 3 are no better: the rate falls to half after each."""
    scripted(monkeypatch, [1.0, 2.0, 2.0, 0.5, 0.4])
    plateau = "physml.training.schedules.CumulativePlateau, mode: min, factor: 0.5, patience: 1, start: 1"
    low = "physml.training.selection.LowRate, below: 0.003, worst: null, start: 1, metric: null"
    rules = (f"trainer.schedule={{_target_: {plateau}}}", f"trainer.stop={{_target_: {low}}}")
    spec = h.spec_of(h.odd("trainer.epochs=5", "optim.lr=0.01", *rules))
    record = h.make(spec)
    assert (record["n_epochs"], record["status"]) == (3, "finished")
    assert [float(row["lr"]) for row in h.curve(spec)] == [0.01, 0.01, 0.005]
