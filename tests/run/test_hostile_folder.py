"""A short form of scripts/hostile.py: hostile files in place of those of a run, and a command after each."""

import json
import subprocess
import sys

from physml.base.paths import ROOT


def test_hostile_files_are_refused_or_ignored(tmp_path):
    out = tmp_path / "rounds.jsonl"
    command = [sys.executable, str(ROOT / "scripts" / "hostile.py"), "--rounds", "4", "--seed", "7"]
    done = subprocess.run(
        [*command, "--out", str(out)], cwd=tmp_path, capture_output=True, text=True, check=False
    )
    made = [json.loads(line) for line in out.read_text().splitlines()]
    assert len(made) == 4, done.stderr
    assert [one for one in made if one["fault"]] == []
    assert done.returncode == 0
