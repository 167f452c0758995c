"""Neural controlled and rough differential equations. Axes: B batch, T time, D features, H hidden units,
C channels of the path, L entries of a log-signature, N windows.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from physml.base.check import count, each, one_of
from physml.base.errors import InputError
from physml.models.sequence.log_signature import DEPTHS, log_signature, lyndon_words
from physml.ops.sequence import held_at_end, no_autocast, sequence


class NeuralRDE(nn.Module):
    r"""A state that follows an ODE driven by the log-signatures of windows of the input.

    .. math::
        z(0) = A x_0 + a, \qquad
        z' = f(z)\, \mathrm{LogSig}^{d}(X)_{[t_k, t_{k+1}]} \quad\text{within window } k

    with X the inputs joined by straight lines, windows of s lines and a time of 1 for each. f, from H to a
    matrix H x L, is

    .. math::
        f(z) = W_{m+1} \tanh(W_m\, \mathrm{ReLU}( \dots \mathrm{ReLU}(W_1 z + b_1) \dots) + b_m) + b_{m+1}

    Each window is one step of the classical Runge-Kutta method of order 4. With depth 1 and windows of one
    line this is the neural controlled differential equation :math:`dz = f(z)\, dX` (NCDE).

    Source: Morrill et al., ICML 2021, https://arxiv.org/abs/2009.08295, and its code; NCDE: Kidger et al.,
    NeurIPS 2020, https://arxiv.org/abs/2005.08926.
    Choices: gradients go back through the steps; the code can solve an adjoint equation instead. Three
    things of the code are not here: from its third layer on f uses one matrix for all inner layers; the last
    window acts twice in a solve over a whole sequence, whose time is one unit too long; and the last lines,
    where they fill no window, are dropped; here they are a shorter window. NCDE has straight lines here,
    cubic splines in its paper. With solver "torchcde" a line is one step of the 3/8 rule, whose first slope
    is taken with the line before, as torchcde does at a knot; the first line has none before it.
    Init: torch's, uniform on [-k, k], k = n^(-1/2) for n inputs of a product.

    Nothing can be carried from one piece of a sequence to the next: windows are counted from the first input.
    Each output is the state at the end of the last window that is over; it is z(0) before the end of the
    first one. With `lengths` a shorter sequence stands still at its end and has a time of its own; without,
    padding behind it is read as any other input.

    Args:
        d_in: D.
        d_hidden: H.
        depth: d, of the log-signature: 1, 2 or 3.
        window: s, in steps.
        d_field: the width of the layers of f.
        n_layers: m, hidden layers of f.
        solver: "torchcde", see Choices, of depth 1 and windows of one line; or null.
        time: whether X has a further channel, the time, from 0 to 1 over the sequence.
    Shapes: u (B, T, D), lengths (B,) -> z (B, T, H). The state handed back is the last z, (B, H).

    Example:
        >>> layer = NeuralRDE(d_in=2, d_hidden=8, depth=2, window=3, d_field=16)
        >>> layer(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    version: ClassVar[int] = 2
    output_in_state: ClassVar[tuple[int, ...]] = (0,)

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        depth: int = 2,
        window: int = 1,
        d_field: int = 64,
        n_layers: int = 1,
        time: bool = False,
        solver: Literal["torchcde"] | None = None,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, window=window, d_field=d_field, n_layers=n_layers)
        if depth not in DEPTHS:
            raise InputError(f"depth must be 1, 2 or 3; got {depth}.")
        one_of("solver", solver, ("torchcde",), null=True)
        if solver is not None and (depth, window) != (1, 1):
            raise InputError(
                f"solver=torchcde is for depth 1 and windows of one line; got depth={depth} and "
                f"window={window}. Set both to 1, or solver to null."
            )
        self.d_in, self.d_out, self.time, self.solver = d_in, d_hidden, time, solver
        self.depth, self.window = depth, window
        n_channels = d_in + time
        self.d_log = len(lyndon_words(n_channels, depth))
        self.start = nn.Linear(n_channels, d_hidden)
        layers: list[nn.Module] = [nn.Linear(d_hidden, d_field)]
        for _ in range(n_layers - 1):
            layers += [nn.ReLU(), nn.Linear(d_field, d_field)]
        self.field = nn.Sequential(*layers, nn.Tanh(), nn.Linear(d_field, d_hidden * self.d_log))

    def forward(
        self, u: Tensor, state: None = None, lengths: Tensor | None = None
    ) -> tuple[Tensor, tuple[Tensor]]:
        if state is not None:
            raise InputError(
                "state must be None: windows are counted from the first input, so the layer can't go on from "
                "a state. Give whole sequences."
            )
        u = sequence(u, self.d_in, self.start.weight)
        with no_autocast(u):
            path = self._path(u, lengths)
            z = self.start(path[:, 0])
            states = [z]
            logs = self.log_signatures(path).unbind(1) if path.shape[1] > 1 else ()
            for n, (before, log) in enumerate(zip((*logs[:1], *logs), logs, strict=False)):
                if lengths is not None:
                    before = before.where((n + 1 < lengths.to(before.device))[:, None], 0.0)
                z = self._moved(z, log) if self.solver is None else self._moved_as_torchcde(z, before, log)
                states.append(z)
            return self._held(torch.stack(states, 1), u.shape[1], lengths), (z,)

    def log_signatures(self, path: Tensor) -> Tensor:
        """Log-signatures of all windows of a path (B, T, C): (B, N, L); the last window may be shorter."""
        n_whole, rest = divmod(path.shape[1] - 1, self.window)
        parts = []
        if n_whole:
            pieces = path[:, : n_whole * self.window + 1].unfold(1, self.window + 1, self.window)
            parts.append(log_signature(pieces.transpose(2, 3), self.depth))
        if rest:
            parts.append(log_signature(path[:, None, n_whole * self.window :], self.depth))
        return torch.cat(parts, 1)

    def _path(self, u: Tensor, lengths: Tensor | None) -> Tensor:
        if lengths is not None:
            u = held_at_end(u, lengths)
        if not self.time:
            return u
        if lengths is None:
            t = torch.linspace(0, 1, u.shape[1], dtype=u.dtype, device=u.device).expand(len(u), -1)
        else:
            last = (lengths.to(u) - 1)[:, None]
            n = torch.arange(u.shape[1], dtype=u.dtype, device=u.device)
            t = (n.minimum(last) / last.clamp(min=1)).clamp(max=1)
        return torch.cat([t[..., None], u], 2)

    def _moved(self, z: Tensor, log: Tensor) -> Tensor:
        """One step of Runge and Kutta, of size 1."""
        k1 = self._slope(z, log)
        k2 = self._slope(z + k1 / 2, log)
        k3 = self._slope(z + k2 / 2, log)
        k4 = self._slope(z + k3, log)
        return z + (k1 + 2 * k2 + 2 * k3 + k4) / 6

    def _moved_as_torchcde(self, z: Tensor, before: Tensor, log: Tensor) -> Tensor:
        """One step of the 3/8 rule; the slope at its start is with the line before."""
        k1 = self._slope(z, before)
        k2 = self._slope(z + k1 / 3, log)
        k3 = self._slope(z + k2 - k1 / 3, log)
        k4 = self._slope(z + k1 - k2 + k3, log)
        return z + (k1 + 3 * (k2 + k3) + k4) / 8

    def _slope(self, z: Tensor, log: Tensor) -> Tensor:
        return torch.bmm(self.field(z).unflatten(1, (self.d_out, self.d_log)), log.unsqueeze(2)).squeeze(2)

    def _held(self, states: Tensor, n_steps: int, lengths: Tensor | None) -> Tensor:
        """The state after the last window that is over, for each input: (B, N + 1, H) to (B, T, H)."""
        over = torch.arange(n_steps, device=states.device) // self.window
        over[-1] = states.shape[1] - 1  # a shorter window is over at the end
        held = states[:, over]
        if lengths is None:
            return held
        row, last = torch.arange(len(states), device=states.device), lengths.to(states.device) - 1
        return held.index_put((row, last), states[row, -(-last // self.window)])
