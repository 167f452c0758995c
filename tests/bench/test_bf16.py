"""The bench of products of bfloat16, at tiny sizes. No time is asserted."""

import json
from pathlib import Path

import pytest
from c_compiler import needs_compiler

from scripts.bench import bf16

TINY = ["--hidden", "5", "--steps", "3", "--batch", "2", "--rounds", "1"]


def test_both_precisions_are_timed_and_differ(
    results: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    needs_compiler()
    monkeypatch.setattr(bf16, "LAYERS", {"LEM": bf16.LAYERS["LEM"]})  # the others take seconds to compile
    assert bf16.main(TINY) == 0
    (path,) = results.glob("bf16-*.json")
    (case,) = json.loads(path.read_text())["cases"]
    assert all("ms" in case["precisions"][name] for name in bf16.PRECISIONS)
    assert 1e-4 < case["apart"] < 0.1  # both precisions were computed, of the same thing
    table = path.with_suffix(".md").read_text()
    assert "| LEM, H5 B2 T3 " in table and "fp32 / bf16-products" in capsys.readouterr().out
