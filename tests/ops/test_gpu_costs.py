"""Costs of kernels for a GPU that need not be here: those of tests/golden/gpu.json, and some anew."""

import json
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("triton", reason="triton is not installed")

from dataclasses import replace

from variants import variants

from physml.ops.lem import triton as lem_gpu
from physml.ops.triton import launch
from scripts import gpu_costs

GOLDEN = json.loads(gpu_costs.GOLDEN.read_text())
CASES = GOLDEN["cases"]
SHARED = {"80": 163 << 10, "90": launch.SHARED, "100": launch.SHARED}
DIAGONAL = ("lru", "s5", "linoss", "min_gru", "min_lstm", "sru", "indrnn")  # no product between two steps
QUICK = ("lem H16", "unicornn H32 B8", "min_lstm", "lru", "slstm", "cornn H256")


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))


def costs(case: str) -> list[tuple[str, dict[str, int]]]:
    """Of every kernel of a case on every GPU."""
    return [
        (sm, dict(zip(gpu_costs.COSTS, numbers, strict=True)))
        for kernel in CASES[case]["kernels"].values()
        for sm, numbers in kernel.items()
    ]


def same_triton() -> None:
    if (here := version("triton")) != GOLDEN["triton"]:
        pytest.skip(f"the file is of Triton {GOLDEN['triton']}, this is {here}")


@pytest.mark.parametrize("case", CASES)
def test_kernels_fit_and_do_not_spill(case: str) -> None:
    """Tiles of four matrices fill the registers to the brim; a few numbers more do no harm."""
    for sm, cost in costs(case):
        assert cost["shared"] <= SHARED[sm]
        assert cost["spilled"] <= (128 if case == "lem H128 B1024 bfloat16" else 0)


@pytest.mark.parametrize(
    "case", [*DIAGONAL, *(f"lem H{H}" for H in (16, 128)), "cornn H128", "unicornn H32 B8"]
)
def test_steps_in_one_kernel_launch_nothing(case: str) -> None:
    assert set(CASES[case]["launches"].values()) == {0}
    assert CASES[case]["weights"] == 0


@pytest.mark.parametrize(("case", "matrices"), [("lem H64", 0), ("lem H128", 2), ("cornn H128", 0)])
def test_weights_are_kept_in_registers(case: str, matrices: int) -> None:
    """All but two of LEM's four with 128 units; inputs are a few KiB."""
    for _, cost in costs(case):
        assert 0 < cost["loaded"] - matrices * 4 * 128**2 <= 8 << 10


@pytest.mark.parametrize("case", variants(QUICK, CASES))
def test_costs_are_those_of_the_file(case: str, request: pytest.FixtureRequest) -> None:
    same_triton()
    architectures = gpu_costs.ARCHITECTURES if request.config.getoption("grid") else (90,)
    record = gpu_costs.measured(case, architectures)
    assert record is not None
    known: dict[str, Any] = {**CASES[case]}
    known["kernels"] = {
        name: {str(sm): kernel[str(sm)] for sm in architectures} for name, kernel in known["kernels"].items()
    }
    assert list(gpu_costs.differences(known, record, case)) == []


def test_a_plan_that_keeps_less_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    same_triton()
    monkeypatch.setattr(lem_gpu, "plan", lambda *sizes: replace(launch.plan(*sizes), KEPT=3))
    record = gpu_costs.measured("lem H16", (90,))
    before = {name: kernel["90"] for name, kernel in CASES["lem H16"]["kernels"].items()}
    for name, kernel in record["kernels"].items():
        assert kernel["90"][-1] >= before[name][-1] + 4 * 16**2
    assert len(list(gpu_costs.differences(CASES["lem H16"], record, "lem H16"))) >= 2


@pytest.mark.parametrize("case", ["unicornn H256 B128", "min_gru"])
def test_scans_fetch_ahead(case: str) -> None:
    for launched in gpu_costs.recorded(gpu_costs.cases()[case], 4).launches.values():
        assert "cp.async" in gpu_costs.compiled(launched, 90).asm["ptx"]
