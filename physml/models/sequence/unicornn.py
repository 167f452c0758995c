"""Undamped independent controlled oscillatory RNN.

Axes: B batch, T time, D features, H hidden units, L layers.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, ClassVar, cast

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import below_one, count, each, non_negative, one_of, positive
from physml.base.errors import InputError
from physml.ops import unicornn as ops
from physml.ops.backend import CHOICES, Backend, bf16_products
from physml.ops.sequence import initial_state, is_step, no_autocast, one_step, pair_of, sequence

State = tuple[Tensor, Tensor]
Path = tuple[Tensor, Tensor | None]  # y of all steps (B, T, H), and the mask (B, H) on what goes up
Project = Callable[[Tensor, Tensor, Tensor | None, Tensor | None], Tensor]


def plain_project(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None) -> Tensor:
    """`physml.ops.unicornn.project`, as it is printed."""
    return F.linear(x if mask is None else x * mask.unsqueeze(1), V, b)


class _Oscillators(nn.Module):
    """The parameters of one layer: w, V, b, c, and Lambda where a skip ends."""

    c: Tensor

    def __init__(self, d_in: int, d_hidden: int, dt: float, multiscale: bool, d_skip: int | None) -> None:
        super().__init__()
        self.dt = dt
        self.w = nn.Parameter(torch.empty(d_hidden))
        self.V = nn.Parameter(torch.empty(d_hidden, d_in))
        self.b = nn.Parameter(torch.empty(d_hidden))
        if multiscale:
            self.c = nn.Parameter(torch.empty(d_hidden))
        else:
            self.register_buffer("c", torch.empty(d_hidden))
        if d_skip is not None:
            self.Lambda = nn.Parameter(torch.empty(d_hidden, d_skip))
        self.reset_parameters()

    def reset_parameters(self) -> None:
        nn.init.uniform_(self.w, 0, 1)
        nn.init.kaiming_uniform_(self.V, a=8)
        nn.init.zeros_(self.b)
        nn.init.uniform_(self.c, -0.1, 0.1)
        if hasattr(self, "Lambda"):
            nn.init.kaiming_uniform_(self.Lambda, a=8)

    def step(self) -> Tensor:
        return self.dt * torch.sigmoid(self.c)

    def push(self, below: Path, skipped: Path | None, project: Project) -> Tensor:
        """V y^{l-1} + b, and Lambda y^{l-S-1} with it where a skip ends; (B, T, H)."""
        x = project(below[0], self.V, self.b, below[1])
        return x if skipped is None else x + project(skipped[0], self.Lambda, None, skipped[1])


class UnICORNN(nn.Module):
    r"""L layers of oscillators without damping; a unit hears its own past and the layer below, no neighbour.

    .. math::
        z^\ell_n &= z^\ell_{n-1} - \Delta t\,\hat\sigma(c^\ell) \odot
            [\tanh(w^\ell \odot y^\ell_{n-1} + x^\ell_n) + \alpha y^\ell_{n-1}] \\
        y^\ell_n &= y^\ell_{n-1} + \Delta t\,\hat\sigma(c^\ell) \odot z^\ell_n, \qquad
        x^\ell_n = V^\ell y^{\ell-1}_n + b^\ell, \quad y^0 = u

    Source: Rusch and Mishra, ICML 2021, https://arxiv.org/abs/2103.05487 (thesis 3.5, 3.6).
    Init: w uniform on [0, 1], c on [-0.1, 0.1], b zero, V Kaiming uniform with a = 8, that is on [-k, k],
    k = (6 / (65 n))^(1/2) for n inputs; as in the official code. Lambda, of which nothing is published, as V.

    Args:
        d_in: D.
        d_hidden: H.
        n_layers: L.
        dt: the largest step, one number or one per layer.
        alpha: stiffness, the same for all units; 0 or more.
        multiscale: False leaves c at its initial draw, as in thesis Figure 3.6.
        residual_skip: S >= 2 adds Lambda y^{l-S-1}, with a matrix of its own, to x of every layer l > S
            (thesis 3.79, 3.80); y^0 = u there too, so the Lambda of layer S + 1 is (H, D). None: no skip.
        dropout: probability of a zero in the mask on the output of every layer, the last included; one mask
            per sequence, the same at all steps.
        backend: "auto", "torch", "native", "triton" or "reference"; the last one has second derivatives.
    Shapes: u (B, T, D) -> y^L (B, T, H). The state is a tuple of one pair (y, z) per layer, each (B, H).

    Example:
        >>> layer = UnICORNN(d_in=2, d_hidden=8, n_layers=3, dt=0.1, alpha=1.0)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        n_layers: int = 3,
        dt: float | Sequence[float] = 0.482,
        alpha: float = 12.53,
        multiscale: bool = True,
        residual_skip: int | None = None,
        dropout: float = 0.0,
        backend: Backend = "auto",
    ) -> None:
        super().__init__()
        one_of("backend", backend, CHOICES)
        each(count, d_in=d_in, d_hidden=d_hidden, n_layers=n_layers)
        non_negative("alpha", alpha)
        steps = [dt] * n_layers if isinstance(dt, int | float) else list(dt)
        if len(steps) != n_layers:
            raise InputError(f"dt must be one number or one per layer, {n_layers}; got {len(steps)}.")
        for step in steps:
            positive("dt", step)
        below_one("dropout", dropout)
        if residual_skip is not None and not 2 <= residual_skip < n_layers:
            raise InputError(
                f"residual_skip must be at least 2 and less than n_layers = {n_layers}; got {residual_skip}."
            )
        self.d_in, self.d_out, self.n_layers = d_in, d_hidden, n_layers
        self.dt, self.alpha = tuple(map(float, steps)), float(alpha)
        self.multiscale, self.residual_skip, self.dropout = multiscale, residual_skip, dropout
        self.backend = backend
        width = [d_in] + [d_hidden] * n_layers
        self.layers = nn.ModuleList(
            _Oscillators(
                width[k], d_hidden, step, multiscale, None if (s := self._skipped(k)) is None else width[s]
            )
            for k, step in enumerate(self.dt)
        )

    def forward(self, u: Tensor, state: tuple[State, ...] | None = None) -> tuple[Tensor, tuple[State, ...]]:
        if is_step(u) and (done := self._step(u.squeeze(1), state)):
            return done[0].unsqueeze(1), done[1]
        u = sequence(u, self.d_in, self._stack()[0].V)
        paths: list[Path] = [(u, None)]
        states = []
        with no_autocast(u):
            for k, (layer, (y, z)) in enumerate(zip(self._stack(), self._start(state, u), strict=True)):
                push = layer.push(paths[k], self._pick(paths, k), self._project())
                path, y, z = ops.unicornn(
                    push, y, z, layer.w, layer.step(), alpha=self.alpha, backend=self.backend
                )
                states.append((y, z))
                paths.append((path, self._mask(path)))
        path, mask = paths[-1]
        return path if mask is None else path * mask.unsqueeze(1), tuple(states)

    if TYPE_CHECKING:  # to type checkers, a call of any nn.Module gives Any
        __call__ = forward

    @property
    def output_in_state(self) -> tuple[int, ...] | None:
        """y of the last layer; with dropout the output is a masked copy of it."""
        return None if self.training and self.dropout else (-1, 0)

    def step(self, u: Tensor, state: tuple[State, ...] | None = None) -> tuple[Tensor, tuple[State, ...]]:
        """`forward` for one input, the fastest way along a sequence that comes in live.

        Shapes: u (B, D) -> y^L (B, H). The state is that of `forward`; None is rest. With gradients, dropout
        or a GPU this calls `forward`.
        """
        return self._step(u, state) or one_step(self, self.d_in, u, state)

    def _step(self, u: Tensor, state: tuple[State, ...] | None) -> tuple[Tensor, tuple[State, ...]] | None:
        """In C and without gradients; None where `forward` has to do it."""
        if self.training and self.dropout:
            return None
        pairs = (None,) * self.n_layers if state is None else state
        if not isinstance(pairs, tuple | list) or len(pairs) != self.n_layers:
            return None
        heard, states = [u], []
        for k, (layer, of_layer) in enumerate(
            zip(cast("list[_Oscillators]", self.layers), pairs, strict=True)
        ):
            if (pair := pair_of(of_layer, u, self.d_out)) is None:
                return None
            skip = None if (s := self._skipped(k)) is None else (heard[s], layer.Lambda)
            done = ops.step(
                *(heard[k], *pair, layer.w, layer.V, layer.b, layer.c, skip),
                dt=layer.dt,
                alpha=self.alpha,
                backend=self.backend,
            )
            if done is None:
                return None
            states.append(done)
            heard.append(done[0])
        return heard[-1].clone(), tuple(states)

    def invert(self, u: Tensor, state: tuple[State, ...]) -> tuple[State, ...]:
        """All states from the last one and the input (thesis 3.7).

        Args:
            u: (B, T, D), the input of all steps.
            state: the tuple that `forward` returned after it.
        Returns: per layer a pair (y, z), each (B, T + 1, H), of the states n = 0..T.
        Errors: InputError in training with dropout, whose masks are gone.
        """
        if self.training and self.dropout > 0:
            raise InputError(
                "the masks of dropout are not kept, so nothing can be inverted. Call eval() first."
            )
        u = sequence(u, self.d_in, self._stack()[0].V)
        paths: list[Path] = [(u, None)]
        states = []
        with no_autocast(u):
            for k, (layer, (y, z)) in enumerate(zip(self._stack(), self._start(state, u), strict=True)):
                push = layer.push(paths[k], self._pick(paths, k), self._project())
                path_y, path_z = ops.unicornn_inverse(push, y, z, layer.w, layer.step(), alpha=self.alpha)
                states.append((path_y, path_z))
                paths.append((path_y[:, 1:], None))
        return tuple(states)

    def symbols(self) -> list[dict[str, Tensor]]:
        """The paper's weights by their names, one dict per layer; Lambda only where a skip ends."""
        names = ("w", "V", "b", "c", "Lambda")
        return [
            {name: getattr(layer, name) for name in names if hasattr(layer, name)} for layer in self.layers
        ]

    def _stack(self) -> list[_Oscillators]:
        return cast(list[_Oscillators], list(self.layers))

    def _skipped(self, k: int) -> int | None:
        """The path, counted from u = 0, that the skip brings to the layer with index k."""
        return None if self.residual_skip is None or k < self.residual_skip else k - self.residual_skip

    def _project(self) -> Project:
        if self.backend == "reference" and not bf16_products():
            return plain_project
        return partial(ops.project, backend=self.backend)

    def _mask(self, path: Tensor) -> Tensor | None:
        if not self.training or self.dropout == 0:
            return None
        return F.dropout(path.new_ones(path.shape[0], self.d_out), self.dropout)

    def _pick(self, paths: list[Path], k: int) -> Path | None:
        skipped = self._skipped(k)
        return None if skipped is None else paths[skipped]

    def _start(self, state: tuple[State, ...] | None, u: Tensor) -> list[tuple[Tensor, ...]]:
        if state is not None and (not isinstance(state, tuple | list) or len(state) != self.n_layers):
            what = f"{len(state)} entries" if isinstance(state, tuple | list) else type(state).__name__
            raise InputError(
                f"state must be a tuple of {self.n_layers} pairs (y, z), one per layer; got {what}."
            )
        pairs = (None,) * self.n_layers if state is None else state
        return [initial_state(pair, ("y", "z"), u, self.d_out) for pair in pairs]

    def extra_repr(self) -> str:
        return f"{self.d_in}, {self.d_out}, dt={self.dt}, alpha={self.alpha}, dropout={self.dropout}"
