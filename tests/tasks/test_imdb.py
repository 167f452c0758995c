"""IMDB: reader, vocabulary, vectors, batches by length, both protocols, references."""

import math
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from torch import Generator
from unpacked import unpack

from physml.data.fetch import download
from physml.data.readers.glove import GLOVE
from physml.data.readers.imdb import ARCHIVE, tokens
from physml.data.readers.imdb import IMDB as REVIEWS
from physml.data.store import Store
from physml.data.verify import fingerprint
from physml.task.trivial import score_reference
from tasks.imdb import IMDB, PADDING, UNKNOWN, pooled

NEEDED, VERIFY = "aclImdb", "content"
ARGUMENTS = {"n_words": 15, "vectors": "glove", "width": 100, "protocol": "official"}


def make(store, **changes) -> IMDB:
    return with_data(IMDB(**ARGUMENTS | changes), store)


def unpacked(tmp_path: Path) -> Path:
    REVIEWS.fixture(tmp_path)
    unpack(tmp_path / ARCHIVE, tmp_path)
    (tmp_path / ARCHIVE).unlink()
    return tmp_path / "aclImdb"


def arrays_of(folder: Path) -> dict[str, np.ndarray]:
    return Store(folder.parent, folder.parent / "cache", verify="off").read(REVIEWS)


@pytest.mark.parametrize(
    ("text", "want"),
    [
        ("I don't, can't; won't", ["I", "do", "n't", ",", "ca", "n't", ";", "wo", "n't"]),
        ("He's Anna's", ["He", "'s", "Anna", "'s"]),
        ('A "quote".', ["A", '"', "quote", '"', "."]),
        ("end.<br /><br />New", ["end", ".", "<br", "/><br", "/>", "New"]),
        ("1,000 or 3.5/10", ["1,000", "or", "3.5", "/", "10"]),
        ("the U.S. now...", ["the", "U.S.", "now", "..."]),
        ("half-baked -- no_way é", ["half", "-", "baked", "--", "no", "_", "way", "é"]),
        ("  \n ", []),
    ],
)
def test_tokens(text, want):
    assert tokens(text) == want


def test_the_reader_loses_nothing_but_names_and_order_and_the_fingerprint_knows_all_else(tmp_path):
    folder = unpacked(tmp_path)
    arrays = arrays_of(folder)
    words = arrays["words"].tobytes().decode().split("\n")
    for part in ("train", "test"):
        want = sorted(
            (label == "pos", tokens(path.read_text()))
            for label in ("neg", "pos")
            for path in (folder / part / label).iterdir()
        )
        offsets, ids = arrays[f"{part}_offsets"], arrays[f"{part}_ids"]
        reviews = sorted(
            (bool(label), [words[i] for i in ids[a:b]])
            for label, a, b in zip(arrays[f"{part}_labels"], offsets, offsets[1:], strict=False)
        )
        assert reviews == want
        assert (np.lexsort(arrays[f"{part}_digests"].T[::-1]) == np.arange(len(reviews))).all()
    before = fingerprint(REVIEWS, arrays)
    for i, path in enumerate(sorted((folder / "train" / "pos").iterdir(), reverse=True)):
        path.rename(path.with_name(f"renamed_{i}.txt"))
    assert fingerprint(REVIEWS, arrays_of(folder)) == before
    pos, neg = folder / "train" / "pos" / "renamed_0.txt", next((folder / "train" / "neg").iterdir())
    a, b = pos.read_bytes(), neg.read_bytes()
    pos.write_bytes(b), neg.write_bytes(a)
    assert fingerprint(REVIEWS, arrays_of(folder)) != before
    pos.write_bytes(a + b" "), neg.write_bytes(b)
    assert fingerprint(REVIEWS, arrays_of(folder)) != before


# ---------------------------------------------------------------------------- vocabulary, parts, vectors


def text_of(task, part):
    ids, begin, labels = task._parts[part]
    return [ids[a:b].tolist() for a, b in pairwise(begin)], labels.tolist()


