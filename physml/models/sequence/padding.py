"""Layers on padded sequences of unequal lengths. Axes: B batch, T time, D features, H units."""

import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn

from physml.base.errors import InputError

FAR = 1e-3  # more than kernels differ by that are chosen by T


def on_padded(layer: nn.Module, u: Tensor, state: Any, lengths: Tensor) -> tuple[Tensor, Any]:
    """Outputs and state of a layer; `lengths` (B,) go to a layer that takes them."""
    if _takes_lengths(layer):
        return cast("tuple[Tensor, Any]", layer(u, state, lengths=lengths))
    return cast("tuple[Tensor, Any]", layer(u, state))


def _takes_lengths(layer: nn.Module) -> bool:
    return "lengths" in inspect.signature(layer.forward).parameters


@torch.no_grad()
def refuse_reader_of_padding(layer: nn.Module, u: Tensor, lengths: Tensor) -> None:
    """InputError for a layer of others whose answer to the shortest sequence depends on its padding."""
    if _takes_lengths(layer) or type(layer).__module__.startswith("physml."):
        return
    i, n = int(lengths.argmin()), int(lengths.min())
    modes = [(module, module.training) for module in layer.modules()]
    layer.eval()
    try:
        with torch.random.fork_rng(devices=[u.device] if u.is_cuda else []):
            padded, alone = (layer(x)[0][:, n - 1] for x in (u[i : i + 1], u[i : i + 1, :n]))
    finally:
        for module, training in modes:
            module.training = training
    difference = float((padded - alone).abs().max())
    if difference > FAR * (1 + float(alone.abs().max())):
        raise InputError(
            f"{type(layer).__name__} must give a sequence of {n} steps the same answer with and without the "
            f"{u.shape[1] - n} steps of padding behind it; its answers differ by {difference:.2g}. It reads "
            "backwards, or counts from the end. Let its forward take `lengths` (docs/add-a-model.md), take "
            "another model, such as bilstm, or set net.lengths=false to read at the padded end."
        )
