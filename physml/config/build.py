"""The only place where config becomes objects."""

import contextlib
import functools
import inspect
import typing
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.config.load import Unbuilt, Unread, coerce, walk
from physml.config.resolve import is_module, looking, name_plugins, resolve


@dataclass(frozen=True)
class Node(Unbuilt):
    """A class and its arguments, coerced and checked; nothing is built yet. Arguments may be nodes."""

    cls: type
    values: dict[str, Any]
    where: str
    of_plugin: bool  # whether the class, or that of a node inside it, is the user's

    def __repr__(self) -> str:
        return f"{{_target_: {self.cls.__module__}.{self.cls.__name__}}}"

    @property
    def anywhere(self) -> bool:  # type: ignore[override]
        return self.of_plugin or is_module(self.cls)

    def make(self, **supplied: Any) -> Any:
        """Build it, and the nodes inside it. `supplied` arguments are passed if the class takes them."""
        takes = arguments(self.cls)
        values = {n: v for n, v in supplied.items() if n in takes} | {
            n: _made(v) for n, v in self.values.items()
        }
        try:
            return self.cls(**values)
        except ValueError as error:
            if self.cls.__module__.startswith(("torch.", "torch_geometric.")):  # a bad value, such as lr=-1
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
    supplied: Collection[str] = (),
    needs: Collection[str] = (),
    beside: Collection[str] = (),
) -> Node:
    """The class of a node and its arguments, coerced; ConfigError for a key or a value that cannot be right.

    supplied: arguments that come from elsewhere (`d_in` from the task), which a config must not set.
    needs: methods without which an object has no place here. beside: keys of the section that are ours.
    """
    cls = _class_of(node, where, plugins, needs)
    if issubclass(cls, Unread):
        return Node(cls, {k: _with_nodes(v, f"{where}.{k}", plugins) for k, v in node.items()}, where, True)
    settable = {name: parameter for name, parameter in arguments(cls).items() if name not in supplied}
    hints = _hints(cls)
    values = {}
    for key, value in node.items():
        at = f"{where}.{key}"
        if key in settable:
            values[key] = coerce(_with_nodes(value, at, plugins), hints.get(key, Any), at)
        elif key != "_target_":
            hint = suggest(str(key), [*settable, *beside])
            if any(p.kind is p.VAR_KEYWORD for p in inspect.signature(cls).parameters.values()):
                hint += " **kwargs are not read: write each argument."
            raise ConfigError(f"{at}: {cls.__name__} has no such argument. {hint}")
    if missing := [n for n, p in settable.items() if n not in values and p.default is p.empty]:
        raise ConfigError(
            f"{where}: {cls.__name__} needs {', '.join(missing)}. Add +{where}.{missing[0]}=VALUE."
        )
    of_plugin = cls.__module__ in {Path(p).stem for p in plugins}
    inner = any(isinstance(inner_node, Node) and inner_node.of_plugin for _, inner_node in walk(values))
    return Node(cls, values, where, of_plugin or inner)


def _class_of(node: Any, where: str, plugins: Sequence[str], needs: Collection[str]) -> type:
    if not isinstance(node, dict) or "_target_" not in node:
        got = f"keys {', '.join(map(str, node)) or 'none'}" if isinstance(node, dict) else repr(node)
        raise ConfigError(f"{where} needs a _target_, the class to build; got {got}.")
    cls = resolve(node["_target_"], plugins, where)
    if issubclass(cls, Unread):
        return cls
    if lacking := [name for name in needs if not hasattr(cls, name)]:
        raise ConfigError(f"{where}: {cls.__name__} does not belong here: it has no {lacking[0]}().")
    if inspect.isabstract(cls) or getattr(cls, "_is_protocol", False):
        raise ConfigError(
            f"{where}: {cls.__name__} is a base class, which cannot be built. Name a class made from it."
        )
    return cls


def _hints(cls: type) -> dict[str, Any]:
    hints: dict[str, Any] = {}
    for holder in (cls, cls.__init__):  # type: ignore[misc]
        with contextlib.suppress(NameError, TypeError):  # an annotation that cannot be read is none
            hints |= typing.get_type_hints(holder)
    return hints


