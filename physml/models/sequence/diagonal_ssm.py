"""S4D and S5, diagonal state-space layers. Axes: B batch, T time, D features, H features, P states."""

import math
from functools import partial
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import one_of
from physml.base.errors import InputError
from physml.models.sequence.state_space import StateSpace, StateSpaceStack, complex_diagonal, parts, real_part
from physml.models.start import truncated_normal

BLOCK = 64  # steps of S4D in one product: as many multiplications as its states take, with 32 of them
BLOCK_ON_GPU = 512  # where the recurrence over blocks is a launch for each
LARGE = 1 << 23  # numbers in a batch of S4D, 32 MiB, above which it is trained in parts
PART = 1 << 21  # numbers in each part
FINE = 8  # powers of S4D that are exponentials of their own; others are products of two


def hold(eigenvalues: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
    """Factors of x and b in exact steps of x' = lambda x + b, b constant in each (zero-order hold)."""
    factor = torch.exp(eigenvalues * step)
    return factor, (factor - 1) / eigenvalues


def log_uniform(low: float, high: float, n: int) -> Tensor:
    """The logarithms of n step sizes, uniform between those of `low` and `high`."""
    if not 0 < low <= high:
        raise InputError(f"dt_min and dt_max need 0 < dt_min <= dt_max; got {low} and {high}.")
    return math.log(low) + torch.rand(n) * math.log(high / low)


def hippo_normal(size: int) -> tuple[Tensor, Tensor]:
    """Eigenvalues (P,) of the normal part of HiPPO-LegS with positive imaginary parts; eigenvectors (2P, P).

    The matrix is -I / 2 plus a skew one with entries (2n + 1)^(1/2) (2k + 1)^(1/2) / 2, n < k, above its
    diagonal.
    """
    root = (2 * torch.arange(2 * size, dtype=torch.float64) + 1).sqrt()
    upper = torch.outer(root, root).triu(1) / 2
    values, vectors = torch.linalg.eigh(-1j * (upper - upper.t()))
    return torch.complex(torch.full((size,), -0.5, dtype=torch.float64), values[size:]), vectors[:, size:]


def toeplitz(kernel: Tensor) -> Tensor:
    """Matrices (H, n, n) whose product with a row of n steps convolves it with a kernel of (H, n)."""
    n = kernel.shape[1]
    rows = F.pad(kernel, (0, n))[:, None].expand(-1, n, -1).flatten(1)  # each row begins one later
    return rows[:, : n * (2 * n - 1)].unflatten(1, (n, 2 * n - 1))[..., :n]


def _cut_normal(*shape: int, fan: int) -> Tensor:
    weight = torch.empty(shape, dtype=torch.float64)
    truncated_normal(weight, fan)
    return weight


class _MIMO(StateSpace):
    """S5: one system with H inputs and outputs."""

    def __init__(
        self, d_hidden: int, d_state: int, init: Literal["official"] | None, dt_min: float, dt_max: float
    ) -> None:
        super().__init__()
        self.d_hidden, self.widths = d_hidden, (d_state, d_state)
        self.log_re = nn.Parameter(torch.empty(d_state))
        self.im = nn.Parameter(torch.empty(d_state))
        self.log_dt = nn.Parameter(log_uniform(dt_min, dt_max, d_state))
        self.B = nn.Parameter(torch.empty(2, d_state, d_hidden))
        self.C = nn.Parameter(torch.empty(2, d_hidden, d_state))
        self.D = nn.Parameter(torch.randn(d_hidden))
        if init == "official":
            B = _cut_normal(2 * d_state, d_hidden, fan=2 * d_state)
            C = torch.complex(*(_cut_normal(d_hidden, 2 * d_state, fan=2 * d_state) for _ in range(2)))
        else:
            B = torch.randn(2 * d_state, d_hidden, dtype=torch.float64) * d_hidden**-0.5
            C = torch.randn(d_hidden, 2 * d_state, dtype=torch.float64) * (2 * d_state) ** -0.5
        if self.B.is_meta:
            return
        values, vectors = hippo_normal(d_state)
        turned_B, turned_C = vectors.conj().t() @ B.to(vectors), C.to(vectors) @ vectors
        with torch.no_grad():
            self.log_re.copy_(torch.log(-values.real))
            self.im.copy_(values.imag)
            self.B.copy_(torch.stack([turned_B.real, turned_B.imag]))
            self.C.copy_(torch.stack([turned_C.real, turned_C.imag]))

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Factors of the state and of B u, complex (P,)."""
        return hold(torch.complex(-torch.exp(self.log_re), self.im), torch.exp(self.log_dt))

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        factor, share = self.discrete()
        B = share[:, None] * torch.complex(*self.B)
        y, last = complex_diagonal(factor, F.linear(u, parts(B.real, B.imag)), 2 * real_part(*self.C), state)
        return y + self.D * u, last


class _SISO(StateSpace):
    """S4D: a system for each of H features."""

    def __init__(self, d_hidden: int, d_state: int, dt_min: float, dt_max: float) -> None:
        super().__init__()
        self.d_hidden, self.d_state = d_hidden, d_state
        self.widths = (d_hidden * d_state, d_hidden * d_state)
        self.log_re = nn.Parameter(torch.full((d_hidden, d_state), math.log(0.5)))
        modes = torch.arange(d_state, dtype=torch.get_default_dtype())
        self.im = nn.Parameter(math.pi * modes.repeat(d_hidden, 1))
        self.log_dt = nn.Parameter(log_uniform(dt_min, dt_max, d_hidden))
        self.C = nn.Parameter(torch.randn(2, d_hidden, d_state) * 0.5**0.5)
        self.D = nn.Parameter(torch.randn(d_hidden))

    def _exponent(self) -> Tensor:
        """Lambda times the step size, complex (H, P)."""
        return torch.complex(-torch.exp(self.log_re), self.im) * torch.exp(self.log_dt)[:, None]

    def discrete(self) -> tuple[Tensor, Tensor]:
        """Factors of the states and of the input, complex (H, P)."""
        return hold(torch.complex(-torch.exp(self.log_re), self.im), torch.exp(self.log_dt)[:, None])

    def forward(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        return (self._one_step if u.shape[1] == 1 else self._all_steps)(u, state)

    def _one_step(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """In real numbers, which every format of an exported network has."""
        factor, share = self.discrete()
        both = torch.cat([share.real.flatten(), share.imag.flatten()])
        driven = both * u.repeat_interleave(self.d_state, 2).repeat(1, 1, 2)
        C = 2 * real_part(*(torch.block_diag(*rows[:, None]) for rows in self.C))
        y, last = complex_diagonal(factor.flatten(), driven, C, state)
        return y + self.D * u, last

    def _powers(self, n: int) -> Tensor:
        """lambda^k, k = 0..n - 1, complex (H, P, n): products of few exponentials, which take long."""
        exponent = self._exponent()[..., None]
        fine = torch.exp(exponent * torch.arange(FINE, device=exponent.device))
        coarse = torch.exp(exponent * torch.arange(0, n, FINE, device=exponent.device))
        return (coarse[..., None] * fine[..., None, :]).flatten(2)[..., :n]

    def _all_steps(self, u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor, ...]]:
        """In blocks of n steps: a product with the kernel inside each, the recurrence from one to another."""
        n_steps, exponent, (factor, share) = u.shape[1], self._exponent(), self.discrete()
        n = min(BLOCK if u.device.type == "cpu" else BLOCK_ON_GPU, n_steps)
        powers, C = self._powers(n), 2 * torch.complex(*self.C)
        out, into = C[..., None] * factor[..., None] * powers, share[..., None] * powers
        read = torch.cat([out.real, -out.imag], 1)  # (H, 2P, n), from the state before a block
        write = torch.cat([into.real, into.imag], 1).flip(2).transpose(1, 2)  # (H, n, 2P), to that behind it
        kernel = (real_part(C.real, C.imag)[:, None] @ torch.cat([into.real, into.imag], 1))[:, 0]
        inside = toeplitz(kernel + F.pad(self.D[:, None], (0, n - 1)))
        x = torch.complex(*state).unflatten(1, factor.shape)  # (B, H, P)
        rows = max(1, PART // u[0].numel()) if _is_large(u) else len(u)
        done = [
            _blocks(*some, exponent, read, write, inside)
            for some in zip(u.split(rows), x.split(rows), strict=True)
        ]
        y, last = done[0] if len(done) == 1 else map(torch.cat, zip(*done, strict=True))
        return y, (last.real, last.imag)


def _is_large(u: Tensor) -> bool:
    """True for batches whose sequences are trained part by part, so that the allocator uses memory again."""
    counted = u.device.type == "cpu" and torch.is_grad_enabled() and not torch.compiler.is_compiling()
    return counted and u.numel() > LARGE


def _blocks(
    u: Tensor, x: Tensor, exponent: Tensor, read: Tensor, write: Tensor, inside: Tensor
) -> tuple[Tensor, Tensor]:
    """Outputs (B, T, H) of u, and the last state, complex (B, H P), from the first, x (B, H, P).

    Axes: A blocks of n steps. The matrices are those of `_SISO._all_steps`.
    """
    (n_batch, n_steps, _), n = u.shape, inside.shape[1]
    n_blocks = -(-n_steps // n)
    n_last = n_steps - (n_blocks - 1) * n
    u = F.pad(u.permute(2, 0, 1), (0, n - n_last)).unflatten(2, (n_blocks, n))  # (H, B, A, n)
    pushes = (u.flatten(1, 2) @ write).view(-1, n_batch, n_blocks, write.shape[2]).permute(2, 1, 0, 3)
    over, before = torch.exp(n * exponent), [x]
    for push in torch.complex(*pushes[:-1].chunk(2, 3)).unbind():
        before.append(torch.addcmul(push, over, before[-1]))
    x = torch.stack(before)  # (A, B, H, P)
    y = torch.baddbmm(
        torch.cat([x.real, x.imag], 3).permute(2, 1, 0, 3).flatten(1, 2) @ read, u.flatten(1, 2), inside
    )
    pushed = torch.complex(*(u[:, :, -1, :n_last] @ write[:, n - n_last :]).transpose(0, 1).chunk(2, 2))
    last = (torch.exp(n_last * exponent) * before[-1] + pushed).flatten(1)
    return y.view(-1, n_batch, n_blocks * n)[..., :n_steps].permute(1, 2, 0), last


class S5(StateSpaceStack):
    r"""Blocks of diagonal state-space systems with H inputs and outputs each.

    .. math::
        x' = \Lambda x + B u, \qquad y = 2\, \mathrm{Re}(C x) + D \circ u

    in exact steps for an input that is constant during each (zero-order hold), with a size of their own for
    each state: :math:`x_n = e^{\Lambda \Delta} x_{n-1} + \Lambda^{-1} (e^{\Lambda \Delta} - 1) B u_n`.
    The states are one half of P conjugate pairs, hence the 2. Real parts are negative, :math:`-e^a` of a
    trained a, so every state decays. The blocks around the systems are those of `StateSpaceStack`.

    Source: Smith et al., ICLR 2023, https://arxiv.org/abs/2208.04933.
    Choices: real parts by an exponential; one block of the HiPPO matrix.
    Init: Lambda the eigenvalues of the normal part of HiPPO-LegS of size 2P; B and C normal with variances
    1/H and 1/(2P), in its eigenvectors; with init "official", as in the code, both cut at two deviations, of
    variance 1/(2P), and C with an imaginary part; D normal; step sizes log-uniform on [dt_min, dt_max].

    Args:
        d_in: D.
        d_hidden: H.
        d_state: P, the number of conjugate pairs.
        n_layers: number of blocks.
        dropout: behind GELU and GLU.
        init: "official", see Init, or null.
        dt_min: see Init.
        dt_max: see Init.
    Shapes: u (B, T, D) -> (B, T, H). The state has the real and imaginary part of x of each block, (B, P).

    Example:
        >>> S5(d_in=2, d_hidden=8, d_state=4, n_layers=2)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        d_state: int,
        n_layers: int,
        dropout: float = 0.0,
        init: Literal["official"] | None = None,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
    ) -> None:
        one_of("init", init, ("official",), null=True)
        make = partial(_MIMO, init=init, dt_min=dt_min, dt_max=dt_max)
        super().__init__(make, d_in, d_hidden, d_state=d_state, n_layers=n_layers, dropout=dropout)


