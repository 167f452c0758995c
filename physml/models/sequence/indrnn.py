"""The independently recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, positive
from physml.ops.cell import Step, recurrence
from physml.ops.sequence import initial_state, sequence


class IndRNN(nn.Module):
    r"""Layers of units that see their own past alone.

    .. math:: h^l_n = \max(0,\; u^l \circ h^l_{n-1} + W^l h^{l-1}_n + b^l), \qquad |u^l_i| \le \text{bound}

    Source: Li et al., CVPR 2018, https://arxiv.org/abs/1803.04831.
    Choices: no batch normalisation between layers. u is brought back into its bounds before each pass, as
    the official code does after each step of the optimizer.
    Init: u uniform on [0, bound], or on [0, 1] without a bound; W and b uniform on [-k, k], k the inverse
    root of the number of inputs.

    Args:
        d_in: D.
        d_hidden: H, of each layer.
        n_layers: number of layers.
        bound: the largest \|u_i\|, such as 2^(1 / T) to let an activation at most double over T steps; None:
            no bound.
    Shapes: input (B, T, D) -> h of the last layer (B, T, H). The state has one h per layer, each (B, H).

    Example:
        >>> IndRNN(d_in=2, d_hidden=8, n_layers=2)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (-1,)

    def __init__(self, d_in: int, d_hidden: int, *, n_layers: int, bound: float | None = None) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        if bound is not None:
            positive("bound", bound)
        self.d_in, self.d_out, self.bound = d_in, d_hidden, bound
        widths = [d_in, *[d_hidden] * (n_layers - 1)]
        self.W = nn.ParameterList([nn.Parameter(torch.empty(d_hidden, width)) for width in widths])
        self.b = nn.ParameterList([nn.Parameter(torch.empty(d_hidden)) for _ in widths])
        self.u = nn.ParameterList([nn.Parameter(torch.empty(d_hidden)) for _ in widths])
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for W, b, u in zip(self.W, self.b, self.u, strict=True):
            k = W.shape[1] ** -0.5
            nn.init.uniform_(W, -k, k)
            nn.init.uniform_(b, -k, k)
            nn.init.uniform_(u, 0.0, 1.0 if self.bound is None else self.bound)

    def symbols(self) -> list[dict[str, Tensor]]:
        return [{"u": u, "W": W, "b": b} for u, W, b in zip(self.u, self.W, self.b, strict=True)]

    @torch.no_grad()
    def _bring_back(self, u: Tensor, bound: float) -> None:
        # Untouched when inside, so that a pass before this one can still run its backward. No graph looks.
        if torch.compiler.is_compiling() or u.abs().max() > bound:
            u.clamp_(-bound, bound)

    def forward(
        self, input: Tensor, state: tuple[Tensor, ...] | None = None
    ) -> tuple[Tensor, tuple[Tensor, ...]]:
        x = sequence(input, self.d_in, self.W[0])
        hs = initial_state(state, tuple(f"h of layer {i}" for i in range(len(self.W))), x, self.d_out)
        last: list[Tensor] = []
        for W, b, u, h in zip(self.W, self.b, self.u, hs, strict=True):
            if self.bound is not None and not torch.compiler.is_exporting():
                self._bring_back(u, self.bound)
            x, state = recurrence(_step(W, b, u), x, (h,))
            last += state
        return x, tuple(last)


def _step(W: Tensor, b: Tensor, u: Tensor) -> Step:
    def step(x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        h = torch.relu(F.linear(x, W, b) + state[0] * u)
        return h, (h,)

    return step
