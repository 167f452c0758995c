"""One file per data set: its reader, and a tiny set in the upstream format. Without torch."""

import importlib
import pkgutil

from physml.base.errors import ConfigError, suggest
from physml.data.datasets import DataSet


def reader(name: str) -> DataSet:
    """The data set of that name, from the modules of this package; ConfigError where none reads it."""
    known = {}
    for module in pkgutil.iter_modules(__path__):
        for value in vars(importlib.import_module(f"{__name__}.{module.name}")).values():
            if isinstance(value, DataSet):
                known[value.name] = value
    if name not in known:
        raise ConfigError(f"no module of {__name__} reads the data set {name}. {suggest(name, known)}")
    return known[name]
