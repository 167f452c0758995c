"""The only place where config becomes objects."""

import contextlib
import inspect
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from physml.config.load import coerce
from physml.config.resolve import refuse_foreign, resolve
from physml.errors import ConfigError, suggest


@dataclass(frozen=True)
class Node:
    """A class and its arguments, coerced and checked; nothing is built yet. Arguments may be nodes."""

    cls: type
    values: dict[str, Any]
    where: str

    def make(self, **given: Any) -> Any:
        """Build it, and the nodes inside it. `given` arguments are passed if the class takes them."""
        takes = arguments(self.cls)
        values = {n: v for n, v in given.items() if n in takes} | {
            n: _made(v) for n, v in self.values.items()
        }
        try:
            return self.cls(**values)
        except ValueError as error:
            if self.cls.__module__.startswith("torch."):  # what torch says of a bad value, such as lr=-1
                raise ConfigError(f"{self.where}: {self.cls.__name__}: {error}.") from error
            raise


def _made(value: Any) -> Any:
    if isinstance(value, Node):
        return value.make()
    if isinstance(value, list | tuple):
        return type(value)(map(_made, value))
    return {k: _made(v) for k, v in value.items()} if isinstance(value, dict) else value


def arguments(cls: type) -> dict[str, inspect.Parameter]:
    parameters = dict(inspect.signature(cls).parameters)
    return {n: p for n, p in parameters.items() if p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)}


def check(
    node: Any,
    where: str,
    plugins: Sequence[str] = (),
    given: Collection[str] = (),
    needs: Collection[str] = (),
    beside: Collection[str] = (),
) -> Node:
    """The class of a node and its arguments, coerced; ConfigError for a key or a value that cannot be right.

    given: arguments that come from elsewhere (`d_in` from the task), which a config must not set.
    needs: methods without which an object has no place here. beside: keys of the section that are ours.
    """
    if not isinstance(node, dict) or "_target_" not in node:
        got = f"keys {', '.join(map(str, node)) or 'none'}" if isinstance(node, dict) else repr(node)
        raise ConfigError(f"{where} needs a _target_, the class to build; got {got}.")
    refuse_foreign(node, plugins, where)
    cls = resolve(node["_target_"], plugins, where)
    if lacking := [name for name in needs if not hasattr(cls, name)]:
        raise ConfigError(f"{where}: {cls.__name__} does not belong here: it has no {lacking[0]}().")
    if inspect.isabstract(cls):
        raise ConfigError(
            f"{where}: {cls.__name__} is a base class, which cannot be built. Name a class made from it."
        )
    known = arguments(cls)
    settable = [n for n in known if n not in given]
    values = {}
    hints = _hints(cls)
    for key, value in node.items():
        if key == "_target_":
            continue
        if key not in settable:
            hint = suggest(str(key), [*settable, *beside])
            raise ConfigError(f"{where}.{key}: {cls.__name__} has no such argument. {hint}")
        values[key] = _value(value, hints.get(key, Any), f"{where}.{key}", plugins)
    missing = [n for n in settable if n not in values and known[n].default is inspect.Parameter.empty]
    if missing:
        raise ConfigError(
            f"{where}: {cls.__name__} needs {', '.join(missing)}. Add +{where}.{missing[0]}=VALUE."
        )
    return Node(cls, values, where)


def construct(node: dict[str, Any], where: str, plugins: Sequence[str] = (), **given: Any) -> Any:
    """Build what a node describes. `given` arguments are passed if the class takes them."""
    return check(node, where, plugins, tuple(given)).make(**given)


