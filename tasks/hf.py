"""Sequence classification on sets of the Hugging Face hub. Axes: N sequences, B batch, T steps, D values."""

from abc import abstractmethod
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch

from physml.base.check import one_of, positive
from physml.base.errors import DataError, InputError, needed_by
from physml.base.files import writing
from physml.data.cache import Generated
from physml.data.datasets import Arrays
from physml.data.fetch import hub
from physml.data.files.gaps import MISSING, Missing, without_gaps
from physml.data.files.labels import coded
from physml.data.readers.imdb import tokens
from physml.data.splits import held_out
from physml.data.store import Store
from physml.task.base import Part, files_facts
from physml.task.sequences import Items, Labelled

UNKNOWN, PADDING, FIRST = 0, 1, 2  # ids of words that are not known, of padding, and of the first word


@dataclass(kw_only=True, eq=False)
class _Hub(Labelled):
    """The base of both kinds of sequences: the repository, its splits and its labels."""

    version: ClassVar[int] = 2
    n_splits: ClassVar[int] = 5

    name: str
    config: str | None
    revision: str | None
    input: str
    target: str
    train: str
    valid: str | float
    test: str
    max_length: int | None
    protocol: str

    def __post_init__(self) -> None:
        one_of("protocol", self.protocol, ("clean",))
        if not isinstance(self.valid, str) and not 0 < self.valid < 1:
            raise InputError(f"valid must be a split, or a share of train between 0 and 1; got {self.valid}.")
        if self.max_length is not None:
            positive("max_length", self.max_length)
        self.repository = hub.Repository(self.name, self.config, self.revision)

    def load(self, store: Store, split: int) -> None:
        repository = hub.Repository(str(_fixture(store, self.tokens))) if store.fixtures else self.repository
        used = hub.contents(repository, store)
        if store.fixtures:
            used = {name: {**facts, "verified": "fixture"} for name, facts in used.items()}
        commit = next(iter(used.values()))["sha256"]
        key = {
            "contents": {name: facts["sha256"] for name, facts in used.items()},
            **self.key(),
            "split": split,
        }
        generated = Generated(
            f"hub_{type(self).__name__}", key, 2, lambda: self._read(repository, commit, store, split)
        )
        arrays = store.get(generated)
        self.d_in, self.d_out = int(arrays["d_in"]), int(arrays["n_classes"])
        self.n_classes = self.d_out
        parts: dict[Part, Items] = {}
        for part in ("train", "valid", "test"):
            x, n, y = (torch.from_numpy(arrays[f"{key}_{part}"]) for key in "xny")
            parts[part] = x, y, n
        self.place(parts, store)
        self._facts |= files_facts(used)

    def key(self) -> dict[str, Any]:
        """Everything but the files that the arrays depend on."""
        names = ("config", "input", "target", "train", "valid", "test", "max_length")
        return {name: getattr(self, name) for name in names}

    def _read(self, repository: hub.Repository, commit: str, store: Store, split: int) -> Arrays:
        splits = hub.rows(repository, commit, store)
        names = {"train": self.train, "test": self.test}
        if isinstance(self.valid, str):
            names["valid"] = self.valid
        for name in names.values():
            if name not in splits:
                raise DataError(f"{repository.name} has no split {name}; it has {', '.join(splits)}.")

        def column(part: str, name: str) -> list[Any]:
            return list(hub.column(splits[names[part]], name, f"{repository.name}, split {names[part]}"))

        inputs = {part: column(part, self.input) for part in names}
        kept = self.complete(inputs)
        y, classes = coded(
            {part: [column(part, self.target)[i] for i in kept[part]] for part in names}, repository.name
        )
        if "valid" not in names:
            train, valid = held_out(y["train"], float(self.valid), split)
            inputs |= {
                "valid": [inputs["train"][i] for i in valid],
                "train": [inputs["train"][i] for i in train],
            }
            y |= {"valid": y["train"][valid], "train": y["train"][train]}
        arrays = self.encode(inputs)
        labels = {f"y_{part}": codes for part, codes in y.items()}
        return {**arrays, **labels, "n_classes": np.array(len(classes))}

    def complete(self, inputs: dict[str, list[Any]]) -> dict[str, Any]:
        """The rows (N,) of each part that are used; series with missing values are mended or left out."""
        return {part: range(len(rows)) for part, rows in inputs.items()}

    @abstractmethod
    def encode(self, inputs: dict[str, list[Any]]) -> Arrays:
        """x_<part>, padded; n_<part> (N,), true lengths; d_in ()."""


