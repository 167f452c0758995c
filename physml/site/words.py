"""Names of pages, and states for tables."""

import hashlib
import re
import unicodedata

from physml.report.outcome import State

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
    name = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-") or "x"
    if re.fullmatch(r"[A-Za-z0-9]+(?:[ -][A-Za-z0-9]+)*", text):
        return name
    return f"{name}-{hashlib.sha256(text.encode()).hexdigest()[:4]}"