def _with_nodes(value: Any, where: str, plugins: Sequence[str]) -> Any:
    """The value with each mapping in it that has a _target_ as a checked node."""
    if isinstance(value, dict):
        if "_target_" in value:
            return check(value, where, plugins)
        return {key: _with_nodes(v, f"{where}.{key}", plugins) for key, v in value.items()}
    if isinstance(value, list):
        return [_with_nodes(v, f"{where}[{i}]", plugins) for i, v in enumerate(value)]
    return value


OF_TASK = ("d_in", "d_out", "readout", "tokens", "vectors")  # facts of a task that a network is built with
LAYER = ("forward", "parameters")  # methods that a part needs
TASK = ("load", "batches", "loss", "score")


@dataclass(frozen=True)
class Parts:
    """All that a config builds: classes and arguments, checked, none of them built."""

    model: Node
    net: Node
    task: Node
    optim: Node
    lr_factors: dict[str, float]
    select: Node
    stop: Node | None
    schedule: Node | None
    average: Node | None
    sample: Node | None
    arrays: Node | None
    measures: tuple[Node, ...] = ()


def parts_of(config: dict[str, Any]) -> Parts:
    """The parts of a config. ConfigError for a class or an argument that cannot be right."""
    trainer, plugins = config["trainer"], config["plugins"]

    def rule(node: Any, where: str, needs: Collection[str], supplied: Collection[str] = ()) -> Node | None:
        return None if node is None else check(node, where, plugins, supplied, needs)

    optim = dict(config["optim"])
    factors = coerce(optim.pop("lr_factors", None), dict[str, float] | None, "optim.lr_factors") or {}
    for pattern, factor in factors.items():
        if factor < 0:
            raise ConfigError(f"optim.lr_factors.{pattern} must not be negative; got {factor}.")
    parts = Parts(
        model=check(config["model"], "model", plugins, ("d_in", "n_nodes"), LAYER),
        net=check(config["net"], "net", plugins, ("layer", *OF_TASK), LAYER),
        task=check(config["task"], "task", plugins, needs=TASK),
        optim=check(optim, "optim", plugins, ("params",), ("step", "zero_grad"), ("lr_factors",)),
        lr_factors=factors,
        select=check(trainer["select"], "trainer.select", plugins, needs=("bind", "selected")),
        stop=rule(trainer["stop"], "trainer.stop", ("bind", "stops")),
        schedule=rule(trainer["schedule"], "trainer.schedule", ("step", "get_last_lr"), ("optimizer",)),
        average=rule(trainer["average"], "trainer.average", ("bind", "after_step", "after_epoch", "put")),
        sample=rule(trainer.get("sample"), "trainer.sample", ("over",)),
        arrays=rule(config["arrays"], "arrays", ("collect",)),
        measures=tuple(
            check(node, f"measures[{i}]", plugins, needs=("measure",))
            for i, node in enumerate(config.get("measures") or ())
        ),
    )
    _refuse_precision(config, parts)
    return parts


def _refuse_precision(config: dict[str, Any], parts: Parts) -> None:
    """ConfigError where a net, a device or a backend does not have the precision that is asked for."""
    precision, runtime = config["precision"], config["runtime"]
    on_graphs = {
        "bf16": "is not there for networks on graphs: torch has no sparse products of such numbers. Set "
        "precision=fp32 or, on a GPU, tf32.",
        "bf16-products": "is of recurrences; a network on graphs has none. Set precision=fp32.",
    }
    if precision in on_graphs and passes_messages(parts.net.cls):
        raise ConfigError(f"precision={precision} {on_graphs[precision]}")
    if precision != "bf16-products":
        return
    if runtime["backend"] not in ("auto", "native") or runtime["device"].startswith("cuda"):
        raise ConfigError(
            "precision=bf16-products is computed in C on a CPU alone; got "
            f"runtime.backend={runtime['backend']} and runtime.device={runtime['device']}. Set "
            "runtime.backend=auto and runtime.device=cpu, or another precision."
        )


def build_task(config: dict[str, Any], *, run: bool = True) -> Any:
    """The task. Without `run` no plugin is run, and a task that is of one is None."""
    if run:
        name_plugins([config])
    with contextlib.nullcontext() if run else looking():
        node = check(config["task"], "task", config["plugins"], needs=TASK)
        return node.make() if run or not node.of_plugin else None


