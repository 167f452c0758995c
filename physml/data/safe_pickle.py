"""Pickles of others: opened only as far as they name what an allow-list has. No torch here."""

import io
import pickle
from collections import OrderedDict, defaultdict
from collections.abc import Mapping
from typing import Any

import numpy as np

from physml.errors import DataError

Allowed = Mapping[tuple[str, str], Any]

_ARRAYS: dict[tuple[str, str], Any] = {("numpy", "ndarray"): np.ndarray, ("numpy", "dtype"): np.dtype}
for _module in ("numpy.core.multiarray", "numpy._core.multiarray"):
    _ARRAYS[_module, "_reconstruct"] = np._core.multiarray._reconstruct  # type: ignore[attr-defined]
    _ARRAYS[_module, "scalar"] = np._core.multiarray.scalar  # type: ignore[attr-defined]

# Arrays of numbers; and lists of neighbours. Objects inside an array are unpickled by the same list.
ARRAYS: Allowed = _ARRAYS
LISTS: Allowed = {
    **{(module, "list"): list for module in ("__builtin__", "builtins")},
    ("collections", "defaultdict"): defaultdict,
}


def sparse() -> Allowed:
    """Arrays and scipy's compressed sparse rows, under the names of its old and new modules."""
    from scipy.sparse import csr_matrix

    modules = ("scipy.sparse.csr", "scipy.sparse._csr")
    return {**ARRAYS, **{(module, "csr_matrix"): csr_matrix for module in modules}}


def tensors() -> Allowed:
    """Arrays, and tensors of torch, whose bytes torch itself reads as weights alone."""
    import torch
    from torch._utils import _rebuild_tensor_v2

    def storage(content: bytes) -> Any:
        return torch.load(io.BytesIO(content), weights_only=True)

    return {
        **ARRAYS,
        ("torch._utils", "_rebuild_tensor_v2"): _rebuild_tensor_v2,
        ("torch.storage", "_load_from_bytes"): storage,
        ("collections", "OrderedDict"): OrderedDict,
    }


def unpickle(content: bytes, allowed: Allowed, where: str, again: str) -> Any:
    """The contents of a pickle of Python 2 or 3; strings of Python 2 are read as Latin-1.

    A pickle can run any function that it names, so anything but the names of `allowed` is refused.

    Errors: DataError, with `where` (the file) and `again` (what to do), for another name and for damage.
    """

    class Harmless(pickle.Unpickler):
        def find_class(self, module: str, name: str) -> Any:
            if (module, name) == ("_codecs", "encode"):  # how Python 3 writes bytes for Python 2
                return _latin1
            if (module, name) not in allowed:
                raise pickle.UnpicklingError(f"it names {module}.{name}, which no file of this data set does")
            return allowed[module, name]

    try:
        return Harmless(io.BytesIO(content), encoding="latin1").load()
    except Exception as error:  # a damaged pickle can raise nearly anything
        raise DataError(f"{where} cannot be read: {error or 'it ends too early'}. {again}") from error


def _latin1(text: str, encoding: str) -> bytes:
    if encoding != "latin1":
        raise pickle.UnpicklingError(f"it holds bytes in {encoding!r}, expected latin1")
    return text.encode("latin1")
