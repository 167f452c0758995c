"""Text that others have written, made harmless for the place where it is shown."""

import re
import textwrap
from typing import IO, Any

# Control characters, but for line feed and tab, and those that turn the direction of the text around.
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
_FORMULA = ("=", "+", "-", "@", "\t", "\r")
GLUE = "\u2800"  # looks like a blank, and is none
_WHOLE = re.compile(r"\S+(?: [±=] \S+)+|\[[^][ ]+, [^][ ]+\]|\d %")
_TEX = {
    "\\": r"\textbackslash{}", "&": r"\&", "%": r"\%", "$": r"\$", "#": r"\#", "_": r"\_", "{": r"\{",
    "}": r"\}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}", "±": r"$\pm$", "–": "--", "²": r"$^2$",
}  # fmt: skip


def plain(text: str) -> str:
    r"""For a terminal and for files of text: control characters are written out.

    Example:
        >>> plain("a\x1b[2Jb")
        'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda match: ascii(match[0])[1:-1], text)


def terminal(stream: IO[str]) -> IO[str]:
    """The stream for rich, which writes control characters of its own: its texts must be plain already."""
    raw: IO[str] = getattr(stream, "raw_text", stream)
    return raw


def csv_cell(value: Any) -> Any:
    """For CSV: text that a spreadsheet would take for a formula gets an apostrophe; numbers stay.

    Example:
        >>> csv_cell("=1+2"), csv_cell("-0.5"), csv_cell(3)
        ("'=1+2", '-0.5', 3)
    """
    if not isinstance(value, str):
        return value
    try:
        float(value)
    except ValueError:
        return f"'{plain(value)}" if value.startswith(_FORMULA) else plain(value)
    return value


def tex(text: str) -> str:
    r"""For a cell in LaTeX. `[` or `*` at the start of a row would be an argument of the `\\` before it."""
    words = " ".join(plain(text).split())
    escaped = "".join(_TEX.get(letter, letter) for letter in words).replace("`", "")
    return "{}" + escaped if escaped.startswith(("[", "*")) else escaped


def digits(value: float, n: int) -> str:
    """A number of at least n significant digits, without an exponent where it is large.

    Example:
        >>> digits(0.0123, 2), digits(99.6, 2), digits(1234.5, 3), digits(2e-9, 2)
        ('0.012', '100', '1234', '2e-09')
    """
    return f"{value:.0f}" if 10**n - 0.5 <= abs(value) < 1e15 else f"{value:.{n}g}"


def glued(text: str) -> str:
    """The text with `GLUE` for blanks inside numbers with spreads or intervals."""
    return _WHOLE.sub(lambda match: match[0].replace(" ", GLUE), text)


def wrapped(text: str, width: int, hanging: str = "") -> list[str]:
    """Lines of at most `width` characters; those after the first stand further in than it by `hanging`.

    Example:
        >>> wrapped("LEM has 0.29 ± 0.06 [0.2, 0.4], n = 5", 18)
        ['LEM has', '0.29 ± 0.06', '[0.2, 0.4], n = 5']
    """
    indent = " " * (len(text) - len(text.lstrip()))
    lines = textwrap.wrap(
        glued(text.strip()),
        width,
        initial_indent=indent,
        subsequent_indent=indent + hanging,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(GLUE, " ") for line in lines]


def brief(error: object, most: int = 300) -> str:
    r"""The message of another library's error on one line, which may quote a whole file.

    Example:
        >>> brief(ValueError("a\nb"))
        'a b'
    """
    words = " ".join(str(error).split())
    return words if len(words) <= most else f"{words[:most]} ..."


def shown(text: str) -> str:
    """A text whose addresses have no passwords: of each, name, password and query are left out.

    Example:
        >>> shown("no answer of https://ana:secret@host/base?token=x")
        'no answer of https://***@host/base?***'
    """
    without_query = re.sub(r"(:/{1,3}[^\s'\"?]*)\?[^\s'\"]+", r"\1?***", text)
    return re.sub(r"(:/{1,3})[^\s'\"]*@", r"\1***@", without_query)
