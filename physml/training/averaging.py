"""Averages of weights along a run: a small object, chosen by `trainer.average`."""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn

from physml.base.errors import ConfigError
from physml.training.selection import Row, Waiting


class Triggered(Waiting):
    r"""The running mean of all weights, from a trigger on.

    .. math:: \bar\theta_k = \bar\theta_{k-1} + (\theta_k - \bar\theta_{k-1}) / k, \qquad k = 1, 2, \dots

    where k counts optimiser steps since the trigger: the first evaluation after which the validation metric
    has not been strictly better for `epochs` epochs, or the end of epoch `latest`, whichever comes first.
    Training itself goes on with the weights as they are; the means are evaluated, selected and kept.

    Source: Melis, Dyer and Blunsom, https://arxiv.org/abs/1707.05589, and its code, lamb, which the results
    of LEM on Penn Treebank rest on. It is averaged SGD with a trigger, of
    Merity et al., https://arxiv.org/abs/1708.02182.

    Args:
        epochs: without a better value; null: only `latest` counts.
        latest: epoch; null: only `epochs` counts. One of the two must be given.
        metric: of validation data; null: the task's own.
    """

    where = "trainer.average"
    changing = ("best", "last_better", "active", "n", "mean")

    def __init__(self, epochs: int | None, latest: int | None, metric: str | None) -> None:
        if epochs is None and latest is None:
            raise ConfigError("trainer.average: epochs and latest are both null, so it would never begin.")
        for name, value in {"epochs": epochs, "latest": latest}.items():
            if value is not None and value < 1:
                raise ConfigError(f"trainer.average.{name} must be at least 1, or null; got {value}.")
        super().__init__(metric)
        self.epochs, self.latest = epochs, latest
        self.active = False
        self.n = 0
        self.mean: dict[str, Tensor] = {}

    @torch.no_grad()
    def after_step(self, net: nn.Module) -> None:
        if not self.active:
            return
        self.n += 1
        for name, p in net.named_parameters():
            mean = self.mean[name].to(p.device) if self.n > 1 else p.detach().clone()
            self.mean[name] = mean.lerp_(p, 1 / self.n)

    def after_epoch(self, epoch: int, row: Row | None) -> None:
        """Look at an epoch; from the next step on the mean is taken, where this one is the trigger.

        row: its evaluation; None where there was none.
        """
        if row is not None and self.best.selected(row):
            self.last_better = epoch
        waited = row is not None and self.epochs is not None and epoch - self.last_better >= self.epochs
        late = self.latest is not None and epoch >= self.latest
        self.active = self.active or waited or late

    @torch.no_grad()
    def put(self, net: nn.Module) -> None:
        """The mean in place of the weights, where there is one."""
        if self.n:
            for name, p in net.named_parameters():
                p.copy_(self.mean[name])


def refuse_bases(net: nn.Module) -> None:
    """ConfigError where a mean of the weights would not fit what a layer keeps beside them."""
    for layer in net.modules():
        batch_norm = isinstance(layer, nn.modules.batchnorm._BatchNorm) and layer.track_running_stats
        if batch_norm or getattr(layer, "rebase_every", None):
            kept = "running statistics" if batch_norm else "a base that moves"
            raise ConfigError(
                f"trainer.average takes the mean of weights; {type(layer).__name__} has {kept} beside them, "
                "which would not fit it. Set trainer.average=null, or choose another layer."
            )


@contextmanager
def in_place(average: Triggered, net: nn.Module) -> Iterator[None]:
    """Inside, the network has the averaged weights, where there are any; after it, its own again."""
    if not average.active:
        yield
        return
    own = {name: p.detach().clone() for name, p in net.named_parameters()}
    average.put(net)
    try:
        yield
    finally:
        with torch.no_grad():
            for name, p in net.named_parameters():
                p.copy_(own[name])
