"""Markdown pages and docstrings as HTML. Whatever the text holds, no HTML of its own gets through."""

import html
import inspect
import itertools
import re
import textwrap
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any
from xml.etree import ElementTree

from markupsafe import Markup, escape

from physml.base.errors import needed_by

_MATH_BLOCK = re.compile(r"^\.\. math::[ ]?(?P<first>.*)\n(?P<rest>(?:(?:[ \t]+.*)?\n)*)", re.MULTILINE)
_SECTION = re.compile(
    r"^(Args|Shapes|Source|Choices|Init|Storage|Errors|Raises|Returns|Example)s?:", re.MULTILINE
)

# The parts of MathML that a page has. An equation with any other, such as a link, is shown as code.
_ELEMENTS = (
    "math mrow mi mn mo ms mtext mspace msup msub msubsup munder mover munderover mfrac msqrt mroot mtable "
    "mtr mtd mstyle mpadded mphantom menclose"
)
_ATTRIBUTES = (
    "xmlns display displaystyle scriptlevel mathvariant mathsize mathcolor stretchy symmetric form fence "
    "separator accent accentunder largeop movablelimits lspace rspace minsize maxsize width height depth "
    "linethickness columnalign columnspacing columnlines rowspacing rowlines rowalign notation voffset"
)
ELEMENTS, ATTRIBUTES = frozenset(_ELEMENTS.split()), frozenset(_ATTRIBUTES.split())
_OPENING, _CLOSING = ("(", "{", "[", "\\begin"), (")", "}", "]", "\\end")
_BREAKS = re.compile(
    r"[({\[\])}]|\\(?:begin|end)\b|(?<=\s)(?:[+=-]|\\odot|\\cdot|\\in|\\sum)(?=[\s_])|\\q?quad(?=\s)|(?<=,)\s"
)

Links = Callable[[str], str | None]  # where a link of a page leads on the site; None: nowhere


def markdown(text: str, links: Links) -> Markup:
    """A page in CommonMark with tables. Headings have ids; links go through `links`."""
    from markdown_it import MarkdownIt

    reader = MarkdownIt("commonmark", {"html": False}).enable("table")
    tokens = reader.parse(text)
    seen: set[str] = set()
    for i, token in enumerate(tokens):
        if token.type == "heading_open":
            token.attrSet("id", _anchor(tokens[i + 1].content, seen))
        if token.type == "inline":
            token.children = list(_linked(token.children or [], links))
    rendered = reader.renderer.render(tokens, reader.options, {})
    # A table that is too wide scrolls by itself, by keyboard too.
    rendered = rendered.replace(
        "<table>", '<div class="wide" tabindex="0" role="group" aria-label="Table"><table>'
    )
    return Markup(rendered.replace("</table>", "</table></div>"))


def title_of(text: str) -> str:
    """The first heading of a page."""
    return next((line.removeprefix("# ").strip() for line in text.splitlines() if line.startswith("# ")), "")


def _anchor(text: str, seen: set[str]) -> str:
    """The id of a heading, as GitHub makes it, so that a link to it holds in both places."""
    plain = re.sub(r"[^\w -]", "", text.lower()).strip().replace(" ", "-") or "part"
    options = (f"{plain}-{n}" if n else plain for n in itertools.count())
    anchor = next(option for option in options if option not in seen)
    seen.add(anchor)
    return anchor


def _linked(tokens: list[Any], links: Links) -> Iterator[Any]:
    """The parts of a line; a link that leads nowhere is left out, its text stays."""
    dropped = 0
    for token in tokens:
        if token.type == "link_close" and dropped:
            dropped -= 1
        elif attribute := {"link_open": "href", "image": "src"}.get(token.type):
            target = links(str(token.attrGet(attribute) or ""))
            if target is not None:
                token.attrSet(attribute, target)
                yield token
            elif attribute == "href":
                dropped += 1
        else:
            yield token


# ---------------------------------------------------------------------------- docstrings


def docstring(text: str) -> Markup:
    """A docstring of this project: paragraphs, equations, and sections such as Args."""
    text = inspect.cleandoc(text) + "\n"
    parts: list[str] = []
    end = 0
    for match in _MATH_BLOCK.finditer(text):
        parts += _paragraphs(text[end : match.start()])
        parts.append(_equations(f"{match['first']}\n{textwrap.dedent(match['rest'])}"))
        end = match.end()
    parts += _paragraphs(text[end:])
    return Markup("\n".join(parts))


