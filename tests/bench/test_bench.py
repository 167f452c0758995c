"""The bench: it counts what it says, compares like with like, and loses no result. No time is asserted."""

import dataclasses
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refuses
from torch.utils.flop_counter import FlopCounterMode

from physml.base import files
from physml.base.errors import InputError
from physml.base.paths import ROOT
from physml.records import provenance
from scripts.bench import check_backends, gemm, growth, keeping, memory, plot, report, run, store, targets
from scripts.bench.official import OfficialLoop
from scripts.bench.rounds import interleave, plan, sample
from scripts.bench.variants import VARIANTS, Step, batch, layer, step_of
from scripts.bench.workloads import WORKLOADS, Workload

SMALL = {"T": 5, "B": 3, "D": 2, "H": 7}
SMALL_ONES = tuple(w.with_sizes(SMALL) for w in WORKLOADS)
OFFICIAL = [w for w in SMALL_ONES if w.name in ("cornn-psmnist-128", "cornn-ncifar", "lem-fhn")]
pytestmark = pytest.mark.usefixtures("results")
by_name = pytest.mark.parametrize("workload", SMALL_ONES, ids=lambda w: w.name)
ONCE = ["--workload", "lem-fhn", "--rounds", "1", "--budget-s", "0", "--passes"]


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """The whole bench at tiny sizes."""
    monkeypatch.setattr(run, "WORKLOADS", SMALL_ONES)
    monkeypatch.setattr(growth, "MIDDLE", (growth.MIDDLE[1].with_sizes(SMALL),))
    monkeypatch.setattr(growth, "SWEEPS", {"T": (2, 4)})
    monkeypatch.setattr(gemm, "CPU_SHAPES", gemm.CPU_SHAPES[1:2])
    monkeypatch.setattr(keeping, "refusal", lambda _: "not here")  # no further process


# ---------------------------------------------------------------------------- what is compared


