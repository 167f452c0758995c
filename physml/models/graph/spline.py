"""SplineCNN. Axes: N nodes, E edges, D features, H channels, K knots per side."""

import itertools
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import count, each, has_shape, positive
from physml.base.errors import InputError
from physml.graph.edges import gather, sorted_edges
from physml.models.graph.graph_parts import check_input
from physml.ops.elu import elu


class SplineConvolution(nn.Module):
    r"""Weights that are a continuous function of where the sender lies, made of B-splines of degree 1.

    .. math::
        X_i \mapsto \frac{1}{|N_i|} \sum_{j \in N_i} \sum_p B_p(u_{ij}) W_p X_j + R X_i + b, \qquad
        B_p(u) = \prod_a \max\big(0, 1 - |(K - 1) u_a - p_a|\big)

    with p in {0, ..., K - 1} for each axis of u in [0, 1]. At most 2^A of the K^A weights act on an edge.

    Source: Fey et al., CVPR 2018, https://arxiv.org/abs/1711.08920, with the mean over neighbours;
    R and b as in PyG's SplineConv, which needs a compiled extension.
    Init: W and R uniform on [-k, k], k = (K^A d_in)^(-1/2) for W, d_in^(-1/2) for R; b 0.
    Args:
        d_in: channels in.
        d_out: channels out.
        n_knots: K.
        d_place: A.
    Shapes: x (N, d_in), u (E, A), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int, *, n_knots: int = 5, d_place: int = 2) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out, n_knots=n_knots, d_place=d_place)
        if n_knots < 2:
            raise InputError(f"n_knots must be at least 2, the ends of each side; got {n_knots}.")
        self.d_in, self.d_out, self.n_knots, self.d_place = d_in, d_out, n_knots, d_place
        self.W = nn.Parameter(torch.empty(n_knots**d_place, d_in, d_out))
        self.R = nn.Linear(d_in, d_out, bias=False)
        self.b = nn.Parameter(torch.empty(d_out))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        k = (len(self.W) * self.d_in) ** -0.5
        nn.init.uniform_(self.W, -k, k)
        nn.init.zeros_(self.b)

    def forward(self, x: Tensor, u: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        has_shape("u", u, (edge_index.shape[1], self.d_place), hint="One place in [0, 1] per edge and axis.")
        edges = sorted_edges(edge_index, len(x))
        knot, share = _splines(u, self.n_knots)  # (2^A, E) each
        mixed = (x @ self.W.permute(1, 0, 2).flatten(1)).view(-1, self.d_out)  # row i K^A + p: X_i W_p
        sent = sum(
            s[:, None] * gather(mixed, edges.sender * len(self.W) + p)
            for p, s in zip(knot, share, strict=True)
        )
        total = x.new_zeros(len(x), self.d_out).index_add(0, edges.receiver, sent)
        degree = torch.bincount(edges.receiver, minlength=edges.n).clamp(min=1).to(x.dtype)
        return total / degree[:, None] + self.R(x) + self.b

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.W, "R": self.R.weight, "b": self.b}


def _splines(u: Tensor, K: int) -> tuple[Tensor, Tensor]:
    """Number and share of the knots around each place, (2^A, E)."""
    at = u.clamp(0, 1) * (K - 1)
    low = at.detach().floor().clamp(max=K - 2).long()
    knots, shares = [], []
    for corner in itertools.product((0, 1), repeat=u.shape[1]):
        knot, share = torch.zeros_like(low[:, 0]), torch.ones_like(at[:, 0])
        for a, up in enumerate(corner):
            far = at[:, a] - low[:, a]
            knot, share = knot * K + low[:, a] + up, share * (far if up else 1 - far)
        knots.append(knot)
        shares.append(share)
    return torch.stack(knots), torch.stack(shares)


class SplineCNN(nn.Module):
    r"""A stack of `SplineConvolution` with ELU, on nodes that have places among their features.

    .. math::
        X^n = \mathrm{ELU}(F_n(X^{n-1}, u)), \qquad
        u_{ij} = \mathrm{clip}_{[0, 1]}\Big(\frac12 + \frac{p_j - p_i}{2 \rho}\Big)

    Features named in places are p, the others X^0. Set net.hidden=null, so that these are not mixed before.

    Source: Fey et al., CVPR 2018, https://arxiv.org/abs/1711.08920, section 4.1.
    Choices: rho is given, where the paper has the largest difference of each graph; no pooling of nodes
    between layers, which the paper's network for superpixels has.
    Args:
        d_in: D.
        d_hidden: H.
        n_layers: N.
        places: numbers of the features that are places, from 0 on.
        reach: rho.
        n_knots: K.
    Shapes: x (N, D), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        n_layers: int,
        *,
        places: Sequence[int] = (1, 2),
        reach: float = 1.0,
        n_knots: int = 5,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        positive("reach", reach)
        if not places or len(set(places)) != len(places) or not all(0 <= p < d_in for p in places):
            raise InputError(
                f"places must be different numbers of features in [0, {d_in}); got {list(places)}. SplineCNN "
                "is for nodes that have places, such as superpixels."
            )
        if len(places) == d_in:
            raise InputError(f"all {d_in} features are places; SplineCNN needs one that is not.")
        self.d_in, self.d_out, self.places, self.reach = d_in, d_hidden, list(places), reach
        self.others = [k for k in range(d_in) if k not in self.places]
        sizes = [len(self.others)] + [d_hidden] * (n_layers - 1)
        self.layers = nn.ModuleList(
            SplineConvolution(size, d_hidden, n_knots=n_knots, d_place=len(places)) for size in sizes
        )

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        place, x = x[:, self.places], x[:, self.others]
        u = 0.5 + (gather(place, edge_index[0]) - gather(place, edge_index[1])) / (2 * self.reach)
        for layer in self.layers:
            x = elu(layer(x, u.clamp(0, 1), edge_index))
        return x
