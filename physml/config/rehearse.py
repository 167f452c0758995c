"""Building a configuration once without data or memory, for what only constructors know: `dt` in [0, 2]."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.overrides import TorchFunctionMode

from physml.base.errors import InputError, PhysmlError
from physml.config import build
from physml.config.build import Node, Parts

# Where a task learns its width from its data, two stand for it: an error that both give is not about it.
WIDTHS = (8, 12)


class Unfilled(TorchFunctionMode):
    """Leaves out `normal_`: on the meta device it fills nothing, and imports torch's compiler, for 2 s."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in (torch.Tensor.normal_, torch.nn.init.normal_):
            return args[0] if args else kwargs["tensor"]
        return func(*args, **kwargs)


def rehearse(parts: Parts) -> None:
    """Build every part, on torch's meta device. ConfigError or InputError as the constructors raise them.

    Classes of plugins are left alone: the user's code runs when it is used.
    """
    task = _made(parts.task)
    for node in (parts.arrays, *parts.measures):
        _made(node)
    sample = _made(parts.sample)
    training = task if sample is None or task is None else sample.over(task)
    for node in (parts.select, parts.stop, parts.average):
        rule = _made(node)
        if rule is not None and task is not None:
            rule.bind(task.metric, training.in_rows)
    if not parts.optim.of_plugin:
        _optimizer(parts)
    if task is not None and not parts.model.of_plugin and not parts.net.of_plugin:
        net = _net(parts, task)
        if net is not None:
            build.groups_by_factor(parts, net)


def _made(node: Node | None) -> Any:
    if node is not None and not node.of_plugin:
        with _known_errors():
            return node.make()
    return None


def _optimizer(parts: Parts) -> None:
    with _known_errors():
        weight = torch.nn.Parameter(torch.empty(1, 1, device="meta"))
        optimizer = build.optimizer_of(parts.optim, [weight])
        if parts.schedule and not parts.schedule.of_plugin:
            parts.schedule.make(optimizer=optimizer)


def _net(parts: Parts, task: Any) -> Any:
    """The network on the meta device, or None where it cannot be built there."""
    known = hasattr(task, "d_in")
    errors = []
    for width in (0,) if known else WIDTHS:
        if not known:
            task.d_in = width
            task.n_nodes = width if task.readout == "node" else None
        try:
            return on_meta(parts, task)
        except InputError as error:
            errors.append(error)
    if errors and len({str(error) for error in errors}) == 1:
        raise errors[0]
    return None


def on_meta(parts: Parts, task: Any) -> Any:
    """The network for the sizes of a task, without memory; None where it cannot be built so."""
    with _known_errors(), torch.random.fork_rng(devices=[]), torch.device("meta"), Unfilled():
        return build.build_net(parts, task)
    return None


@contextmanager
def _known_errors() -> Iterator[None]:
    """Errors that are no message for a person are left to the run: they may be the meta device's."""
    try:
        yield
    except PhysmlError:
        raise
    except Exception:
        return
