"""Which weights count, when training stops, and how often test data are looked at."""

import pytest
import run_harness as h
from refusals import refuses
from run_harness import bound, scripted

from physml.base.errors import ConfigError, InputError
from physml.records import record
from physml.training import selection
from physml.training.trainer import Trainer

NAN, INF = float("nan"), float("inf")
SELECT = "trainer.select._target_=physml.training.selection"


def chosen(selector, values, part="valid", metric="mse"):
    """Epochs at which the weights are kept, from values of successive epochs."""
    rows = [{"epoch": i, f"{part}/{metric}": v} for i, v in enumerate(values, 1)]
    return [row["epoch"] for row in rows if selector.selected(row)]


def test_each_rule_keeps_the_earliest_best_epoch_by_numbers_alone_and_names_an_unknown_metric():
    assert chosen(bound(selection.BestValid()), [3.0, 1.0, 2.0, 1.0, 1.0]) == [1, 2]
    assert chosen(bound(selection.BestValid()), [NAN, INF, 5.0, NAN, 4.0]) == [3, 5]
    best = selection.BestValid("accuracy")
    assert chosen(bound(best), [0.5, 0.4, 0.5, 0.6], metric="accuracy") == [1, 4]
    assert best.rule() == "max valid/accuracy"
    assert chosen(bound(selection.Last()), [1.0, 2.0, 3.0]) == [1, 2, 3]
    best = bound(selection.BestTest())
    assert chosen(best, [2.0, 1.0, 3.0], part="test") == [1, 2]
    assert (best.rule(), best.needs_test) == ("min test/mse", True)
    refuses(ConfigError, r"no metric msee\. Did you mean mse", bound, selection.BestValid("msee"))


@pytest.mark.parametrize(
    ("epochs", "values", "stop"), [(2, [3, 2, 2, 2, 1], 4), (1, [3, 3, 1], 2), (3, [5, 4, 3, 2, 1], None)]
)
def test_patience(epochs, values, stop):
    patience = bound(selection.Patience(epochs=epochs, metric=None))
    rows = [{"epoch": i, "valid/mse": float(v)} for i, v in enumerate(values, 1)]
    assert next((row["epoch"] for row in rows if patience.stops(row)), None) == stop


def test_cumulative_patience_counts_all_that_were_no_better():
    rule = bound(selection.CumulativePatience(epochs=2, metric=None))
    rows = [{"epoch": i, "valid/mse": v} for i, v in enumerate([3.0, 4.0, 2.0, 4.0, 1.0], 1)]
    assert [rule.stops(row) for row in rows[:3]] == [False] * 3
    after = bound(selection.CumulativePatience(epochs=2, metric=None))
    after.load_state_dict(rule.state_dict())
    assert rule.stops(rows[3]) and after.stops(rows[3]), "from a checkpoint too"


@pytest.mark.parametrize(
    ("metric", "value", "values", "stop"),
    [
        (None, 1.0, [3.0, 1.5, 0.9, 0.1], 3),  # lower is better
        (None, 1.0, [3.0, 1.0, 0.5], 2),  # exactly there is there
        (None, 1.0, [3.0, 2.0], None),
        (None, 1.0, [NAN, -INF, 0.5], 3),
        ("accuracy", 0.9, [0.5, 0.89, 0.91], 3),
        ("accuracy", 0.9, [NAN, INF, 0.9], 3),
    ],
)
def test_a_value_that_is_reached_stops(metric, value, values, stop):
    reached = bound(selection.Reached(value, metric))
    rows = [{"epoch": i, f"valid/{metric or 'mse'}": v, "test/mse": -1.0} for i, v in enumerate(values, 1)]
    assert next((row["epoch"] for row in rows if reached.stops(row)), None) == stop


def test_an_unknown_metric_of_a_stopping_rule_and_a_value_out_of_reach_are_refused():
    for rule in (selection.Reached(1.0, "msee"), selection.Patience(1, "msee")):
        refuses(ConfigError, r"trainer\.stop\.metric: no metric msee\. Did you mean mse", bound, rule)
    for rule in (selection.Patience, selection.CumulativePatience):  # it would stop whatever comes
        refuses(InputError, r"trainer\.stop\.epochs must be positive; got 0", rule, 0, None)
    for value in (NAN, INF, -INF):
        says = r"trainer\.stop\.value must be a finite number; got"
        refuses(ConfigError, says, selection.Reached, value, None)


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ("value: low, metric: null", "trainer.stop.value must be a number; got 'low'"),
        ("metric: null", r"trainer.stop: Reached needs value\. Add \+trainer.stop.value=VALUE"),
        ("valu: 1.0, metric: null", r"trainer.stop.valu: Reached has no such .*Did you mean value"),
    ],
)
def test_wrong_keys_of_a_stopping_rule_are_told(keys, says):
    with pytest.raises(ConfigError, match=says):
        h.spec_of(h.odd(f"trainer.stop={{_target_: physml.training.selection.Reached, {keys}}}"))


