"""Graph-coupled oscillators. Axes: N nodes, E edges, H channels."""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, fraction, has_shape, non_negative, positive
from physml.base.errors import InputError
from physml.models.graph.graph_layers import TransformerAttention
from physml.models.graph.graph_parts import Force, Heads, check_input, copies, last, numbered, times, widths
from physml.ops.dropout import dropout
from physml.ops.weighted_sum import weighted_sum

Residual = Literal["none", "plus", "official-v1", "official-v2"]


class GraphCON(nn.Module):
    r"""An oscillator in every channel of every node, coupled by any message-passing layer F.

    .. math:: X'' = \sigma(F_\theta(X, t, G)) - \gamma X - \alpha X'

    One step of size :math:`\Delta t` per layer, velocity Y first (equation 7.4):

    .. math::
        Y^n &= Y^{n-1} + \Delta t\,[\sigma(F_\theta(X^{n-1}, t^{n-1}, G))
               - \gamma X^{n-1} - \alpha Y^{n-1}] \\
        X^n &= X^{n-1} + \Delta t\, Y^n

    With dt = gamma = alpha = 1 this is :math:`X^n = \sigma(F(X^{n-1}))`, a plain network of F, whatever Y^0.

    Source: Rusch et al., ICML 2022, https://arxiv.org/abs/2202.02296 (thesis 7.4-7.5).
    Choices: Y^0 = X^0, as in the official code; the paper leaves it open. Terms of the official code that the
    paper does not have: `residual`, see `Force`; `dropout`, on X and on Y, each with a mask of its own, at
    the start and after every step. What sigma makes of several heads is merged by `heads`, see `merge_heads`.

    Args:
        coupling: F, from H to H channels, or to heads x H; ours or a convolution of PyG.
        n_layers: N steps.
        dt: step size.
        gamma: stiffness, pulls X to 0.
        alpha: damping, slows Y.
        activation: sigma.
        shared_weights: one F for all steps, as in the official code; else each step has its own, initialised
            separately.
    Shapes: x (N, H), edge_index (2, E), edge_weight (E,) -> (N, H). y (N, H) in place of Y^0 = X^0.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.

    Example:
        >>> from physml.models.graph.graph_layers import GraphConvolution
        >>> layer = GraphCON(GraphConvolution(8, 8), 4, dt=1.0, gamma=1.0, alpha=0.5, activation="relu")
        >>> layer(torch.randn(3, 8), torch.tensor([[0, 1], [1, 2]])).shape
        torch.Size([3, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        coupling: nn.Module,
        n_layers: int,
        *,
        dt: float = 1.0,
        gamma: float = 1.0,
        alpha: float = 1.0,
        activation: str = "relu",
        shared_weights: bool = True,
        residual: Residual = "none",
        heads: Heads = "mean",
        dropout: float = 0.0,
    ) -> None:
        super().__init__()
        count("n_layers", n_layers)
        positive("dt", dt)
        each(non_negative, gamma=gamma, alpha=alpha)
        fraction("dropout", dropout)
        self.n_layers, self.dt, self.gamma, self.alpha = n_layers, dt, gamma, alpha
        self.shared_weights, self.dropout = shared_weights, dropout
        self.d_in = self.d_out = widths(coupling)[0]
        force = Force(coupling, activation=activation, residual=residual, heads=heads)
        self.forces = copies(force, 1 if shared_weights else n_layers)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, y: Tensor | None = None
    ) -> Tensor:
        return last(self.steps(x, edge_index, edge_weight, y))[0]

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    def steps(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, y: Tensor | None = None
    ) -> Iterator[tuple[Tensor, Tensor]]:
        """(X^n, Y^n) after each step, n = 1 to n_layers."""
        check_input(x, edge_index, edge_weight, self.d_in)
        if y is not None:
            has_shape("y", y, tuple(x.shape), hint="A velocity for each channel of each node.")
        y = self._drop(x if y is None else y)
        x = self._drop(x)
        dt, gamma, alpha = self.dt, self.gamma, self.alpha
        for n in range(self.n_layers):
            force = self.forces[0 if self.shared_weights else n](x, edge_index, edge_weight)
            y = y + dt * (force - gamma * x - alpha * y)
            x = x + dt * y
            x, y = self._drop(x), self._drop(y)
            yield x, y

    def _drop(self, x: Tensor) -> Tensor:
        return dropout(x, self.dropout, self.training)

    def symbols(self) -> dict[str, Tensor]:
        """The paper's weights by their names, W^1, W^2, ... where each step has its own."""
        return numbered(self.forces)

    def extra_repr(self) -> str:
        return (
            f"n_layers={self.n_layers}, dt={self.dt}, gamma={self.gamma}, alpha={self.alpha}, "
            f"shared_weights={self.shared_weights}, dropout={self.dropout}"
        )


