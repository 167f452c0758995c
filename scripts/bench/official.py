"""The plain loops with the operations of the papers' code, to compare with. Axes: B batch, T time, D, H.

Autograd writes the backward. Unlike in physml's references, the product with the input stands inside the
loop, as it does in the code of the coRNN and LEM papers. Of UnICORNN there is official code for CUDA alone,
which takes that product for all steps at once; its plain loop is physml's reference.

The authors' own cells can be timed too: `PHYSML_OFFICIAL` names a folder with clones of their repositories
`LEM` and `coRNN`. They are run as they are, and no part of them is here.
"""

import importlib.util
import os
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM


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

    def __init__(self, layer: CoRNN | LEM, cell: nn.Module | None = None) -> None:
        super().__init__()
        self.cell = cell or (_CoRNNCell(layer) if isinstance(layer, CoRNN) else _LEMCell(layer))
        self.d_hidden = layer.d_out

    def forward(self, u: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        y = z = u.new_zeros(u.shape[0], self.d_hidden)
        path = []
        for x in u.transpose(0, 1):
            y, z = self.cell(x, y, z)
            path.append(y)
        return torch.stack(path).transpose(0, 1), (y, z)


def authors_loop(layer: CoRNN | LEM) -> OfficialLoop:
    """A loop over the authors' cell, with weights as it draws them. InputError without their code."""
    folder = os.environ.get("PHYSML_OFFICIAL")
    if not folder:
        raise InputError("PHYSML_OFFICIAL names no folder with clones of github.com/tk-rusch/LEM and coRNN")
    if isinstance(layer, LEM):
        make = _from_file(Path(folder, "LEM/src/psMNIST/network.py"), "LEMCell")
        return OfficialLoop(layer, make(layer.V.shape[1], layer.d_out, layer.dt))
    if layer.init == "separate":
        make = _from_file(Path(folder, "coRNN/noisy_CIFAR10/network.py"), "coRNNCell")
    else:
        make = _from_file(Path(folder, "coRNN/psMNIST/network.py"), "coRNNCell")
    return OfficialLoop(layer, make(layer.V.shape[1], layer.d_out, layer.dt, layer.gamma, layer.epsilon))


def _from_file(path: Path, name: str) -> Callable[..., nn.Module]:
    spec = importlib.util.spec_from_file_location(f"physml_official_{path.parent.name}", path)
    if spec is None or spec.loader is None or not path.exists():
        raise InputError(f"PHYSML_OFFICIAL has no {'/'.join(path.parts[-4:])}")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    network: Callable[..., nn.Module] = getattr(module, name)
    return network


def _linear(weight: Tensor, bias: Tensor | None) -> nn.Linear:
    product = nn.Linear(weight.shape[1], weight.shape[0], bias=bias is not None)
    product.load_state_dict({"weight": weight} | ({} if bias is None else {"bias": bias}))
    return product
