"""`python -m scripts.bench.check_backends`: what it says, writes and returns."""

import itertools
import json
from pathlib import Path
from typing import Any

import pytest
import torch

from physml.ops.lem import OP, autograd
from scripts.bench import check_backends


@pytest.mark.parametrize(
    "workloads",
    [
        ("cornn-psmnist-128", "lem-fhn", "unicornn-psmnist", "cell-midpoint"),
        pytest.param((), marks=pytest.mark.grid, id="all"),
    ],
)
def test_small_sizes_pass_and_are_written(workloads: tuple[str, ...], tmp_path: Path, capsys) -> None:
    out = tmp_path / "new" / "errors.json"
    chosen = ["--backend", "reference", "--backend", "torch", "--backend", "triton"]
    chosen += [word for name in workloads for word in ("--workload", name)]
    assert check_backends.main(["--quick", *chosen, "--out", str(out)]) == 0
    printed = capsys.readouterr().out
    assert "Not tried: triton: backend triton runs on a GPU; got a tensor on cpu." in printed
    assert "All right." in printed
    report = json.loads(out.read_text())
    assert report["passed"]
    assert {row["workload"] for row in report["rows"]} == set(
        workloads or (w.name for w in check_backends.CHECKED)
    )
    assert {row["backend"] for row in report["rows"]} == {"reference", "torch"}
    for row in report["rows"]:
        assert 0 < row["gradient"] < 1e-5
        assert row["repeats"] is (None if row["backend"] == "reference" else True)


CALLS = itertools.count()


def wrong(u, y, *rest, **constants):
    """The gradient of y is 0.1 % too large."""
    return autograd.lem(u, y + 1e-3 * (y - y.detach()), *rest, **constants)


def wavering(u, *rest, **constants):
    return autograd.lem(u + 1e-7 * (next(CALLS) % 2), *rest, **constants)


@pytest.mark.parametrize(
    ("backend", "words"), [(wrong, ("y0", "FAIL")), (wavering, ("OTHER BITS THE SECOND TIME",))]
)
def test_a_wrong_gradient_and_other_bits_the_second_time_fail(
    backend: Any, words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(OP.at_hand, "torch", backend)
    assert check_backends.main(["--quick", "--workload", "lem-fhn", "--backend", "torch"]) == 1
    printed = capsys.readouterr().out
    assert all(word in printed for word in words)


def test_what_is_not_a_number_fails_and_nothing_tried_is_no_success(capsys) -> None:
    assert check_backends.relative_error(torch.tensor([1.0, float("nan")]), torch.ones(2)) == float("inf")
    assert check_backends.main(["--quick", "--workload", "lem-fhn", "--backend", "triton"]) == 1
    assert "Nothing was tried." in capsys.readouterr().out


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_without_a_gpu_it_says_so(capsys: pytest.CaptureFixture[str]) -> None:
    assert check_backends.main(["--device", "cuda"]) == 2
    assert capsys.readouterr().out.count("\n") == 1
