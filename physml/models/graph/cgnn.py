"""CGNN, a linear flow that remembers its start. Axes: N nodes, E edges, H channels."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, one_of, positive
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import gcn_spread


class CGNN(nn.Module):
    r"""A continuous graph neural network without weights.

    .. math:: X' = (A - I) X + X^0, \qquad A = \tfrac{\alpha}{2} (I + P), \qquad X(0) = X^0

    with P the matrix of equation 7.5 and alpha in (0, 1) trained, by n_steps steps of the classical
    Runge-Kutta method up to T. For T to infinity it tends to :math:`(I - A)^{-1} X^0`.

    Source: Xhonneux et al., ICML 2020, https://arxiv.org/abs/1912.00967, section 4.
    Choices: the flow is that of the text; with flow "official" that of its code, :math:`X' =
    \tfrac{\alpha}{2} (P - I) X + X^0` whose X^0 passes no gradient. P has loops, as our other layers; alpha
    is the sigmoid of one number for all nodes, which starts at 0, where the code has one for each node and a
    ReLU after the flow; fixed steps, where the paper's are adaptive.
    Args:
        d_in: H.
        T: end of time.
        n_steps: steps up to T.
        flow: "official", see Choices; or null.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, *, T: float, n_steps: int, flow: Literal["official"] | None = None) -> None:
        super().__init__()
        count("d_in", d_in)
        positive("T", T)
        count("n_steps", n_steps)
        one_of("flow", flow, ("official",), null=True)
        self.flow = flow
        self.d_in = self.d_out = d_in
        self.T, self.n_steps = float(T), n_steps
        self.a = nn.Parameter(torch.zeros(()))

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        spread, half, start = gcn_spread(x, edge_index, edge_weight), torch.sigmoid(self.a) / 2, x

        def slope(x: Tensor) -> Tensor:
            if self.flow == "official":
                return half * (spread(x) - x) + start.detach()
            return half * (x + spread(x)) - x + start

        h = self.T / self.n_steps
        for _ in range(self.n_steps):
            k1 = slope(x)
            k2 = slope(x + h / 2 * k1)
            k3 = slope(x + h / 2 * k2)
            x = x + h / 6 * (k1 + 2 * (k2 + k3) + slope(x + h * k3))
        return x

    def symbols(self) -> dict[str, Tensor]:
        return {"a": self.a}
