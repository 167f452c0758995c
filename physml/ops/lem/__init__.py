"""The recurrence of LEM: one map, several ways to compute it."""

from torch import Tensor

from physml.check import one_of
from physml.ops.lem import function, reference
from physml.ops.lem.reference import Clip
from physml.ops.sequence import steady

BACKENDS = {"reference": reference.lem, "torch": function.lem}


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
    clip: Clip = None,
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (B, T, H) and the last y and z (B, H); `reference.lem` tells the arguments.

    `backend`: "auto" takes the fastest that is there, today "torch".
    """
    one_of("backend", backend, ("auto", *BACKENDS))
    run = BACKENDS["torch" if backend == "auto" else backend]
    with steady(u):
        return run(u, y, z, W, Wy, V, b, dt=dt, clip=clip)
