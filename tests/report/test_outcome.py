"""Six outcomes: every exact word of a state has one."""

import itertools

import pytest

from physml.report.outcome import ALL, SIX, State, counts, outcome_of, signed, words_of
from physml.report.stats.comparison import Comparison, Outcome, Reading
from physml.report.stats.verdict import Settings, verdict

KINDS = ("published", "official code", "searched here", "own")
OUTCOMES: tuple[Outcome, ...] = ("agrees", "better", "worse", "cannot be told apart", "not decidable")


def comparison(outcome: Outcome) -> Comparison:
    both: tuple[Outcome, ...] = ("agrees", "better") if outcome == "not decidable" else (outcome,)
    return Comparison(0.0, tuple(Reading("mean of 5", -1.0, 1.0, word) for word in both))


@pytest.mark.parametrize(
    "state, text",
    [
        (State("exceeded"), "△ better here"),
        (State("differs: worse"), "✕ differs: worse"),
        (State("context: theirs better"), "▽ not reached here"),
        (State("not reached by our search (16 trials)"), "▽ not reached here"),
        (State("partial", done=3, wanted=5), "· 3 of 5 runs"),
        (State("n = 2, no verdict"), "· n = 2, no verdict"),
        (State("not comparable", "other protocol"), "· not comparable"),
        (State("quoted", "earlier work"), "– not run"),
        (State("blocked", "no data"), "– blocked"),
        (State("not published"), ""),
    ],
)
def test_a_state_in_few_words(state: State, text: str) -> None:
    assert signed(state) == text
    assert len(words_of(state).split()) <= 5


def test_every_verdict_has_the_outcome_of_its_settings_told_by_sign_and_class_too() -> None:
    for kind, quoted, outcome in itertools.product(KINDS, (False, True), OUTCOMES):
        name = outcome_of(verdict(comparison(outcome), Settings(kind), quoted)).name  # type: ignore[arg-type]
        ours = quoted or kind in ("searched here", "own")
        want = {"agrees": "reproduced", "better": "differs", "worse": "differs"}
        want |= {"better": "better here", "worse": "not reached here"} if ours else {}
        assert name == want.get(outcome, "cannot be told apart"), (kind, quoted, outcome)
    signs, kinds = {outcome.sign for outcome in ALL}, {outcome.kind for outcome in ALL}
    assert len(signs) == len(kinds) == len(ALL) == len(SIX) + 1
    assert counts([State("agrees"), State("missing"), State("agrees")]) == "2 reproduced, 1 not run"
