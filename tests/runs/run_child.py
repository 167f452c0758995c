"""What the fork server of `run_harness` imports before it forks, and what its children do.

One step of an optimizer makes torch import the rest of itself, once for all children.
"""

import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import IO

import matplotlib.backends.backend_agg
import matplotlib.figure
import torch
import wandb
from torch import nn

from physml import atomic, cli, train, worker
from physml.models import gated, rnn

PRELOADED = (cli, train, worker, gated, rnn, wandb, matplotlib)

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


def write_slowly(arguments: list[str]) -> int:
    """Write half of a file, say so, and wait to be killed."""

    def fill(file: IO[bytes]) -> None:
        file.write(b"half")
        file.flush()
        Path(arguments[1]).touch()
        time.sleep(600)

    atomic.write(Path(arguments[0]), fill)
    return 0
