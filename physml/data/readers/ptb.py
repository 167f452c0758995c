"""Penn Treebank as a stream of ids, by word and by character. No torch here. Axes: N tokens of a part."""

from pathlib import Path

import numpy as np

from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.limits import WrongFile, read_text

PARTS = ("train", "valid", "test")
UNITS = {"word": "ptb", "char": "ptb.char"}
EOS = "<eos>"  # stands for the end of a line; a vocabulary counts it

# Lines and tokens of each file without ends of lines, as published; lines of a fixture.
SIZES = {
    "word": {"train": (42_068, 887_521), "valid": (3_370, 70_390), "test": (3_761, 78_669)},
    "char": {"train": (42_068, 4_975_414), "valid": (3_370, 389_672), "test": (3_761, 438_662)},
}
FIXTURE_LINES = {"train": 120, "valid": 24, "test": 30}


def file_name(unit: str, part: str) -> str:
    return f"simple-examples/data/{UNITS[unit]}.{part}.txt"


def vocabulary(arrays: Arrays, unit: str) -> list[str]:
    """The words or characters of the ids, in their order: the most frequent one in train first."""
    return arrays[f"{unit}_vocabulary"].tobytes().decode("utf-8").split("\n")


def _read(files: Files) -> Arrays:
    """word_train, .., char_test (N,) int32: ids; word_vocabulary, char_vocabulary: lines of UTF-8, uint8."""
    arrays: Arrays = {}
    for unit in UNITS:
        streams = {part: _stream(files, unit, part) for part in PARTS}
        words, counts = np.unique(np.array(streams["train"]), return_counts=True)
        known = [str(w) for w in words[np.lexsort((words, -counts))]]
        ids = {word: i for i, word in enumerate(known)}
        for part, stream in streams.items():
            if new := next((word for word in stream if word not in ids), None):
                raise WrongFile(
                    f"{files.path(file_name(unit, part))}: {new!r} does not stand in the training text, as "
                    "every token of this preparation does."
                )
            arrays[f"{unit}_{part}"] = np.array([ids[word] for word in stream], np.int32)
        arrays[f"{unit}_vocabulary"] = np.frombuffer("\n".join(known).encode(), np.uint8)
    return arrays


def _stream(files: Files, unit: str, part: str) -> list[str]:
    """The tokens of a file, with an end after each line."""
    path = files.path(file_name(unit, part))
    lines = read_text(path).rstrip().splitlines()  # a blank stands after the last line
    if not lines:
        raise WrongFile(f"{path} is empty.")
    stream: list[str] = []
    for i, line in enumerate(lines, 1):
        tokens = line.split()
        if not tokens or EOS in tokens or (unit == "char" and max(map(len, tokens)) > 1):
            expected = "single characters with blanks between them" if unit == "char" else "words"
            raise WrongFile(f"{path}, line {i}: expected {expected}; got {line[:40]!r}.")
        stream += [*tokens, EOS]
    counts = (len(lines), len(stream) - len(lines))
    if not (files.small and counts[0] == FIXTURE_LINES[part]) and counts != SIZES[unit][part]:
        expected = "{} lines and {} tokens".format(*SIZES[unit][part])
        raise WrongFile(f"{path}: expected {expected}; got {counts[0]} and {counts[1]}.")
    return stream


def _fixture(root: Path) -> None:
    """Sentences of a chain of nine words, each followed by one of two; by words and by characters."""
    rng = np.random.default_rng(0)
    words = ["the", "a", "old", "new", "firm", "market", "rose", "<unk>", "N"]
    folder = root / "simple-examples" / "data"
    folder.mkdir(parents=True, exist_ok=True)
    for part, n in FIXTURE_LINES.items():
        lines = []
        for _ in range(n):
            at = int(rng.integers(len(words)))
            line = [words[at]]
            for _ in range(int(rng.integers(3, 9))):
                at = (2 * at + int(rng.integers(2)) + 1) % len(words)
                line.append(words[at])
            lines.append(line)
        texts = {"word": [" ".join(line) for line in lines], "char": [" ".join("_".join(x)) for x in lines]}
        for unit, text in texts.items():
            (folder / f"{UNITS[unit]}.{part}.txt").write_text("".join(f" {line} \n" for line in text))


PTB = DataSet("ptb", 1, _read, _fixture)
