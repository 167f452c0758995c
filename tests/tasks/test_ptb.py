"""Penn Treebank: streams, state, scores, temperature, references."""

import math
from collections import Counter

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from torch import Generator

from physml.data.readers.ptb import EOS, PTB, vocabulary
from physml.models.sequence.gated import GRU
from physml.models.sequence.rnn import SequenceModel
from physml.training.evaluate import evaluate, outputs
from tasks.ptb import TEMPERATURES, PTBChar, PTBWord, bigram

NEEDED = "ptb/ptb.train.txt"
ARGUMENTS = {"bptt": 5, "loss": "summed", "epoch_steps": None, "eval_streams": 1, "protocol": "official"}


def make(store, kind=PTBWord, **changes):
    return with_data(kind(**ARGUMENTS | changes), store)


def rng(seed=0):
    return Generator().manual_seed(seed)


def net_of(task):
    torch.manual_seed(0)
    return SequenceModel(lambda d: GRU(d, 8), task.d_in, task.d_out, "every", True, embedding=6)


def test_the_reader_gives_the_text_back_and_every_epoch_begins_elsewhere(store, tmp_path) -> None:
    arrays = store.read(PTB)
    PTB.fixture(tmp_path)
    for unit, name in (("word", "ptb"), ("char", "ptb.char")):
        words = vocabulary(arrays, unit)
        for part in ("train", "valid", "test"):
            text = (tmp_path / "simple-examples" / "data" / f"{name}.{part}.txt").read_text()
            assert [words[i] for i in arrays[f"{unit}_{part}"]] == text.replace("\n", f" {EOS} ").split()
        counts = np.bincount(arrays[f"{unit}_train"], minlength=len(words))
        assert counts.min() > 0 and (np.diff(counts) <= 0).all()  # the most frequent first
    task = make(store, epoch_steps=4)
    first = [next(iter(task.batches("train", 3, rng(s)))).target for s in range(4)]
    assert len({tuple(t.flatten().tolist()) for t in first}) > 1
    assert len(list(task.batches("train", 3, rng()))) == task.steps_per_epoch(3) == 4


@pytest.mark.parametrize("size", [1, 3, 7])
def test_training_heads_read_the_ring_at_equal_distances(size, store):
    task = make(store)
    ids = task._ids["train"]
    n = len(ids)
    batches = list(task.batches("train", size, rng()))
    assert len(batches) == task.steps_per_epoch(size) == math.ceil(n / (5 * size))
    input, target = (torch.cat([getattr(b, name) for b in batches], 1) for name in ("input", "target"))
    assert torch.equal(input[:, 1:], target[:, :-1]) and all(b.carry for b in batches)
    ring = torch.arange(40)
    begin = next(i for i in range(n) if torch.equal(ids[(i + ring) % n], target[0, :40]))
    for k in range(size):
        at = begin + k * n // size
        assert torch.equal(target[k], ids[(at + torch.arange(target.shape[1])) % n])
    if size == 1:
        assert torch.equal(target[0, :n].sort().values, ids.sort().values)  # each token once


@pytest.mark.parametrize("streams", [1, 2, 5])
def test_an_evaluation_predicts_every_token_once(streams, store, monkeypatch):
    monkeypatch.setattr("tasks.ptb.EVAL_STEPS", 50)
    task = make(store, eval_streams=streams)
    batches = list(task.batches("test", 1))
    names = ("input", "target", "mask")
    input, target, mask = (torch.cat([getattr(b, name) for b in batches], 1) for name in names)
    assert len(batches) > 1 and len(target) == streams and mask.sum() == task.sizes["test"]
    assert torch.equal(target[mask], task._ids["test"])
    assert torch.equal(input[mask][1:], task._ids["test"][:-1])
    assert task.words[input[0, 0]] == EOS


def test_the_score_of_an_evaluation_does_not_depend_on_its_windows(store, monkeypatch):
    task = make(store)
    net = net_of(task)
    whole = evaluate(net, task, task.batches("test", 1), "cpu")
    monkeypatch.setattr("tasks.ptb.EVAL_STEPS", 7)
    assert evaluate(net, task, task.batches("test", 1), "cpu") == pytest.approx(whole, rel=1e-5)
    by_hand = net(torch.cat([task._ids["test"][-1:], task._ids["test"][:-1]])[None])[0][0].log_softmax(-1)
    nats = -by_hand[torch.arange(len(by_hand)), task._ids["test"]].mean().item()
    assert whole["perplexity"] == pytest.approx(math.exp(nats), rel=1e-5)


