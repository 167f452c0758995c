r"""Gradient of a loss at the last step, term by term. Axes: B batch, T = n steps, D features, S state.

A recurrent network meets its parameters :math:`\theta` once per step, so (thesis 2.18)

.. math::
    \frac{\partial E_n}{\partial\theta} = \sum_{k=1}^{n} \frac{\partial E_n^{(k)}}{\partial\theta}, \qquad
    \frac{\partial E_n^{(k)}}{\partial\theta} = \frac{\partial E_n}{\partial X_n}
    \frac{\partial X_n}{\partial X_k} \frac{\partial^+ X_k}{\partial\theta}

with X the whole state of all layers. Every term is computed by the network's own step: forward once, then
back with one step of autograd at a time, from the cotangent of X_k to those of theta, u_k and X_(k-1). So
there is one way for all networks that are called `network(u, state) -> (output, state)`, and no equation is
written twice.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from physml.base.check import has_shape
from physml.base.errors import InputError
from physml.models.sequence.rnn import SequenceModel
from physml.ops.backend import running

Loss = Callable[[Tensor], Tensor]  # of the output at the last step


@dataclass(frozen=True)
class ByStep:
    r"""Norms of the gradient of E_n, step by step; index k - 1 of an array (n,) is step k.

    euclidean: by parameter, :math:`\|\partial E_n^{(k)}/\partial\theta\|_2`, (n,). largest: the
    same with the greatest absolute entry, as the bounds of the papers count. inputs:
    :math:`\|\partial E_n/\partial u_k\|_2`, (n,), zeros for ids. states: :math:`\|\partial E_n/\partial
    X_k\|_2`, index k, k = 0 to n - 1. total: by parameter, :math:`\partial E_n/\partial\theta`.
    """

    euclidean: dict[str, Tensor]
    largest: dict[str, Tensor]
    inputs: Tensor
    states: Tensor
    total: dict[str, Tensor]

    def whole(self, *, without: str | None = None) -> Tensor:
        """The Euclidean norm over all parameters, (n,), or those whose name does not begin with `without`."""
        kept = [v for name, v in self.euclidean.items() if without is None or not name.startswith(without)]
        return torch.stack(kept).square().sum(0).sqrt()

    @property
    def greatest(self) -> Tensor:
        """The greatest absolute entry over all parameters, (n,)."""
        return torch.stack(list(self.largest.values())).amax(0)


def squared_error(target: Tensor) -> Loss:
    r"""The loss of the papers' propositions, :math:`E_n = \tfrac12 \|y_n - \bar y_n\|_2^2`, mean over the
    batch.
    """

    def loss(output: Tensor) -> Tensor:
        return 0.5 * (output - target).square().sum(-1).mean()

    return loss


def gradient_by_step(network: nn.Module, u: Tensor, loss: Loss) -> ByStep:
    """The gradient of `loss`, of the output at the last step, by the steps it comes from.

    The network starts as it does without a state, from rest or its own `first_state`, whose gradient counts
    as one of step 1; in eval mode: dropout would differ between the steps here and in training.

    Args:
        network: a layer, or a `SequenceModel` with its read-out.
        u: (B, T, D), or ids (B, T).
        loss: of the last output, (B, H) or (B, O), to a number.
    Errors: InputError for an input without steps, or in training mode.
    """
    states, like = _path(network, u)
    named = {name: p for name, p in network.named_parameters() if p.requires_grad}
    parameters = list(named.values())
    n, numbers = u.shape[1], torch.is_floating_point(u)
    euclidean = {name: torch.zeros(n, dtype=torch.float64) for name in named}
    largest = {name: torch.zeros(n, dtype=torch.float64) for name in named}
    total = {name: torch.zeros_like(p) for name, p in named.items()}
    of_inputs, of_states = torch.zeros(n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
    cotangent: list[Tensor] = []
    for k in range(n, 0, -1):
        with torch.enable_grad():
            before = [x.detach().requires_grad_() for x in states[k - 1]]
            x = u[:, k - 1 : k].detach().requires_grad_(numbers)
            output, after = _step(network, x, before, like)
            sources = [*parameters, *before, *([x] if numbers else [])]
            if k == n:
                got = torch.autograd.grad(loss(output), sources, allow_unused=True)
            else:
                got = torch.autograd.grad(after, sources, cotangent, allow_unused=True)
        gradients = _zeros_for_none(got, sources)
        cotangent = gradients[len(parameters) : len(parameters) + len(before)]
        of_parameters = gradients[: len(parameters)]
        if k == 1:
            through = _through_first_state(network, like, parameters, cotangent)
            of_parameters = [g + h for g, h in zip(of_parameters, through, strict=True)]
        for (name, sum_), g in zip(total.items(), of_parameters, strict=True):
            sum_ += g
            euclidean[name][k - 1], largest[name][k - 1] = g.norm(), g.abs().max()
        of_states[k - 1] = torch.stack([g.norm() for g in cotangent]).norm()
        if numbers:
            of_inputs[k - 1] = gradients[-1].norm()
    return ByStep(euclidean, largest, of_inputs, of_states, total)


def jacobian_products(network: nn.Module, u: Tensor) -> Iterator[tuple[int, Tensor]]:
    r"""Lag n - k and :math:`\partial X_n/\partial X_k`, (S, S), from k = n - 1 down to 0, for one sequence.

    X is all states one after the other; the rows belong to X_n. A product of T matrices keeps its large
    singular values to rounding; those below 1e-16 of the largest are rounding.

    Args:
        u: (1, T, D).
    """
    has_shape("u", u, (1, "T", u.shape[-1]), hint="Jacobians are of one sequence.")
    states, like = _path(network, u)
    sizes = [x.shape[1] for x in states[0]]
    rows = torch.eye(sum(sizes), dtype=states[0][0].dtype, device=u.device).split(sizes, 1)
    product = None
    for k in range(u.shape[1], 0, -1):
        with torch.enable_grad():  # a batch of copies, each with the cotangent of one entry of X_k
            before = [x.repeat(sum(sizes), 1).requires_grad_() for x in states[k - 1]]
            _, after = _step(network, u[:, k - 1 : k].expand(sum(sizes), -1, -1), before, like)
            parts = torch.autograd.grad(after, before, rows, allow_unused=True)
        jacobian = torch.cat(_zeros_for_none(parts, before), 1)
        product = jacobian if product is None else product @ jacobian
        yield u.shape[1] - k + 1, product


# ---------------------------------------------------------------------------- one step


def _path(network: nn.Module, u: Tensor) -> tuple[list[list[Tensor]], Any]:
    """The flat states X_0 to X_n, and a state as the network gives it."""
    if network.training:
        raise InputError(
            "gradients are taken in eval mode, where nothing is drawn. Call network.eval() first."
        )
    if u.dim() < 2 or not u.shape[1]:
        raise InputError(f"u must have at least one step, (B, T, ...); got {tuple(u.shape)}.")
    with torch.no_grad(), running("reference"):
        _, state = network(u[:, :1])
        path = [_first_state(network, state), pytree.tree_leaves(state)]
        _, again = _step(network, u[:, :1], path[0], state)
        if not all(torch.allclose(x, y) for x, y in zip(again, path[1], strict=True)):
            raise InputError(
                f"{type(network).__name__} does not start from zero. Name its start: first_state(B) -> state."
            )
        for k in range(1, u.shape[1]):
            _, state = network(u[:, k : k + 1], state=state)
            path.append(pytree.tree_leaves(state))
    return path, state


def _first_state(network: nn.Module, like: Any) -> list[Tensor]:
    """The flat X_0: the network's `first_state`, those of the layers of a stack, or zeros, as `like`."""
    if callable(first_state := getattr(network, "first_state", None)):
        return pytree.tree_leaves(first_state(pytree.tree_leaves(like)[0].shape[0]))
    if isinstance(network, SequenceModel):
        parts = zip(network.layers, like, strict=True)
        return [x for layer, part in parts for x in _first_state(layer, part)]
    return [torch.zeros_like(x) for x in pytree.tree_leaves(like)]


