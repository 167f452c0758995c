"""The plain loops with the operations of the papers' code, to compare with. Axes: B batch, T time, D, H.

Autograd writes the backward. Unlike in physml's references, the product with the input stands inside the
loop, as it does in the code of the coRNN and LEM papers. Of UnICORNN there is official code for CUDA alone,
which takes that product for all steps at once; its plain loop is physml's reference.
"""

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.models.cornn import CoRNN
from physml.models.lem import LEM


class _CoRNNCell(nn.Module):
    """One biased product with [u | z | y], or with `init` "separate" one product each (nCIFAR)."""

    def __init__(self, layer: CoRNN) -> None:
        super().__init__()
        self.dt, self.gamma, self.epsilon = layer.dt, layer.gamma, layer.epsilon
        if layer.init == "separate":
            products = [_linear(layer.V, layer.b), _linear(layer.Wcal, None), _linear(layer.W, None)]
        else:
            products = [_linear(torch.cat([layer.V, layer.Wcal, layer.W], 1), layer.b)]
        self.products = nn.ModuleList(products)

    def forward(self, u: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        if len(self.products) == 1:
            push = self.products[0](torch.cat((u, z, y), 1))
        else:
            push = self.products[0](u) + self.products[1](z) + self.products[2](y)
        z = z + self.dt * (torch.tanh(push) - self.gamma * y - self.epsilon * z)
        y = y + self.dt * z
        return y, z


class _LEMCell(nn.Module):
    """Three products per step, each with a bias of its own."""

    def __init__(self, layer: LEM) -> None:
        super().__init__()
        self.dt = layer.dt
        self.of_u = _linear(layer.V, layer.b)
        self.of_y = _linear(layer.W, torch.zeros(3 * layer.d_out))
        self.of_z = _linear(layer.Wy, torch.zeros(layer.d_out))

    def forward(self, u: Tensor, y: Tensor, z: Tensor) -> tuple[Tensor, Tensor]:
        Vz, V1, V2, Vy = F.linear(u, self.of_u.weight, self.of_u.bias).chunk(4, 1)
        Az, A1, A2 = F.linear(y, self.of_y.weight, self.of_y.bias).chunk(3, 1)
        dt2 = self.dt * torch.sigmoid(V2 + A2)
        dt1 = self.dt * torch.sigmoid(V1 + A1)
        z = (1.0 - dt1) * z + dt1 * torch.tanh(Vz + Az)
        y = (1.0 - dt2) * y + dt2 * torch.tanh(F.linear(z, self.of_z.weight, self.of_z.bias) + Vy)
        return y, z


class OfficialLoop(nn.Module):
    """The map of `layer`, with copies of its weights; u (B, T, D) -> y (B, T, H), (y, z)."""

    def __init__(self, layer: CoRNN | LEM) -> None:
        super().__init__()
        self.cell = _CoRNNCell(layer) if isinstance(layer, CoRNN) else _LEMCell(layer)
        self.d_hidden = layer.d_out

    def forward(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = z = u.new_zeros(u.shape[0], self.d_hidden)
        path = []
        for x in u.transpose(0, 1):
            y, z = self.cell(x, y, z)
            path.append(y)
        return torch.stack(path).transpose(0, 1), (y, z)


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    product = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    product.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return product
