"""Layers of others, and padded sequences of unequal lengths. Axes: B batch, T time, D features, H units."""

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


def of_others(layer: nn.Module) -> bool:
    """True for a layer that physml's tests do not know."""
    return not type(layer).__module__.startswith(("physml.", "torch."))


def _outputs(layer: nn.Module, *inputs: Tensor) -> list[Tensor]:
    """The outputs for each input in evaluation mode; no later draw moves by it."""
    modes = [(module, module.training) for module in layer.modules()]
    layer.eval()
    try:
        with torch.random.fork_rng(devices=[inputs[0].device] if inputs[0].is_cuda else []):
            return [layer(u, None)[0] for u in inputs]
    finally:
        for module, training in modes:
            module.training = training


def _apart(first: Tensor, second: Tensor) -> float:
    """The greatest difference, or 0 where rounding alone may have made it."""
    difference = float((first - second).abs().max())
    return difference if difference > FAR * (1 + float(second.abs().max())) else 0.0


@torch.no_grad()
def refuse_mixer_of_rows(layer: nn.Module, u: Tensor) -> None:
    """InputError for a layer of others whose answer to a sequence depends on its neighbours in the batch."""
    if u.shape[0] < 2 or not of_others(layer):
        return
    both, again, alone = _outputs(layer, u[:2], u[:2], u[1:2])
    mixed = both.shape[1:] == alone.shape[1:] and not _apart(again, both) and _apart(both[1:], alone)
    if mixed:
        raise InputError(
            f"{type(layer).__name__} mixes the sequences of a batch: behind another one, its answer to the "
            f"second differs by {mixed:.2g} from that to the second alone. Inputs are (B, T, D): is "
            "batch_first=True missing?"
        )


@torch.no_grad()
def refuse_reader_of_padding(layer: nn.Module, u: Tensor, lengths: Tensor) -> None:
    """InputError for a layer whose answer to the shortest sequence depends on its padding."""
    if _takes_lengths(layer) or type(layer).__module__.startswith("physml."):
        return
    i, n = int(lengths.argmin()), int(lengths.min())
    padded, alone = (y[:, n - 1] for y in _outputs(layer, u[i : i + 1], u[i : i + 1, :n]))
    if difference := _apart(padded, alone):
        raise InputError(
            f"{type(layer).__name__} must give a sequence of {n} steps the same answer with and without the "
            f"{u.shape[1] - n} steps of padding behind it; its answers differ by {difference:.2g}. It reads "
            "backwards, or counts from the end. Let its forward take `lengths` (docs/add-a-model.md), take "
            "another model, such as bilstm, or set net.lengths=false to read at the padded end."
        )
