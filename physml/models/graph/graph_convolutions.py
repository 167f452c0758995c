"""Message-passing layers of the baselines of GraphCON. Axes: N nodes, E edges, H channels, K kernels."""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, positive
from physml.graph.edges import Edges, gather, sorted_edges
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import link_spread


class SumConvolution(nn.Module):
    r"""A plain sum over neighbours, :math:`X_i \mapsto W \sum_{j \in N_i} X_j`.

    Each neighbour counts once, a loop does not. The simple coupling of A-DGN.

    Source: Gravina et al., ICLR 2023, https://arxiv.org/abs/2210.09789, and its code.
    Init: W uniform on [-k, k], k = d_in^(-1/2), as in the code.
    Args:
        d_in: channels in.
        d_out: channels out.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.lin = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        return link_spread(x, edge_index)(self.lin(x))

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.lin.weight}


class IsomorphismConvolution(nn.Module):
    r"""GIN, the sum over neighbours behind a perceptron of two layers.

    .. math:: X_i \mapsto W_2\, \mathrm{ReLU}\Big(W_1 \big((1 + \epsilon) X_i + \sum_{j \in N_i} X_j\big)
              + b_1\Big) + b_2

    with epsilon trained from 0 on. The same numbers as PyG's GINConv with the same weights.

    Source: Xu et al., ICLR 2019, https://arxiv.org/abs/1810.00826, equation 4.1.
    Args:
        d_in: channels in.
        d_out: channels out, and of the hidden layer.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.lin_1, self.lin_2 = nn.Linear(d_in, d_out), nn.Linear(d_out, d_out)
        self.epsilon = nn.Parameter(torch.zeros(()))

    def reset_parameters(self) -> None:
        nn.init.zeros_(self.epsilon)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        total = torch.zeros_like(x).index_add(0, edges.receiver, gather(x, edges.sender))
        return self.lin_2(torch.relu(self.lin_1((1 + self.epsilon) * x + total)))


class GatedConvolution(nn.Module):
    r"""GatedGCN, a gate for each edge and channel.

    .. math::
        X_i \mapsto U X_i + \sum_{j \in N_i} \eta_{ij} \odot V X_j + b, \qquad
        \eta_{ij} = \mathrm{sigmoid}(A X_i + B X_j + c)

    or, normalised, :math:`\eta_{ij} / (\sum_{k \in N_i} \eta_{ik} + 10^{-6})` in place of
    :math:`\eta_{ij}`. Not normalised it has the numbers of PyG's ResGatedGraphConv with the same weights.

    Source: Bresson and Laurent 2017, https://arxiv.org/abs/1711.07553, equation 11; normalised, as GatedGCN:
    Dwivedi et al. 2020, https://arxiv.org/abs/2003.00982.
    Choices: edges have no features here, and so none that a layer passes on.
    Init: that of a torch Linear, as in the code of GatedGCN; in that of the first paper uniform on [-k, k],
    k = (2 / d_in)^(1/2), biases 0.
    Args:
        d_in: channels in.
        d_out: channels out.
        normalized: whether the gates of a node add up to 1.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int, *, normalized: bool = True) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out, self.normalized = d_in, d_out, normalized
        self.U, self.V = nn.Linear(d_in, d_out), nn.Linear(d_in, d_out, bias=False)
        self.A, self.B = nn.Linear(d_in, d_out), nn.Linear(d_in, d_out, bias=False)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        eta = torch.sigmoid(gather(self.A(x), edges.receiver) + gather(self.B(x), edges.sender))
        own = self.U(x)
        total = torch.zeros_like(own).index_add(0, edges.receiver, eta * gather(self.V(x), edges.sender))
        if self.normalized:
            total = total / (torch.zeros_like(own).index_add(0, edges.receiver, eta) + 1e-6)
        return own + total

    def symbols(self) -> dict[str, Tensor]:
        return {
            **{name: getattr(self, name).weight for name in "UVAB"},
            **{"b": self.U.bias, "c": self.A.bias},
        }


class PrincipalConvolution(nn.Module):
    r"""PNA, four aggregations of the neighbours at three scales of the degree.

    .. math::
        X_i \mapsto W \big[X_i \,|\, s \cdot m \;\text{for}\; s \in \{1, \lambda_i, \lambda_i^{-1}\},\;
        m \in \{\mathrm{mean}, \mathrm{max}, \mathrm{min}, \mathrm{std}\}_{j \in N_i} X_j\big] + b,
        \qquad \lambda_i = \log(d_i + 1) / \delta

    Source: Corso et al., NeurIPS 2020, https://arxiv.org/abs/2004.05718, equations 5 to 7.
    Choices: neighbours as they are, without a map of each message; one tower; a node that receives nothing
    has aggregations 0; the variance is cut at 0 and gets 1e-5 below the root.
    Init: that of a torch Linear; in the code Glorot uniform times the inverse of the channels in, biases 0.
    Args:
        d_in: channels in.
        d_out: channels out.
        delta: mean of log(d + 1) over the nodes of train.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 2

    def __init__(self, d_in: int, d_out: int, *, delta: float) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        positive("delta", delta)
        self.d_in, self.d_out, self.delta = d_in, d_out, delta
        self.lin = nn.Linear(13 * d_in, d_out)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        sent, degree = gather(x, edges.sender), degrees(edges).to(x.dtype)[:, None]
        zero, some = torch.zeros_like(x), degree.clamp(min=1)
        mean = zero.index_add(0, edges.receiver, sent) / some
        square = zero.index_add(0, edges.receiver, sent.square()) / some
        std = torch.sqrt(torch.relu(square - mean.square()) + 1e-5) * (degree > 0)
        top, low = extreme("max", sent, edges, degree), extreme("min", sent, edges, degree)
        aggregates = torch.cat([mean, top, low, std], 1)
        return self.lin(torch.cat([x, *at_scales(aggregates, degree, self.delta)], 1))

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.lin.weight, "b": self.lin.bias}


