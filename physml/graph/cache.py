"""Values derived from a tensor, cached for as long as that tensor lives unchanged.

A change is one that torch counts: an assignment or an operation in place. One through `.numpy()` or `.data`
is not seen. Keys by content would see it, but a CRC-32 of the edge list at each of the two look-ups of a
GCN layer takes 6 to 11 % of its forward pass (one thread: 2 x 4.5 of 81 us on a graph of the size of Texas,
2 x 85 of 2,800 us on that of Cora, 2 x 11 of 214 ms with 1.2 million edges).
"""

import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

import torch
from torch import Tensor

_CACHE: "OrderedDict[Hashable, tuple[Any, int, Any]]" = OrderedDict()
_LOCK = threading.RLock()  # a value that dies may let another thread in, or end another key here
_CACHE_SIZE = 64


def cached(what: str, tensor: Tensor, key: tuple[Hashable, ...], make: Callable[[], Any]) -> Any:
    """make(), kept for as long as `tensor` lives unchanged; a copy of it is another tensor.

    Changes through NumPy or `.data` are not seen: pass a clone after one.
    """
    where = (what, id(tensor), *key)
    if tensor.is_inference():  # counts no changes, so none would be seen
        return make()
    with _LOCK:
        known = _CACHE.get(where)
        if known is not None and known[0]() is tensor and known[1] == tensor._version:
            _CACHE.move_to_end(where)
            return known[2]
    with torch.inference_mode(False):  # a later call may train with it
        value = make()

    def forget(_: Any, cache: Any = _CACHE, lock: Any = _LOCK) -> None:  # the names are gone when Python ends
        with lock:
            cache.pop(where, None)

    with _LOCK:
        gone = [_CACHE.pop(where, None)]  # these die when the lock is free again
        _CACHE[where] = (weakref.ref(tensor, forget), tensor._version, value)
        while len(_CACHE) > _CACHE_SIZE:
            gone.append(_CACHE.popitem(last=False)[1])
    return value