def test_the_vocabulary_is_of_the_training_part_alone(store):
    task, all_words = make(store), make(store, n_words=10_000)
    assert task.d_in == len(task.words) == 17 and task.words[:2] == ["<unk>", "<pad>"]
    reviews, _ = text_of(all_words, "train")
    counts = np.bincount([i for review in reviews for i in review], minlength=all_words.d_in)
    assert not counts[:2].any() and counts[2:].min() >= 1  # train has no unknown word
    order = [(-counts[i], all_words.words[i]) for i in range(2, all_words.d_in)]
    assert order == sorted(order)
    assert task.words == all_words.words[:17]
    cut, _ = text_of(task, "train")
    assert cut == [[i if i < 17 else UNKNOWN for i in review] for review in reviews]


def test_parts_have_their_sizes_and_do_not_depend_on_file_names(store, tmp_path):
    task = make(store)
    assert task.sizes == {"train": 28, "valid": 12, "test": 40}
    assert len(np.unique(store.read(REVIEWS)["train_digests"], axis=0)) == 40
    folder = unpacked(tmp_path)
    for path in list((folder / "train").rglob("*.txt")):
        path.rename(path.with_name(f"{path.name[::-1]}.txt"))
    renamed = make(Store(tmp_path, tmp_path / "cache", verify="off"), vectors="random")
    for part in ("train", "valid", "test"):
        assert text_of(renamed, part) == text_of(task, part)


def test_vectors_of_glove_where_it_has_them(store):
    task = make(store)
    arrays = store.read(GLOVE)
    known = dict(zip(arrays["words"].tobytes().decode().split("\n"), arrays["vectors"], strict=True))
    in_glove = [i for i, word in enumerate(task.words) if word in known]
    assert all(np.array_equal(task.vectors[i].numpy(), known[task.words[i]]) for i in in_glove)
    assert (n := len(in_glove)) >= 5 and not task.vectors[[UNKNOWN, PADDING]].any()
    assert task.facts()["vectors"] == f"GloVe 6B 100d for {n} of 15 words"
    assert "film" in task.words and "Wonderful" in task.words and "wonderful" not in task.words
    drawn = make(store, vectors="random")
    other = task.words.index("Wonderful")
    assert torch.equal(drawn.vectors[other], task.vectors[other])
    assert drawn.facts()["vectors"] == "random" and drawn.facts()["kind"] == task.facts()["kind"] == "fixture"
    assert 0.9 < make(store, vectors="random", n_words=30).vectors[2:].std() < 1.1


def test_without_glove_it_says_so_and_it_is_got_when_it_is_asked_for(tmp_path, caplog, monkeypatch) -> None:
    REVIEWS.fixture(tmp_path)
    away = Store(tmp_path, tmp_path / "cache", verify="off")
    task = make(away)
    assert "GloVe is not there" in caplog.text
    assert task.facts()["kind"] == "substitute data" and task.facts()["vectors"] == "random"
    caplog.clear()
    assert make(away, vectors="random").facts()["kind"] == "unverified data" and "GloVe" not in caplog.text
    assert torch.equal(make(away, vectors="random").vectors, task.vectors)
    # Its files are optional, so that a task runs without; `physml data get glove` means the archive.
    asked = []
    monkeypatch.setattr(download, "_download", lambda _, file, store: asked.append(file.name) or tmp_path)
    download.get(GLOVE.upstream, Store(None, tmp_path))
    assert asked == ["glove.6B.zip"]
    (tmp_path / "files").mkdir()
    GLOVE.fixture(tmp_path / "files")
    download.get(GLOVE.upstream, Store(None, tmp_path))
    assert len(asked) == 1


# ---------------------------------------------------------------------------- batches


