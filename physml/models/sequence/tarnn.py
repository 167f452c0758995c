"""The time-adaptive recurrent network. Axes: B batch, T time, D features, H hidden units."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, one_of, positive
from physml.models.sequence.incremental import ACTIVATIONS
from physml.ops.cell import recurrent


@recurrent("h", before="d_in")
class TARNN(nn.Module):
    r"""A layer that follows an ODE at every input, with a time constant that input and state set.

    .. math::
        \beta_n &= \sigma(U_g h_{n-1} + W_g u_n + b_g) \\
        z' &= \beta_n \circ [\phi(U_1 z + U_2 h_{n-1} + W_1 u_n + W_2 u_{n-1} + b)
               - z - h_{n-1} + B_1 u_n + B_2 h_{n-1}]

    K Euler steps from :math:`z = h_{n-1}`, each of a size :math:`\alpha_i` that is learned; the last z is
    :math:`h_n`. Where :math:`\beta` is 0 a unit keeps its state, whatever comes.

    Source: Kag and Saligrama, CVPR 2021, https://doi.org/10.1109/CVPR46437.2021.01490, and its code, the
    TensorFlow cell whose gate slows the ODE. A second cell there mixes old and new state by the gate; it is
    not here.
    Choices: u before the first input is 0, as in TensorFlow; in the code for torch it is the first input
    itself. The code has an alpha for every step of the sequence too; here the K of them serve all steps, so
    any length will do. The code makes a second bias that it never uses; it is left out.
    Init: as in the code: matrices 0.1 N(0, 1), biases zero, alpha = 0.01.

    Args:
        d_in: D.
        d_hidden: H.
        n_steps: K.
        activation: phi: "relu", as in the code, "tanh" or "sigmoid".
        alpha: the start of all alpha_i, positive.
    Shapes: u (B, T, D) -> h (B, T, H). The state is (h, before), (B, H) and (B, D): the last input.

    Example:
        >>> TARNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        n_steps: int = 2,
        activation: Literal["relu", "tanh", "sigmoid"] = "relu",
        alpha: float = 0.01,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_steps=n_steps)
        positive("alpha", alpha)
        one_of("activation", activation, ACTIVATIONS)
        self.d_in, self.d_out = d_in, d_hidden
        self.n_steps, self.activation, self.alpha_start = n_steps, activation, float(alpha)
        self.W = nn.Parameter(torch.empty(4 * d_hidden, d_in))  # W_g, W_1, W_2, B_1
        self.U = nn.Parameter(torch.empty(4 * d_hidden, d_hidden))  # U_g, U_1, U_2, B_2
        self.bg = nn.Parameter(torch.empty(d_hidden))
        self.b = nn.Parameter(torch.empty(d_hidden))
        self.alpha = nn.Parameter(torch.empty(n_steps))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.normal_(self.W, 0.0, 0.1)
        nn.init.normal_(self.U, 0.0, 0.1)
        nn.init.zeros_(self.bg)
        nn.init.zeros_(self.b)
        nn.init.constant_(self.alpha, self.alpha_start)

    def symbols(self) -> dict[str, Tensor]:
        symbols: dict[str, Tensor] = {"bg": self.bg, "b": self.b, "alpha": self.alpha}
        for names, packed in ((("Wg", "W1", "W2", "B1"), self.W), (("Ug", "U1", "U2", "B2"), self.U)):
            symbols.update(dict(zip(names, packed.chunk(4), strict=True)))
        return symbols

    def step(self, u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, before = state
        s, phi, z = self.symbols(), ACTIVATIONS[self.activation], h
        gate = torch.sigmoid(F.linear(h, s["Ug"]) + F.linear(u, s["Wg"], self.bg))
        drive = F.linear(h, s["U2"]) + F.linear(u, s["W1"], self.b) + F.linear(before, s["W2"])
        pull = F.linear(u, s["B1"]) + F.linear(h, s["B2"]) - h
        for alpha in self.alpha.unbind():
            z = z + alpha * gate * (phi(F.linear(z, s["U1"]) + drive) - z + pull)
        return z, (z, u)
