"""Graceful interruption: SIGTERM, SIGUSR1 and SIGUSR2 (schedulers), Ctrl-C, SIGHUP of a closed terminal."""

import contextlib
import os
import signal
import stat
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from physml.base.errors import Preempted

SIGNALS = (signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2, signal.SIGHUP, signal.SIGINT)


@contextlib.contextmanager
def handled(signals: Iterable[signal.Signals], handler: Callable[[int, Any], Any]) -> Iterator[None]:
    """Inside, signals go to the handler, where this is the main thread; after it, to where they went.

    SIGHUP stays ignored where it is, as by `nohup`; else it also closes the output to the terminal.
    """

    def hung_up(number: int, frame: Any) -> None:
        close_terminal()
        handler(number, frame)

    before: dict[signal.Signals, Any] = {}
    with contextlib.suppress(ValueError):  # not the main thread
        for number in signals:
            if number != signal.SIGHUP:
                before[number] = signal.signal(number, handler)
            elif signal.getsignal(number) != signal.SIG_IGN:
                before[number] = signal.signal(number, hung_up)
    try:
        yield
    finally:
        for number, earlier in before.items():
            signal.signal(number, earlier)


@contextlib.contextmanager
def deferred() -> Iterator[None]:
    """Inside, signals wait for the end: around code of other packages that loses an exception."""
    waiting: list[int] = []
    try:
        with handled(SIGNALS, lambda number, _: waiting.append(number)):
            yield
    finally:
        for number in waiting:
            signal.raise_signal(number)


def close_terminal() -> None:
    """Send output that went to a terminal nowhere: writing to one that was closed is an error."""
    for output in (1, 2):
        with contextlib.suppress(OSError):
            if stat.S_ISCHR(os.fstat(output).st_mode):
                nowhere = os.open(os.devnull, os.O_WRONLY)
                os.dup2(nowhere, output)
                os.close(nowhere)


class Interrupt:
    """Remembers the first such signal; `raise_if_requested` is called where nothing gets lost."""

    def __init__(self) -> None:
        self.reason: str | None = None
        self._at_once = False

    def raise_if_requested(self) -> None:
        """Preempted if a signal has come."""
        if self.reason:
            raise Preempted(f"stopped by {self.reason}; start the same command again to go on.")

    @contextlib.contextmanager
    def at_once(self) -> Iterator[None]:
        """Inside, a signal raises Preempted wherever it arrives: while data are made, nothing can be lost."""
        self.raise_if_requested()
        self._at_once = True
        try:
            yield
        except Preempted:
            raise
        except Exception:
            self.raise_if_requested()  # what was interrupted may have made another error of it
            raise
        finally:
            self._at_once = False

    def listening(self) -> contextlib.AbstractContextManager[None]:
        """Take the signals over. A second Ctrl-C is not remembered but raises KeyboardInterrupt."""
        return handled(SIGNALS, self._remember)

    def _remember(self, number: int, _frame: object) -> None:
        name = "Ctrl-C" if number == signal.SIGINT else signal.Signals(number).name
        if number == signal.SIGINT and self.reason:
            raise KeyboardInterrupt
        self.reason = self.reason or name
        if self._at_once:
            self.raise_if_requested()
