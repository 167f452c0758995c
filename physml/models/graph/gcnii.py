"""Deep graph convolutions with an initial residual. Axes: N nodes, E edges, H channels."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, non_negative, one_of
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import gcn_spread
from physml.ops.dropout import dropout


class GCNII(nn.Module):
    r"""Graph convolutions with a link to the start and weights close to the identity.

    .. math::
        X^n = \sigma\big(((1 - \alpha) P X^{n-1} + \alpha X^0)((1 - \beta_n) I + \beta_n W_n)\big), \qquad
        \beta_n = \log(\lambda / n + 1)

    with P the matrix of equation 7.5. With variant "star", GCNII*, propagated and initial features have
    weights of their own,

    .. math::
        X^n = \sigma\big((1 - \alpha) P X^{n-1} ((1 - \beta_n) I + \beta_n W_n)
              + \alpha X^0 ((1 - \beta_n) I + \beta_n V_n)\big)

    and with "star-official", as in the authors' code, what meets these weights has no factor 1 - alpha or
    alpha: :math:`(1 - \beta_n) ((1 - \alpha) P X^{n-1} + \alpha X^0) + \beta_n (P X^{n-1} W_n + X^0 V_n)`.

    Source: Chen et al., ICML 2020, https://arxiv.org/abs/2007.02133.
    Init: W and V uniform on [-k, k], k = H^(-1/2), as in the authors' code.
    Args:
        d_in: H.
        n_layers: N.
        alpha: share of the initial features.
        lam: lambda.
        dropout: on the input of each layer; X^0 is added as it is.
        variant: None, "star" or "star-official".
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        alpha: float = 0.1,
        lam: float = 0.5,
        dropout: float = 0.0,
        variant: Literal["star", "star-official"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers)
        fraction("alpha", alpha)
        non_negative("lam", lam)
        fraction("dropout", dropout)
        one_of("variant", variant, ("star", "star-official"), null=True)
        self.d_in = self.d_out = d_in
        self.alpha, self.lam, self.dropout, self.variant = alpha, lam, dropout, variant
        self.W = nn.ParameterList(nn.Parameter(torch.empty(d_in, d_in)) for _ in range(n_layers))
        self.V = nn.ParameterList(nn.Parameter(torch.empty_like(W)) for W in self.W if variant is not None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for weight in (*self.W, *self.V):
            nn.init.uniform_(weight, -(self.d_in**-0.5), self.d_in**-0.5)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        spread, start = gcn_spread(x, edge_index, edge_weight), x
        for n, W in enumerate(self.W, 1):
            beta = math.log(self.lam / n + 1)
            x = dropout(x, self.dropout, self.training)
            spread_x = spread(x)
            mixed = (1 - self.alpha) * spread_x + self.alpha * start
            if self.variant is None:
                x = torch.relu(torch.addmm(mixed, mixed, W, beta=1 - beta, alpha=beta))
                continue
            of_spread, of_start = (1 - self.alpha, self.alpha) if self.variant == "star" else (1.0, 1.0)
            x = torch.addmm(mixed, spread_x, W, beta=1 - beta, alpha=beta * of_spread)
            x = torch.relu(torch.addmm(x, start, self.V[n - 1], alpha=beta * of_start))
        return x
