"""The Kronecker recurrent unit. Axes: B batch, T time, D features, H complex hidden units."""

import math
from typing import ClassVar

import torch
from torch import Tensor, nn

from physml.base.check import non_negative
from physml.base.errors import InputError
from physml.models.sequence.unitary import ComplexRNN


class KroneckerRNN(ComplexRNN):
    r"""A complex recurrent layer whose matrix is a Kronecker product of small ones, drawn to unitary ones.

    .. math::
        h_n = \mathrm{modReLU}(W h_{n-1} + V u_n), \qquad
        W = W_0 \otimes W_1 \otimes \dots \otimes W_{F-1}

    The factors are free complex p x p matrices, :math:`p^F = H`: for p = 2 the whole matrix has
    :math:`8 \log_2 H` real numbers. A product of unitary factors is unitary, and training adds
    :math:`\lambda \sum_f \|W_f^* W_f - I\|_F^2` to the loss (`penalty`).

    Source: Jose, Cisse and Fleuret, ICML 2018, https://arxiv.org/abs/1705.10142; the product, in the form of
    its code.
    Choices: the nonlinearity is in no text at hand; modReLU is that of the unitary networks with which the
    paper compares. W is built as a matrix once per pass; the paper applies its factors one by one, at a cost
    of H log H per step. All factors have one size. The first state is zero (the count of weights that is
    printed has no room for a trained one); for what that does to gradients, and for the modulus near 0,
    see `UnitaryRNN`.
    Init: factors unitary, drawn from the uniform (Haar) distribution; V Glorot uniform; b uniform on [-0.01,
    0.01].

    Args:
        d_in: D.
        d_hidden: H, a power of `factor`.
        factor: p, 2 or more.
        unitarity: lambda, 0 or more.
    Shapes: u (B, T, D) -> h (B, T, 2H), real parts before imaginary ones. The state is both parts, each (B,
    H).

    Example:
        >>> KroneckerRNN(d_in=2, d_hidden=8)(torch.randn(4, 10, 2))[0].shape
        torch.Size([4, 10, 16])
    """

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_hidden: int, *, factor: int = 2, unitarity: float = 0.0) -> None:
        super().__init__(d_in, d_hidden, trained_start=False)
        if factor < 2:
            raise InputError(f"factor must be 2 or more; got {factor}.")
        n_factors = round(math.log(d_hidden, factor))
        if n_factors < 1 or factor**n_factors != d_hidden:
            raise InputError(f"d_hidden must be a power of factor, {factor}; got {d_hidden}.")
        non_negative("unitarity", unitarity)
        self.factor, self.unitarity = factor, float(unitarity)
        self.factors = nn.Parameter(torch.empty(n_factors, 2, factor, factor))  # real and imaginary parts
        self.reset_parameters()

    def reset_parameters(self) -> None:
        super().reset_parameters()
        with torch.no_grad():
            for W in self.factors:
                Q, R = torch.linalg.qr(torch.complex(torch.randn_like(W[0]), torch.randn_like(W[0])))
                Q = Q * torch.sgn(R.diagonal())  # else not uniform
                W.copy_(torch.stack([Q.real, Q.imag]))

    def complex_factors(self) -> Tensor:
        """W_0, ..., W_{F-1}, complex (F, p, p)."""
        return torch.complex(self.factors[:, 0], self.factors[:, 1])

    def matrix(self) -> Tensor:
        W, *rest = self.complex_factors()
        for factor in rest:
            W = torch.kron(W, factor)
        return W

    def penalty(self) -> Tensor | None:
        """Term that training adds to the loss; None: nothing."""
        if not self.unitarity:
            return None
        W = self.complex_factors()
        distance = W.mH @ W - torch.eye(self.factor, dtype=W.dtype, device=W.device)
        return self.unitarity * (distance.real.square() + distance.imag.square()).sum()
