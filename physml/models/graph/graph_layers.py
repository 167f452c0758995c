"""Message-passing layers. Axes: N nodes, E edges, H channels."""

import math
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, fraction, one_of
from physml.base.errors import InputError
from physml.graph.edges import Edges, gather, looped
from physml.models.graph.graph_features import Features, linear
from physml.models.graph.graph_parts import check_input
from physml.models.graph.graph_propagation import gcn_spread, mean_spread, softmax_over
from physml.ops.dropout import dropout
from physml.ops.weighted_sum import weighted_sum


class GraphConvolution(nn.Module):
    r""":math:`\hat D^{-1/2} \hat A \hat D^{-1/2} X W + b` with :math:`\hat A = A + I` (equation 7.5).

    The same numbers as PyG's GCNConv with the same weights, by one sparse product with a matrix that is made
    once per graph and shared by all layers.

    Source: Kipf and Welling, ICLR 2017, https://arxiv.org/abs/1609.02907.
    Init: W Glorot uniform, b 0, as in PyG.
    Args:
        d_in: channels in.
        d_out: channels out.
        bias: whether b is added.
    Shapes: x (N, d_in), edge_index (2, E), edge_weight (E,) -> (N, d_out).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int, *, bias: bool = True) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.lin = nn.Linear(d_in, d_out, bias=False)
        self.bias = nn.Parameter(torch.empty(d_out)) if bias else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        if self.bias is not None:
            nn.init.zeros_(self.bias)

    def forward(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        if isinstance(x, Tensor) and self.d_in < self.d_out:  # the narrower side is spread
            out = linear(gcn_spread(x, edge_index, edge_weight)(x), self.lin.weight)
            return out if self.bias is None else out + self.bias
        return self.of_mixed(linear(x, self.lin.weight), edge_index, edge_weight)

    def of_mixed(self, mixed: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        """The answer for X W that is at hand, (N, d_out) -> (N, d_out)."""
        out = gcn_spread(mixed, edge_index, edge_weight)(mixed)
        return out if self.bias is None else out + self.bias

    def symbols(self) -> dict[str, Tensor]:
        """W as the paper has it, acting from the right."""
        return {"W": self.lin.weight.T, **({} if self.bias is None else {"b": self.bias})}


class MeanConvolution(nn.Module):
    r"""GraphSAGE with means, :math:`W_l\,\mathrm{mean}_{j \in N_i} X_j + b + W_r X_i`.

    A node that receives no edge has mean 0. The same numbers as PyG's SAGEConv with the same weights.

    Source: Hamilton et al., NeurIPS 2017, https://arxiv.org/abs/1706.02216.
    Init: uniform on [-k, k], k = d_in^(-1/2), as in PyG.
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
        self.lin_l = nn.Linear(d_in, d_out)
        self.lin_r = nn.Linear(d_in, d_out, bias=False)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        mean = mean_spread(x, edge_index)
        if isinstance(x, Tensor) and self.d_in <= self.d_out:
            return linear(x, self.lin_r.weight, linear(mean(x), self.lin_l.weight, self.lin_l.bias))
        return mean(linear(x, self.lin_l.weight)) + self.lin_l.bias + linear(x, self.lin_r.weight)

    def symbols(self) -> dict[str, Tensor]:
        return {"W_l": self.lin_l.weight, "b": self.lin_l.bias, "W_r": self.lin_r.weight}


