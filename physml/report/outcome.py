"""States, and the six outcomes that a reader has of them: the one mapping for terminal, pages and lists.

The exact words, which say whose settings were compared and why there is no verdict, stand in `--long`, on
the page of a cell and in CSV files.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass


@dataclass(frozen=True)
class State:
    """The state of a cell, a curve or a setting: a word with its reason, and how many runs are there of those
    wanted, where the word needs them.

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


@dataclass(frozen=True)
class Outcome:
    """An outcome with its sign. kind: its class on pages. colour: on a terminal."""

    name: str
    sign: str
    kind: str
    colour: str


REPRODUCED = Outcome("reproduced", "✓", "good", "green")
BETTER = Outcome("better here", "△", "above", "cyan")
EVEN = Outcome("cannot be told apart", "≈", "even", "yellow")
NOT_REACHED = Outcome("not reached here", "▽", "open", "yellow")
DIFFERS = Outcome("differs", "✕", "bad", "red")
NOT_RUN = Outcome("not run", "–", "none", "dim")
SIX = (REPRODUCED, BETTER, EVEN, NOT_REACHED, DIFFERS, NOT_RUN)
NO_VERDICT = Outcome("no verdict", "·", "wait", "dim")  # runs are there, but too few, or not comparable
ALL = (*SIX, NO_VERDICT)

CONTEXT = "context: "  # before the words for a number that a paper quotes from other work
STARTS: dict[Outcome, tuple[str, ...]] = {
    REPRODUCED: ("agrees", "reached", "alike", *("same", "rounded", "inside")),  # the last three of a setting
    BETTER: ("exceeded", "ours better"),
    EVEN: ("cannot be told apart", "not decidable"),
    NOT_REACHED: ("not reached", "not shown to beat", "theirs better", "diverged"),
    DIFFERS: ("differs", "outside"),
    NOT_RUN: (
        *("missing", "stale", "blocked", "failed", "quoted", "not run"),
        *("no printed", "no experiment", "no search"),
    ),
}
AS_THEY_ARE = ("differs: better", "differs: worse", "failed", "diverged", "running", "blocked")
SHORT_BUDGET = "short budget"  # the reason of a state that is not comparable


def outcome_of(state: State) -> Outcome:
    """The outcome of a state.

    Example:
        >>> outcome_of(State("exceeded")).name, outcome_of(State("context: theirs better")).name
        ('better here', 'not reached here')
    """
    word = state.word.removeprefix(CONTEXT)
    return next((outcome for outcome, starts in STARTS.items() if word.startswith(starts)), NO_VERDICT)


def words_of(state: State) -> str:
    """A state in at most four words; empty where there is nothing to compare with.

    Example:
        >>> words_of(State("exceeded")), words_of(State("partial", done=3, wanted=5))
        ('better here', '3 of 5 runs')
    """
    word = state.word.removeprefix(CONTEXT)
    if word == "not published":
        return ""
    if word == "partial":
        return f"{state.done} of {state.wanted} runs"
    outcome = outcome_of(state)
    return word if word in AS_THEY_ARE or outcome is NO_VERDICT else outcome.name


def signed(state: State) -> str:
    """The words with their sign."""
    words = words_of(state)
    return f"{outcome_of(state).sign} {words}" if words else ""


def counts(states: Iterable[State]) -> str:
    """How many states have which outcome: `4 reproduced, 2 cannot be told apart`."""
    per_outcome = Counter(outcome_of(state) for state in states)
    return ", ".join(f"{per_outcome[outcome]} {outcome.name}" for outcome in ALL if per_outcome[outcome])
