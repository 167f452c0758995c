"""The incremental recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of, positive
from physml.ops.cell import recurrent

ACTIVATIONS = {"relu": torch.relu, "tanh": torch.tanh, "sigmoid": torch.sigmoid}


@recurrent("h")
class IncrementalRNN(nn.Module):
    r"""A layer that moves, at every input, towards the equilibrium of an ODE in the increment of its state.

    .. math:: g' = \phi(U (g + h_{n-1}) + W u_n + b) - (g + h_{n-1})

    K Euler steps, each of a size that is learned:

    .. math::
        g_0 &= h_{n-1}, \qquad
        g_i = g_{i-1} + \eta_i\,[\phi(U (g_{i-1} + h_{n-1}) + W u_n + b) - (g_{i-1} + h_{n-1})] \\
        h_n &= g_K

    At the equilibrium :math:`g + h_{n-1}` does not depend on :math:`h_{n-1}`, so that
    :math:`\partial h_n / \partial h_{n-1} = -I`: gradients neither vanish nor explode.

    Source: Kag, Zhang and Saligrama, ICLR 2020, https://openreview.net/forum?id=HylpqA4FwS. No code of it by
    its authors could be had. Start, step and learned sizes are those of a public cell of others, which cites
    the paper, https://github.com/YunYunY/OnlineRNN, and, with further terms, of the code of `TARNN`, by the
    same authors.
    Choices: g starts at h_{n-1}, as in both; from 0, one small step would forget all of h. They have an eta
    for every step of the sequence too; here the K of them serve all steps, so any length will do. U is free;
    OnlineRNN has :math:`P = I + V_2 V_1` of low rank instead, and once more around the sum,
    :math:`\phi(P (P (g + h_{n-1}) + W u_n + b))`.
    Init: as in the code of TARNN: W and U 0.1 N(0, 1), b zero, eta = 0.01; OnlineRNN has K = 3 and 0.001.

    Args:
        d_in: D.
        d_hidden: H.
        n_steps: K.
        activation: phi: "relu", as in both, "tanh" or "sigmoid".
        eta: the start of all eta_i, positive.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h,), (B, H).

    Example:
        >>> IncrementalRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        n_steps: int = 1,
        activation: Literal["relu", "tanh", "sigmoid"] = "relu",
        eta: float = 0.01,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_steps=n_steps)
        positive("eta", eta)
        one_of("activation", activation, ACTIVATIONS)
        self.d_in, self.d_out = d_in, d_hidden
        self.n_steps, self.activation, self.eta_start = n_steps, activation, float(eta)
        self.W = nn.Parameter(torch.empty(d_hidden, d_in))
        self.U = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.eta = nn.Parameter(torch.empty(n_steps))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.W, 0.0, 0.1)
        nn.init.normal_(self.U, 0.0, 0.1)
        nn.init.zeros_(self.b)
        nn.init.constant_(self.eta, self.eta_start)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.W, "U": self.U, "b": self.b, "eta": self.eta}

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        (h,) = state
        phi, drive, g = ACTIVATIONS[self.activation], F.linear(u, self.W, self.b), h
        for eta in self.eta.unbind():
            both = g + h
            g = g + eta * (phi(F.linear(both, self.U) + drive) - both)
        return g, (g,)
