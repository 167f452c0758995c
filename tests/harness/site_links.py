"""Links within a built site."""

import re
from pathlib import Path


def check_links(folder: Path) -> list[str]:
    """Links within a site that lead to no file or to no id: page, and what it names. Not in pdoc's."""
    wrong = []
    pages = (path for path in sorted(folder.rglob("*.html")) if "reference" not in path.parts)
    texts = {path: path.read_text(encoding="utf-8") for path in pages}
    ids = {path: {*re.findall(r'\bid="([^"]+)"', text)} for path, text in texts.items()}
    for path, text in texts.items():
        for target in set(re.findall(r'\b(?:href|src)="([^"]+)"', text)):
            if re.match(r"[a-z]+:", target):
                continue
            place, _, anchor = target.partition("#")
            place = place.partition("?")[0]
            file = (path.parent / place).resolve() if place else path
            if not file.is_file() or (anchor and file in ids and anchor not in ids[file]):
                wrong.append(f"{path.relative_to(folder)}: {target}")
    return wrong
