"""The benches of single steps and of the choice of backends, at tiny sizes. No time is asserted."""

import builtins
import json
from pathlib import Path

import pytest
import torch
from c_compiler import needs_compiler

from scripts.bench import dispatch, streaming


@pytest.fixture(autouse=True)
def quick(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
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
def test_without_onnxruntime_the_others_are_timed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], results: Path
) -> None:
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


def test_an_op_that_is_not_there_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert dispatch.main(["--op", "lstm"]) == 2
    assert "op must be among" in capsys.readouterr().err