def test_batches_are_of_nearly_equal_length_or_of_any_as_asked(store) -> None:
    lengths = torch.randint(1, 1000, (2500,), generator=Generator().manual_seed(0))
    shuffled, quiet = (list(pooled(lengths, 8, rng)) for rng in (Generator().manual_seed(1), None))
    assert torch.cat(shuffled).sort().values.tolist() == list(range(2500))
    widths = torch.stack([lengths[b].max() - lengths[b].min() for b in shuffled]).double()
    assert widths.median() < 30  # of 8 at random it would be 800
    for batches, in_order in ((shuffled, False), (quiet, True)):
        longest = [int(lengths[b].max()) for b in batches[:100]]
        assert (longest == sorted(longest)) == in_order
    assert set(torch.cat(quiet[:100]).tolist()) == set(range(800))
    # Each review once, in an order that its length has no part in; without a generator as they stand.
    task = make(store, batching="any_length")
    rng = Generator().manual_seed(0)
    drawn = torch.randperm(28, generator=Generator().manual_seed(0))
    indices = [batch.index for batch in task.batches("train", 8, rng)]
    assert sorted(map(len, indices)) == [4, 8, 8, 8]
    assert {tuple(b.tolist()) for b in indices} == {tuple(b.tolist()) for b in drawn.split(8)}
    assert torch.cat([batch.index for batch in task.batches("test", 8)]).tolist() == list(range(40))
    assert torch.cat([batch.index for batch in make(store).batches("test", 8)]).tolist() != list(range(40))


@pytest.mark.parametrize("protocol", ["official", "clean"])
def test_reviews_are_padded_at_the_end(protocol, store):
    task = make(store, protocol=protocol)
    for part in ("train", "test"):
        reviews, labels = text_of(task, part)
        for batch in task.batches(part, 8, Generator().manual_seed(0)):
            for row, target, i in zip(batch.input.tolist(), batch.target.tolist(), batch.index, strict=True):
                n = len(reviews[i])
                assert row[:n] == reviews[i] and set(row[n:]) <= {PADDING}
                assert target == [float(labels[i])]
            lengths = [len(reviews[i]) for i in batch.index]
            assert batch.input.shape[1] == max(lengths)
            assert batch.lengths is None if protocol == "official" else batch.lengths.tolist() == lengths


def test_scores_the_mean_over_batches_and_naive_bayes_by_hand(store) -> None:
    task = make(store)
    z = torch.sin(torch.arange(40.0))[:, None]
    metrics = score_reference(task, lambda batch: z[batch.index], size=7)
    hits = [((z[b.index] > 0) == (b.target > 0.5)).double() for b in task.batches("test", 7)]
    assert metrics["accuracy"] == torch.cat(hits).mean().item()
    assert metrics["accuracy_batches"] == pytest.approx(sum(share.mean().item() for share in hits) / 6)
    assert metrics["accuracy_batches"] != pytest.approx(metrics["accuracy"])  # the last batch has 5
    reviews, labels = text_of(task, "train")
    n = [labels.count(0), labels.count(1)]

    def share(w: int, label: int) -> float:
        return (sum(w in r for r, c in zip(reviews, labels, strict=True) if c == label) + 1) / (n[label] + 2)

    weight = {w: math.log(share(w, 1) / share(w, 0)) for w in range(2, task.d_in)}
    tests, truth = text_of(task, "test")
    z = [math.log(n[1] / n[0]) + sum(weight.get(w, 0.0) for w in set(r)) for r in tests]
    reference = task.references()["naive Bayes"]
    assert 0.8 < reference["accuracy"] == sum((s > 0) == c for s, c in zip(z, truth, strict=True)) / 40
    nats = sum(math.log1p(math.exp(-s if c else s)) for s, c in zip(z, truth, strict=True)) / 40
    assert reference["cross_entropy"] == pytest.approx(nats, rel=1e-9)


def test_the_real_reviews_have_their_counts(real):
    task = make(real, n_words=25_000, vectors="random")
    assert task.sizes == {"train": 17_500, "valid": 7_500, "test": 25_000} and task.d_in == 25_002
    assert task.facts()["kind"] in ("content-verified", "verified")
    assert task.references()["naive Bayes"]["accuracy"] == pytest.approx(0.834, abs=0.003)