@pytest.mark.parametrize("workload", OFFICIAL, ids=lambda w: w.name)
def test_the_loop_of_the_official_code_is_the_same_map(workload: Workload) -> None:
    own = layer(workload, "reference")
    loop = OfficialLoop(own).double()  # type: ignore[arg-type]
    u = batch(workload)[0].double()
    (expected, last), (got, end) = own.double()(u), loop(u)
    torch.testing.assert_close(got, expected, rtol=1e-12, atol=1e-12)
    torch.testing.assert_close(end, last, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("workload", OFFICIAL, ids=lambda w: w.name)
def test_the_authors_cell_is_taken_from_a_clone(workload: Workload, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.delenv("PHYSML_OFFICIAL", raising=False)
    refuses(InputError, "PHYSML_OFFICIAL names no folder", step_of, workload, "authors", "cpu")
    monkeypatch.setenv("PHYSML_OFFICIAL", str(tmp_path))
    refuses(InputError, r"PHYSML_OFFICIAL has no .*network\.py", step_of, workload, "authors", "cpu")
    cell = """
from torch import nn
class LEMCell(nn.Linear):
    def __init__(self, n_in, n_hidden, *settings):
        super().__init__(n_in, n_hidden)
    def forward(self, u, y, z):
        return super().forward(u) + y, z
coRNNCell = LEMCell
"""
    for folder in ("LEM/src/psMNIST", "coRNN/psMNIST", "coRNN/noisy_CIFAR10"):
        files.write_text(tmp_path / folder / "network.py", cell)
    step_of(workload, "authors", "cpu")()


@by_name
def test_jax_computes_the_same(workload: Workload) -> None:
    pytest.importorskip("jax")
    reference = Step(workload, "reference")
    outputs, gradients = step_of(workload, "jax", "cpu")()  # type: ignore[misc]
    path = torch.from_numpy(np.array(outputs)).transpose(0, 1)
    torch.testing.assert_close(path, reference.module(reference.u)[0], rtol=1e-4, atol=1e-5)
    jax_gradients = {name: torch.from_numpy(np.array(g)) for name, g in gradients.items()}
    assert check_backends.worst(jax_gradients, reference.gradients())["error"] < 1e-4


@pytest.mark.parametrize("n_layers", [1, 2])
def test_onnxruntime_computes_the_same(n_layers: int) -> None:
    pytest.importorskip("onnxruntime")
    from scripts.bench.in_onnx import OnnxStep

    lstm, u = torch.nn.LSTM(2, 7, n_layers, batch_first=True), torch.randn(3, 5, 2)
    path = torch.from_numpy(OnnxStep(lstm, u, "cpu")()).transpose(0, 1)
    torch.testing.assert_close(path, lstm(u)[0], rtol=1e-4, atol=1e-5)


@pytest.mark.grid
def test_what_is_absent_is_a_reason(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    for package in ("jax", "onnxruntime"):
        monkeypatch.setitem(sys.modules, package, None)
    result = run.bench(run.parser().parse_args([*ONCE, "time,inference"]))
    fhn = result["workloads"]["lem-fhn"]
    assert "pip install 'jax>=0.4.35'" in fhn["variants"]["jax"]["not_run"]
    onnx = "pip install 'onnx>=1.17' 'onnxruntime>=1.20' 'onnxscript>=0.5'"
    assert onnx in fhn["inference"]["variants"]["onnx"]["not_run"]
    text = report.markdown({**result, "targets": []}, "cpu")
    assert "the variant jax needs jax" in text and "the variant onnx needs onnxruntime" in text


def test_a_process_that_keeps_its_memory_times_the_same_steps() -> None:
    if reason := keeping.refusal("cpu"):
        pytest.skip(reason)
    assert keeping.refusal("cuda")
    with keeping.steps_kept(SMALL_ONES[0], ["lstm", "triton"], "cpu", 1) as (steps, refused):
        assert "runs on a GPU" in refused["triton"]["not_run"]
        ms, wall_ms = sample(steps["lstm"], 2, "cpu")
        assert ms > 0 and wall_ms > 0
        steps["lstm"].connection.send(("no such step", 1))  # type: ignore[attr-defined]
        assert isinstance(steps["lstm"].connection.recv(), str)  # type: ignore[attr-defined]
    assert "GLIBC_TUNABLES" not in os.environ


@by_name
def test_operations_are_those_that_torch_counts(workload: Workload) -> None:
    step = Step(workload, "reference")
    with FlopCounterMode(display=False) as counter:
        step()
    at_rest = {"cornn": 2, "lem": 3, "unicornn": 0}[workload.recurrence]  # products with the first state,
    no_gradient = 2 * workload.B * at_rest * workload.H**2  # which needs no gradient
    assert counter.get_total_flops() == workload.flops - no_gradient


def test_the_limits_of_known_cases_and_a_slope_is_an_exponent() -> None:
    # Milliseconds at 101 GFLOP/s.
    limits = {w.name: round(w.flops / 101e6) for w in WORKLOADS}
    assert limits == {
        "cornn-psmnist-128": 184,
        "cornn-psmnist-256": 734,
        "cornn-ncifar": 243,
        "lem-smnist": 393,
        "lem-fhn": 2,
        "lem-eigenworms": 39,
        "lem-ptb": 5183,
        "unicornn-psmnist": 196,
        "unicornn-eigenworms": 10,
    }
    assert growth.slope((1, 2, 4), (3.0, 12.0, 48.0)) == 2.0


@by_name
def test_every_variant_has_the_same_weights_and_batch(workload: Workload) -> None:
    errors = check_backends.gradient_errors(workload, ["reference", "torch"], "cpu")
    assert all(entry["error"] < 1e-4 for entry in errors.values()), errors


def test_a_wrong_gradient_is_seen() -> None:
    gradients = Step(SMALL_ONES[0], "reference").gradients()
    wrong = {**gradients, "b": gradients["b"] * 1.01}
    assert check_backends.worst(wrong, gradients) == {"error": 0.01, "parameter": "b"}


def test_products_of_the_kernels_are_products() -> None:
    library = gemm._library()
    if library is None:
        pytest.skip("no C compiler")
    a, b = torch.randn(13, 40), torch.randn(40, 96)
    torch.testing.assert_close(gemm._native(library, a, b)(), a @ b, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("no_compiler")
def test_no_compiler_is_a_reason(capsys: pytest.CaptureFixture[str]) -> None:
    assert run.main(["--quick", "--workload", "lem-fhn", "--passes", "time"]) == 0
    out = capsys.readouterr().out
    assert "native: backend='native'" in out or "no C compiler" in out
    assert "GFLOP/s of torch" in out and "of native" not in out


# ---------------------------------------------------------------------------- rounds


def test_everyone_runs_in_turn_and_a_failure_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("scripts.bench.rounds.plan", lambda *_: {"a": 6, "b": 3})
    order = []

    def sample(step: Callable[[], object], *_: object) -> tuple[float, float]:
        step()
        return 1.0, 50.0

    def broken() -> None:
        raise RuntimeError("out of memory\nand much more")

    monkeypatch.setattr("scripts.bench.rounds.sample", sample)
    steps: dict[str, Callable[[], object]] = {
        "a": lambda: order.append("a"),
        "broken": broken,
        "b": lambda: order.append("b"),
    }
    timings = interleave(steps, rounds=6, budget_s=1)
    assert timings["broken"] == {"not_run": "out of memory"}
    assert "".join(order) == "ab" + "a" + "ba" + "a" + "ba" + "a" + "ba"  # the first call is a warm-up
    a, b = timings["a"], timings["b"]
    assert (a["n"], b["n"], a["ms"], a["wall_ms"]) == (6, 3, 1.0, 50.0)


def test_slow_ones_get_fewer_samples_but_three_and_their_first_call_counts(monkeypatch) -> None:
    assert plan({"slow": 7.0, "fast": 0.02, "middle": 2.0}, 9, 35.0) == {"slow": 3, "fast": 9, "middle": 8}
    assert plan({"slow": 1.0, "slower": 2.0}, 9, 20.0) == {"slow": 9, "slower": 5}
    assert plan({"slow": 7.0}, 1, 1.0) == {"slow": 1}
    monkeypatch.setattr("scripts.bench.rounds.sample", lambda *_: (7000.0, 7000.0))
    timing = interleave({"slow": lambda: None}, rounds=9, budget_s=1)["slow"]
    assert (timing["n"], timing["calls"]) == (3, 1)


# ---------------------------------------------------------------------------- targets


def times(**ms: float) -> dict[str, Any]:
    return {variant: {"ms": value} for variant, value in ms.items()}


def test_verdicts() -> None:
    result = {
        "flops": 90_000_000,
        "gemm": {"torch": {"best_gflops": 100.0}, "native": {"best_gflops": 200.0}},
        "variants": times(official=200, reference=1000, native=1, torch=100, lstm=3),
        "warm": times(native=1, lstm=1.5),
        "threads": {"variants": {"native": {"1": {"wall_ms": 10.0}, "2": {"wall_ms": 6.0}}}},
        "memory": {"variants": {"native": {"mib": 50.0}, "official": {"mib": 99.0}, "lstm": {"mib": 50.1}}},
    }
    rows = targets.judged({"cornn-psmnist-256": result}, "cpu")
    verdicts = {row["what"]: row for row in rows if row["workload"] == "cornn-psmnist-256"}
    assert report.target_table(rows)[3].count("✗") == 5
    assert {what: (row["reached"], row["verdict"]) for what, row in verdicts.items()} == {
        "loop : native": (200.0, "met"),
        "LSTM : native": (3.0, "met"),
        "LSTM : native, warm": (1.5, "not met"),
        "GEMM, torch : native": (0.9, "met"),
        "GEMM, best : native": (0.45, "not met"),
        "loop : torch": (2.0, "met"),
        "1 : 2 threads": (1.667, "not met"),
        "memory : loop's": (0.505, "not met"),
        "memory : LSTM's": (0.998, "not met"),
    }


def test_torch_and_numpy_are_enough() -> None:
    """On a GPU machine the bench runs from a bare checkout."""
    heavy = ("hydra", "omegaconf", "yaml", "scipy", "matplotlib", "rich", "wandb")
    code = f"import sys, scripts.bench.run; print([m for m in {heavy} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_without_an_official_loop_the_reference_is_the_loop_and_what_did_not_run_is_not_met() -> None:
    result = {"variants": {**times(reference=60, native=1), "official": {"not_run": "CUDA alone"}}}
    rows = targets.judged({"unicornn-eigenworms": result}, "cpu")
    row = next(r for r in rows if r["workload"] == "unicornn-eigenworms" and r["kind"] == "loop")
    assert (row["reached"], row["verdict"]) == (60.0, "met")
    assert {row["verdict"] for row in targets.judged({}, "cpu")} == {"not run"}
    assert {row["verdict"] for row in targets.judged({}, "cuda")} == {"not run"}
    assert {*targets.CPU, *targets.CUDA} == {w.name for w in WORKLOADS}


# ---------------------------------------------------------------------------- results


def test_a_machine_class_names_no_host_and_a_system_that_tells_less_gives_less(tmp_path: Path) -> None:
    assert store.machine_class({"cpu": "AMD EPYC", "cores": 2}) == "cpu-amd-epyc-2-cores"
    assert store.machine_class({"cpu": "x", "cores": 16, "gpu": "NVIDIA H200"}) == "gpu-nvidia-h200"
    name = store.machine_class({"cpu": "Intel(R) Xeon(R) Gold 6230 @ 2.10GHz", "cores": 40})
    assert name == "cpu-intel-xeon-gold-6230-2-10ghz-40-cores"
    fine = {"cpu": "AMD EPYC", "microarchitecture": "Zen 5", "vectors": "AVX-512", "cores": 2}
    assert store.machine_class(fine) == "cpu-amd-epyc-zen-5-avx-512-2-cores"
    assert store.machine_name(fine) == "AMD EPYC (Zen 5, AVX-512), 2 cores"
    assert os.uname().nodename not in json.dumps(store.machine("cpu"))
    assert provenance.cpu_facts(tmp_path / "none") == {}
    files.write_text(tmp_path / "cpuinfo", "processor\t: 0\nBogoMIPS\t: 50.00\nCPU part\t: 0xd40\n")
    assert provenance.cpu_facts(tmp_path / "cpuinfo") == {}
    assert (
        provenance.cpu_facts(cpuinfo(tmp_path, "AuthenticAMD", 23, 49, 0, "sse2 avx avx2"))["vectors"]
        == "AVX2"
    )


def cpuinfo(folder: Path, *numbers: object) -> Path:
    keys = ("vendor_id", "cpu family", "model", "stepping", "flags", "processor", "model name")
    lines = zip(keys, (*numbers, 0, "?"), strict=True)
    processor = "".join(f"{key}\t: {value}\n" for key, value in lines)
    files.write_text(folder / "cpuinfo", f"{processor}\n{processor}")
    return folder / "cpuinfo"


@pytest.mark.parametrize(
    ("numbers", "name"),
    [
        (("AuthenticAMD", 25, 1, 1), "Zen 3"),
        (("AuthenticAMD", 25, 17, 1), "Zen 4"),
        (("AuthenticAMD", 25, 33, 0), "Zen 3"),
        (("AuthenticAMD", 25, 160, 2), "Zen 4"),
        (("AuthenticAMD", 26, 2, 1), "Zen 5"),
        (("GenuineIntel", 6, 85, 4), "Skylake-SP"),
        (("GenuineIntel", 6, 85, 7), "Cascade Lake"),
        (("GenuineIntel", 6, 143, 8), "Sapphire Rapids"),
        (("GenuineIntel", 6, 250, 0), "family 6 model 250"),
    ],
)
def test_generations_of_processors(tmp_path: Path, numbers: tuple[object, ...], name: str) -> None:
    facts = provenance.cpu_facts(cpuinfo(tmp_path, *numbers, "sse2 avx avx2 avx512f"))
    assert (facts["microarchitecture"], facts["vectors"]) == (name, "AVX-512")
    assert (facts["family"], facts["model"], facts["stepping"]) == numbers[1:]


def test_a_run_of_one_workload_updates_its_part_alone(results, small: None, monkeypatch, capsys) -> None:
    monkeypatch.setattr(memory, "measure", lambda *_: {"mib": 1.0})
    assert run.main(["--rounds", "1", "--budget-s", "0", "--workload", "lem-fhn,cornn-psmnist-128"]) == 0
    (path,) = results.glob("*.json")
    first = store.read(path)
    assert set(first["workloads"]) == {"lem-fhn", "cornn-psmnist-128"}
    fhn = first["workloads"]["lem-fhn"]
    assert set(fhn["variants"]) == set(VARIANTS) - {"onnx"}
    assert fhn["variants"]["reference"]["n"] == 1
    assert "not_run" in fhn["variants"]["triton"]
    passes = {"inference", "memory", "errors"}
    assert set(fhn) == {"sizes", "flops", "run", "gemm", "variants", "warm"} | passes
    assert set(fhn["inference"]["variants"]) == set(run.INFERENCE)
    assert {"date", "code", "torch", "threads", "load_before", "load_after"} <= set(fhn["run"])
    assert path.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "## LEM FitzHugh-Nagumo H16" in text and "| reference loop" in text

    ways = {"one at a time": [{"clock_s": 360.0, "processor_s": 340.0}]}
    packing = {"schema": 1, "experiment": "lem/x", "epochs": 20, "runs": 4, "cores": 2, "ways": ways}
    packing["moment"] = fhn["run"]
    files.write_json(store.path_of(f"packing-{path.stem}"), packing)
    assert run.main([*ONCE, "memory"]) == 0
    second = store.read(path)
    assert second["packing"] == packing
    assert second["workloads"]["cornn-psmnist-128"] == first["workloads"]["cornn-psmnist-128"]
    assert second["workloads"]["lem-fhn"]["variants"] == fhn["variants"]
    text = path.with_suffix(".md").read_text(encoding="utf-8")
    assert "| one at a time |            40 |                  85 |   1 |" in text
    assert "Written: " in capsys.readouterr().out


def test_the_passes_over_threads_and_growth(small: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(run, "THREADS_FROM", 1)
    options = run.parser().parse_args([*ONCE, "threads", "--workload", "lem-smnist", "--no-write"])
    result = {**run.bench(options), "growth": run.grown(options)}
    cells = result["workloads"]["lem-smnist"]["threads"]["variants"]
    assert {"wall_ms", "n"} <= set(cells["lstm"]["1"]) & set(cells["lstm"]["2"])
    assert torch.get_num_threads() == 1
    sweep = result["growth"]["recurrences"]["LEM"]["T"]
    assert sweep["sizes"] == [2, 4]
    assert len(sweep["variants"]["official"]["ms"]) == 2
    text = report.markdown({**result, "targets": []}, "cpu")
    assert "## Threads" in text and "## Growth" in text


def test_a_choice_of_variants_and_tiny_sizes_are_printed_only(results: Path, small: None, capsys) -> None:
    assert run.main([*ONCE, "time", "--variants", "reference,lstm"]) == 0
    assert run.main([*ONCE, "time", "--quick"]) == 0
    assert not results.exists()
    assert capsys.readouterr().out.count("othing was written") == 2


def test_a_damaged_or_foreign_file_is_not_overwritten(results: Path, small: None) -> None:
    path = store.path_of(store.machine_class(store.machine("cpu")))
    path.parent.mkdir(parents=True)
    for content in ("{", '{"schema": 99}'):
        path.write_text(content, encoding="utf-8")
        assert run.main([*ONCE, "time"]) == 2
        assert path.read_text(encoding="utf-8") == content


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--workload", "lem-fnh"], "Did you mean lem-fhn"),
        (["--variants", "nativ"], "Did you mean native?"),
        (["--rounds", "0"], "at least 1"),
        pytest.param(
            ["--device", "cuda"],
            "needs a GPU",
            marks=pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU"),
        ),
    ],
)
def test_mistakes_are_told(arguments: list[str], said: str, capsys, results: Path) -> None:
    assert run.main(arguments) == 2
    assert said in capsys.readouterr().err
    assert not results.exists()


@pytest.mark.grid
def test_peak_memory_is_that_of_the_pass() -> None:
    """The reference keeps about ten arrays (T, B, H) for its backward, 8 MiB each."""
    workload = dataclasses.replace(WORKLOADS[0], T=64, B=128, H=256)
    peak = memory.measure(workload, "reference", "cpu")
    assert 40 < peak["mib"] < 400
    assert "CUDA alone" in memory.measure(SMALL_ONES[-1], "official", "cpu")["not_run"]


def test_without_matplotlib_there_is_no_plot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    result = {"machine": {}, "workloads": {"lem-fhn": {"variants": times(native=1.0), "flops": 1}}}
    (folder := tmp_path / "plots").mkdir()
    assert not plot.write(folder / "a.png", result, "cpu")
    assert list(folder.iterdir()) == []
