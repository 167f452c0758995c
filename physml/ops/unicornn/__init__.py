"""The recurrence of UnICORNN."""

from physml.ops.unicornn.reference import unicornn, unicornn_inverse

__all__ = ["unicornn", "unicornn_inverse"]
