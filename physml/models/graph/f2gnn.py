"""F2GNN. Axes: N nodes, E edges, H channels."""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import fraction, one_of
from physml.base.errors import InputError
from physml.models.graph.graph_fusion import Fuse, Fusion
from physml.models.graph.graph_parts import (
    ACTIVATIONS,
    Heads,
    call,
    check_input,
    checked_widths,
    copies,
    merge_heads,
)
from physml.ops.dropout import dropout


class F2GNN(nn.Module):
    r"""Blocks that each choose among all that came before, fuse it and aggregate it over neighbours.

    .. math::
        Z^n &= A_n\, \mathrm{ReLU}\big(\mathrm{fuse}_n(s_{n0} X^0, \dots, s_{n,n-1} X^{n-1})\big) + a_n,
        \qquad X^n = \sigma(F_n(Z^n, G)) \\
        X &= A_{N+1}\, \mathrm{ReLU}\big(\mathrm{fuse}_{N+1}(s_{N+1,0} X^0, \dots, s_{N+1,N} X^N)\big)
              + a_{N+1}

    with s in {0, 1}: ZERO and IDENTITY of the paper. Stacks, jumping knowledge and dense networks are choices
    of s. What is not chosen counts as 0 in a fusion, as in its code. F2GAT is this with GAT as F.

    Source: Wei et al., WWW 2022, https://arxiv.org/abs/2112.14531, section 3; A and the order of dropout
    as in its code.
    Choices: s and the fusions are given. The paper finds them for each graph by a search that trains them on
    validation data, and its code has none of those found for F2GAT. The decoder is one linear map, there
    two.
    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        select: s, a word for each block and one for the end, with spaces between: "101" is X^0 and X^2, of
            three; "1 01 001" is a stack of two, "1 01 111" with jumping knowledge.
        fuse: fusion of each of them, of `graph_fusion.FUSIONS`; one name: that for all.
        activation: sigma.
        dropout: on X^0 and on each X^n; that on X is the net's, before the decoder.
        heads: see `merge_heads`; heads are merged after sigma.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,), if F takes it -> (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        select: str,
        *,
        fuse: Fuse | Sequence[Fuse] = "att",
        activation: str = "relu",
        dropout: float = 0.0,
        heads: Heads = "mean",
    ) -> None:
        super().__init__()
        words = select.split()
        if len(words) < 2:
            raise InputError(f"select needs a word for each block and one for the end; got {select!r}.")
        for n, word in enumerate(words, 1):
            if len(word) != n or set(word) - {"0", "1"}:
                raise InputError(
                    f"word {n} of select needs {n} digits, 0 or 1, for what its block hears; got {word!r}."
                )
        names = [fuse] * len(words) if isinstance(fuse, str) else list(fuse)
        if len(names) != len(words):
            raise InputError(
                f"fuse needs one name, or {len(words)}, one for each word of select; got {len(names)}."
            )
        one_of("activation", activation, ACTIVATIONS)
        one_of("heads", heads, ("mean", "official"))
        fraction("dropout", dropout)
        self.d_in = self.d_out = d_in = checked_widths(coupling, heads=True)[0]
        self.select, self.words = select, words
        self.activation, self.dropout, self.heads = activation, dropout, heads
        self.layers = copies(coupling, len(words) - 1)
        self.fusions = nn.ModuleList(Fusion(name, d_in, n) for n, name in enumerate(names, 1))
        self.A = nn.ModuleList(nn.Linear(fusion.d_out, d_in) for fusion in self.fusions)  # type: ignore[arg-type]

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        check_input(x, edge_index, edge_weight, self.d_in)
        features = [dropout(x, self.dropout, self.training)]
        for n, layer in enumerate(self.layers):
            out = ACTIVATIONS[self.activation](call(layer, self._fused(n, features), edge_index, edge_weight))
            features.append(dropout(merge_heads(out, self.d_in, self.heads), self.dropout, self.training))
        return self._fused(len(self.layers), features)

    def _fused(self, n: int, features: list[Tensor]) -> Tensor:
        """Z of what stands at n, from all before it."""
        selected = [
            x if s == "1" else torch.zeros_like(x) for s, x in zip(self.words[n], features, strict=True)
        ]
        return self.A[n](torch.relu(self.fusions[n](selected)))

    def extra_repr(self) -> str:
        return f"select={self.select!r}"
