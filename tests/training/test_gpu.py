"""Runs on a GPU: every model as on the CPU, recurrences with the same bits again and after a stop.

Sums over edges there are in no fixed order, but for `runtime.deterministic`.
"""

import os
import signal

import pytest
import run_harness as h
from gpu import needs_gpu
from refusals import refuses

from physml.base.errors import Preempted
from physml.base.paths import CONF
from physml.config.build import passes_messages
from physml.config.compose import names
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.run.spec import RunSpec
from physml.training.trainer import Trainer

pytestmark = [needs_gpu, pytest.mark.filterwarnings("ignore:The usage of `scatter:UserWarning")]
MODELS = [name for name in names("model") if name != "own"]


def of_graphs(model: str) -> bool:
    return passes_messages(resolve(read_yaml(CONF / "model" / f"{model}.yaml")["_target_"]))


def spec_on(device: str, model: str, *overrides: str) -> RunSpec:
    task = "texas" if of_graphs(model) else "adding"
    small = (f"model={model}", f"task={task}", "profile=smoke", "tracker=none", "seed=0")
    return h.spec_of([*small, f"runtime.device={device}", *overrides])


@pytest.mark.parametrize("model", MODELS)
def test_a_model_trains_as_on_the_cpu_and_a_recurrence_has_the_same_bits_again(model, monkeypatch, tmp_path):
    records, curves = [], []
    for k, device in enumerate(["cpu", "cuda", "cuda"]):
        for name in ("results", "runs"):
            monkeypatch.setenv(f"PHYSML_{name.upper()}", str(tmp_path / str(k) / name))
        spec = spec_on(device, model)
        records.append(h.make(spec))
        curves.append(h.curve(spec))
    cpu, *gpu = records
    assert [record["machine"]["device"] == "cpu" for record in records] == [True, False, False]
    assert gpu[0]["n_parameters"] == cpu["n_parameters"] and gpu[0]["n_steps"] == cpu["n_steps"]
    losses = [float(rows[0]["train/loss"]) for rows in curves]
    if model != "noisy":  # draws its noise on the device
        assert losses[1:] == pytest.approx(2 * losses[:1], rel=1e-4)
    if not of_graphs(model):
        assert h.numbers(gpu[0]) == h.numbers(gpu[1]) and curves[1] == curves[2]


@pytest.mark.parametrize("model", ["lem", "cornn", "unicornn", "lstm", "s4d"])
def test_a_stopped_run_ends_with_the_same_bits(model, monkeypatch, tmp_path):
    overrides = ("trainer.epochs=3", "trainer.max_steps=null", "runtime.checkpoint_every_s=0")
    with monkeypatch.context() as context:
        for name in ("results", "runs"):
            context.setenv(f"PHYSML_{name.upper()}", str(tmp_path / "undisturbed" / name))
        undisturbed = spec_on("cuda", model, *overrides)
        want = h.numbers(h.make(undisturbed)), h.curve(undisturbed)
    spec, original, calls = spec_on("cuda", model, *overrides), Trainer._step, []

    def patched(self, *arguments):
        calls.append(1)
        if len(calls) == 2:
            os.kill(os.getpid(), signal.SIGTERM)
        return original(self, *arguments)

    with monkeypatch.context() as context:
        context.setattr(Trainer, "_step", patched)
        refuses(Preempted, "SIGTERM", h.make, spec)
    assert (h.numbers(h.make(spec)), h.curve(spec)) == want
