"""The recurrent layer that an estimator names, and the network around it. Axes: D features, O outputs."""

from collections.abc import Callable, Mapping
from typing import Any, Literal

from torch import nn

from physml.base.errors import ConfigError, InputError, suggest
from physml.config import build, conf_files
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.models.sequence.rnn import SequenceModel

Layer = str | Callable[..., nn.Module]
OF_CONFIG = ("smoke", "datasets", "defaults")  # keys of a file in conf/model that are no arguments


def network(
    layer: Layer,
    arguments: Mapping[str, Any] | None,
    d_in: int,
    d_out: int,
    readout: Literal["last", "every"],
) -> SequenceModel:
    """A `SequenceModel` of one layer and a linear read-out.

    Args:
        layer: a name of conf/model, such as "lem", whose other arguments are those of its file; or a class,
            called as layer(d_in, **arguments), with an attribute d_out.
        arguments: of the layer; a name's file has values for those that are not given.
        d_in: D.
        d_out: O.
        readout: as in `SequenceModel`.

    Errors: InputError for a name that is no recurrent layer, and for arguments that it does not take.
    """
    settings = dict(arguments or {})
    if isinstance(layer, str):
        node = _node(layer, settings)
        return SequenceModel(lambda d: node.make(d_in=d), d_in, d_out, readout, tokens=False)
    if isinstance(layer, nn.Module):
        name = type(layer).__name__
        raise InputError(f"layer must be a class; got an object of {name}. Give {name}, and its layer_args.")
    if not callable(layer):
        raise InputError(f"layer must be a name, such as 'lem', or a class; got {layer!r}.")
    try:
        return SequenceModel(lambda d: layer(d, **settings), d_in, d_out, readout, tokens=False)
    except TypeError as error:
        raise InputError(f"layer={getattr(layer, '__name__', layer)}: {error}.") from error


def names() -> list[str]:
    """The models of conf/ that are recurrent layers."""
    return sorted(name for name in conf_files.files("model") if _is_recurrent(_file(name)))


def _node(name: str, settings: dict[str, Any]) -> build.Node:
    if name not in conf_files.files("model"):
        raise ConfigError(f"there is no layer {name}. {suggest(name, names())}")
    config = _file(name)
    if not _is_recurrent(config):
        if config["_target_"] == "???":
            raise InputError(f"layer={name!r} stands for a class of your own: give the class itself.")
        raise InputError(
            f"{name} is a model of graphs; an estimator takes a recurrent one. {suggest('', names())}"
        )
    return build.check(config | settings, "layer", supplied=("d_in",), needs=build.LAYER)


def _file(name: str) -> dict[str, Any]:
    content = read_yaml(conf_files.files("model")[name])
    return {key: value for key, value in content.items() if key not in OF_CONFIG}


def _is_recurrent(config: Mapping[str, Any]) -> bool:
    target = config.get("_target_")
    return isinstance(target, str) and target != "???" and not build.passes_messages(resolve(target))
