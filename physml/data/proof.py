"""Recorded data against conf/dataset as it is now: are they the published ones? No torch here."""

from collections.abc import Iterable, Mapping
from typing import Any

from physml.config import conf_files
from physml.data.datasets import Upstream, upstream

PINNED = "data pinned, not proved"
ONE_COPY = "content known from one copy"


def doubt(data: Mapping[str, Any]) -> str | None:
    """The doubt about the data of a record; None where their bytes or their content are proved.

    Proved are bytes with a published checksum, and content whose fingerprint two independent sources agree
    on. A checksum that became known after the run counts, for the record has that of its file.

    Args:
        data: `data` of a record: `files` and `readers`.
    """
    files = data.get("files") or ()
    if not files:
        return {"pinned": PINNED, "content-verified": ONE_COPY}.get(str(data.get("kind")))
    readers = data.get("readers") or {}
    known = [upstream(name) for name in sorted(readers) if conf_files.find("dataset", name)]
    return worst(_doubt(file, known) for file in files)


def worst(doubts: Iterable[str | None]) -> str | None:
    distinct = set(doubts)
    return next((doubt for doubt in (PINNED, ONE_COPY) if doubt in distinct), None)


def _doubt(file: Mapping[str, Any], known: list[Upstream]) -> str | None:
    how = file.get("verified")
    if how not in ("first seen", "content"):
        return None  # proved, or of a kind that is compared with no paper
    listed = (
        (dataset, entry.sha256) for dataset in known for entry in dataset.files if entry.name == file["name"]
    )
    for dataset, published in listed:
        if published is not None and published == file.get("sha256"):
            return None
        content = dataset.content
        if how == "content" or content.copies.get(str(file["name"])) == file.get("sha256"):
            return None if content.agrees else ONE_COPY
    return PINNED
