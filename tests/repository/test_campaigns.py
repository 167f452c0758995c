"""A short form of the campaigns: `python -m scripts.campaign`, with a few rounds of a fixed seed.

Those that train first, and kill, are tests/integration/test_campaigns.py.
"""

import pytest
from campaigns import rounds_of

READERS = 10  # of 29, which the rounds take in turn


@pytest.mark.slow
def test_campaigns_find_no_fault(tmp_path):
    rounds = rounds_of({"lines": 1, "yaml": 1, "files": READERS}, tmp_path / "rounds.jsonl")
    read = [entry for entry in rounds if entry["kind"] == "files"]
    assert len({entry["reader"] for entry in read}) == READERS
    assert sum(entry["counts"]["refused"] for entry in read) > READERS
