"""Rates of learning as the authors' codes have them."""

import math

import pytest
import torch
from torch import nn

from physml.base.errors import InputError
from physml.training.schedules import WarmupCosine


def test_the_rate_warms_up_and_falls_along_a_cosine() -> None:
    optimizer = torch.optim.SGD([nn.Parameter(torch.zeros(1))], lr=2.0)
    schedule = WarmupCosine(optimizer, epochs=8, warmup=2, floor=0.1)
    rates = []
    for _ in range(10):
        rates.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step()
    falls = [2 * (0.1 + 0.9 * (1 + math.cos(math.pi * k / 6)) / 2) for k in range(6)]
    assert rates == pytest.approx([1.0, 2.0, *falls, 0.2, 0.2])
    with pytest.raises(InputError, match=r"warmup must lie in \[0, 8\)"):
        WarmupCosine(optimizer, epochs=8, warmup=8)
