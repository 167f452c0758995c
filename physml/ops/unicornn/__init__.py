"""The recurrence of UnICORNN: one map, several ways to compute it, and its inverse."""

from torch import Tensor

from physml.ops.backend import BACKENDS, Op
from physml.ops.operators import Operator
from physml.ops.unicornn import autograd, reference
from physml.ops.unicornn.projection import project
from physml.ops.unicornn.reference import unicornn_inverse
from physml.ops.unicornn.steps import step

__all__ = ["BACKENDS", "OP", "project", "step", "unicornn", "unicornn_inverse"]

OP = Op(__name__, reference=reference.unicornn, torch=autograd.unicornn)
OP.operator = Operator(OP, "push y z w step", alpha="float")


def unicornn(
    push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float, backend: str = "auto"
) -> tuple[Tensor, Tensor, Tensor]:
    """Outputs (B, T, H) and the last y and z (B, H); arguments as in `reference.unicornn`.

    `backend`: one of `physml.ops.backend.CHOICES`; "auto" takes the fastest that can.
    """
    return OP(push, y, z, w, step, alpha=alpha, backend=backend)
