"""The state of a cell, a curve or a setting: one word, with details."""

from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """A word with its reason, and how many runs are there of those wanted, where the word needs them.

    Example:
        >>> str(State("agrees")), str(State("blocked", "no data")), str(State("partial", done=3, wanted=5))
        ('agrees', 'blocked: no data', 'partial 3/5')
    """

    word: str
    reason: str | None = None
    done: int | None = None
    wanted: int | None = None

    def __str__(self) -> str:
        counts = "" if self.wanted is None else f" {self.done}/{self.wanted}"
        return f"{self.word}{counts}" + (f": {self.reason}" if self.reason else "")