@dataclass(kw_only=True, eq=False)
class HubText(_Hub):
    r"""Say of which class a text is, after its last word.

    Input (B, T): ids of words in lower case, or of bytes. Known are the `n_words` most frequent of train.
    Target (B,): the class. The classes are the values in train, in the order of numbers or of the alphabet.
    Loss: cross entropy. Metric: accuracy on the test split.

    Nothing is known of the data beforehand: the commit that was first used is pinned, unless `revision` names
    one, and a record says which.

    Defined in: target, metric and split: here, by the arguments; no table of the papers reads it.

    Source: https://huggingface.co/datasets; the package `datasets`, https://arxiv.org/abs/2109.02846.

    Args:
        name: repository of the hub, or a folder of Parquet files.
        config: configuration of the repository, or null.
        revision: commit of the repository, or null.
        input: column of the texts.
        target: column of the classes.
        train: split.
        valid: split, or the share of train that is held out, of each class, drawn by the number of the split.
        test: split.
        units: "words" or "bytes".
        n_words: size of the vocabulary of words.
        max_length: longest text; more is cut off; null: none is cut.
        protocol: "clean".
    """

    tokens: ClassVar[bool] = True

    units: str
    n_words: int

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("units", self.units, ("words", "bytes"))
        positive("n_words", self.n_words)

    def key(self) -> dict[str, Any]:
        return {**super().key(), "units": self.units, "n_words": self.n_words}

    def encode(self, inputs: dict[str, list[Any]]) -> Arrays:
        texts = {
            part: [self._cut(text, part, i) for i, text in enumerate(all)] for part, all in inputs.items()
        }
        if self.units == "bytes":
            known: dict[Any, int] = {byte: byte + FIRST for byte in range(256)}
        else:
            counts = Counter(word for text in texts["train"] for word in text)
            known = {word: FIRST + i for i, (word, _) in enumerate(counts.most_common(self.n_words))}
        ids = {
            part: [np.array([known.get(word, UNKNOWN) for word in text], np.int64) for text in all]
            for part, all in texts.items()
        }
        return {"d_in": np.array(len(known) + FIRST), **_padded(ids, PADDING)}

    def _cut(self, text: Any, part: str, row: int) -> Sequence[Any]:
        if not isinstance(text, str):
            raise DataError(f"column {self.input}, {part}, row {row}: expected a text; got {text!r:.40}.")
        units: Sequence[Any] = text.encode() if self.units == "bytes" else tokens(text.lower())
        if not units:
            raise DataError(f"column {self.input}, {part}, row {row}: the text is empty.")
        return units[: self.max_length]


@dataclass(kw_only=True, eq=False)
class HubSeries(_Hub):
    r"""Say of which class a series of numbers is, after its last step.

    Input (B, T, D): lists of T numbers, or of T lists of D numbers, as they are; shorter ones are padded with
    0 at their end and read at their true length. All else is as in `HubText`.

    Defined in: target, metric and split: here, by the arguments; no table of the papers reads it.

    Source: https://huggingface.co/datasets.

    Args: as those of `HubText`, without units and n_words.
        missing: series with missing values: null or "refuse" for an error, "fill" for straight
            lines between their neighbours in time, "drop" to leave the series out, of test too.
    """

    missing: Missing | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        one_of("missing", self.missing or "refuse", MISSING)

    def key(self) -> dict[str, Any]:
        return {**super().key(), "missing": self.missing or "refuse"}

    def complete(self, inputs: dict[str, list[Any]]) -> dict[str, Any]:
        kept = {}
        for part, all in inputs.items():
            series = [self._numbers(row, part, i) for i, row in enumerate(all)]
            where = f"{self.repository.name}, column {self.input}, {part}"
            inputs[part], kept[part] = without_gaps(
                series,
                self.missing or "refuse",
                where,
                lambda i, step, d: f"row {i}, step {step + 1}, value {d + 1}",
            )
        return kept

    def encode(self, inputs: dict[str, list[Any]]) -> Arrays:
        series = {part: [row[: self.max_length] for row in all] for part, all in inputs.items()}
        d_in = series["train"][0].shape[1]
        for part, all in series.items():
            for i, sequence in enumerate(all):
                if sequence.shape[1] != d_in:
                    raise DataError(
                        f"{part}, row {i}: {sequence.shape[1]} values a step; the first row has {d_in}."
                    )
        return {"d_in": np.array(d_in), **_padded(series, 0)}

    def _numbers(self, row: Any, part: str, i: int) -> np.ndarray:
        try:
            x = np.asarray(_with_nan(row), np.float32)
        except (TypeError, ValueError):
            x = np.empty(0, np.float32)
        if x.ndim not in (1, 2) or not x.size:
            raise DataError(f"column {self.input}, {part}, row {i}: expected numbers (T,) or (T, D).")
        return x.reshape(len(x), -1)


def _with_nan(row: Any) -> Any:
    """Lists of numbers with NaN for None, the missing value of Parquet."""
    return [_with_nan(item) for item in row] if isinstance(row, list) else np.nan if row is None else row


def _padded(parts: Mapping[str, Sequence[np.ndarray]], padding: int) -> Arrays:
    """x_<part> (N, T, ...), of the longest row, and n_<part> (N,), the lengths."""
    arrays: Arrays = {}
    for part, rows in parts.items():
        lengths = np.array([len(row) for row in rows], np.int64)
        x = np.full((len(rows), lengths.max(), *rows[0].shape[1:]), padding, rows[0].dtype)
        for padded, row in zip(x, rows, strict=True):
            padded[: len(row)] = row
        arrays |= {f"x_{part}": x, f"n_{part}": lengths}
    return arrays


def _fixture(store: Store, texts: bool) -> Path:
    """A folder of Parquet files, with texts or series that tell their class."""
    with needed_by("task=hf"):
        from datasets import Dataset

    folder = store.cache / "fixtures" / f"hub-{'texts' if texts else 'series'}"
    rng = np.random.default_rng(0)
    for split, n in {"train": 30, "test": 12}.items():
        path = folder / "data" / f"{split}-00000-of-00001.parquet"
        y = [i % 2 for i in range(n)]
        lengths = rng.integers(3, 12, n)
        if texts:
            words = [["bad", "poor", "the"], ["good", "fine", "the"]]
            x: list[Any] = [" ".join(rng.choice(words[k], t)) for k, t in zip(y, lengths, strict=True)]
        else:
            x = [(rng.normal(0, 0.1, t) + k).tolist() for k, t in zip(y, lengths, strict=True)]
        if not path.is_file():
            with writing(path) as temporary:  # another process may look meanwhile, and pin what it sees
                Dataset.from_dict({"text": x, "label": y}).to_parquet(str(temporary))
    return folder
