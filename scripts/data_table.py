"""The table of data sets in docs/data.md, from conf/dataset: `python scripts/data_table.py` writes it."""

import re
from pathlib import Path

from physml.base.paths import ROOT
from physml.data.catalogue import task_datasets
from physml.data.datasets import Upstream, dataset_names, upstream

PAGE = ROOT / "docs" / "data.md"
BETWEEN = re.compile(r"(?<=<!-- data sets -->\n).*?(?=<!-- end -->)", re.DOTALL)


def table() -> str:
    read_by: dict[str, list[str]] = {}
    for task, datasets in task_datasets().items():
        for name in datasets:
            read_by.setdefault(name, []).append(task)
    lines = ["| name | data set | read by | download | checksum | licence |", "|---|---|---|---|---|---|"]
    for name in dataset_names():
        about = upstream(name)
        tasks = ", ".join(f"`{task}`" for task in read_by.get(name, []))
        title = f"[{about.title}]({about.source})"
        lines.append(f"| `{name}` | {title} | {tasks} | {_size(about)} | {_known(about)} | {about.licence} |")
    return "\n".join(lines) + "\n"


def _size(about: Upstream) -> str:
    """Size of the files that must be downloaded; archives that merely stand in for files are not counted."""
    served = {file.name for file in about.files if file.urls}
    needed = [file for file in about.files if not file.optional and file.inside not in served]
    files = needed or list(about.files[:1])
    if any(file.size is None for file in files):
        return "not known"
    total = sum(file.size or 0 for file in files) / 1e6
    return f"{total:,.0f} MB" if total >= 1 else f"{total:.1f} MB"


def _known(about: Upstream) -> str:
    files = [file for file in about.files if not file.optional] or list(about.files)
    bytes_known = all(file.checksum for file in files)
    known = ["published" if bytes_known else "none published: pinned when first seen"]
    if about.content.sha256:
        known.append("content known")
    return "; ".join(known)


def page(text: str) -> str:
    """The page with the table of today."""
    return BETWEEN.sub(lambda _: table(), text)


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    Path(PAGE).write_text(page(text), encoding="utf-8")


if __name__ == "__main__":
    main()
