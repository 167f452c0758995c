"""A short form of the campaigns: `python -m scripts.campaign`, with a few rounds of a fixed seed."""

import json
import subprocess
import sys

import pytest

from physml.base.paths import ROOT

READERS = 10  # of 29, which the rounds take in turn
ROUNDS = {"lines": 1, "yaml": 1, "shared": 1, "files": READERS, "kills": 1}


@pytest.mark.slow
def test_campaigns_find_no_fault(tmp_path):
    """All in one process, as it imports everything first."""
    out = tmp_path / "rounds.jsonl"
    command = [sys.executable, "-m", "scripts.campaign", *ROUNDS, "--seed", "7", "--out", str(out)]
    command += ["--rounds", *map(str, ROUNDS.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    rounds = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert [entry for entry in rounds if entry["fault"]] == []
    assert len(rounds) == sum(ROUNDS.values()), done.stderr[-3000:]
    assert done.returncode == 0
    read = [entry for entry in rounds if entry["kind"] == "files"]
    assert len({entry["reader"] for entry in read}) == READERS
    assert sum(entry["counts"]["refused"] for entry in read) > READERS
