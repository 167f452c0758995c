"""Separate streams of randomness: what one draws never shifts what another draws."""

import hashlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from torch import Generator


def derive(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream `names` of a run with `seed`.

    Example:
        >>> derive(0, "init") != derive(0, "order", 1)
        True
    """
    text = "/".join(map(str, (seed, *names)))
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:8], "big") >> 1


def stream(seed: int, *names: str | int) -> "Generator":
    """A CPU generator of its own for the stream `names`."""
    from torch import Generator

    return Generator().manual_seed(derive(seed, *names))
