"""Values derived from a tensor, cached for as long as that tensor lives unchanged."""

import weakref
from collections import OrderedDict
from collections.abc import Callable, Hashable
from typing import Any

from torch import Tensor

_CACHE: "OrderedDict[Hashable, tuple[Any, int, Any]]" = OrderedDict()


_CACHE_SIZE = 64


def cached(what: str, tensor: Tensor, key: tuple[Hashable, ...], make: Callable[[], Any]) -> Any:
    """make(), kept for as long as the tensor `of` lives unchanged; a copy of it is another tensor."""
    where = (what, id(tensor), *key)
    if tensor.is_inference():  # counts no changes, so none would be seen
        return make()
    known = _CACHE.get(where)
    if known is not None and known[0]() is tensor and known[1] == tensor._version:
        _CACHE.move_to_end(where)
        return known[2]
    value = make()

    def forget(_: Any) -> None:
        _CACHE.pop(where, None)

    _CACHE[where] = (weakref.ref(tensor, forget), tensor._version, value)
    while len(_CACHE) > _CACHE_SIZE:
        _CACHE.popitem(last=False)
    return value
