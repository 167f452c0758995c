"""The recurrence of coRNN: one map, several ways to compute it."""

from torch import Tensor

from physml.check import one_of
from physml.errors import InputError
from physml.ops.cornn import function, reference
from physml.ops.cornn.reference import Number
from physml.ops.sequence import steady

BACKENDS = {"reference": reference.cornn, "torch": function.cornn}


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
    damping: str = "explicit",
    backend: str = "auto",
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (B, T, H) and the last y and z (B, H); `reference.cornn` tells the arguments.

    `backend`: "auto" takes the fastest that is there: "torch" where dt, gamma and epsilon are numbers,
    "reference" where they are tensors, whose gradients only it knows.
    """
    one_of("backend", backend, ("auto", *BACKENDS))
    with steady(u):
        if isinstance(dt, float) and isinstance(gamma, float) and isinstance(epsilon, float):
            run = BACKENDS["torch" if backend == "auto" else backend]
            return run(u, y, z, W, Wcal, V, b, dt=dt, gamma=gamma, epsilon=epsilon, damping=damping)
        if backend == "torch":
            raise InputError(
                "backend='torch' has no gradients for dt, gamma and epsilon. Use 'auto' or 'reference'."
            )
        return reference.cornn(u, y, z, W, Wcal, V, b, dt=dt, gamma=gamma, epsilon=epsilon, damping=damping)