def _hints(cls: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for holder in (cls, cls.__init__):  # type: ignore[misc]
        with contextlib.suppress(NameError, TypeError):  # an annotation that cannot be read is none
            hints |= typing.get_type_hints(holder)
    return hints


def _value(value: Any, hint: Any, where: str, plugins: Sequence[str]) -> Any:
    """The value coerced; nodes inside it checked."""
    if isinstance(value, dict) and "_target_" in value:
        return check(value, where, plugins)
    if isinstance(value, list) and any(isinstance(v, dict | list) for v in value):
        return [_value(v, Any, f"{where}[{i}]", plugins) for i, v in enumerate(value)]
    return coerce(value, hint, where)


NET_GIVEN = ("layer", "d_in", "d_out", "readout", "tokens", "vectors")
LAYER = ("forward", "parameters")
TASK = ("load", "batches", "loss", "score")
OPTIMIZER = ("step", "zero_grad")
SCHEDULE = ("step", "get_last_lr")


def build_task(config: dict[str, Any]) -> Any:
    return check(config["task"], "task", config["plugins"], needs=TASK).make()


def build_net(config: dict[str, Any], task: Any) -> Any:
    """The whole network for a task: layers made by a factory, wrapped by the `net` node."""
    plugins = config["plugins"]
    one = check(config["model"], "model", plugins, ("d_in",), LAYER)
    given = {"d_in": task.d_in, "d_out": task.d_out, "readout": task.readout, "tokens": task.tokens}
    given["vectors"] = task.vectors

    net = check(config["net"], "net", plugins, NET_GIVEN, LAYER)
    _refuse_mismatch(net.cls, one.cls, task)
    if config["precision"] == "bf16" and passes_messages(net.cls):
        raise ConfigError(
            "precision=bf16 is not there for networks on graphs: torch has no sparse products of such "
            "numbers. Set precision=fp32 or, on a GPU, tf32."
        )

    def layer(d_in: int) -> Any:
        return one.make(d_in=d_in)

    return net.make(layer=layer, **given)


def _refuse_mismatch(net: type, model: type, task: Any) -> None:
    """ConfigError where a task gives graphs, and the net or the model takes sequences, or the other way."""
    of_graphs = task.readout in ("node", "graph")
    gives = "graphs" if of_graphs else "sequences"
    if passes_messages(net) != of_graphs:
        wanted = {"node": "graph", "graph": "graphs"}.get(task.readout, "sequence")
        raise ConfigError(
            f"net={net.__name__} does not take the {gives} that {type(task).__name__} gives. "
            f"Set net={wanted}."
        )
    if passes_messages(model) != of_graphs:
        raise ConfigError(
            f"model={model.__name__} does not take the {gives} that {type(task).__name__} gives. "
            f"Choose a model of {gives}; `physml list models` has them."
        )


def passes_messages(layer: type) -> bool:
    """Whether a layer is called as layer(x, edge_index)."""
    forward = getattr(layer, "forward", None)
    return forward is not None and "edge_index" in inspect.signature(forward).parameters


def check_optimizer(config: dict[str, Any]) -> tuple[Node, dict[str, float]]:
    """The optimizer's node and its `lr_factors`, which are ours."""
    node = dict(config["optim"])
    factors = coerce(node.pop("lr_factors", None), dict[str, float] | None, "optim.lr_factors") or {}
    for pattern, factor in factors.items():
        if factor < 0:
            raise ConfigError(f"optim.lr_factors.{pattern} must not be negative; got {factor}.")
    return check(node, "optim", config["plugins"], ("params",), OPTIMIZER, beside=("lr_factors",)), factors


def build_optimizer(config: dict[str, Any], net: Any) -> Any:
    """An optimizer over all trainable parameters, in groups where `lr_factors` says so.

    The first pattern that a parameter's name matches counts. ConfigError if a pattern matches none.
    """
    node, factors = check_optimizer(config)
    named = [(n, p) for n, p in net.named_parameters() if p.requires_grad]
    groups: dict[float, list[Any]] = {1.0: []}
    unused = dict(factors)
    for name, parameter in named:
        pattern = next((p for p in factors if fnmatchcase(name, p)), None)
        unused.pop(pattern or "", None)
        groups.setdefault(factors[pattern] if pattern else 1.0, []).append(parameter)
    if unused:
        raise ConfigError(
            f"optim.lr_factors: no parameter is left for {', '.join(unused)}. "
            f"{suggest(next(iter(unused)), [n for n, _ in named])}"
        )
    if len(groups) > 1 and "lr" not in node.values:
        raise ConfigError("optim.lr_factors multiply optim.lr, which is not set. Add optim.lr=VALUE.")
    params = [
        {"params": p, **({"lr": node.values["lr"] * f} if f != 1.0 else {})} for f, p in groups.items() if p
    ]
    return node.make(params=params, **_one_pass(node, [p for _, p in named]))


def _one_pass(node: Node, params: Sequence[Any]) -> dict[str, bool]:
    """torch's update in one pass over each parameter, several times as fast, unless the config has a say."""
    ways = ("fused", "foreach", "differentiable", "capturable")
    if not node.cls.__module__.startswith("torch.optim") or any(k in node.values for k in ways):
        return {}
    can = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in params)
    return {"fused": True} if can else {}


def build_schedule(config: dict[str, Any], optimizer: Any) -> Any | None:
    node = config["trainer"]["schedule"]
    if not node:
        return None
    return check(node, "trainer.schedule", config["plugins"], ("optimizer",), SCHEDULE).make(
        optimizer=optimizer
    )
