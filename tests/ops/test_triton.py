"""Triton kernels in Triton's interpreter, where there is no GPU; and plans of launches."""

import os
import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from physml.ops.triton import launch

pytest.importorskip("triton", reason="triton is not installed")


def test_in_the_interpreter(request: pytest.FixtureRequest) -> None:
    tests = [str(Path(__file__).with_name(f"{name}_interpreted.py")) for name in ("triton", "cells")]
    grid = ["--grid"] if request.config.getoption("grid") else []
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *grid, *tests],
        env={**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"\d+ passed", done.stdout)


def test_without_a_gpu_the_backend_says_so() -> None:
    from physml.ops.lem import triton

    u, state, W, V, b = (torch.zeros(*size) for size in ((1, 1, 1), (1, 1), (1, 1), (2, 1), (2,)))
    assert triton.refusal(u, state, state, W, W, V, b) == "backend triton runs on a GPU; got a tensor on cpu"


def test_plans_of_launches(monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows for few sequences, tiles for many where the matrix units may be used, else cuBLAS."""
    full, half = torch.empty(0), torch.empty(0, dtype=torch.bfloat16)
    assert launch.plan(128, 128, 4, full) == launch.Plan(False, "ieee", 2, 1, 128, 8)
    assert launch.plan(8, 32, 4, full) == launch.Plan(False, "ieee", 4, 1, 32, 1)
    assert launch.plan(120, 256, 2, full) is None
    assert launch.plan(4096, 64, 4, full) is None
    many = launch.plan(4096, 64, 4, half)
    assert many == launch.Plan(True, "ieee", 4, 16, 64, 4)
    assert many.programs(4090) == (256,)
    assert replace(many, M=1).programs(4090) == (4090,)
    assert launch.plan(600, 128, 4, half) == launch.Plan(True, "ieee", 4, 16, 128, 8)
    monkeypatch.setattr(launch, "shared_memory", lambda device: 99 << 10)
    assert launch.plan(600, 128, 4, half) == launch.Plan(False, "ieee", 2, 1, 128, 8)
