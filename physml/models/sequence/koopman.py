"""Dynamic autoencoders. Axes: B batch, T time, D components of an observation, H latent variables."""

from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count, each, non_negative, positive
from physml.base.errors import InputError
from physml.ops.sequence import no_autocast, sequence


class KoopmanAutoencoder(nn.Module):
    r"""A dynamic autoencoder: a linear map moves what an encoder makes of an observation on in time.

    .. math::
        q_t = \Psi(x_t), \qquad \hat x_{t+k} = \Phi(\Omega^k q_t), \qquad \hat x_{t-k} = \Phi(\Omega'^k q_t)

    Encoder and decoder have two hidden layers of tanh units each, the decoder tanh at its end too, so
    observations must lie in [-1, 1]. The consistent one also has the backward map Omega' and adds to the loss
    (`penalty`) eta times

    .. math::
        \rho_c = \sum_{k=1}^{H} \tfrac1{2k} \|\Omega_{k*}\Omega'_{*k} - I_k\|_F^2
               + \tfrac1{2k} \|\Omega'_{k*}\Omega_{*k} - I_k\|_F^2

    with the upper k rows, k*, and the first k columns, *k.

    Source: Azencot et al., ICML 2020, https://arxiv.org/abs/2003.02236, and its code; talk of M. Mahoney
    (January 2022), equation 24, which prints the second product as rows of Omega' by columns of Omega too.
    Choices: backward predictions start from the same observation as forward ones, in the code from the last
    of the window; over all windows of a trajectory these are the same pairs but at its ends.
    Init: Glorot normal, biases zero; Omega is the orthogonal factor of a normal matrix times `scale`, Omega'
    its inverse, where the code has, by a transposition, Omega / scale^2.

    Args:
        d_in: D.
        d_hidden: H, small.
        width: of the hidden layers.
        steps: predictions forward.
        back_steps: predictions backward; 0: a standard autoencoder, without Omega'.
        eta: factor of the consistency loss; 0 without Omega'.
        scale: of Omega at the start; below 1 all of its modes decay.
    Shapes: u (B, T, D) -> (B, T, (back_steps + 1 + steps) D): for each observation those from the furthest
    back over itself to the furthest ahead. There is no state: ().

    Example:
        >>> layer = KoopmanAutoencoder(64, 6, width=16, steps=8, back_steps=8, eta=0.01)
        >>> layer(torch.randn(4, 1, 64))[0].shape
        torch.Size([4, 1, 1088])
    """

    version: ClassVar[int] = 1

    def __init__(
        self,
        d_in: int,
        d_hidden: int,
        *,
        width: int,
        steps: int,
        back_steps: int,
        eta: float,
        scale: float = 0.99,
    ) -> None:
        super().__init__()
        each(count, d_in=d_in, d_hidden=d_hidden, width=width, steps=steps)
        each(non_negative, back_steps=back_steps, eta=eta)
        if back_steps:
            count("back_steps", back_steps)
        positive("scale", scale)
        if eta and not back_steps:
            raise InputError(
                f"eta is for an autoencoder with a backward map; got eta={eta} and back_steps=0."
            )
        self.d_in, self.d_out = d_in, (back_steps + 1 + steps) * d_in
        self.steps, self.back_steps, self.eta, self.scale = steps, back_steps, float(eta), float(scale)
        self.encoder = nn.ModuleList(map(nn.Linear, (d_in, width, width), (width, width, d_hidden)))
        self.decoder = nn.ModuleList(map(nn.Linear, (d_hidden, width, width), (width, width, d_in)))
        self.Omega = nn.Parameter(torch.empty(d_hidden, d_hidden))
        self.Back = nn.Parameter(torch.empty(d_hidden, d_hidden)) if back_steps else None
        self.reset_parameters()

    def reset_parameters(self) -> None:
        for layer in (*self.encoder, *self.decoder):
            nn.init.xavier_normal_(layer.weight)
            nn.init.zeros_(layer.bias)
        nn.init.orthogonal_(self.Omega)
        with torch.no_grad():
            if self.Back is not None:
                self.Back.copy_(self.Omega.t() / self.scale)
            self.Omega.mul_(self.scale)

    def encode(self, x: Tensor) -> Tensor:
        """Psi: x (..., D) -> q (..., H)."""
        first, second, third = self.encoder
        return third(torch.tanh(second(torch.tanh(first(x)))))

    def decode(self, q: Tensor) -> Tensor:
        """Phi: q (..., H) -> x (..., D)."""
        for layer in self.decoder:
            q = torch.tanh(layer(q))
        return q

    def predict(self, x: Tensor, steps: int) -> Tensor:
        """The next observations: x (..., D) -> (..., steps, D)."""
        return self.decode(_orbit(self.Omega, self.encode(x), steps))

    def forward(self, u: Tensor, state: tuple[()] | None = None) -> tuple[Tensor, tuple[()]]:
        u = sequence(u, self.d_in, self.Omega)
        with no_autocast(u):
            q = self.encode(u)
            path = [q.unsqueeze(-2), _orbit(self.Omega, q, self.steps)]
            if self.Back is not None:
                path.insert(0, _orbit(self.Back, q, self.back_steps).flip(-2))
            return self.decode(torch.cat(path, -2)).flatten(-2), ()

    def consistency(self) -> Tensor:
        """rho_c. InputError without a backward map."""
        if self.Back is None:
            raise InputError("there is no backward map, so nothing to be consistent: set back_steps.")
        total = self.Omega.new_zeros(())
        for k in range(1, len(self.Omega) + 1):
            identity = torch.eye(k, dtype=self.Omega.dtype, device=self.Omega.device)
            for a, b in ((self.Omega, self.Back), (self.Back, self.Omega)):
                total = total + (a[:k] @ b[:, :k] - identity).square().sum() / (2 * k)
        return total

    def penalty(self) -> Tensor | None:
        return self.eta * self.consistency() if self.eta else None


def _orbit(A: Tensor, q: Tensor, steps: int) -> Tensor:
    """A q, A A q, ...: q (..., H) -> (..., steps, H)."""
    path = []
    for _ in range(steps):
        q = F.linear(q, A)
        path.append(q)
    return torch.stack(path, -2)