def _through_first_state(
    network: nn.Module, like: Any, parameters: list[nn.Parameter], cotangent: list[Tensor]
) -> list[Tensor]:
    """Gradients by way of X_0, from its `cotangent`: zeros unless the first state is trained."""
    with torch.enable_grad():
        pairs = zip(_first_state(network, like), cotangent, strict=True)
        trained = [(x, g) for x, g in pairs if x.requires_grad]
    if not trained:
        return [torch.zeros_like(p) for p in parameters]
    gradients = torch.autograd.grad(
        [x for x, _ in trained], parameters, [g for _, g in trained], allow_unused=True
    )
    return _zeros_for_none(gradients, parameters)


def _step(network: nn.Module, u: Tensor, before: list[Tensor], like: Any) -> tuple[Tensor, list[Tensor]]:
    """The output (B, ...) and the flat state after one step, u (B, 1, ...)."""
    with running("reference"):  # nothing is compiled for a single step
        output, state = network(u, state=pytree.tree_unflatten(before, pytree.tree_structure(like)))
    return output[:, -1] if output.dim() == 3 else output, pytree.tree_leaves(state)


def _zeros_for_none(gradients: Sequence[Tensor | None], of: Sequence[Tensor]) -> list[Tensor]:
    return [torch.zeros_like(x) if g is None else g for g, x in zip(gradients, of, strict=True)]
