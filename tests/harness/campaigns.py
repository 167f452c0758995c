"""Rounds of `python -m scripts.campaign` with a fixed seed."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from physml.base.paths import ROOT


def rounds_of(rounds: dict[str, int], out: Path) -> list[dict[str, Any]]:
    """What so many rounds of each kind have found, without a fault.

    All in one process, as its imports take longest.
    """
    command = [sys.executable, "-m", "scripts.campaign", *rounds, "--seed", "7", "--out", str(out)]
    command += ["--rounds", *map(str, rounds.values())]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    results = [json.loads(line) for line in out.read_text().splitlines()] if out.exists() else []
    assert [entry for entry in results if entry["fault"]] == []
    assert len(results) == sum(rounds.values()), done.stderr[-3000:]
    assert done.returncode == 0
    return results