@pytest.mark.parametrize(
    ("part", "rule", "schedule", "refused"),
    [
        ("valid", "BestValid", None, "select=BestValid"),
        ("valid", "BestTest", None, None),
        ("valid", "Last", "ReduceLROnPlateau", "schedule=ReduceLROnPlateau"),
        ("test", "BestValid", "ReduceLROnPlateau", None),
        ("test", "BestTest", None, "select=BestTest"),
    ],
)
def test_a_rule_is_refused_that_looks_at_a_part_that_is_not_there(part, rule, schedule, refused):
    plateau = f"trainer.schedule={{_target_: torch.optim.lr_scheduler.{schedule}, mode: min}}"
    trainer = h.odd_trainer(h.spec_of(h.odd(f"{SELECT}.{rule}", *([plateau] if schedule else []))))
    if refused is None:
        return trainer._refuse_rules(part)
    with pytest.raises(ConfigError, match=rf"Odd has no {part} items, which trainer\.{refused} looks at"):
        trainer._refuse_rules(part)


@pytest.mark.parametrize(
    ("rule", "values", "best", "times"),
    [
        ("BestValid", [3.0, 1.0, 2.0], 2, 2),  # the selected weights and the last ones
        ("BestValid", [3.0, 2.0, 1.0], 3, 1),  # which are the same
        ("Last", [1.0, 2.0, 3.0], 3, 1),
        ("BestTest", [2.0, 1.0, 3.0], 2, 3),  # at each epoch, and not again
    ],
)
def test_test_data_are_scored_no_more_than_needed(rule, values, best, times, monkeypatch):
    task = h.task_class("Odd")
    monkeypatch.setattr(task, "draws", [])
    scripted(monkeypatch, values)
    run = h.make(h.spec_of(h.odd(f"{SELECT}.{rule}")))
    assert task.draws.count("test") - 1 == times  # beside the one look for NaN before training
    assert run["selected"]["epoch"] == best
    assert run["selected"]["step"] == 4 * best
    assert run["metrics"]["last"]["valid"]["mse"] == values[-1]
    assert run["metrics"]["best"]["valid"]["mse"] == values[best - 1]
    assert run["metrics"]["best"]["test"].keys() == {"mse"}


def test_a_curve_on_test_and_none_when_test_is_not_to_be_scored(monkeypatch):
    monkeypatch.setattr(h.task_class("Odd"), "draws", [])
    spec = h.spec_of(h.odd("trainer.epochs=5", "trainer.test_every=2"))
    run = h.make(spec)
    rows = h.curve(spec)
    assert [row["epoch"] for row in rows if row["test/mse"]] == ["2", "4", "5"]
    assert float(rows[-1]["test/mse"]) == pytest.approx(run["metrics"]["last"]["test"]["mse"], rel=5e-6)
    task = h.task_class("Odd")
    monkeypatch.setattr(task, "draws", [])
    run = h.make(h.spec_of(h.odd("runtime.score_test=false", "trainer.test_every=1")))
    assert "test" not in task.draws
    assert run["metrics"]["best"]["test"] == {} and run["metrics"]["best"]["valid"]


def test_selected_weights_are_those_of_their_epoch(monkeypatch):
    """Trained two epochs longer, the same selection gives the same test metrics."""
    scripted_once = [3.0, 1.0, 2.0, 2.0, 2.0]
    short = h.make(h.spec_of(h.odd("trainer.epochs=2", f"{SELECT}.Last")))
    real = Trainer.metrics

    def metrics(self, part, epoch):
        return {"mse": scripted_once[epoch - 1]} if part == "valid" else real(self, part, epoch)

    monkeypatch.setattr(Trainer, "metrics", metrics)
    long = h.make(h.spec_of(h.odd("trainer.epochs=5")))
    assert long["selected"]["epoch"] == 2
    assert long["metrics"]["best"]["test"] == short["metrics"]["last"]["test"]
    assert long["metrics"]["last"]["test"] != short["metrics"]["last"]["test"]


def test_evaluation_every_few_epochs_and_a_number_of_steps():
    spec = h.spec_of(h.odd("trainer.epochs=10", "trainer.eval_every=2", "trainer.max_steps=14"))
    run = h.make(spec)
    assert [(row["epoch"], row["step"]) for row in h.curve(spec)] == [("2", "8"), ("4", "14")]
    assert (run["n_steps"], run["n_epochs"]) == (14, 4)
    assert record.read(spec.record_path)["curve"].endswith(".curve.csv.gz")


def test_early_stopping_ends_the_run(monkeypatch):
    scripted(monkeypatch, [3.0, 1.0, 2.0, 1.0, 0.5])
    stop = "trainer.stop={_target_: physml.training.selection.Patience, epochs: 2, metric: null}"
    run = h.make(h.spec_of(h.odd("trainer.epochs=5", stop)))
    assert (run["n_epochs"], run["selected"]["epoch"], run["status"]) == (4, 2, "finished")


def test_a_run_ends_where_validation_has_reached_the_value(monkeypatch):
    """Test stands at ten times validation, far from the value, and is scored for the curve up to the end."""
    scripted(monkeypatch, [3.0, 1.0, 0.5, 0.1, 0.05])
    stop = "trainer.stop={_target_: physml.training.selection.Reached, value: 0.5, metric: null}"
    spec = h.spec_of(h.odd("trainer.epochs=5", "trainer.test_every=1", f"{SELECT}.Last", stop))
    run = h.make(spec)
    assert (run["n_epochs"], run["n_steps"], run["selected"]["epoch"]) == (3, 12, 3)
    assert [float(row["test/mse"]) for row in h.curve(spec)] == [30.0, 10.0, 5.0]
