"""GloVe: vectors of words from their company. No torch here. Axes: N words, D = 100."""

import io
from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile, open_regular

FILE = "glove.6B.100d.txt"
D = 100
N_WORDS = 400_000
FIXTURE_WORDS = ("the", "film", "a", ",", "plot", "and", "great", "bad", "loved", "<", "br")


def _read(files: Files) -> Arrays:
    """words: lines of UTF-8, uint8; vectors (N, 100) float32. Nothing, {}, where the file is not there."""
    if not files.has(FILE):
        return {}
    path = files.path(FILE)
    words, vectors = [], []
    with io.TextIOWrapper(open_regular(path), encoding="utf-8") as file:
        try:
            for i, line in enumerate(file, 1):
                word, *numbers = line.rstrip("\n").split(" ")
                vector = np.array(numbers, np.float32) if len(numbers) == D else None
                if not word or vector is None or not np.isfinite(vector).all():
                    raise WrongFile(f"{path}, line {i}: expected a word and {D} numbers.")
                words.append(word)
                vectors.append(vector)
        except ValueError as error:  # a number that is none, or no UTF-8
            raise WrongFile(f"{path}, line {len(words) + 1}: {error}.") from error
    if len(words) not in files.sizes(N_WORDS, len(FIXTURE_WORDS)) or len(set(words)) != len(words):
        raise WrongFile(
            f"{path}: {len(words)} words, {len(set(words))} of them different; expected {N_WORDS}."
        )
    return {"words": np.frombuffer("\n".join(words).encode(), np.uint8), "vectors": np.stack(vectors)}


def _fixture(root: Path) -> None:
    rng = np.random.default_rng(0)
    root.mkdir(parents=True, exist_ok=True)
    lines = [f"{word} {' '.join(f'{x:.5f}' for x in rng.standard_normal(D))}\n" for word in FIXTURE_WORDS]
    (root / FILE).write_text("".join(lines), encoding="utf-8")


GLOVE = DataSet("glove", 1, _read, _fixture)
