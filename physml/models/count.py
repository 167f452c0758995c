"""How many numbers a model learns."""

from torch import nn


def count_parameters(module: nn.Module) -> int:
    """Entries of all trainable tensors."""
    return sum(p.numel() for p in module.parameters() if p.requires_grad)
