"""Names of pages, and outcomes with a sign and a kind: told by word and shape, not by colour alone."""

import hashlib
import re
import unicodedata

from physml.report.state import State

# The start of an outcome -> its sign and kind. The first that fits counts.
SIGNS = (
    ("agrees", "✓", "good"),
    ("reached", "✓", "good"),
    ("exceeded", "▲", "good"),
    ("differs: better", "▲", "good"),
    ("differs: worse", "▼", "bad"),
    ("failed", "✕", "bad"),
    ("diverged", "✕", "bad"),
    ("not reached", "▽", "open"),
    ("did not train", "▽", "open"),
    ("cannot be told apart", "≈", "even"),
    ("not decidable", "?", "even"),
    ("not comparable", "≠", "open"),
    ("partial", "…", "open"),
    ("running", "…", "open"),
    ("n =", "…", "open"),
)
KINDS = {
    "good": "agree, are reached or exceeded",
    "even": "cannot be told apart, or not decided",
    "open": "not reached by our search or settings, or not all runs made",
    "bad": "differ: worse, or failed",
    "none": "quoted, blocked or not run",
}


def sign(word: str) -> str:
    return next((sign for start, sign, _ in SIGNS if word.startswith(start)), "–")


def kind(word: str) -> str:
    return next((kind for start, _, kind in SIGNS if word.startswith(start)), "none")


def outcome(state: State) -> str:
    """An outcome without its counts and reason; that of `not comparable` has its reason."""
    whole = str(state) if state.word == "not comparable" else state.word
    return whole.partition(" (")[0]


LONGEST = 40  # characters of a reason in a table; a cell's own page has it whole


def short(state: State) -> str:
    """An outcome for a table."""
    return str(state) if state.reason is None or len(state.reason) <= LONGEST else state.word


def slug(text: str) -> str:
    """A name for a page, of a label: letters, digits and hyphens. Labels that lose something else than
    spaces or case get a few digits of their hash, so no two labels share a page.

    Example:
        >>> slug("LSTM, rate of LEM"), slug("official"), slug("G²-GCN")
        ('lstm-rate-of-lem-7196', 'official', 'g2-gcn-5d25')
    """
    plain = unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode()
    made = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "x"
    if re.fullmatch(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*", text):
        return made
    return f"{made}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"