def _paragraphs(text: str) -> list[str]:
    """Sections with indented lines are lists; an example is code; all else are paragraphs."""
    elements = []
    for block in re.split(r"\n\s*\n", text.strip("\n")):
        for part in _parted(block):
            head, _, rest = part.partition("\n")
            if head.strip() == "Example:":
                elements.append(f"<pre>{escape(textwrap.dedent(rest).rstrip())}</pre>")
            elif head.strip() == "Args:":
                elements.append(f"<h2>Arguments</h2>{_arguments(textwrap.dedent(rest))}")
            elif part.strip():
                elements.append(f"<p>{inline(' '.join(part.split()))}</p>")
    return elements


def _parted(block: str) -> list[str]:
    """Its sections, each beginning with `Source:` or the like."""
    starts = [match.start() for match in _SECTION.finditer(block)]
    edges = [0, *(at for at in starts if at), len(block)]
    return [block[a:b] for a, b in itertools.pairwise(edges)]


def _arguments(text: str) -> str:
    """A list of names with their meaning; below it the lines that name none."""
    items, others = [], []
    for entry in re.split(r"\n(?=\S)", text.strip()):
        name, colon, about = entry.partition(":")
        if not colon:
            others.append(f"<p>{inline(' '.join(entry.split()))}</p>")
            continue
        plain = escape(name.strip().replace("`", ""))
        items.append(f"<dt><code>{plain}</code></dt><dd>{inline(' '.join(about.split()))}</dd>")
    return f"<dl class='facts'>{''.join(items)}</dl>{''.join(others)}"


def inline(text: str) -> Markup:
    """Text with its equations and its code; addresses become links."""
    pieces, end = [], 0
    for match in re.finditer(r":math:`([^`]+)`|`([^`]+)`|(https?://[^\s,;)]*[^\s,;).])", text):
        pieces.append(str(escape(text[end : match.start()])))
        if match[1]:
            pieces.append(_breaking(match[1]))
        elif match[2]:
            pieces.append(f"<code>{escape(match[2])}</code>")
        else:
            pieces.append(f'<a href="{escape(match[3])}">{escape(match[3])}</a>')
        end = match.end()
    return Markup("".join([*pieces, str(escape(text[end:]))]))


def _equations(text: str) -> str:
    """The lines of an aligned equation, one below the other; a line that is too wide breaks before a sign."""
    whole = r"(\\begin\{(\w+\*?)\}.*?\\end\{\2\})|\\\\|&"  # a matrix keeps its rows and columns
    aligned = re.sub(whole, lambda match: match[1] or {"&": " "}.get(match[0], "\n"), " ".join(text.split()))
    lines = [line.strip() for line in aligned.split("\n")]
    around = '<div class="wide equation" tabindex="0" role="group" aria-label="Equation">'
    return "".join(f"{around}{_breaking(line)}</div>" for line in lines if line)


def _breaking(line: str) -> str:
    """An equation in parts, each beginning with a sign or a space that no bracket holds."""
    cuts, depth = [0], 0
    for match in _BREAKS.finditer(line):
        change = (match[0] in _OPENING) - (match[0] in _CLOSING)
        depth += change
        cuts += [match.start()] if not change and not depth else []
    parts = [line[a:b] for a, b in itertools.pairwise([*cuts, len(line)])]
    equations = [mathml(part if not i else f"{{}} {part}") for i, part in enumerate(parts)]
    return mathml(line) if any("<code>" in part for part in equations) else " ".join(equations)


@cache
def mathml(text: str) -> str:
    """LaTeX as MathML, which browsers show by themselves; as code where it cannot be read."""
    with needed_by("equations on the site"):
        from latex2mathml.converter import convert_to_element
    try:
        tree = convert_to_element(text, display="inline")
        for element in tree.iter():
            if element.tag not in ELEMENTS or not ATTRIBUTES.issuperset(element.keys()):
                raise ValueError(f"no {element.tag} with {', '.join(element.keys())} on a page")
            symbols = html.unescape(element.text or "").replace("\\|", "‖")  # the converter writes entities,
            element.text = re.sub(r"\\(?=\w)", "", symbols)  # and of what it does not know its name
        return ElementTree.tostring(tree, encoding="unicode")
    except Exception:  # the converter raises many kinds, and a page must not fail for one equation
        return f"<code>{escape(text)}</code>"
