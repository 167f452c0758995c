"""A short form of each campaign: `python -m scripts.campaign KIND`, with a few rounds of a fixed seed."""

import json
import subprocess
import sys

import pytest

from physml.base.paths import ROOT

READERS = 10  # of 29, which the rounds take in turn


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kinds", "rounds"), [(("lines", "yaml", "shared"), 1), (("files",), READERS), (("kills",), 1)]
)
def test_a_campaign_finds_no_fault(kinds, rounds, tmp_path):
    out = tmp_path / "rounds.jsonl"
    command = [sys.executable, "-m", "scripts.campaign", *kinds, "--rounds", str(rounds), "--seed", "7"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=ROOT, capture_output=True, text=True, check=False
    )
    made = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert len(made) == rounds * len(kinds), done.stderr[-3000:]
    assert [one for one in made if one["fault"]] == []
    assert done.returncode == 0
    if kinds == ("files",):
        assert len({one["reader"] for one in made}) == READERS
        assert sum(one["counts"]["refused"] for one in made) > READERS