def test_the_loss_is_summed_over_steps_or_a_mean_and_metrics_are_those_of_uniform_output(store):
    summed, mean = make(store), make(store, loss="mean")
    batch = next(iter(summed.batches("train", 3, rng())))
    output = torch.randn(3, 5, summed.d_out, generator=rng())
    nats = -output.log_softmax(-1).gather(2, batch.target[..., None])[..., 0]
    torch.testing.assert_close(summed.loss(output, batch), nats.sum(1).mean())
    torch.testing.assert_close(mean.loss(output, batch), nats.mean())
    for kind, want in ((PTBWord, lambda c: c), (PTBChar, math.log2)):
        task = make(store, kind)
        batch = next(iter(task.batches("test", 1)))
        metrics = task.finish(task.score(torch.zeros(*batch.target.shape, task.d_out), batch))
        assert metrics[task.metric] == pytest.approx(want(task.d_out), rel=1e-6)
    assert PTBWord.of_nats(1000.0) == math.inf


@pytest.mark.parametrize("true", [0.9, 1.0, 1.2])
def test_the_temperature_that_is_best_on_valid_is_found(true, store):
    """Logits that are right after a division by `true`."""
    task = make(store, PTBChar)
    unigram = torch.bincount(task._ids["valid"], minlength=task.d_out).double() / task.sizes["valid"]
    logits = (unigram + 1e-9).log().float() * true

    def answers(part):
        assert part == "valid"
        for batch in task.batches(part, 1):
            yield logits.expand(*batch.target.shape, task.d_out), batch

    calibration = task.calibrate(answers)
    assert calibration == {"temperature": min(max(round(true, 2), TEMPERATURES[-1]), TEMPERATURES[0])}
    batch = next(task.batches("valid", 1))
    scores = task.finish(task.score(logits.expand(*batch.target.shape, task.d_out), batch))
    assert (scores["bpc_tempered"] < scores["bpc"]) == (true != 1.0)


def test_the_temperature_is_of_the_first_tokens_and_not_of_references(store, monkeypatch):
    monkeypatch.setattr("tasks.ptb.TEMPERATURE_TOKENS", 20)
    monkeypatch.setattr("tasks.ptb.EVAL_STEPS", 15)
    task = make(store)
    seen = []

    def watched(part):
        for pair in outputs(net_of(task), task.batches(part, 1), "cpu"):
            seen.append(pair)
            yield pair

    before = task.references()
    task.calibrate(watched)
    assert len(seen) == 2
    task.temperature = 0.8
    assert task.references() == before and task.temperature == 0.8


def test_references_from_counts_by_hand_and_bigram_probabilities_that_add_up_to_one(store):
    task = make(store, PTBChar)
    train, test = task._ids["train"].tolist(), task._ids["test"].tolist()
    pairs = Counter(zip([train[-1], *train[:-1]], train, strict=True))
    total = {v: sum(n for (a, _), n in pairs.items() if a == v) for v in set(train)}
    kinds = {v: sum(1 for a, _ in pairs if a == v) for v in set(train)}
    bits = {"uniform": 0.0, "unigram": 0.0, "bigram": 0.0}
    for v, w in zip([test[-1], *test], test, strict=False):
        p_w = train.count(w) / len(train)
        direct = max(pairs[v, w] - 0.75, 0) / total[v]
        bits["bigram"] -= math.log2(direct + 0.75 * kinds[v] / total[v] * p_w)
        bits["unigram"] -= math.log2(p_w)
        bits["uniform"] += math.log2(task.d_out)
    bpc = {name: metrics["bpc"] for name, metrics in task.references().items()}
    assert bpc == pytest.approx({name: b / len(test) for name, b in bits.items()}, rel=1e-9)
    assert bpc["bigram"] < bpc["unigram"] < bpc["uniform"]
    ids = task._ids["train"]
    n = int(ids.max()) + 1
    unigram = torch.bincount(ids, minlength=n).double() / len(ids)
    v, w = torch.cartesian_prod(torch.arange(n), torch.arange(n)).T
    sums = bigram(ids, unigram, v, w).view(n, n).sum(1)
    torch.testing.assert_close(sums, torch.ones_like(sums))
    never = torch.tensor([1.0, 0.0, 0.0])  # after an id that is not there
    assert bigram(torch.tensor([0, 0]), never, torch.tensor([2]), torch.tensor([0])).item() == 1


@pytest.mark.parametrize(
    ("kind", "sizes", "references"),
    [
        (PTBWord, (929_589, 73_760, 82_430), {"uniform": 10_000, "unigram": 639.3, "bigram": 194.8}),
        (PTBChar, (5_017_482, 393_042, 442_423), {"uniform": 5.644, "unigram": 4.346, "bigram": 3.365}),
    ],
)
def test_the_real_text_has_its_counts(kind, sizes, references, real):
    task = make(real, kind, bptt=70)
    assert tuple(task.sizes.values()) == sizes and task.d_in == kind.n_ids
    assert task.facts()["kind"] == "verified"
    for name, value in task.references().items():
        assert value[task.metric] == pytest.approx(references[name], rel=1e-3)
