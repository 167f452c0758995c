"""A run that was trained again: equal, explained by rounding, or different and why."""

from pathlib import Path
from typing import Any

import pytest
from made_records import finished

from physml.base import files
from physml.records import curves
from physml.report.compare.rerun import dirty, rounding_of, start_of, verdict


def made(value: float = 1.0, **changes: Any) -> Any:
    scores = {"valid": {"rmse": value}, "test": {"rmse": value}}
    record = {
        "metrics": {"best": scores, "last": scores}, "hashed": {"model": {"d_hidden": 3}},
        "selected": {"rule": "min valid/rmse", "step": 100, "epoch": 10}, "packages": {"torch": "2.14.1"},
        "n_steps": 100, "n_epochs": 10, "n_parameters": 33, "precision": "fp32", "backend": "native",
        "data": {"version": 1, "fingerprint": "matches", "files": [{"name": "a.zip", "sha256": "0f"}]},
        "code": {"commit": "a" * 40, "dirty": False, "version": "0.1.0"},
        "machine": {"device": "cpu", "cpu": "AMD EPYC", "threads": 1, "deterministic": False},
    }  # fmt: skip
    return finished("lem/adding-lem", **record | changes)


SEEDS = [made(value) for value in (0.9, 1.0, 1.1, 0.95, 1.05)]
OTHER = {"backend": "torch"}
GONE = {"valid": {"rmse": 1.0}, "test": {"rmse": None}}
DIVERGED = {"status": "diverged", "reason": "loss is nan"}
EARLIER = {"selected": made()["selected"] | {"step": 90}, **OTHER}


def test_equal_numbers_are_equal_whatever_computed_them_and_rounding_grows_up_to_a_limit() -> None:
    same = "equal to the bit: all 2 scores, the selected step and the number of steps."
    for changes, other in ((OTHER, " Other than recorded: backend torch, was native."), ({}, "")):
        judged = verdict(made(), made(**changes), SEEDS)
        assert (judged.outcome, judged.sentence) == ("equal", same + other)
    assert rounding_of(made()) == 100 * 2.0**-23
    unsaid = {key: value for key, value in made().items() if key != "precision"}
    assert "rounding over 100 steps in fp32" in verdict(unsaid, made(1 + 1e-6)).sentence
    assert rounding_of(made(precision="bf16")) == rounding_of(made(n_steps=10**6)) == 0.01
    old = made(code={"commit": "a" * 40, "dirty": True}, path="a.json")
    assert dirty(made()) is None and "uncommitted code" in str(dirty(old))
    assert "the code then, with changes that were not committed" in verdict(old, made(1.00001)).sentence
    assert "the code now, with changes that are not committed" in verdict(made(), old).sentence


@pytest.mark.parametrize(
    ("value", "changes", "seeds", "outcome", "says"),
    [
        (1 + 1e-6, OTHER, [], "within", "below 1.2e-05 (rounding over 100 steps in fp32)"),
        (1 + 1e-6, {}, [], "within", "within rounding: "),
        (1 + 1e-6, {}, [], "within", "Processors of one name (AMD EPYC) can differ"),
        (1.1, OTHER, SEEDS, "within", "95 % of pairs of seeds differ by less, by the 5 recorded"),
        (1.1, {}, SEEDS, "different", "are as recorded. Processors of one name"),
        (1.1, OTHER, SEEDS[:2], "different", "2 recorded seeds on this split, too few for a spread"),
        (3.0, OTHER, SEEDS, "different", "backend torch, was native"),
        (1 + 1e-6, {"n_parameters": 34}, SEEDS, "different", "n_parameters 34, was 33"),
        (1 + 1e-6, {"data": made()["data"] | {"version": 2}}, SEEDS, "different", "data version 2, was 1"),
        (1 + 1e-6, {"data": made()["data"] | {"fingerprint": "differs: 0.1"}}, SEEDS, "different", "differs"),
        # sd of the five is 0.0791; t(4) at 1 - 0.05 / 2 in all is 3.495: 3.495 * 0.0791 * sqrt(2) = 0.391
        (1.38, OTHER, SEEDS, "within", ""),
        (1.40, OTHER, SEEDS, "different", ""),
        (1.0, DIVERGED, SEEDS, "different", "is diverged (loss is nan); the recorded one"),
        (1.0, {"metrics": {"best": GONE, "last": GONE}, **OTHER}, SEEDS, "different", ""),
        (1.0, EARLIER, SEEDS, "within", "selected.step 90, was 100"),
    ],
)
def test_the_size_of_a_difference_decides_with_what_the_records_tell(value, changes, seeds, outcome, says):
    judged = verdict(made(), made(value, **changes), seeds)
    assert (judged.outcome, says in judged.sentence) == (outcome, True), judged.sentence


def test_curves_that_do_not_start_together_are_no_rounding(tmp_path: Path) -> None:
    def kept(name: str, loss: float) -> Any:
        rows = [{"step": 4, "epoch": 1, "train/loss": loss}, {"step": 8, "epoch": 2, "train/loss": 9 * loss}]
        path = tmp_path / f"{name}.curve.csv.gz"
        files.write(path, lambda file: file.write(curves.curve_csv(rows)))
        return made(1.0 if name == "old" else 1.1, curve=path.name, path=str(tmp_path / f"{name}.json"))

    old, near, far = kept("old", 0.5), kept("near", 0.5001), kept("far", 0.6)
    assert start_of(old, near) == (4, pytest.approx(2e-4, rel=1e-3))
    assert verdict(old, near | OTHER, SEEDS).outcome == "within"
    judged = verdict(old, far | OTHER, SEEDS)
    assert judged.outcome == "different" and "The curves start not together: 0.2 apart" in judged.sentence
