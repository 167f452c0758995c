"""Calls that end in an error."""

from collections.abc import Callable
from typing import Any

import pytest


def refuses(error: type[Exception], says: str, call: Callable[..., Any], *args: Any, **options: Any) -> None:
    """The call with these arguments raises the error, and the pattern `says` is found in its message."""
    __tracebackhide__ = True
    with pytest.raises(error, match=says):
        call(*args, **options)
