"""coRNN as it is printed. Axes: B batch, T time, D features, H hidden units."""

import torch
from torch import Tensor
from torch.nn import functional as F

Number = float | Tensor


def cornn(
    u: Tensor,
    y: Tensor,
    z: Tensor,
    W: Tensor,
    Wcal: Tensor,
    V: Tensor,
    b: Tensor,
    *,
    dt: Number,
    gamma: Number,
    epsilon: Number,
    damping: str,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""All steps of thesis equation 2.3, one by one; autograd writes the backward.

    .. math::
        z_n &= z_{n-1} + \Delta t\,[\tanh(W y_{n-1} + \mathcal{W} z_{n-1} + V u_n + b)
               - \gamma y_{n-1} - \epsilon z_{\bar n}] \\
        y_n &= y_{n-1} + \Delta t\, z_n

    `damping`: "explicit" is n-bar = n - 1, "implicit" n-bar = n.
    Shapes: u (B, T, D); y, z (B, H), the state before; W, Wcal (H, H); V (H, D); b (H).
    Returns y_1..y_T (B, T, H), y_T, z_T.
    """
    explicit = damping == "explicit"
    path = []
    for push in F.linear(u, V, b).unbind(1):
        force = torch.tanh(F.linear(y, W) + F.linear(z, Wcal) + push) - gamma * y
        z = z + dt * (force - epsilon * z) if explicit else (z + dt * force) / (1 + dt * epsilon)
        y = y + dt * z
        path.append(y)
    return torch.stack(path, 1), y, z
