"""From a batch to an output, and from a part to its metrics."""

import math
from collections import defaultdict
from collections.abc import Callable, Generator, Iterable
from contextlib import closing
from typing import Any

import torch
from torch import Tensor, nn

from physml.task.base import Metrics, Sums, Task
from physml.task.batch import Batch

State = Any  # whatever a network's layers keep from step to step: nested tuples of tensors


def apply(net: nn.Module, batch: Batch, state: State = None) -> tuple[Tensor, State]:
    """Call a sequence network or a graph network with the fields it takes."""
    if batch.edge_index is not None:
        return net(batch.input, batch.edge_index, edge_weight=batch.edge_weight, batch=batch.batch), None
    return net(batch.input, lengths=batch.lengths, state=state)


@torch.no_grad()
def outputs(
    net: nn.Module, batches: Iterable[Batch], device: str, between: Callable[[], None] = lambda: None
) -> Generator[tuple[Tensor, Batch], None, None]:
    """The output of the network for each batch: dropout off, state carried where the task needs it.

    between: called before each batch; what it raises ends the pass.
    """
    was_training = net.training
    net.eval()
    state: State = None
    try:
        for batch in batches:
            between()
            batch = batch.to(device)
            output, state = apply(net, batch, state if batch.carry else None)
            yield output, batch
    finally:
        net.train(was_training)


def evaluate(
    net: nn.Module,
    task: Task,
    batches: Iterable[Batch],
    device: str,
    between: Callable[[], None] = lambda: None,
) -> Metrics:
    """Metrics of one part; `outputs` says how.

    All are NaN where an output is: the largest of no numbers is the first class, which would count as right.
    """
    totals: Sums = defaultdict(float)
    answered = True
    with closing(outputs(net, batches, device, between)) as pairs:
        for output, batch in pairs:
            answered = answered and not output.isnan().any()
            for key, value in task.score(output, batch).items():
                totals[key] += float(value)
    metrics = task.finish(dict(totals))
    return metrics if answered else dict.fromkeys(metrics, math.nan)
