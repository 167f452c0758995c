"""Work that comes before the first step of a run, said to whoever shows it: making data, say."""

import contextlib
from collections.abc import Callable, Iterator
from contextvars import ContextVar

_LISTENER: ContextVar[Callable[[str], None] | None] = ContextVar("listener", default=None)


@contextlib.contextmanager
def shown_by(show: Callable[[str], None]) -> Iterator[None]:
    """Inside, `say` calls `show`."""
    token = _LISTENER.set(show)
    try:
        yield
    finally:
        _LISTENER.reset(token)


def say(text: str) -> None:
    """Name the work that begins; without a listener, nothing happens."""
    if (show := _LISTENER.get()) is not None:
        show(text)
