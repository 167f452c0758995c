"""The loop that estimators train with: Adam on batches, early stopping on a share that is held out.

Axes: B batch, T time, D features, O outputs, n items.
"""

import copy
import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from physml.base.check import count, non_negative, positive
from physml.base.errors import InputError
from physml.base.seeding import derive, stream

Loss = Callable[[Tensor, Tensor], Tensor]
EVAL_BATCH = 256
ROWS = 32


@dataclass(frozen=True)
class Settings:
    """How a network is trained."""

    epochs: int  # at most
    batch_size: int  # B
    learning_rate: float  # of Adam
    patience: int  # epochs without a better loss on the held-out share, after which training ends
    verbose: int  # 0: silent; 1: about ten lines; 2: one per epoch
    seed: int  # of initialisation, batches and dropout

    def __post_init__(self) -> None:
        count("epochs", self.epochs)
        count("batch_size", self.batch_size)
        count("patience", self.patience)
        positive("learning_rate", self.learning_rate)
        non_negative("verbose", self.verbose)


@dataclass
class History:
    """Losses after each epoch; `valid` is empty where nothing was held out. best: the epoch that is kept."""

    train: list[float] = field(default_factory=list)
    valid: list[float] = field(default_factory=list)
    best: int = 0


def fit(
    build: Callable[[], nn.Module],
    train: tuple[Tensor, Tensor],
    valid: tuple[Tensor, Tensor] | None,
    loss: Loss,
    settings: Settings,
) -> tuple[nn.Module, History]:
    """The trained network, in evaluation mode, and its losses.

    Args:
        build: makes the network, called as net(x)[0].
        train: inputs (n, T, D) and targets.
        valid: what early stopping looks at; None: the last epoch is kept.
        loss: of outputs and targets, a mean.
        settings: see there.

    The generator of torch is left as it was. Errors: InputError where the loss is no longer a number.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(settings.seed, "init"))
        net = build()
        torch.manual_seed(derive(settings.seed, "dropout"))
        optimizer = torch.optim.Adam(net.parameters(), settings.learning_rate)
        order, history = stream(settings.seed, "order"), History()
        lowest, kept = math.inf, None
        for epoch in range(1, settings.epochs + 1):
            history.train.append(_epoch(net, train, loss, optimizer, order, settings.batch_size))
            if valid is not None:
                history.valid.append(float(loss(outputs(net, valid[0]), valid[1])))
            _refuse_diverged(history, epoch, settings)
            _report(history, epoch, settings)
            if valid is None:
                history.best = epoch
            elif history.valid[-1] < lowest:
                lowest, kept, history.best = history.valid[-1], copy.deepcopy(net.state_dict()), epoch
            elif epoch - history.best >= settings.patience:
                break
    if kept is not None:
        net.load_state_dict(kept)
    return net.eval(), history


def _epoch(
    net: nn.Module,
    train: tuple[Tensor, Tensor],
    loss: Loss,
    optimizer: torch.optim.Optimizer,
    order: torch.Generator,
    batch_size: int,
) -> float:
    """One pass; the mean loss."""
    x, y = train
    net.train()
    total = 0.0
    for part in torch.randperm(len(x), generator=order).split(int(batch_size)):  # may be NumPy's
        optimizer.zero_grad()
        value = loss(net(x[part])[0], y[part])
        value.backward()
        optimizer.step()
        total += float(value.detach()) * len(part)
    return total / len(x)


def _refuse_diverged(history: History, epoch: int, settings: Settings) -> None:
    if not all(math.isfinite(losses[-1]) for losses in (history.train, history.valid) if losses):
        raise InputError(
            f"the loss is no longer a number after epoch {epoch}; learning_rate is {settings.learning_rate}. "
            "Lower it."
        )


def _report(history: History, epoch: int, settings: Settings) -> None:
    every = 1 if settings.verbose > 1 else max(1, settings.epochs // 10)
    if settings.verbose and (epoch % every == 0 or epoch in (1, settings.epochs)):
        valid = f", held out {history.valid[-1]:.4g}" if history.valid else ""
        print(f"epoch {epoch}/{settings.epochs}: loss {history.train[-1]:.4g}{valid}", flush=True)


@torch.no_grad()
def outputs(net: nn.Module, x: Tensor) -> Tensor:
    """The outputs for all items, batch by batch, in evaluation mode.

    Batches are filled up to whole sets of ROWS: fewer may be computed in another way, and round differently.
    """
    net.eval()
    parts = []
    for part in x.split(EVAL_BATCH):
        filled = torch.cat([part, part[-1:].expand(-len(part) % ROWS, *part.shape[1:])])
        parts.append(net(filled)[0][: len(part)])
    return torch.cat(parts)
