"""Large Movie Review Dataset: reviews of films. No torch here. Axes: N reviews, M tokens of a part.

The official code splits text with spaCy, which is not among our packages; `tokens` comes close to it.
"""

import hashlib
import re
from collections.abc import Iterable
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile, decoded
from physml.data.readers.fixtures import write_tar

ARCHIVE = "aclImdb_v1.tar.gz"
PARTS = ("train", "test")
LABELS = {"neg": 0, "pos": 1}
NAME = re.compile(r"aclImdb/(train|test)/(neg|pos)/[^/]+\.txt")

# Reviews of one part and label: as published, and of a fixture.
SIZES = (12_500, 20)

TOKEN = re.compile(
    r"""
      [^\W\d_]+(?=n't\b) | n't\b            # do|n't
    | '(?:s|m|d|re|ve|ll)\b                 # it|'s
    | (?:[^\W\d_]\.){2,}                    # U.S.
    | \d+(?:[.,]\d+)*                       # 3.5
    | <br | />(?:<br)? | \.{2,} | -{2,}     # new lines as they stand in reviews; ellipses; dashes
    | [^\W_]+ | \S                         # words; one sign at a time
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tokens(text: str) -> list[str]:
    """Words and signs, with their case.

    As spaCy's rules for English it takes off n't and 's, single signs and the parts of words with hyphens,
    keeps numbers, initials and ellipses whole, and cuts <br /><br /> into three. It differs in rare words
    (abbreviations such as Mr., addresses).

    Example:
        >>> tokens("It's well-made, isn't it? 7.5/10...")
        ['It', "'s", 'well', '-', 'made', ',', 'is', "n't", 'it', '?', '7.5', '/', '10', '...']
    """
    return TOKEN.findall(text)


def _read(files: Files) -> Arrays:
    """Arrays of each part, sorted by the sha256 of its texts: ids (M,) int32, offsets (N + 1,), labels (N,)
    int64, digests (N, 32) uint8, these sha256; and `words`, what the ids stand for: lines of UTF-8, uint8.
    """
    tree = files.tree(ARCHIVE)
    reviews: dict[str, list[tuple[bytes, int, str]]] = {part: [] for part in PARTS}
    for name, content in tree.items("aclImdb/t*/[np][eo][gs]/*.txt"):
        if match := NAME.fullmatch(name):
            part, label = match.groups()
            text = decoded(content, f"{tree.path}: {name}")
            if not TOKEN.search(text):
                raise WrongFile(f"{tree.path}: {name} is empty.")
            reviews[part].append((hashlib.sha256(content).digest(), LABELS[label], text))
    ids: dict[str, int] = {}
    arrays: Arrays = {}
    for part, entries in reviews.items():
        for label, value in LABELS.items():
            n = sum(entry[1] == value for entry in entries)
            if n not in files.sizes(*SIZES) or len(entries) != 2 * n:
                raise WrongFile(f"{tree.path}: {n} reviews in aclImdb/{part}/{label}, expected {SIZES[0]}.")
        entries.sort()
        rows = [[ids.setdefault(token, len(ids)) for token in tokens(text)] for _, _, text in entries]
        arrays |= {
            f"{part}_ids": np.fromiter((i for row in rows for i in row), np.int32),
            f"{part}_offsets": np.cumsum([0, *map(len, rows)]),
            f"{part}_labels": np.array([label for _, label, _ in entries], np.int64),
            f"{part}_digests": np.frombuffer(b"".join(d for d, _, _ in entries), np.uint8).reshape(-1, 32),
        }
    arrays["words"] = np.frombuffer("\n".join(ids).encode(), np.uint8)
    return arrays


def _items(arrays: Arrays) -> Iterable[bytes]:
    """Part, label and sha256 of the text of each review: files may have any names and order."""
    for part in PARTS:
        labels, digests = arrays[f"{part}_labels"].tolist(), arrays[f"{part}_digests"]
        for label, digest in zip(labels, digests, strict=True):
            yield f"{part} {label} ".encode() + digest.tobytes()


def _fixture(root: Path) -> None:
    """Reviews of a few words, most of which tell the label, in a tar.gz as upstream."""
    rng = np.random.default_rng(0)
    telling = {"pos": ["great", "Wonderful", "loved"], "neg": ["bad", "Awful", "wasn't"]}
    others = ["the", "film", "it's", "a", ",", "<br /><br />", "plot", "and"]
    members = {"aclImdb/README": b"A fixture.", "aclImdb/train/unsup/0_0.txt": b"No label."}
    for part in PARTS:
        for label, words in telling.items():
            for i in range(SIZES[1]):
                text = rng.choice([*words, *words, *others], int(rng.integers(3, 25)))
                name = f"aclImdb/{part}/{label}/{i}_{i % 10}.txt"
                members[name] = " ".join([*text, words[i % 3], "."]).encode()
    write_tar(root / ARCHIVE, members)


IMDB = DataSet("imdb", 1, _read, _fixture, _items)