def at_scales(m: Tensor, degree: Tensor, delta: float) -> tuple[Tensor, Tensor, Tensor]:
    """Aggregates (N, H) times 1, lambda and 1 / lambda, of which the last is 0 at degree 0; degree (N, 1)."""
    scale = torch.log(degree + 1) / delta
    inverse = torch.where(degree > 0, 1 / scale.clamp(min=1e-12), 0)
    return m, scale * m, inverse * m


def extreme(how: Literal["max", "min"], message: Tensor, edges: Edges, degree: Tensor) -> Tensor:
    """The largest or smallest message of each node, (N, H); 0 where none comes. degree: (N, 1)."""
    # What stands there before shares the gradient with messages of its own value: 0 would, infinity can't.
    start = message.new_full((edges.n, message.shape[1]), -torch.inf if how == "max" else torch.inf)
    place = edges.receiver[:, None].expand_as(message)
    return torch.where(degree > 0, start.scatter_reduce(0, place, message, f"a{how}"), 0)


class MixtureConvolution(nn.Module):
    r"""MoNet, Gaussian kernels of an edge's place, here of the degrees at its ends.

    .. math::
        X_i \mapsto \sum_{k=1}^K \sum_{j \in N_i} w_k(u_{ij}) W_k X_j + b, \qquad
        w_k(u) = \exp\big(-\tfrac12 \|s_k \odot (u - \mu_k)\|^2\big)

    with :math:`u_{ij} = \tanh(A (d_j^{-1/2}, d_i^{-1/2}) + a)`, where a degree counts what a node receives
    and one more for itself.

    Source: Monti et al., CVPR 2017, https://arxiv.org/abs/1611.08402, equations 11 and 12; places by degrees:
    Dwivedi et al. 2020, https://arxiv.org/abs/2003.00982.
    Choices: b is added before the activation of a stack, in the code of the second paper behind its ReLU.
    Init: mu standard normal, s 1, W Glorot uniform, b 0; in that code mu normal with deviation 0.1 and W
    Glorot normal with the gain of a ReLU.
    Args:
        d_in: channels in.
        d_out: channels out.
        n_kernels: K.
        d_place: width of u.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int, *, n_kernels: int = 3, d_place: int = 2) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out, n_kernels=n_kernels, d_place=d_place)
        self.d_in, self.d_out, self.n_kernels = d_in, d_out, n_kernels
        self.lin = nn.Linear(d_in, n_kernels * d_out, bias=False)
        self.place = nn.Linear(2, d_place)
        self.mu = nn.Parameter(torch.empty(n_kernels, d_place))
        self.s = nn.Parameter(torch.empty(n_kernels, d_place))
        self.bias = nn.Parameter(torch.empty(d_out))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        nn.init.normal_(self.mu)
        nn.init.ones_(self.s)
        nn.init.zeros_(self.bias)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = sorted_edges(edge_index, len(x))
        scale = (degrees(edges).to(x.dtype) + 1).rsqrt()
        u = torch.tanh(self.place(torch.stack([scale[edges.sender], scale[edges.receiver]], 1)))
        w = torch.exp(-0.5 * (self.s * (u[:, None] - self.mu)).square().sum(-1))  # (E, K)
        sent = gather(self.lin(x), edges.sender).view(-1, self.n_kernels, self.d_out)
        total = x.new_zeros(len(x), self.d_out).index_add(0, edges.receiver, (w[:, :, None] * sent).sum(1))
        return total + self.bias

    def symbols(self) -> dict[str, Tensor]:
        return {
            "W": self.lin.weight,
            "A": self.place.weight,
            "a": self.place.bias,
            "mu": self.mu,
            "s": self.s,
            "b": self.bias,
        }


def degrees(edges: Edges) -> Tensor:
    """How many edges each node receives, (N,)."""
    return torch.bincount(edges.receiver, minlength=edges.n)