def build_net(parts: Parts, task: Any) -> Any:
    """The whole network for a task: layers made by a factory, wrapped by the `net` node."""
    facts = {name: getattr(task, name) for name in OF_TASK}
    model = parts.model.cls
    _refuse_mismatch(parts.net.cls, model, task)
    # A layer of physml may hold one of a plugin.
    own = parts.model.of_plugin and not model.__module__.startswith("physml.")
    if own and "d_in" not in arguments(model):
        raise ConfigError(
            f"{model.__name__} takes no d_in: its constructor must be __init__(self, d_in, ...)."
        )

    def layer(d_in: int) -> Any:
        return parts.model.make(d_in=d_in, n_nodes=getattr(task, "n_nodes", None))  # None: many graphs

    return parts.net.make(layer=layer, **facts)


def _refuse_mismatch(net: type, model: type, task: Any) -> None:
    """ConfigError where a task gives graphs, and the net or the model takes sequences, or the other way."""
    of_graphs = task.readout in ("node", "graph")
    gives, takes = ("graphs", "sequences") if of_graphs else ("sequences", "graphs")
    if passes_messages(net) != of_graphs:
        fitting = {"node": "graph", "graph": "graphs"}.get(task.readout, "sequence")
        raise ConfigError(
            f"the net {net.__name__} takes {takes}; the task {type(task).__name__} gives {gives}. "
            f"Set net={fitting}."
        )
    if passes_messages(model) != of_graphs:
        raise ConfigError(
            f"the model {model.__name__} takes {takes}; the task {type(task).__name__} gives {gives}. "
            f"Choose a model of {gives}; `physml list models` has them."
        )


def passes_messages(layer: type) -> bool:
    """True if a layer is called as layer(x, edge_index)."""
    forward = getattr(layer, "forward", None)
    return forward is not None and "edge_index" in inspect.signature(forward).parameters


def build_optimizer(parts: Parts, net: Any) -> Any:
    """An optimizer over all trainable parameters, in groups where `lr_factors` says so."""
    node, groups = parts.optim, groups_by_factor(parts, net)
    params = [
        {"params": p, **({"lr": node.values["lr"] * f} if f != 1.0 else {})} for f, p in groups.items() if p
    ]
    return optimizer_of(node, params, **_one_pass(node, [p for group in groups.values() for p in group]))


def optimizer_of(node: Node, params: Sequence[Any], **options: bool) -> Any:
    """The optimizer that a node describes; one of torch without torch's compiler."""
    if not node.values.get("differentiable"):  # such a step records gradients
        node = replace(node, cls=eager(node.cls))
    return node.make(params=params, **options)


# Methods that torch wraps so that torch.compile leaves them alone; the wrapper imports the compiler.
WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


@functools.cache
def eager(cls: type) -> type:
    """A subclass of an optimizer of torch with the same methods, unwrapped; any other class as it is.

    torch's compiler takes as long to import as torch itself. The computation is that of torch, to the bit. A
    step under torch.compile needs the class itself.
    """
    if not cls.__module__.startswith("torch.optim."):
        return cls
    import torch

    methods: dict[str, Any] = {name: inspect.unwrap(getattr(cls, name)) for name in WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(cls.step))  # type: ignore[attr-defined]
    return type(cls.__name__, (cls,), methods | {"__module__": cls.__module__, "__doc__": cls.__doc__})


def groups_by_factor(parts: Parts, net: Any) -> dict[float, list[Any]]:
    """The trainable parameters by what multiplies their rate.

    The first pattern that a parameter's name matches counts. ConfigError if a pattern matches none.
    """
    factors = parts.lr_factors
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
    if len(groups) > 1 and "lr" not in parts.optim.values:
        raise ConfigError("optim.lr_factors multiply optim.lr, which is not set. Add optim.lr=VALUE.")
    return groups


def _one_pass(node: Node, params: Sequence[Any]) -> dict[str, bool]:
    """torch's update in one pass over each parameter, several times as fast, unless the config has a say."""
    ways = ("fused", "foreach", "differentiable", "capturable")
    if not node.cls.__module__.startswith("torch.optim") or any(k in node.values for k in ways):
        return {}
    can = all(p.is_floating_point() and p.device.type in ("cpu", "cuda") for p in params)
    return {"fused": True} if can else {}
