"""Numbers in a sentence by their names: `{LEM}`, `{LEM|official}`, `{LEM|official|printed}`."""

import re
from collections.abc import Callable, Collection

from physml.base.errors import ConfigError, suggest

PARTS = ("ours", "mean", "sd", "n", "best", "printed", "rank", "times")
Fill = Callable[[str, str, str], str]  # row, column and part -> text
_PATTERN = re.compile(r"\{([^{}]*)\}")


def filled(text: str, rows: Collection[str], columns: Collection[str], fill: Fill) -> str:
    """The text with every placeholder replaced.

    Args:
        text: A placeholder is the label of a row, then the key of a column (the first of all if left out),
            then a part: ours (mean ± sd), mean, sd, n, best, printed, or the row's mean rank. `times` is the
            mean of one row over that of another: `{LSTM//LEM|official|times}`.
        rows: Labels that there are.
        columns: Keys that there are, in their order.
        fill: Gives the text of each.

    Raises:
        ConfigError: A name that there is not.
    """

    def replaced(match: re.Match[str]) -> str:
        label, *rest = (part.strip() for part in match[1].split("|"))
        part = rest.pop() if rest and rest[-1] in PARTS else "ours"
        column = rest.pop(0) if rest else next(iter(columns))
        labels = label.split("//") if part == "times" else [label]
        if part == "times" and len(labels) != 2:
            raise ConfigError(f"finding: times must be of two rows, A//B; got {label!r}.")
        checks = [("row", row, rows) for row in labels]
        for what, name, known in [*checks, ("column", column, columns), *(("part", r, PARTS) for r in rest)]:
            if name not in known:
                raise ConfigError(f"finding: there is no {what} {name!r}. {suggest(name, known)}")
        return fill(label, column, part)

    return _PATTERN.sub(replaced, text)
