"""Heads of columns broken into lines, for tables in little width."""

import re
import textwrap
from dataclasses import replace

from physml.report.text.document import Grid, text_of


def short_heads(grid: Grid, least: int) -> Grid:
    """Heads broken into lines as wide as their column."""
    heads = [grid.heads[0]]
    for head, column in zip(grid.heads[1:], list(zip(*grid.lines, strict=True))[1:], strict=True):
        heads.append(broken(head, max(least, *(len(text_of(text)) for text in column))))
    return replace(grid, heads=tuple(heads))


def broken(head: str, width: int) -> str:
    r"""A head in lines of this width: between words, at hyphens, before capitals; what is longer is cut.

    Example:
        >>> broken("FitzHugh-Nagumo [1e-2]", 9), broken("JapaneseVowels", 8)
        ('FitzHugh-\nNagumo\n[1e-2]', 'Japanese\nVowels')
    """
    if len(head) <= width:
        return head
    words = head.split()
    for joint in (r"(?<=\w{3}-)(?=\w{3})", r"(?<=[a-z]{3})(?=[A-Z][a-z])"):
        parted = ([word] if len(word) <= width else re.split(joint, word) for word in words)
        words = [part for parts in parted for part in parts]
    cut = [part if len(part) <= width else f"{part[: width - 1]}." for part in words]
    return "\n".join(textwrap.wrap(" ".join(cut), width, break_long_words=False, break_on_hyphens=False))
