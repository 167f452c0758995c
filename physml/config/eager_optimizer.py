"""torch's optimizers without its compiler, whose import takes as long as that of torch itself."""

import functools
import inspect
from typing import Any

import torch

# Methods that torch wraps so that torch.compile leaves them alone; the wrapper imports the compiler.
WRAPPED = ("add_param_group", "load_state_dict", "state_dict", "zero_grad")


@functools.cache
def eager(cls: type) -> type:
    """A subclass of an optimizer of torch with the same methods, unwrapped; any other class as it is.

    The computation is that of torch, to the bit. A step under torch.compile needs the class itself.
    """
    if not cls.__module__.startswith("torch.optim."):
        return cls
    methods: dict[str, Any] = {name: inspect.unwrap(getattr(cls, name)) for name in WRAPPED}
    methods["step"] = torch.no_grad()(inspect.unwrap(cls.step))  # type: ignore[attr-defined]
    return type(cls.__name__, (cls,), methods | {"__module__": cls.__module__, "__doc__": cls.__doc__})
