"""The bench of products of bfloat16, at tiny sizes. No time is asserted."""

import json
from pathlib import Path

import pytest
import torch

from physml.ops.lem.native import SOURCE
from physml.ops.native.library import Unavailable, load
from scripts.bench import bf16, rounds

TINY = ["--hidden", "5", "--steps", "3", "--batch", "2", "--rounds", "1"]


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    try:
        load(SOURCE, torch.float32)
    except Unavailable as reason:
        pytest.skip(str(reason))
    monkeypatch.setattr(bf16, "LAYERS", {"LEM": bf16.LAYERS["LEM"]})  # the others take seconds to compile
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    monkeypatch.setattr(rounds, "SAMPLE_S", 0.0)  # one call is a sample
    return tmp_path / "bench"


def test_both_precisions_are_timed_and_differ(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert bf16.main(TINY) == 0
    (path,) = results.glob("bf16-*.json")
    (case,) = json.loads(path.read_text())["cases"]
    assert all("ms" in case["precisions"][name] for name in bf16.PRECISIONS)
    assert 1e-4 < case["apart"] < 0.1  # both precisions were computed, of the same thing
    table = path.with_suffix(".md").read_text()
    assert "| LEM, H5 B2 T3 " in table and "fp32 / bf16-products" in capsys.readouterr().out
