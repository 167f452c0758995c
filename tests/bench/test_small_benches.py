"""Benches of bfloat16, packing, single steps and choice of backends, at tiny sizes. No time is asserted."""

import builtins
import json
import os
from pathlib import Path

import pytest
import torch
from c_compiler import needs_compiler

from physml.queue import scheduler
from scripts.bench import bf16, dispatch, packing, streaming


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dispatch, "SAMPLE_S", 0.0)


@pytest.mark.grid
def test_every_variant_of_a_step_is_timed(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert streaming.main(["--hidden", "5", "--rounds", "3", "--batch", "2"]) == 0
    (path,) = results.glob("streaming-*.json")
    cases = json.loads(path.read_text())["cases"]
    assert [case["recurrence"] for case in cases] == list(streaming.RECURRENCES)
    for case in cases:
        assert set(case["variants"]) == set(streaming.VARIANTS)
        assert all("ms" in case["variants"][name] for name in ("layer", "step", "cell", "lstm"))
    assert "layer / cell" in capsys.readouterr().out
    assert "layer / cell" in path.with_suffix(".md").read_text()


@pytest.mark.grid
def test_without_onnxruntime_the_others_are_timed(monkeypatch, capsys, results: Path) -> None:
    real = builtins.__import__

    def without(name: str, *arguments: object, **keywords: object) -> object:
        if name.startswith("onnx"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return real(name, *arguments, **keywords)  # type: ignore[arg-type]

    monkeypatch.setattr(builtins, "__import__", without)
    assert streaming.main(["--hidden", "5", "--rounds", "3", "--no-write"]) == 0
    assert "Not run: onnxruntime LSTM: onnxruntime is not installed" in capsys.readouterr().out
    assert not results.exists()


@pytest.mark.parametrize("name", streaming.RECURRENCES)
def test_ours_and_the_plain_cell_are_the_same_map(name: str) -> None:
    workload = streaming.Workload(name, name, name, 1, 2, 3, 4, settings=streaming.RECURRENCES[name])
    with torch.no_grad():
        first = streaming._cell(workload)()[0]  # type: ignore[index]
        ours = streaming.layer(workload, "reference")(streaming._input(workload).unsqueeze(1))[0].squeeze(1)
    torch.testing.assert_close(first, ours)


def test_choices_are_compared_with_all_backends(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    needs_compiler()
    sizes = ["--op", "lem,cell", "--hidden", "5", "--batch", "2", "--steps", "3", "--rounds", "1"]
    assert dispatch.main(sizes) == 0
    (path,) = results.glob("dispatch-*.json")
    cells = json.loads(path.read_text())["cells"]
    assert len(cells) == 2 * 2
    for cell in cells:
        assert {"reference", "native"} <= set(cell["ms"]) <= set(dispatch.BACKENDS)
        assert cell["auto"] in dispatch.BACKENDS
        assert cell["beaten"] >= 1
    assert "auto chooses" in capsys.readouterr().out


TINY = ["--hidden", "5", "--steps", "3", "--batch", "2", "--rounds", "1"]


def test_both_precisions_are_timed_and_differ(results: Path, monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    needs_compiler()
    monkeypatch.setattr(bf16, "LAYERS", {"LEM": bf16.LAYERS["LEM"]})  # the others take seconds to compile
    assert bf16.main(TINY) == 0
    (path,) = results.glob("bf16-*.json")
    (case,) = json.loads(path.read_text())["cases"]
    assert all("ms" in case["precisions"][name] for name in bf16.PRECISIONS)
    assert 1e-4 < case["apart"] < 0.1  # both precisions were computed, of the same thing
    table = path.with_suffix(".md").read_text()
    assert "| LEM, H5 B2 T3 " in table and "fp32 / bf16-products" in capsys.readouterr().out


PACKED = ("profile=smoke", "--epochs", "1", "--rounds", "2", "--runs", "2")


@pytest.fixture
def carried_out(monkeypatch):
    """What the launcher was asked for: the number of runs to do, and how many at a time."""
    calls, real = [], scheduler.carry_out

    def carry_out(planned, *, jobs):
        calls.append((sum(row.todo for row in planned), jobs))
        return real(planned, jobs=jobs)

    monkeypatch.setattr(scheduler, "carry_out", carry_out)
    return calls


@pytest.mark.grid
def test_both_ways_make_the_same_runs(forked, carried_out, roots, capsys):
    before = dict(os.environ)
    assert packing.main(PACKED) == 0
    assert dict(os.environ) == before
    assert carried_out == [(1, 1), (2, 1), (2, None), (2, 1), (2, None)]
    (path,) = (roots / "results").rglob("*.json")
    report = json.loads(path.read_text())
    assert {way: len(rounds) for way, rounds in report["ways"].items()} == {"one at a time": 2, "auto": 2}
    assert all(timing["clock_s"] > 0 for rounds in report["ways"].values() for timing in rounds)
    said = capsys.readouterr().out
    assert "runs per hour" in said and "auto against one at a time: " in said
    assert not (roots / "runs").exists()


def test_an_op_and_an_experiment_that_are_not_there_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch.main(["--op", "lstm"]) == 2
    assert "op must be among" in capsys.readouterr().err
    assert packing.main(["--experiment", "lem/fitzhugh"]) == 2
    assert "there is no experiment named lem/fitzhugh" in capsys.readouterr().err


def test_runs_that_fail_are_no_measurement(forked, roots, capsys):
    assert packing.main([*PACKED, "split=7"]) == 1
    assert "error: not all runs came to their end" in capsys.readouterr().err
    assert not list((roots / "results").rglob("packing-*.json"))
