"""Weights that come with physml: each is the network of a recorded run, and the docs name it."""

import hashlib
import json
import re
from pathlib import Path

import pytest

import physml
from physml.base.paths import OWN_RESULTS, ROOT
from physml.export import keeping
from physml.records import record
from physml.run.record import count_parameters
from physml.run.weights import SUFFIX

WEIGHTS = OWN_RESULTS / "weights"
CARDS = sorted(WEIGHTS.rglob("*.json"))


def name_of(card: Path) -> str:
    return card.relative_to(WEIGHTS).with_suffix("").as_posix()


@pytest.mark.parametrize("card", CARDS, ids=name_of)
def test_a_kept_network_is_that_of_its_record(card: Path) -> None:
    weights, content = card.with_suffix(SUFFIX), json.loads(card.read_text(encoding="utf-8"))
    assert hashlib.sha256(weights.read_bytes()).hexdigest() == content["sha256"]
    assert count_parameters(physml.load(name_of(card))) == content["n_parameters"]
    keys = ("identity", "split", "seed")
    (recorded,) = [
        run
        for run in record.records(name_of(card), [OWN_RESULTS])
        if all(run[key] == content[key] for key in keys)  # type: ignore[literal-required]
    ]
    for name, value in recorded["metrics"]["best"]["test"].items():
        assert content["evaluated"][name] == pytest.approx(value, rel=keeping.AGREE), name
    assert recorded["metrics"]["best"] == content["metrics"]["best"]


def test_all_are_small_and_named_in_the_docs() -> None:
    assert {path.with_suffix(".json") for path in WEIGHTS.rglob(f"*{SUFFIX}")} == set(CARDS)
    assert sum(path.stat().st_size for path in WEIGHTS.rglob("*")) <= keeping.MOST
    rows = re.findall(r"^\| `(\w+/[\w-]+)` \| ", (ROOT / "docs" / "export.md").read_text("utf-8"), re.M)
    assert rows == [name_of(card) for card in CARDS]
