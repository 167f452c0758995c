"""Calls that end in an error."""

from collections.abc import Callable
from typing import Any

import pytest


def refuses(error: type[Exception], says: str, call: Callable[..., Any], *args: Any, **options: Any) -> str:
    """The call with these arguments raises the error; returns its message, in which the pattern `says` is."""
    __tracebackhide__ = True
    with pytest.raises(error, match=says) as caught:
        call(*args, **options)
    return str(caught.value)
