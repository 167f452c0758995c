"""Who is timed: a layer in several implementations, and one batch for it. Axes: B, T, D, H, L."""

from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN
from physml.ops.backend import BACKENDS
from scripts.bench import official
from scripts.bench.rounds import Call, not_run
from scripts.bench.workloads import Workload

OPTIONAL = ("authors", "jax", "onnx")  # of other people's packages; absent ones are a line of the report
VARIANTS = ("official", *BACKENDS, "lstm", "gru", *OPTIONAL)
SEED = 20261121


def layer(workload: Workload, backend: str) -> CoRNN | LEM | UnICORNN:
    """The layer of physml, float32, with the same weights for every backend."""
    torch.manual_seed(SEED)
    kinds: dict[str, Any] = {"cornn": CoRNN, "lem": LEM, "unicornn": partial(UnICORNN, n_layers=workload.L)}
    built: CoRNN | LEM | UnICORNN = kinds[workload.recurrence](
        workload.D, workload.H, **workload.settings, backend=backend
    )
    return built


def module(workload: Workload, variant: str) -> nn.Module:
    """The implementation that `variant` names. InputError says why there is none."""
    if variant in BACKENDS:
        return layer(workload, variant)
    if variant in ("lstm", "gru"):
        torch.manual_seed(SEED)
        kind = nn.LSTM if variant == "lstm" else nn.GRU
        return kind(workload.D, workload.H, workload.L, batch_first=True)
    plain = layer(workload, "reference")
    if isinstance(plain, UnICORNN):
        raise InputError("the official code runs on CUDA alone; its plain loop is the variant reference")
    return official.authors_loop(plain) if variant == "authors" else official.OfficialLoop(plain)


class Step:
    """Forward and backward of one batch with all parameters needing gradients; calling it runs it.

    The loss is the inner product of all outputs with fixed numbers `slope` (B, T, H). These are its gradient,
    which is handed to autograd as it is: no pass of a loss over the outputs is timed. They lie time first in
    memory, like the outputs of most implementations. Making a Step runs two time steps: whatever is compiled
    at first use is, and whoever refuses does so now. `inference`: forward alone, nothing recorded.
    """

    def __init__(
        self, workload: Workload, variant: str, device: str = "cpu", inference: bool = False
    ) -> None:
        self.inference = inference
        self.module = module(workload, variant).to(device)
        self.u, self.slope = (x.to(device) for x in batch(workload))
        if variant in ("official", "authors"):  # their data lie time first
            self.u = self.u.transpose(0, 1).contiguous().transpose(0, 1)
        self._run(2)
        self.module.zero_grad(set_to_none=True)

    def __call__(self) -> None:
        self.module.zero_grad(set_to_none=True)
        self._run(self.u.shape[1])

    def _run(self, n_steps: int) -> None:
        with torch.set_grad_enabled(not self.inference):
            outputs: Tensor = self.module(self.u[:, :n_steps])[0]
        if not self.inference:
            outputs.backward(self.slope[:, :n_steps])

    def gradients(self) -> dict[str, Tensor]:
        self()
        return {name: p.grad for name, p in self.module.named_parameters() if p.grad is not None}


def step_of(workload: Workload, variant: str, device: str, inference: bool = False) -> Call:
    """The step of one variant on a batch."""
    if variant == "jax":
        from scripts.bench.in_jax import JaxStep

        return JaxStep(workload, layer(workload, "reference"), *batch(workload), device, inference)
    if variant == "onnx":
        if not inference:
            raise InputError("onnxruntime computes no gradients; it is in the table of inference")
        from scripts.bench.in_onnx import OnnxStep

        return OnnxStep(nn.LSTM(workload.D, workload.H, workload.L), batch(workload)[0], device)
    return Step(workload, variant, device, inference)


def steps_of(
    workload: Workload, variants: Sequence[str], device: str, inference: bool = False
) -> tuple[dict[str, Call], dict[str, dict[str, str]]]:
    """A step for each variant; for the others why there is none: no compiler, no such backend, no GPU."""
    steps: dict[str, Call] = {}
    refused = {}
    for variant in variants:
        try:
            steps[variant] = step_of(workload, variant, device, inference)
        except Exception as error:  # one that fails must not take the others with it
            refused[variant] = not_run(error)
    return steps, refused


def batch(workload: Workload) -> tuple[Tensor, Tensor]:
    """Inputs (B, T, D) and the gradient of the loss by the outputs (B, T, H)."""
    generator = torch.Generator().manual_seed(SEED)
    u = torch.randn(workload.B, workload.T, workload.D, generator=generator)
    slope = torch.randn(workload.T, workload.B, workload.H, generator=generator).transpose(0, 1)
    return u, slope
