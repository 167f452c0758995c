"""What the fork server of `run_harness` imports before it forks, and what its children do.

One step of an optimizer makes torch import the rest of itself, once for all children.
"""

import os
import sys
import warnings
from collections.abc import Callable

import torch
from torch import nn

parameter = nn.Parameter(torch.zeros(2))
optimizer = torch.optim.Adam([parameter])
parameter.sum().backward()
optimizer.step()


def enter(function: Callable[..., int], arguments: list[str], roots: dict[str, str], output: str) -> None:
    """Call `function` as a process of its own: session, streams, environment, exit code."""
    file = os.open(output, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(file, stream)
    os.setsid()
    os.environ.update(roots)
    warnings.simplefilter("error")
    sys.exit(function(arguments))
