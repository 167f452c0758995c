"""GloGNN. Axes: N nodes, E edges, D features, H channels."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, non_negative, one_of, positive
from physml.base.errors import InputError
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input, check_nodes, known_nodes
from physml.models.graph.graph_propagation import gcn_spread, link_spread, looped_mean_spread
from physml.ops.dropout import dropout


class Unchanged(nn.Module):
    """x (N, C) as it is, called as a layer on a graph."""

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return x


class GloGNN(nn.Module):
    r"""Each node as a mixture of all nodes, by coefficients Z that solve a least-squares problem per layer.

    .. math::
        Z^n &= \arg\min_Z \|X^{n-1} - (1 - \gamma) Z X^{n-1} - \gamma X^0\|^2 + \alpha \|Z\|^2
               + \beta \Big\|Z - \sum_{k=1}^K \lambda_k P^k\Big\|^2 \\
        X^n &= (1 - \gamma) Z^n X^{n-1} + \gamma X^0, \qquad
        X^0 = \mathrm{ReLU}\big(\delta (X W_X + b_X) + (1 - \delta)(A W_A + b_A)\big)

    with P the matrix of equation 7.5, lambda trained and A[i, j] = 1 where i receives from j. With matrix
    "official" both P and A are :math:`D^{-1} (A + I)`, as in its code. W_A has a row for each node, so that
    it knows one graph alone. Z itself is never made: with
    :math:`Q = X ((1 - \gamma)^2 X^\top X + (\alpha + \beta) I)^{-1}`,
    :math:`Z X = (1 - \gamma)(X - \gamma X^0) X^\top Q + \beta \sum_k \lambda_k P^k Q`.

    Source: Li et al., ICML 2022, https://arxiv.org/abs/2205.07308, section 4.
    Choices: without n_classes mixtures are of H channels and the decoder acts after them.
    Init: lambda 1 / K.
    Args:
        d_in: D.
        n_nodes: N, which the task gives.
        d_hidden: H.
        n_layers: number of mixtures.
        alpha: weight of small coefficients.
        beta: weight of coefficients near the graph's.
        gamma: share of the start.
        delta: share of features against links.
        n_orders: K.
        dropout: on X^0.
        matrix: None: P and A as above; "official": one matrix for both.
        n_classes: C: mixtures are of C class scores, a linear map of X^0 after its dropout, as in the paper
            and its code, and the net's decoder=layer adds nothing; None: of H channels.
    Shapes: x (N, D), a tensor or `Rows`, edge_index (2, E) -> (N, H), or (N, C) with n_classes.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a task of many graphs, and for a graph of another size.
    """

    version: ClassVar[int] = 1
    one_graph: ClassVar[bool] = True
    takes_rows: ClassVar[bool] = True

    def __init__(
        self,
        d_in: int,
        n_nodes: int | None,
        *,
        d_hidden: int,
        n_layers: int = 1,
        alpha: float = 1.0,
        beta: float = 1.0,
        gamma: float = 0.5,
        delta: float = 0.5,
        n_orders: int = 2,
        dropout: float = 0.0,
        matrix: Literal["official"] | None = None,
        n_classes: int | None = None,
    ) -> None:
        super().__init__()
        n_nodes = known_nodes("GloGNN", n_nodes)
        each(count, d_in=d_in, n_nodes=n_nodes, d_hidden=d_hidden, n_layers=n_layers, n_orders=n_orders)
        each(non_negative, alpha=alpha, beta=beta)
        positive("alpha + beta", alpha + beta)
        if n_classes is not None:
            count("n_classes", n_classes)
        each(fraction, gamma=gamma, delta=delta, dropout=dropout)
        one_of("matrix", matrix, ("official",), null=True)
        self.d_in, self.n_nodes, self.d_out, self.matrix = d_in, n_nodes, n_classes or d_hidden, matrix
        self.n_layers, self.alpha, self.beta, self.gamma, self.delta = n_layers, alpha, beta, gamma, delta
        self.n_orders, self.dropout = n_orders, dropout
        self.of_links, self.of_features = nn.Linear(n_nodes, d_hidden), nn.Linear(d_in, d_hidden)
        self.scores = None if n_classes is None else nn.Linear(d_hidden, n_classes)
        self.lam = nn.Parameter(torch.full((n_orders,), 1 / n_orders))

    def head(self, d_out: int) -> nn.Module:
        """Nothing, for a read-out of the mixed class scores; InputError without n_classes, or another."""
        if self.scores is None or d_out != self.d_out:
            raise InputError(
                f"decoder='layer' reads GloGNN's own class scores, for {d_out} outputs; its n_classes is "
                f"{self.d_out if self.scores is not None else None}. Set model.n_classes={d_out}."
            )
        return Unchanged()

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        start = dropout(self.start(x, edge_index), self.dropout, self.training)
        if self.scores is not None:
            start = self.scores(start)
        spread = gcn_spread if self.matrix is None else looped_mean_spread
        P, X = spread(start, edge_index), start
        kept, ridge = 1 - self.gamma, (self.alpha + self.beta) * torch.eye(self.d_out).to(start)
        for _ in range(self.n_layers):
            Q = torch.linalg.solve(kept**2 * X.T @ X + ridge, X, left=False)
            mixed, far = kept * (X - self.gamma * start) @ (X.T @ Q), Q
            for k in range(self.n_orders):
                far = P(far)
                mixed = mixed + self.beta * self.lam[k] * far
            X = kept * mixed + self.gamma * start
        return X

    def start(self, x: Features, edge_index: Tensor) -> Tensor:
        """X^0."""
        check_input(x, edge_index, None, self.d_in)
        check_nodes("GloGNN", x, self.n_nodes)
        links = link_spread if self.matrix is None else looped_mean_spread
        h_A = links(x, edge_index)(self.of_links.weight.T) + self.of_links.bias
        h_X = linear(x, self.of_features.weight, self.of_features.bias)
        return torch.relu(self.delta * h_X + (1 - self.delta) * h_A)
