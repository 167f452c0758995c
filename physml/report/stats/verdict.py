"""The words of a verdict: what was compared, and what came out."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from physml.report.outcome import State
from physml.report.stats.comparison import Comparison, Outcome

Kind = Literal["published", "official code", "searched here", "own"]
KINDS: dict[str, Kind] = {
    "paper": "published",
    "official-code": "official code",
    "searched-here": "searched here",
}

# Outcome -> word, where the settings are those of the paper or its code, and where they are ours.
SETTLED: dict[Outcome, str] = {"better": "differs: better", "worse": "differs: worse"}
OURS: dict[Outcome, str] = {"agrees": "reached", "better": "exceeded"}
CONTEXT: dict[Outcome, str] = {"agrees": "alike", "better": "ours better", "worse": "theirs better"}
AT_CHANCE = "not shown to beat a constant with our settings"


@dataclass(frozen=True)
class Settings:
    """Whose settings a row was trained with."""

    kind: Kind  # their source: the paper, its official code, a search here, a choice without search
    trials: int | None = None  # finished trials of the search
    seeds: int = 1  # seeds, or splits, on which its last stage judged the best trials
    drawn: int | None = None  # all trials of the search, those that have diverged among them

    def __str__(self) -> str:
        if self.trials is None:
            return "chosen here" if self.kind in ("own", "searched here") else self.kind
        text = f"searched: {self.spent} trials"
        return text if self.seeds == 1 else f"{text}, the best on {self.seeds} seeds"

    @property
    def spent(self) -> int | None:
        """The trials that the search cost, as far as its record says."""
        return self.drawn or self.trials

    @property
    def settled(self) -> bool:
        """Its authors would not have chosen others: what differs is not a matter of our search."""
        return self.kind in ("published", "official code")


def settings_of(provenance: Mapping[str, Any] | None) -> Settings:
    """The settings as a record states them; older records give the trials of a search in its note.

    Example:
        >>> str(settings_of({"kind": "searched-here", "trials": 153, "drawn": 160, "seeds": 10}))
        'searched: 160 trials, the best on 10 seeds'
    """
    facts = provenance or {}
    kind = KINDS.get(str(facts.get("kind")), "own")
    trials, drawn = facts.get("trials"), facts.get("drawn")
    if drawn is None and (
        match := re.search(r"(\d+) trials(?: \((\d+) finished\))?", str(facts.get("note")))
    ):
        drawn = int(match[1])
        trials = int(match[2] or match[1]) if trials is None else trials
    if kind != "searched here":
        return Settings(kind)
    return Settings(kind, trials, int(facts.get("seeds") or 1), drawn)


def tuned_alike(first: Settings, second: Settings, searched: bool = False) -> bool:
    """True if a comparison of two rows says something about the models rather than the tuning.

    Two searches must have as many trials, decided by as many runs. Settings chosen here without a search are
    held against each other alone. searched: nothing but two equal searches will do.

    Example:
        >>> tuned_alike(Settings("searched here", 24, 1, 24), Settings("searched here", 22, 1, 24))
        True
        >>> tuned_alike(Settings("searched here", 24, 1, 24), Settings("own"))
        False
    """
    kinds = {first.kind, second.kind}
    if kinds == {"searched here"}:
        return first.spent is not None and (first.spent, first.seeds) == (second.spent, second.seeds)
    return not searched and (kinds == {"own"} or "own" not in kinds)


def tried_less(first: Settings, second: Settings) -> bool:
    """True if the first row was searched with fewer trials, so that its lead is not one of the search.

    Example:
        >>> tried_less(Settings("searched here", 160, 10, 160), Settings("searched here", 180, 10, 180))
        True
    """
    if not (first.kind == second.kind == "searched here" and first.spent and second.spent):
        return False
    return first.seeds == second.seeds and first.spent < second.spent


def verdict(comparison: Comparison, settings: Settings, quoted: bool, chance: str | None = None) -> State:
    """A comparison in words, which accuse no more strongly than the settings permit.

    A number that the paper quotes from other work is context only. Where its readings disagree, the reason
    says what each gives. With settings of ours, worse and not shown to beat a constant is not a comparison of
    models: what its network has learned may not help on test.

    Args:
        chance: The trivial reference without input that ours is not shown to beat; None if it beats all.
    """
    outcome = comparison.outcome
    if chance is not None and outcome == "worse" and not settings.settled:
        return State(AT_CHANCE, chance)
    reason = None
    if outcome == "not decidable":
        reason = "; ".join(f"{reading.assumption}: {reading.outcome}" for reading in comparison.readings)
    if quoted:
        return State(f"context: {CONTEXT.get(outcome, outcome)}", reason)
    if settings.settled:
        return State(SETTLED.get(outcome, outcome), reason)
    if outcome == "worse":
        search = f" ({settings.spent} trials)" if settings.spent else ""
        return State(f"not reached by our search{search}" if search else "not reached with our settings")
    return State(OURS.get(outcome, outcome), reason)
