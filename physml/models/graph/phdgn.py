"""Port-Hamiltonian deep graph networks. Axes: N nodes, E edges, H channels."""

import math
from collections.abc import Iterator
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, one_of, positive
from physml.models.graph.graph_parts import check_input, last
from physml.models.graph.graph_propagation import Spread, gcn_spread, link_spread

Aggregation = Literal["sum", "gcn"]
State = Literal["p", "q", "pq"]


class PHDGN(nn.Module):
    r"""A Hamiltonian system on the nodes, with momenta p and positions q, damped and driven where wanted.

    .. math::
        q' &= \nabla_p H, \qquad p' = -\nabla_q H - \alpha D(q) \odot \nabla_p H + \beta F(q, t) \\
        H(p, q) &= \sum_{i} 1^\top \big[\log\cosh(W_p p_i + V_p (S_p p)_i + b_p)
                   + \log\cosh(W_q q_i + V_q (S_q q)_i + b_q)\big]

    with S the sum over neighbours, or the normalised one of a graph convolution. The gradient of a part is
    :math:`W^\top s_i + V^\top (S^\top s)_i` with s the tanh of the same sums: what a node sends comes back.
    Without D and F the energy H is conserved, and the derivative of a state by an earlier one is symplectic:
    its norm is at least 1.

    One step of size :math:`\epsilon` per layer, positions first, with the same weights in all (symplectic
    Euler, explicit because H splits):

    .. math::
        q^n &= q^{n-1} + \epsilon\, \nabla_p H(p^{n-1}) \\
        p^n &= p^{n-1} + \epsilon\,[-\nabla_q H(q^n) - \alpha D(q^n) \odot \nabla_p H(p^{n-1})
               + \beta F(q^n, (n - 1) \epsilon)]

    Damping D: "channels", :math:`\mathrm{ReLU}(d)`, one number per channel; "graph",
    :math:`\mathrm{ReLU}(\sum_{j \in N_i} C q_j)`. Force F: "graph",
    :math:`\tanh(\sum_{j \in N_i} U [q_j, t])`.

    Source: Heilig et al., ICLR 2025, https://arxiv.org/abs/2405.17163; order of the steps and forms of D and
    F as in its official code.
    Choices: p^0 = q^0 = X. The gradient has S^T, so that it is one on directed graphs too; the code has S,
    the same where edges go both ways. The code's perceptrons for D and F are left out.
    Init: W, b, d and V, C, U uniform on [-k, k] with k = H^(-1/2). "official": V and C Glorot uniform, d
    normal of variance 2 / H, as in its code, which leaves U as memory has it.
    Args:
        d_in: H.
        n_layers: number of steps.
        epsilon: step size.
        aggregate_p: S of the momenta, "sum" or "gcn".
        aggregate_q: S of the positions.
        damping: D; None: none.
        alpha: strength of D.
        force: F; None: none.
        beta: strength of F.
        state: what is given back, "p", "q" or "pq", side by side.
        init: None or "official", see above.
    Shapes: x (N, H), edge_index (2, E) -> (N, H), or (N, 2 H) with state "pq".
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.

    Example:
        >>> layer = PHDGN(8, 4, epsilon=0.1)
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 0]])).shape
        torch.Size([3, 16])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        n_layers: int,
        *,
        epsilon: float = 0.1,
        aggregate_p: Aggregation = "sum",
        aggregate_q: Aggregation = "sum",
        damping: Literal["channels", "graph"] | None = None,
        alpha: float = 1.0,
        force: Literal["graph"] | None = None,
        beta: float = 1.0,
        state: State = "pq",
        init: Literal["official"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, n_layers=n_layers)
        positive("epsilon", epsilon)
        non_negative("alpha", alpha)
        one_of("aggregate_p", aggregate_p, ("sum", "gcn"))
        one_of("aggregate_q", aggregate_q, ("sum", "gcn"))
        one_of("state", state, ("p", "q", "pq"))
        one_of("damping", damping, ("channels", "graph"), null=True)
        one_of("force", force, ("graph",), null=True)
        one_of("init", init, ("official",), null=True)
        self.d_in, self.d_out = d_in, 2 * d_in if state == "pq" else d_in
        self.n_layers, self.epsilon, self.alpha, self.beta = n_layers, epsilon, alpha, beta
        self.damping, self.force, self.state, self.init = damping, force, state, init
        self.energy_p, self.energy_q = Energy(d_in, aggregate_p), Energy(d_in, aggregate_q)
        self.d = nn.Parameter(torch.empty(d_in)) if damping == "channels" else None
        self.C = nn.Parameter(torch.empty(d_in, d_in)) if damping == "graph" else None
        self.U = nn.Parameter(torch.empty(d_in, d_in + 1)) if force else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for p in (self.d, self.C, self.U):
            if p is not None:
                nn.init.uniform_(p, -(self.d_in**-0.5), self.d_in**-0.5)
        if self.init == "official":
            for p in (self.energy_p.V, self.energy_q.V, self.C):
                if p is not None:
                    nn.init.xavier_uniform_(p)
            if self.d is not None:
                nn.init.normal_(self.d, std=(2 / self.d_in) ** 0.5)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        p, q = last(self.steps(x, edge_index))
        return {"p": p, "q": q}[self.state] if self.state != "pq" else torch.cat([p, q], 1)

    def steps(
        self, x: Tensor, edge_index: Tensor, q: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(p^n, q^n) after each step, n = 1 to n_layers; `q` (N, H) in place of q^0 = X."""
        check_input(x, edge_index, None, self.d_in)
        p, q = x, x if q is None else q
        for n in range(self.n_layers):
            speed = self.energy_p.gradient(p, edge_index)
            q = q + self.epsilon * speed
            push = -self.energy_q.gradient(q, edge_index)
            if self.damping:
                push = push - self.alpha * self._damping(q, edge_index) * speed
            if self.force:
                push = push + self.beta * self._force(q, n * self.epsilon, edge_index)
            p = p + self.epsilon * push
            yield p, q

    def energy(self, p: Tensor, q: Tensor, edge_index: Tensor) -> Tensor:
        """H(p, q), a number."""
        return self.energy_p(p, edge_index) + self.energy_q(q, edge_index)

    def _damping(self, q: Tensor, edge_index: Tensor) -> Tensor:
        if self.d is not None:
            return torch.relu(self.d)
        assert self.C is not None
        return torch.relu(link_spread(q, edge_index)(q @ self.C.T))

    def _force(self, q: Tensor, t: float, edge_index: Tensor) -> Tensor:
        assert self.U is not None
        return torch.tanh(link_spread(q, edge_index)(q @ self.U[:, :-1].T + t * self.U[:, -1]))

    def symbols(self) -> dict[str, Tensor]:
        symbols: dict[str, Tensor] = {}
        for half, energy in (("p", self.energy_p), ("q", self.energy_q)):
            symbols |= {f"{name}_{half}": p for name, p in energy.named_parameters()}
        own = {"d": self.d, "C": self.C, "U": self.U}
        return symbols | {name: p for name, p in own.items() if p is not None}


