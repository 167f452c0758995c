"""The number of parameters that a model learns."""

from torch import nn


def count_parameters(module: nn.Module, *, embedding: bool = True) -> int:
    """Free entries of all trainable tensors, shared ones once.

    A layer that stores more entries than it has freedom, such as a skew matrix in full, gives the number
    of the others as `n_redundant`. `embedding=False` leaves word vectors out, as most published counts do.

    Example:
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    left_out = {
        id(m.weight)
        for m in module.modules()
        if isinstance(m, nn.Embedding | nn.EmbeddingBag) and not embedding
    }
    count = sum(p.numel() for p in module.parameters() if p.requires_grad and id(p) not in left_out)
    for part in module.modules():
        if any(p.requires_grad for p in part.parameters()):
            count -= getattr(part, "n_redundant", 0)
    return count
