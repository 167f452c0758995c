"""LEM as it is printed. Axes: B batch, T time, D features, H hidden units."""

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.sequence import Clip


def lem(
    u: Tensor,
    y: Tensor,
    z: Tensor,
    W: Tensor,
    Wy: Tensor,
    V: Tensor,
    b: Tensor,
    *,
    dt: float,
    clip: Clip,
    mask: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""All steps of equation 5.3, one by one; autograd writes the backward.

    .. math::
        \Delta t_n &= \Delta t\,\hat\sigma(W_1 y_{n-1} + V_1 u_n + b_1) \\
        \overline{\Delta t}_n &= \Delta t\,\hat\sigma(W_2 y_{n-1} + V_2 u_n + b_2) \\
        z_n &= (1 - \Delta t_n) z_{n-1} + \Delta t_n \tanh(W_z y_{n-1} + V_z u_n + b_z) \\
        y_n &= (1 - \overline{\Delta t}_n) y_{n-1} + \overline{\Delta t}_n \tanh(W_y z_n + V_y u_n + b_y)

    Shapes: u (B, T, D); y, z (B, H), the state before; V (4H, D) and b (4H), rows [z, 1, 2, y]; W (3H, H),
    rows [z, 1, 2], acts on y; Wy (H, H) acts on z. Without gates the rows are [z, y], and W is (H, H).
    `clip`: both steps are kept in this range. `mask` (B, H): what y is multiplied with where it enters W, at
    all steps; the y that is carried on is whole. Returns y_1..y_T (B, T, H), y_T, z_T.
    """
    gated = W.shape[0] > Wy.shape[0]
    path = []
    for drive in F.linear(u, V, b).unbind(1):
        y_masked = y if mask is None else y * mask
        if gated:
            Vz, V1, V2, Vy = drive.chunk(4, 1)
            Az, A1, A2 = F.linear(y_masked, W).chunk(3, 1)
            dt1, dt2 = dt * torch.sigmoid(A1 + V1), dt * torch.sigmoid(A2 + V2)
            if clip is not None:
                dt1, dt2 = dt1.clamp(*clip), dt2.clamp(*clip)
            z = (1 - dt1) * z + dt1 * torch.tanh(Az + Vz)
            y = (1 - dt2) * y + dt2 * torch.tanh(F.linear(z, Wy) + Vy)
        else:
            Vz, Vy = drive.chunk(2, 1)
            z = (1 - dt) * z + dt * torch.tanh(F.linear(y_masked, W) + Vz)
            y = (1 - dt) * y + dt * torch.tanh(F.linear(z, Wy) + Vy)
        path.append(y)
    return torch.stack(path, 1), y, z