class Energy(nn.Module):
    r"""One half of the Hamiltonian, :math:`\sum_i 1^\top \log\cosh(W x_i + V (S x)_i + b)`.

    Args:
        d: H.
        aggregate: S.
    Shapes: x (N, H), edge_index (2, E) -> a number; gradient (N, H).
    """

    def __init__(self, d: int, aggregate: Aggregation) -> None:
        super().__init__()
        self.aggregate = aggregate
        self.W, self.V = nn.Parameter(torch.empty(d, d)), nn.Parameter(torch.empty(d, d))
        self.b = nn.Parameter(torch.empty(d))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        k = len(self.b) ** -0.5
        for p in (self.W, self.V, self.b):
            nn.init.uniform_(p, -k, k)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        total = self._sums(x, self._spread(x, edge_index)).abs()
        return (total + F.softplus(-2 * total) - math.log(2)).sum()  # log cosh, which overflows nowhere

    def gradient(self, x: Tensor, edge_index: Tensor) -> Tensor:
        spread = self._spread(x, edge_index)
        s = torch.tanh(self._sums(x, spread))
        return s @ self.W + spread.back(s @ self.V)

    def _sums(self, x: Tensor, spread: Spread) -> Tensor:
        return torch.addmm(self.b, x, self.W.T) + spread(x @ self.V.T)

    def _spread(self, x: Tensor, edge_index: Tensor) -> Spread:
        if self.aggregate == "sum":
            return link_spread(x, edge_index)
        spread = gcn_spread(x, edge_index)
        assert isinstance(spread, Spread)  # without edge weights
        return spread
