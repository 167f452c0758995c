"""One layer of UnICORNN as it is printed, and its inverse. Axes: B batch, T time, H hidden units."""

import torch
from torch import Tensor


def unicornn(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor, Tensor]:
    r"""All steps of one layer of thesis equation 3.6, one by one.

    .. math::
        z_n &= z_{n-1} - s \odot [\tanh(w \odot y_{n-1} + x_n) + \alpha y_{n-1}] \\
        y_n &= y_{n-1} + s \odot z_n

    Shapes: push (B, T, H), x_n = V u_n + b of all steps; y, z (B, H), the state before; w (H);
    step (H), s = dt sigmoid(c). Returns y_1..y_T (B, T, H), y_T, z_T.
    """
    path = []
    for x in push.unbind(1):
        z = z - step * (torch.tanh(w * y + x) + alpha * y)
        y = y + step * z
        path.append(y)
    return torch.stack(path, 1), y, z


def unicornn_inverse(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float
) -> tuple[Tensor, Tensor]:
    """Thesis equation 3.7: from the last state y, z (B, H) to all, each (B, T + 1, H), n = 0..T."""
    path_y, path_z = [y], [z]
    for x in reversed(push.unbind(1)):
        y = y - step * z
        z = z + step * (torch.tanh(w * y + x) + alpha * y)
        path_y.append(y)
        path_z.append(z)
    return torch.stack(path_y[::-1], 1), torch.stack(path_z[::-1], 1)