class GraphAttention(nn.Module):
    r"""Graph attention; heads stand side by side in the output.

    .. math::
        A_{ij} = \mathrm{softmax}_j\, \mathrm{LeakyReLU}_{0.2}(a_r \cdot W X_i + a_s \cdot W X_j), \qquad
        X_i \mapsto \sum_j A_{ij} W X_j + b

    over the edges that i receives and one loop. The same numbers as PyG's GATConv with the same weights.

    Source: Velickovic et al., ICLR 2018, https://arxiv.org/abs/1710.10903.
    Init: W and a Glorot uniform, b 0, as in PyG.
    Args:
        d_in: channels in.
        d_head: channels of each head.
        n_heads: number of heads.
        dropout: on attention weights.
    Shapes: x (N, d_in), edge_index (2, E) -> (N, n_heads x d_head), one head after the other.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_head: int, *, n_heads: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        each(count, d_in=d_in, d_head=d_head, n_heads=n_heads)
        fraction("dropout", dropout)
        self.d_in, self.d_head, self.n_heads, self.d_out = d_in, d_head, n_heads, d_head * n_heads
        self.dropout = dropout
        self.lin = nn.Linear(d_in, self.d_out, bias=False)
        self.att_src = nn.Parameter(torch.empty(1, n_heads, d_head))
        self.att_dst = nn.Parameter(torch.empty(1, n_heads, d_head))
        self.bias = nn.Parameter(torch.empty(self.d_out))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.xavier_uniform_(self.lin.weight)
        for a in (self.att_src, self.att_dst):
            k = math.sqrt(6 / (self.n_heads + self.d_head))
            nn.init.uniform_(a, -k, k)
        nn.init.zeros_(self.bias)

    def forward(self, x: Features, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges = looped(edge_index, len(x))
        xs = linear(x, self.lin.weight).view(len(x), self.n_heads, self.d_head)
        W = self.lin.weight.view(self.n_heads, self.d_head, self.d_in)
        a = torch.cat([self.att_src, self.att_dst])  # a . (W X_i) as (a . W) X_i, a product of few columns
        to_sender, to_receiver = linear(x, (a[..., None] * W).sum(2).flatten(0, 1)).chunk(2, 1)
        score = F.leaky_relu(gather(to_sender, edges.sender) + gather(to_receiver, edges.receiver), 0.2)
        weight = dropout(softmax_over(score, edges.receiver, len(x)), self.dropout, self.training)
        return weighted_sum(xs, weight, edges).flatten(1) + self.bias

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.lin.weight, "a_s": self.att_src, "a_r": self.att_dst, "b": self.bias}


class TransformerAttention(nn.Module):
    r"""Transformer attention over edges, :math:`F(X) = A(X) X`, the coupling of GraphCON-Tran.

    .. math::
        s_{ij} = \frac{(Q X_i + q) \cdot (K X_j + k)}{\sqrt{d_k}}, \qquad
        A_{ij} = \frac{g(s_{ij})}{\sum_{e} g(s_e)}, \qquad A = \text{mean over heads}

    for each edge from j to i and a loop at each node. g is exp, or the square plus
    :math:`g(s) = (s - m + \sqrt{(s - m)^2 + 4}) / 2` with m the largest score of the graph.

    Source: GRAND, Chamberlain et al., ICML 2021, https://arxiv.org/abs/2106.10934, as used in
    https://arxiv.org/abs/2202.02296.
    Choices: A is normalised over what a node receives (rows of unit sum) or, as the official settings for
    Cora and Citeseer, over what it sends. No value weights, as there.
    Init: Q and K are 1e-5 in every entry, as there; biases uniform on [-k, k], k = d_in^(-1/2).

    Args:
        d_in: H.
        d_attention: width of all heads together.
        n_heads: number of heads.
        score: "scaled_dot" as above, "cosine" of the angle between, or "exp_kernel",
            :math:`o^2 \exp(-\|\cdot - \cdot\|^2 / 2 l^2)` with o, l trained from 1 on.
        normalize: "receiver" or "sender".
        square_plus: g.
    Shapes: x (N, H), edge_index (2, E) -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        *,
        d_attention: int,
        n_heads: int,
        score: Literal["scaled_dot", "cosine", "exp_kernel"] = "scaled_dot",
        normalize: Literal["receiver", "sender"] = "receiver",
        square_plus: bool = False,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_attention=d_attention, n_heads=n_heads)
        one_of("score", score, ("scaled_dot", "cosine", "exp_kernel"))
        one_of("normalize", normalize, ("receiver", "sender"))
        if d_attention % n_heads:
            raise InputError(f"d_attention must be a multiple of n_heads={n_heads}; got {d_attention}.")
        self.d_in = self.d_out = d_in
        self.n_heads, self.d_head = n_heads, d_attention // n_heads
        self.score, self.normalize, self.square_plus = score, normalize, square_plus
        self.one_graph = square_plus  # m is over all edges: a batch of graphs would mix them
        self.Q, self.K = nn.Linear(d_in, d_attention), nn.Linear(d_in, d_attention)
        if score == "exp_kernel":
            self.height, self.length = nn.Parameter(torch.empty(1)), nn.Parameter(torch.empty(1))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (self.Q, self.K):
            layer.reset_parameters()
            nn.init.constant_(layer.weight, 1e-5)
        if self.score == "exp_kernel":
            nn.init.ones_(self.height)
            nn.init.ones_(self.length)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        check_input(x, edge_index, None, self.d_in)
        edges, weight = self.attention(x, edge_index)
        return weighted_sum(x, weight, edges)

    def attention(self, x: Tensor, edge_index: Tensor) -> tuple[Edges, Tensor]:
        """The edges, with loops, and the weight of each: the mean over heads."""
        edges = looped(edge_index, len(x))
        query = gather(self.Q(x), edges.receiver).view(-1, self.n_heads, self.d_head)
        key = gather(self.K(x), edges.sender).view(-1, self.n_heads, self.d_head)
        if self.score == "scaled_dot":
            s = (query * key).sum(-1) / query.shape[-1] ** 0.5
        elif self.score == "cosine":
            s = F.cosine_similarity(query, key, dim=-1, eps=1e-5)
        else:
            distance = (query - key).square().sum(-1)
            s = self.height**2 * torch.exp(-distance / (2 * self.length**2))
        node = edges.receiver if self.normalize == "receiver" else edges.sender
        if not self.square_plus:
            return edges, softmax_over(s, node, len(x)).mean(1)
        s = s - s.max()
        g = (s + torch.sqrt(s * s + 4)) / 2
        total = g.new_zeros(len(x), self.n_heads).index_add(0, node, g)
        return edges, (g / total[node]).mean(1)

    def symbols(self) -> dict[str, Tensor]:
        kernel = {"height": self.height, "length": self.length} if self.score == "exp_kernel" else {}
        return {"Q": self.Q.weight, "q": self.Q.bias, "K": self.K.weight, "k": self.K.bias, **kernel}


class NodeLinear(nn.Module):
    """A linear map of each node; the edges play no part. Shapes: x (N, d_in) -> (N, d_out)."""

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        each(count, d_in=d_in, d_out=d_out)
        self.d_in, self.d_out = d_in, d_out
        self.lin = nn.Linear(d_in, d_out)

    def reset_parameters(self) -> None:
        self.lin.reset_parameters()

    def forward(self, x: Features, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        return linear(x, self.lin.weight, self.lin.bias)

    def symbols(self) -> dict[str, Tensor]:
        return {"W": self.lin.weight, "b": self.lin.bias}
