"""PDE-GCN. Axes: N nodes, E edges, H channels."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, one_of, positive
from physml.graph.edges import gather
from physml.models.graph.graph_parts import ACTIVATIONS, check_input
from physml.models.graph.graph_propagation import simple_edges
from physml.ops.dropout import dropout

Kind = Literal["diffusion", "wave", "mixed"]


class PDEGCN(nn.Module):
    r"""Layers as explicit steps of a diffusion or a wave equation on the graph.

    .. math::
        L_n(X) &= G^\top\, \sigma(G X K_n^\top)\, K_n, \qquad
        (G X)_{ij} = w_{ij} (X_i - X_j), \quad w_{ij} = 1 / \sqrt{d_i d_j} \\
        \text{diffusion:}\quad X^{n+1} &= X^n - h L_n(X^n) \\
        \text{wave:}\quad X^{n+1} &= 2 X^n - X^{n-1} - h^2 L_n(X^n), \qquad X^{-1} = X^0 \\
        \text{mixed:}\quad s\, \frac{X^{n+1} - 2 X^n + X^{n-1}}{h^2}
              &+ (1 - s) \frac{X^{n+1} - X^n}{h} = -L_n(X^n)

    one row of G for each edge from j to i, and s the logistic function of a trained number. With sigma a
    non-decreasing function -L_n is a monotone map: diffusion lowers the differences along edges if h is small
    enough, and the wave keeps an energy.

    Source: Eliasof et al., NeurIPS 2021, https://arxiv.org/abs/2108.01938, section 3. w, the mixed form and
    the start of K are those of its authors' code, known to us by copies of others; its layer has a ReLU in
    place of tanh.
    Choices: d counts what a node receives, and one more, as in a graph convolution.
    Init: K the identity, s 1/2.
    Args:
        d_in: H.
        n_layers: number of steps.
        kind: "diffusion", "wave" or "mixed".
        h: step.
        activation: sigma.
        dropout: on the gradients G X.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        kind: Kind = "wave",
        h: float = 0.1,
        activation: str = "tanh",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers)
        one_of("kind", kind, ("diffusion", "wave", "mixed"))
        positive("h", h)
        one_of("activation", activation, ACTIVATIONS)
        fraction("dropout", dropout)
        self.d_in = self.d_out = d_in
        self.kind, self.h, self.activation, self.dropout = kind, h, activation, dropout
        self.K = nn.ParameterList(nn.Parameter(torch.eye(d_in)) for _ in range(n_layers))
        self.mix = nn.Parameter(torch.zeros(())) if kind == "mixed" else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        before = x
        for K in self.K:
            x, before = self._step(x, before, self.force(x, K, edge_index)), x
        return x

    def force(self, x: Tensor, K: Tensor, edge_index: Tensor) -> Tensor:
        """L(X), (N, H)."""
        edges = simple_edges(edge_index, len(x))
        degree = 1 + torch.bincount(edges.receiver, minlength=len(x)).to(x.dtype)
        w = (degree[edges.sender] * degree[edges.receiver]).rsqrt()[:, None]
        slope = dropout(
            w * (gather(x, edges.receiver) - gather(x, edges.sender)), self.dropout, self.training
        )
        flow = w * (ACTIVATIONS[self.activation](slope @ K.T) @ K)
        return torch.zeros_like(x).index_add(0, edges.receiver, flow).index_add(0, edges.sender, -flow)

    def _step(self, x: Tensor, before: Tensor, force: Tensor) -> Tensor:
        if self.kind == "diffusion":
            return x - self.h * force
        if self.mix is None:
            return 2 * x - before - self.h**2 * force
        s = torch.sigmoid(self.mix)
        second, first = s / self.h**2, (1 - s) / self.h
        return (second * (2 * x - before) + first * x - force) / (second + first)
