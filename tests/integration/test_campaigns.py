"""The campaigns, `python -m scripts.campaign`, with a few rounds of a fixed seed."""

import json
import subprocess
import sys
from pathlib import Path

from physml.base.paths import ROOT

READERS = 10  # of 29, which the rounds take in turn
ROUNDS = {"lines": 1, "yaml": 1, "files": READERS, "shared": 2, "kills": 2}


def test_campaigns_find_no_fault(tmp_path: Path) -> None:
    """All kinds in one process, as its imports take longest."""
    out = tmp_path / "rounds.jsonl"
    command = [sys.executable, "-m", "scripts.campaign", *ROUNDS, "--seed", "7", "--out", str(out)]
    command += ["--rounds", *map(str, ROUNDS.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert [entry for entry in results if entry["fault"]] == []
    assert len(results) == sum(ROUNDS.values()), done.stderr[-3000:]
    assert done.returncode == 0
    read = [entry for entry in results if entry["kind"] == "files"]
    assert len({entry["reader"] for entry in read}) == READERS
    assert sum(entry["counts"]["refused"] for entry in read) > READERS
