"""The whole network of a run as a graph that torch.export traced. Axes: B batch, T time, D features."""

import copy
from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.export import Dim, ExportedProgram

from physml.base.errors import InputError
from physml.export.card import SHAPES
from physml.export.loops import Loop
from physml.models.sequence.rnn import SequenceModel
from physml.ops.backend import running

TOLERANCE = 1e-4  # of the greatest difference, relative to 1 + the largest output: float32 in another order

Inputs = tuple[Tensor, ...]


class Outputs(nn.Module):
    """A network without the states that it hands back."""

    def __init__(self, net: SequenceModel) -> None:
        super().__init__()
        self.net = net

    def forward(self, input: Tensor) -> Tensor:
        return self.net(input)[0]


class PaddedOutputs(Outputs):
    """The same with the true length of each sequence."""

    def forward(self, input: Tensor, lengths: Tensor) -> Tensor:  # type: ignore[override]
        return self.net(input, lengths)[0]


def traced(net: nn.Module, *, lengths: bool = False) -> ExportedProgram:
    """The graph of a network for sequences, with any B and T.

    Args:
        lengths: with the true lengths (B,) of padded sequences as a second input, int64.
    Shapes: input (B, T, D), or ids (B, T) -> (B, O) or (B, T, O).
    Errors: InputError for what has no loop over time, such as a network on graphs.
    """
    if not isinstance(net, SequenceModel):
        raise InputError(
            f"{type(net).__name__} works on graphs, whose edges are sorted and checked by their values, and "
            "a traced program has no values. Export it with --to safetensors."
        )
    if lengths and not (net.lengths and net.readout_at == "last"):
        raise InputError(
            "lengths are for a network that reads the last true step of a padded sequence: net.lengths=true "
            "and a task with one answer per sequence. Export this one without them."
        )
    net = copy.deepcopy(net).eval().requires_grad_(False)
    for part in net.modules():  # an operator in the graph would need physml where it is loaded
        if hasattr(part, "backend"):
            setattr(part, "backend", "reference")  # noqa: B010, typed as a module otherwise
    widths = _widths(net)
    whole = (PaddedOutputs if lengths else Outputs)(net)
    inputs = example(net, *SHAPES[0], lengths=lengths)
    with running("reference"):
        net.layers = nn.ModuleList(Loop(layer, d) for layer, d in zip(net.layers, widths, strict=True))
    free = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    shapes = {"input": free} | ({"lengths": {0: Dim.DYNAMIC}} if lengths else {})
    with torch.no_grad(), running("reference"):
        program = torch.export.export(whole, inputs, dynamic_shapes=shapes, strict=False)
    _forget_places(program)
    return program


def _forget_places(program: ExportedProgram) -> None:
    """Without the lines of code that made each operation: they hold paths of this machine."""
    for module in program.graph_module.modules():
        for node in getattr(getattr(module, "graph", None), "nodes", ()):
            node.meta.pop("stack_trace", None)


def _widths(net: SequenceModel) -> list[int]:
    """The features that enter each layer."""
    first = net.d_in
    for part in (net.embedding, net.encoder):
        if part is not None:
            first = part.weight.shape[1 if part is net.embedding else 0]
    return [first, *(int(layer.d_out) for layer in list(net.layers)[:-1])]  # type: ignore[arg-type]


def example(net: SequenceModel, n_batch: int, n_steps: int, *, lengths: bool) -> Inputs:
    """Inputs of a shape, drawn by a generator of their own."""
    draw = torch.Generator().manual_seed(n_batch + 100 * n_steps)
    dtype = next((p.dtype for p in net.parameters()), torch.get_default_dtype())
    if net.tokens:
        input = torch.randint(0, net.d_in, (n_batch, n_steps), generator=draw)
    else:
        input = torch.randn(n_batch, n_steps, net.d_in, generator=draw, dtype=dtype)
    if not lengths:
        return (input,)
    return input, torch.randint(1, n_steps + 1, (n_batch,), generator=draw)


@torch.no_grad()
def greatest_difference(net: nn.Module, run: Callable[[Inputs], Tensor], *, lengths: bool) -> float:
    """Between the outputs of the network and those of its exported form, over `SHAPES`.

    Errors: InputError where they differ by more than rounding.
    """
    assert isinstance(net, SequenceModel)
    greatest = 0.0
    for shape in SHAPES:
        inputs = example(net, *shape, lengths=lengths)
        want = net(*inputs)[0]  # type: ignore[arg-type]
        difference = float((run(inputs) - want).abs().max())
        if not difference <= TOLERANCE * (1 + float(want.abs().max())):
            raise InputError(
                f"the exported network answers {difference:.2g} away from the trained one, for an input of "
                f"shape {tuple(inputs[0].shape)}. A layer of one's own must start at its first_state(B), or "
                "else at zero, where its state is None, and give the same in two halves as in one pass. "
                "Export it with --to safetensors."
            )
        greatest = max(greatest, difference)
    return greatest
