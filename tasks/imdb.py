"""IMDB: is a review of a film positive? Axes: N reviews, B batch, T tokens, C ids, W numbers per word."""

import logging
from collections.abc import Iterator
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import each, has_shape, one_of, positive
from physml.base.errors import InputError
from physml.data.readers.glove import GLOVE, D
from physml.data.readers.imdb import IMDB as REVIEWS
from physml.data.store import Arrays, Store
from physml.task.base import Better, Metrics, Part, Readout, Sums, Task
from physml.task.batch import Batch
from physml.task.trivial import score_reference

log = logging.getLogger(__name__)

UNKNOWN, PADDING = 0, 1  # ids
POOL = 100  # batches that are sorted by length together
VALID_SHARE = 0.3
VECTOR_SEED = 1234

Reviews = tuple[Tensor, Tensor, Tensor]  # ids of all reviews one after the other; where each begins; labels


class IMDB(Task):
    r"""Sentiment of reviews from their words.

    Input (B, T) ids; target (B, 1), 1 for a positive review; one logit; loss: binary cross entropy.
    Vocabulary: the `n_words` most frequent tokens of the training part, an unknown word (0) and padding (1).
    Reviews are padded at the end to the longest of their batch. Batches hold reviews of nearly equal length:
    100 batches of reviews are sorted by length together, cut, and in training shuffled again. With `batching`
    "any_length" they are not sorted: a batch is as long as the longest of 64 reviews drawn at random.

    Parts: 17,500 / 7,500 of the 25,000 reviews for training, by the order of the sha256 of their texts;
    25,000 others test.

    Word vectors: GloVe 6B, 100d, where a word has one, else N(0, 1), drawn once for all runs; zeros for the
    unknown word and padding. Where the file of GloVe is not there, all are N(0, 1), a warning says so, and
    the record: data.kind is `substitute data`. GloVe has no capitals, so capitalised words have no vector.

    Protocols:
      official: as in the code of coRNN and UnICORNN. The network runs through the padding and is read at the
        padded end, so lengths are not told. Its accuracy is `accuracy_batches`, the mean of the accuracies of
        the batches, of which the last one is smaller. The code leaves the batches to torchtext's
        BucketIterator with sort=False, which does not sort by length in any release from 0.2.3 to 0.6: there
        "any_length" is what it does. Batches by length are what the iterator is named for.
      clean: lengths are told, so that reading at the last word is possible.

    Metrics: accuracy and cross_entropy over all reviews; accuracy_batches, which depends on the batch size.

    Defined in: target: coRNN paper, section 4, "whether a movie review is positive or negative", dictionary
    of 25k words, GloVe of 100d; metric: test accuracy, caption of Table 4; split: 25k for training, "7.5k of
    these reviews used for validating", 25k for testing, section 4; which 7.5k is not said.

    Source: Rusch and Mishra, coRNN, https://arxiv.org/abs/2010.00951, Table 4; UnICORNN,
    https://arxiv.org/abs/2103.05487, Table 5; data: Maas et al., ACL 2011. Departures: a tokenizer close to
    spaCy's (`physml.data.readers.imdb.tokens`); one split for all runs, where the official code draws one for
    each.

    Args: n_words; vectors: "glove" or "random", N(0, 1); width: W, 100 for GloVe; protocol; batching: null,
        reviews of nearly equal length together, or "any_length".
    """

    datasets = (REVIEWS, GLOVE)
    readout: ClassVar[Readout] = "last"
    tokens: ClassVar[bool] = True
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Better] = {
        "accuracy": "higher",
        "cross_entropy": "lower",
        "accuracy_batches": "higher",
    }
    scoring: ClassVar[dict[str, str]] = {"accuracy_batches": "official"}

    def __init__(
        self, *, n_words: int, vectors: str, width: int, protocol: str, batching: str | None = None
    ) -> None:
        one_of("protocol", protocol, ("official", "clean"))
        if batching is not None:
            one_of("batching", batching, ("any_length",))
        one_of("vectors", vectors, ("glove", "random"))
        each(positive, n_words=n_words, width=width)
        if vectors == "glove" and width != D:
            raise InputError(
                f"vectors=glove needs width={D}; got {width}. Use vectors=random for other widths."
            )
        self.n_words, self.start, self.width, self.protocol = n_words, vectors, width, protocol
        self.batching = batching
        self.d_in, self.d_out = n_words + 2, 1
        self.vectors = torch.empty(self.d_in, width, device="meta")  # their shape, until they are read

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(REVIEWS)
        n = len(arrays["train_labels"])
        cut = n - round(VALID_SHARE * n)
        words = arrays["words"].tobytes().decode("utf-8").split("\n")
        known = self._vocabulary(arrays, words, cut)
        new = np.full(len(words), UNKNOWN, np.int64)
        new[known] = np.arange(2, len(known) + 2)
        self.words = ["<unk>", "<pad>", *(words[i] for i in known)]
        self.d_in = len(self.words)
        self._parts: dict[str, Reviews] = {
            "train": _reviews(arrays, "train", 0, cut, new),
            "valid": _reviews(arrays, "train", cut, n, new),
            "test": _reviews(arrays, "test", 0, len(arrays["test_labels"]), new),
        }
        self.sizes = {part: len(labels) for part, (_, _, labels) in self._parts.items()}
        vectors = self._vectors(store)
        self._facts = {**self.data_facts(store), "n_ids": self.d_in, "vectors": vectors}
        if self.start == "glove" and vectors == "random":
            self._facts["kind"] = "substitute data"

    def _vocabulary(self, arrays: Arrays, words: list[str], cut: int) -> list[int]:
        """Positions in `words`, the most frequent first, ties in alphabetical order."""
        ids = arrays["train_ids"][: arrays["train_offsets"][cut]]
        counts = np.bincount(ids, minlength=len(words)).tolist()
        occurring = [i for i, count in enumerate(counts) if count]
        return sorted(occurring, key=lambda i: (-counts[i], words[i]))[: self.n_words]

    def _vectors(self, store: Store) -> str:
        """Sets `vectors`; returns what they are: how many words have one of GloVe, or "random"."""
        drawn = Generator().manual_seed(VECTOR_SEED)
        table = torch.randn(self.d_in, self.width, generator=drawn)
        known = store.read(GLOVE) if self.start == "glove" else {}
        said = "random"
        if known:
            place = {word: i for i, word in enumerate(known["words"].tobytes().decode("utf-8").split("\n"))}
            pairs = [(i, place[word]) for i, word in enumerate(self.words) if word in place]
            table[[i for i, _ in pairs]] = torch.from_numpy(known["vectors"][[j for _, j in pairs]])
            said = f"GloVe 6B 100d for {len(pairs)} of {self.d_in - 2} words"
        elif self.start == "glove":
            log.warning(
                "GloVe is not there: word vectors are random, and results not comparable with those of GloVe."
                " Get it with `physml data get glove`, or say task.vectors=random."
            )
        table[[UNKNOWN, PADDING]] = 0
        self.vectors = table
        return said

    def to(self, device: str) -> None:
        self._parts = {
            part: (ids.to(device), begin.to(device), labels.to(device))
            for part, (ids, begin, labels) in self._parts.items()
        }

    # ------------------------------------------------------------------ batches

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        ids, begin, labels = self._parts[part]
        rng = rng if part == "train" else None
        by = (begin[1:] - begin[:-1]).cpu()
        if self.batching == "any_length":
            by = torch.zeros_like(by)  # the sort is stable, so it moves nothing
        for index in pooled(by, size, rng):
            index = index.to(ids.device)
            lengths = begin[index + 1] - begin[index]
            step = torch.arange(int(lengths.max()), device=ids.device)
            present = step < lengths[:, None]
            place = torch.where(present, begin[index, None] + step, 0)
            yield Batch(
                input=torch.where(present, ids[place].long(), PADDING),
                target=labels[index, None].float(),
                index=index,
                lengths=lengths if self.protocol == "clean" else None,
            )

    # ------------------------------------------------------------------ loss and scores

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        return F.binary_cross_entropy_with_logits(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        output, target = output.detach().double(), batch.target.double()
        right = ((output > 0) == (target > 0.5)).sum().item()
        nats = F.binary_cross_entropy_with_logits(output, target, reduction="sum").item()
        n = len(output)
        return {"right_n": right, "nats_sum": nats, "n": n, "share_sum": right / n, "batches_n": 1}

    def finish(self, sums: Sums) -> Metrics:
        return {
            "accuracy": sums["right_n"] / sums["n"],
            "cross_entropy": sums["nats_sum"] / sums["n"],
            "accuracy_batches": sums["share_sum"] / sums["batches_n"],
        }

    def references(self) -> dict[str, Metrics]:
        r"""The more frequent label; and naive Bayes on the words of a review, each counted once.

        .. math:: z = \log\frac{N_1}{N_0} + \sum_{w} \log\frac{(n_{1w} + 1) / (N_1 + 2)}{(n_{0w} + 1) / (N_0 +
        2)}

        for N_c training reviews with label c, of which n_cw hold word w.
        """
        ids, begin, labels = self._parts["train"]
        review = torch.repeat_interleave(torch.arange(len(labels), device=ids.device), begin[1:] - begin[:-1])
        held = torch.unique(review * self.d_in + ids)  # pairs of review and word, each once
        n_held = torch.bincount(
            labels[held // self.d_in] * self.d_in + held % self.d_in, minlength=2 * self.d_in
        ).view(2, -1)
        n = torch.bincount(labels, minlength=2).double()
        share = (n_held + 1) / (n[:, None] + 2)
        weight = (share[1] / share[0]).log()
        weight[[UNKNOWN, PADDING]] = 0
        prior = (n[1] / n[0]).log()

        def bayes(batch: Batch) -> Tensor:
            rows = torch.arange(len(batch.input), device=ids.device)[:, None].expand_as(batch.input)
            words = torch.unique(rows * self.d_in + batch.input)
            z = torch.zeros(len(batch.input), dtype=torch.float64, device=ids.device)
            z.index_add_(0, words // self.d_in, weight[words % self.d_in])
            return (z + prior)[:, None]

        return {
            "majority class": score_reference(self, lambda batch: prior.expand_as(batch.target), size=64),
            "naive Bayes": score_reference(self, bayes, size=64),
        }


def pooled(lengths: Tensor, size: int, rng: Generator | None) -> Iterator[Tensor]:
    """Positions (B,) of batches of nearly equal length; in order without a generator. Shape: lengths (N,)."""
    n = len(lengths)
    order = torch.arange(n) if rng is None else torch.randperm(n, generator=rng)
    for pool in order.split(POOL * size):
        batches = pool[lengths[pool].argsort(stable=True)].split(size)
        turns = range(len(batches)) if rng is None else torch.randperm(len(batches), generator=rng).tolist()
        for i in turns:
            yield batches[i]


def _reviews(arrays: Arrays, part: str, first: int, end: int, new: np.ndarray) -> Reviews:
    offsets = arrays[f"{part}_offsets"][first : end + 1]
    ids = new[arrays[f"{part}_ids"][offsets[0] : offsets[-1]]].astype(np.int32)
    labels = arrays[f"{part}_labels"][first:end]
    return torch.from_numpy(ids), torch.from_numpy(offsets - offsets[0]), torch.from_numpy(labels.copy())
