"""Recurrent layers as loops of a graph, so that an exported network takes sequences of any length.

torch.export unrolls a Python loop over time, and its graph then fits one length alone. Here the step of a
layer, which is the layer itself on sequences of one step, is the body of a `scan`; ONNX has the same as Scan.

Axes: B batch, T time, D features, H units.
"""

import copy
import warnings
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch._higher_order_ops.scan import scan
from torch.export import Dim
from torch.utils import _pytree as pytree

from physml.base.errors import InputError

MATRICES = ("matrix", "matrices")  # methods of layers that make their matrices from what is trained


class Step(nn.Module):
    """One step of a layer: x (B, D) and its state, each tensor (B, H) -> y (B, H) and the new state."""

    def __init__(self, layer: nn.Module, state: Any) -> None:
        super().__init__()
        self.layer, self.state = layer, state

    def forward(self, x: Tensor, *state: Tensor) -> tuple[Tensor, ...]:
        y, new = self.layer(x.unsqueeze(1), pytree.tree_unflatten(list(state), self.state))
        return (y.squeeze(1).clone(), *[h.clone() for h in pytree.tree_leaves(new)])  # scan takes no views


class Loop(nn.Module):
    """A recurrent layer whose loop over time stays a loop when it is traced.

    It starts at its `first_state`, a method that takes B, or else at zero.

    Args:
        layer: called as layer(u, state) -> outputs, state; in evaluation mode.
    Shapes: u (B, T, D) -> y (B, T, H), and the state of the layer.
    Errors: InputError for a layer that cannot go on from a state, or whose state is not of (B, H) tensors.
    """

    def __init__(self, layer: nn.Module, d_in: int) -> None:
        super().__init__()
        layer = _with_fixed_matrices(layer)
        self.name = type(layer).__name__
        like = next(layer.parameters(), torch.empty(0))
        x = like.new_zeros(2, d_in)  # more than one sequence: torch.export takes 1 for a fixed size
        state = self._state_of(layer, x)
        leaves, self.state = pytree.tree_flatten(state)
        if callable(first_state := getattr(layer, "first_state", None)):
            first = first_state(1)
        else:
            first = [torch.zeros_like(h[:1]) for h in leaves]
        self.first = nn.ParameterList(nn.Parameter(h.clone(), requires_grad=False) for h in first)
        any_size = {0: Dim.DYNAMIC}
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # torch.nn.LSTM lists its weights twice
            step = torch.export.export(
                Step(layer, self.state),
                (x, *leaves),
                dynamic_shapes=(any_size, tuple(any_size for _ in leaves)),
                strict=False,
            )
        self.step = step.module(check_guards=False)

    def _state_of(self, layer: nn.Module, x: Tensor) -> Any:
        """The state after a step, once it is clear that the layer goes on from it."""
        u = x.unsqueeze(1)
        try:
            _, state = layer(u)
            layer(u, state)
        except InputError as error:
            raise InputError(
                f"{self.name} cannot go on from a state, so no loop over time can be made of it: {error} "
                "Export it with --to safetensors."
            ) from error
        leaves = pytree.tree_leaves(state)
        if not leaves or any(not isinstance(h, Tensor) or h.dim() != 2 or len(h) != 2 for h in leaves):
            raise InputError(
                f"the state of {self.name} must be tensors (B, H), batch first; a loop over time can be made "
                "of no other. Export it with --to safetensors."
            )
        return state

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        if state is not None:
            raise InputError("a network that is exported starts at its own first state; got a state.")
        first = tuple(h.expand(u.shape[0], -1).clone() for h in self.first)

        def step(state: tuple[Tensor, ...], x: Tensor) -> tuple[tuple[Tensor, ...], Tensor]:
            y, *new = self.step(x, *state)
            return tuple(new), y

        last, path = scan(step, first, u.transpose(0, 1), dim=0)
        return path.transpose(0, 1), pytree.tree_unflatten(list(last), self.state)


def _with_fixed_matrices(layer: nn.Module) -> nn.Module:
    """A copy whose matrices are numbers, no products or exponentials to make anew in each step."""
    layer = copy.deepcopy(layer).eval()
    for name in MATRICES:
        if callable(make := getattr(layer, name, None)):
            with torch.no_grad():
                matrices = make()
            leaves, form = pytree.tree_flatten(matrices)
            names = [f"fixed_{name}_{i}" for i in range(len(leaves))]
            for buffer, value in zip(names, leaves, strict=True):  # a traced loop takes no other tensors
                layer.register_buffer(buffer, value.clone())
            setattr(layer, name, partial(_fixed, layer, names, form))
    return layer


def _fixed(layer: nn.Module, names: list[str], form: Any) -> Any:
    return pytree.tree_unflatten([getattr(layer, name) for name in names], form)
