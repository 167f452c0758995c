"""Dropout in C: dropout.c, which draws from the state of torch's generator as torch does."""

from functools import cache
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional as F

from physml.ops.native import call
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("dropout.c")


def refusal(x: Tensor) -> str | None:
    """The reason why native code can't compute this case; None if it can."""
    if reason := call.refusal(SOURCE, x):
        return reason
    return None if _draws_agree(x.dtype) else f"torch {torch.__version__} draws its masks in another way"


def dropout(x: Tensor, p: float) -> Tensor:
    """On a CPU, with the draws of torch; differentiable as often as wanted."""
    return x * noise(x, p) if x.is_contiguous() and 0 < p < 1 else F.dropout(x, p)


def noise(x: Tensor, p: float) -> Tensor:
    """0 with probability p, else 1 / (1 - p), of the shape of x; moves torch's generator."""
    drawn, state = torch.empty_like(x, memory_format=torch.contiguous_format), torch.get_rng_state()
    load(SOURCE, x.dtype).dropout_noise(
        call.integers(x.numel()), call.reals(1 - p), call.pointer(state), call.pointer(drawn)
    )
    torch.set_rng_state(state)
    return drawn


STATE = 5056  # bytes of the state that C reads and writes


@cache
def _draws_agree(dtype: torch.dtype) -> bool:
    """True if masks and state equal torch's, from a new seed on and in the midst of a block of words."""
    generator = torch.default_generator
    if generator.get_state().numel() != STATE:
        return False
    x, draws = torch.ones(701, dtype=dtype), []
    with torch.random.fork_rng(devices=[]):
        for draw in (F.dropout, noise):
            generator.manual_seed(0)  # torch.manual_seed would move those of GPUs too
            draws.append(torch.stack([draw(x, 0.3), draw(x, 0.5), torch.get_rng_state()[:701].to(dtype)]))
    return torch.equal(*draws)
