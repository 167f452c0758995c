"""The contract of recurrent layers with their network. Axes: B batch, T time, D features, H units."""

import inspect
from typing import Any, cast

import torch
from torch import Tensor, nn

from physml.base.errors import InputError

FAR = 1e-3  # more than kernels differ by that are chosen by T


def check_signature(layer: nn.Module) -> None:
    if type(layer).forward is nn.Module.forward:
        raise InputError(
            f"{type(layer).__name__} has no forward(u, state=None). Write it, or step(u, state) under "
            '@recurrent("y").'
        )
    try:
        inspect.signature(layer.forward).bind(None, None)
    except TypeError as error:
        raise InputError(f"{type(layer).__name__}.forward must take (u, state=None): {error}.") from error


def width_of(layer: nn.Module) -> int:
    """The number of features that a layer hands on; torch's own layers have another name for it."""
    if isinstance(layer, nn.RNNBase):
        if not layer.batch_first:
            raise InputError(f"{type(layer).__name__} must be made with batch_first=True; got False.")
        return (layer.proj_size or layer.hidden_size) * (2 if layer.bidirectional else 1)
    width = getattr(layer, "d_out", None)
    if not isinstance(width, int) or width < 1:
        raise InputError(f"{type(layer).__name__} must have an integer d_out of at least 1; got {width!r}.")
    return width


def outputs_and_state(layer: nn.Module, returned: Any) -> tuple[Tensor, Any]:
    """The two things that a layer returns. InputError for the outputs alone."""
    if not (isinstance(returned, tuple) and len(returned) == 2):
        raise InputError(
            f"{type(layer).__name__} must return (outputs, state); got {type(returned).__name__}. "
            "A layer without a state returns (outputs, ())."
        )
    return returned


def check_output(layer: nn.Module, u: Tensor, outputs: Tensor, width: int) -> None:
    """While a program is exported, B and T are open, and not read."""
    fits = outputs.dim() == 3 and outputs.shape[2] == width
    if not fits or not (torch.compiler.is_compiling() or outputs.shape[:2] == u.shape[:2]):
        name, here, shape = type(layer).__name__, (*u.shape[:2], width), tuple(outputs.shape)
        raise InputError(f"the output of {name} must have shape (B, T, {width}), so {here}; got {shape}.")
    if outputs.dtype == torch.float64 != u.dtype:
        raise InputError(f"{type(layer).__name__} must keep the dtype of its input; its output is float64.")


def last_output(layer: nn.Module, outputs: Tensor, state: Any) -> Tensor:
    """The output (B, H) of the last step: in the state, if the layer says so, else in `outputs` (B, T, H).

    The backward pass of `outputs[:, -1]` fills an array (B, T, H) with zeros first.
    """
    for index in (where := _output_in_state(layer)) or ():
        state = state[index]
    return outputs[:, -1] if where is None else cast(Tensor, state)


def _output_in_state(layer: nn.Module) -> tuple[int, ...] | None:
    """The layer's `output_in_state`, unless a subclass has another `forward` or `step` than its class."""
    for cls in type(layer).__mro__:
        if "output_in_state" in vars(cls):
            return cast("tuple[int, ...] | None", cast(Any, layer).output_in_state)
        if not vars(cls).keys().isdisjoint(("forward", "step")):
            return None
    return None


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