class S4D(StateSpaceStack):
    r"""Blocks of diagonal state-space systems, one for each feature.

    .. math::
        x_h' = \Lambda_h x_h + u_h, \qquad y_h = 2\, \mathrm{Re}(C_h x_h) + D_h u_h, \qquad h = 1..H

    in exact steps for an input that is constant during each (zero-order hold), with one size per feature. The
    P states of a feature are one half of conjugate pairs. Real parts are negative, :math:`-e^a` of a
    trained a. The blocks around the systems are those of `StateSpaceStack`.

    Source: Gu et al., NeurIPS 2022, https://arxiv.org/abs/2206.11893, S4D-Lin.
    Choices: B = 1, since only its product with C matters. Blocks as those of S5. Inside 64 steps (512 on a
    GPU) products with the convolution kernel, from these to the next the recurrence.
    Init: Lambda = -1/2 + i pi p, p = 0..P-1; C normal with variance 1, half of it in each part; D normal;
    step sizes log-uniform on [dt_min, dt_max].

    Args:
        d_in: D.
        d_hidden: H.
        d_state: P, for each feature.
        n_layers: number of blocks.
        dropout: behind GELU and GLU.
        dt_min: see Init.
        dt_max: see Init.
    Shapes: u (B, T, D) -> (B, T, H). The state has the real and imaginary part of x of each block, (B, H P).

    Example:
        >>> S4D(d_in=2, d_hidden=8, d_state=4, n_layers=2)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 8])
    """

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        d_state: int,
        n_layers: int,
        dropout: float = 0.0,
        dt_min: float = 0.001,
        dt_max: float = 0.1,
    ) -> None:
        make = partial(_SISO, dt_min=dt_min, dt_max=dt_max)
        super().__init__(make, d_in, d_hidden, d_state=d_state, n_layers=n_layers, dropout=dropout)