class _Sourced(nn.Module):
    """The trained scalars and the steps of the two citation models, which differ in their coupling."""

    def __init__(self, d: int | None, T: float) -> None:
        super().__init__()
        positive("T", T)
        self.T = float(T)
        self.d_in = self.d_out = d
        self.a, self.b, self.c = (nn.Parameter(torch.zeros(())) for _ in range(3))

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        return last(self.steps(x, edge_index))[1]

    def coupled(self, x: Tensor, edge_index: Tensor) -> Callable[[Tensor], Tensor]:
        """A or F, for a call that begins with x."""
        raise NotImplementedError

    def steps(
        self, x: Tensor, edge_index: Tensor, T: float | None = None
    ) -> Iterator[tuple[float, Tensor, Tensor]]:
        """(t, X, Y) after each step, up to T, the model's own if none is given; no gradient to the source."""
        check_input(x, edge_index, None, self.d_in)
        couple = self.coupled(x, edge_index)
        s_a, s_b, s_c = (torch.sigmoid(s) for s in (self.a, self.b, self.c))
        y, source = x, x.detach()
        for t, h in times(self.T if T is None else T):
            y = y + h * ((1 - s_b) * (couple(x) - y - x) + s_b * source)
            x = x + h * ((1 - s_c) * s_a * y + s_c * source)
            yield t, x, y


class CitationGraphCON(_Sourced):
    r"""GraphCON as the official code runs it on Cora, Citeseer and Pubmed.

    .. math::
        Y' &= (1 - s_b)\,[A X - Y - X] + s_b\, X^0 \\
        X' &= (1 - s_c)\, s_a\, Y + s_c\, X^0

    with :math:`s_a, s_b, s_c` the sigmoids of trained numbers that start at 0, and attention A computed once
    per call, from X^0. Steps of size 1, velocity first, up to T; the last step is shorter where T is no
    whole number. Y^0 = X^0.

    Source: the official code, as described; https://arxiv.org/abs/2202.02296 has no source term, no trained
    scalars and an activation around A X.
    Choices: the gradient does not pass through X^0 where it is the source, as there.

    Args:
        attention: makes A.
        T: end of time.
    Shapes: x (N, H), edge_index (2, E) -> X at time T (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    """

    version: ClassVar[int] = 1

    def __init__(self, attention: TransformerAttention, *, T: float) -> None:
        super().__init__(attention.d_in, T)
        self.attention = attention

    def coupled(self, x: Tensor, edge_index: Tensor) -> Callable[[Tensor], Tensor]:
        edges, weight = self.attention.attention(x, edge_index)
        return lambda x: weighted_sum(x, weight, edges)

    def symbols(self) -> dict[str, Tensor]:
        return {"a": self.a, "b": self.b, "c": self.c, **self.attention.symbols()}


class LateCitationGraphCON(CitationGraphCON):
    """`CitationGraphCON` that goes on beyond T when it is tested, and gives what it has on the way.

    In eval mode: X at time `T_test`, then the velocity Y after each step up to there. Which one counts is for
    the task to say, see `Citation`; the official code reads these and, in training, X at T.

    Source: the official code, as described; https://arxiv.org/abs/2202.02296 has nothing of the kind.

    Args:
        attention: makes A.
        T: end of time in training.
        T_test: end of time in eval mode; 3T in the code, 5T on Pubmed.
    Shapes: x (N, H), edge_index (2, E) -> (N, H) in training; (1 + S, N, H) in eval mode, S steps to T_test.
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a T_test before T.
    """

    def __init__(self, attention: TransformerAttention, *, T: float, T_test: float) -> None:
        super().__init__(attention, T=T)
        if not T_test >= T:
            raise InputError(f"T_test must not be before T, which is {T}; got {T_test}.")
        self.T_test = float(T_test)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        if self.training:
            return super().forward(x, edge_index)
        steps = list(self.steps(x, edge_index, self.T_test))
        return torch.stack([steps[-1][1], *(y for _, _, y in steps)])


class CoupledCitationGraphCON(_Sourced):
    r"""`CitationGraphCON` with a message-passing layer F in place of attention that is made once.

    .. math::
        Y' &= (1 - s_b)\,[F(X) - Y - X] + s_b\, X^0 \\
        X' &= (1 - s_c)\, s_a\, Y + s_c\, X^0

    The same F at all times, and no activation; scalars, source, start and steps as there.

    Source: what the official code has for a graph convolution as coupling; https://arxiv.org/abs/2202.02296.

    Args:
        coupling: F, from H to H channels.
        T: end of time.
    Shapes: x (N, H), edge_index (2, E) -> X at time T (N, H).
    Cached per edge list: after a change of edge_index through NumPy or `.data`, pass a clone.
    Errors: InputError for a coupling that changes the number of channels.
    """

    version: ClassVar[int] = 1

    def __init__(self, coupling: nn.Module, *, T: float) -> None:
        d_in, d_out = widths(coupling)
        if d_in != d_out:
            raise InputError(
                f"the coupling must give back as many channels as it gets; got {d_in} to {d_out}."
            )
        super().__init__(d_in, T)
        self.coupling = coupling

    def coupled(self, x: Tensor, edge_index: Tensor) -> Callable[[Tensor], Tensor]:
        return lambda x: self.coupling(x, edge_index)

    def symbols(self) -> dict[str, Tensor]:
        """The three scalars, and the weights of F as `F.W`."""
        inner = self.coupling.symbols() if hasattr(self.coupling, "symbols") else {}  # type: ignore[operator]
        return {"a": self.a, "b": self.b, "c": self.c, **{f"F.{name}": w for name, w in inner.items()}}
