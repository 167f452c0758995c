"""Log-signatures of pieces of a path. Axes: B batch (any number of axes), N points, C channels."""

import itertools

import torch
from torch import Tensor

from physml.base.errors import InputError

DEPTHS = (1, 2, 3)


def lyndon_words(n_channels: int, depth: int) -> list[tuple[int, ...]]:
    """Words that come, as written, before all of their own endings: by length, then as in a dictionary."""
    return [
        word
        for length in range(1, depth + 1)
        for word in itertools.product(range(n_channels), repeat=length)
        if all(word < word[k:] for k in range(1, length))
    ]


def log_signature(path: Tensor, depth: int) -> Tensor:
    r"""Log-signature of a path of straight lines between its points: its effect on an equation it drives.

    The signature has the iterated integrals of the path, one for each word of channels,

    .. math:: S^{i_1 \dots i_k} = \int_{t_1 < \dots < t_k} dX^{i_1}_{t_1} \cdots dX^{i_k}_{t_k}

    It is built line by line with Chen's identity, :math:`S(X * Y) = S(X) \otimes S(Y)`; that of a line with
    the increment v is :math:`\exp(v) = 1 + v + v^{\otimes 2} / 2 + v^{\otimes 3} / 6`. With s = S - 1, up to
    words of three,

    .. math:: \log S = s - s^{\otimes 2} / 2 + s^{\otimes 3} / 3

    whose entries at Lyndon words determine all others. They do not depend on the speed at which the path is
    run through, nor on where it starts.

    Source: Morrill et al., ICML 2021, https://arxiv.org/abs/2009.08295, whose code takes the same entries in
    the same order.

    Args:
        path: (..., N, C), N at least 2.
        depth: 1, 2 or 3, the longest words.
    Returns: (..., L), L = C, C + C (C - 1) / 2, and (C^3 - C) / 3 more.
    Errors: InputError for another depth, or fewer points.
    """
    if depth not in DEPTHS:
        raise InputError(f"depth must be 1, 2 or 3; got {depth}.")
    if path.dim() < 2 or path.shape[-2] < 2:
        raise InputError(f"path must have shape (..., N, C) with N of 2 or more; got {tuple(path.shape)}.")
    if depth == 1:
        return path[..., -1, :] - path[..., 0, :]
    levels = _signature(path, depth)
    level1, level2 = levels[:2]
    logs = [level1, level2 - _times(level1, level1) / 2]
    if depth == 3:
        mixed = _times(level1, level2) + _times(level2, level1)
        logs.append(levels[2] - mixed / 2 + _times(_times(level1, level1), level1) / 3)
    n_channels = path.shape[-1]
    words = lyndon_words(n_channels, depth)
    parts = []
    for k, level in enumerate(logs, 1):
        at = [sum(i * n_channels ** (k - 1 - j) for j, i in enumerate(w)) for w in words if len(w) == k]
        parts.append(level[..., torch.tensor(at, dtype=torch.long, device=path.device)])
    return torch.cat(parts, -1)


def _signature(path: Tensor, depth: int) -> list[Tensor]:
    """Words of one, two and three channels, each (..., C^k)."""
    lines = path.diff(dim=-2).unbind(-2)
    level1 = lines[0]
    level2 = _times(level1, level1) / 2
    level3 = _times(level2, level1) / 3
    for v in lines[1:]:
        half = _times(v, v) / 2
        if depth == 3:
            level3 = level3 + _times(level2, v) + _times(level1, half) + _times(half, v) / 3
        level2 = level2 + _times(level1, v) + half
        level1 = level1 + v
    return [level1, level2, level3][:depth]


def _times(a: Tensor, b: Tensor) -> Tensor:
    """The tensor product of words, (..., m) and (..., n) to (..., m n)."""
    return (a.unsqueeze(-1) * b.unsqueeze(-2)).flatten(-2)
