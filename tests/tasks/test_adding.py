"""The adding problem: numbers, flags, targets, the two protocols, the level of a constant answer."""

import pytest
import torch
from torch import Generator

from physml.base.errors import InputError
from physml.task.trivial import score_reference
from tasks.adding import Adding


def adding(length: int = 20, protocol: str = "clean", n_eval: int = 50, epoch_steps: int = 4) -> Adding:
    return Adding(length=length, n_eval=n_eval, epoch_steps=epoch_steps, protocol=protocol)


def rng(seed: int = 0) -> Generator:
    return Generator().manual_seed(seed)


@pytest.mark.parametrize("length", [2, 3, 7, 20])
def test_one_flag_in_each_half_and_the_target_is_their_sum(length):
    (batch,) = list(adding(length).batches("train", 500, rng()))[:1]
    number, flag = batch.input.unbind(-1)
    assert batch.input.shape == (500, length, 2) and batch.target.shape == (500, 1)
    assert 0 <= number.min() < 0.05 and 0.95 < number.max() < 1
    assert set(flag.unique().tolist()) <= {0.0, 1.0}
    half = length // 2
    assert (flag[:, :half].sum(1) == 1).all() and (flag[:, half:].sum(1) == 1).all()
    for i in range(20):
        chosen = [float(number[i, t]) for t in range(length) if flag[i, t] == 1]
        assert sum(chosen) == pytest.approx(float(batch.target[i]), rel=1e-6)


def test_training_sequences_are_fresh_need_a_generator_and_flag_every_position_equally_often():
    (batch,) = list(adding(8, epoch_steps=1).batches("train", 8000, rng()))
    assert batch.input[..., 1].mean(0).tolist() == pytest.approx([0.25] * 8, abs=0.025)
    batches = list(adding().batches("train", 10, rng()))
    assert len(batches) == 4
    assert len(torch.cat([batch.input[..., 0] for batch in batches]).unique(dim=0)) == 40
    with pytest.raises(InputError, match="give a generator"):
        next(adding().batches("train", 10))


def everything(task: Adding, part: str, generator: Generator | None) -> torch.Tensor:
    return torch.cat([batch.input for batch in task.batches(part, 7, generator)])


def test_clean_sets_are_the_same_at_every_evaluation_and_apart_and_official_ones_fresh():
    task = adding()
    first = everything(task, "test", rng(1))
    assert torch.equal(first, everything(adding(), "test", rng(2)))
    assert torch.equal(first, everything(task, "test", None))
    assert not torch.equal(first, everything(task, "valid", rng(1)))
    task = adding(protocol="official")
    generator = rng(1)
    first, second = (everything(task, "test", generator) for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(first, everything(task, "test", rng(1)))
    assert torch.equal(everything(task, "test", None), everything(adding(), "test", None))


def test_the_constant_answer_scores_one_sixth_and_the_fingerprint_is_that_of_the_sets() -> None:
    # The variance of a sum of two uniform numbers is 2/12.
    task = adding(length=10, n_eval=100_000)
    best = task.references()["constant"]["mse"]
    assert best == pytest.approx(1 / 6, rel=0.01)
    for answer in (0.9, 1.1):
        other = score_reference(task, lambda batch, answer=answer: torch.full_like(batch.target, answer))
        assert other["mse"] == pytest.approx(best + 0.01, rel=0.02)
    assert adding().facts()["fingerprint"] != adding(length=21).facts()["fingerprint"]
    assert adding(length=10, n_eval=1000).facts()["fingerprint"] == "sha256 711052f86d4168a8"
    assert adding(protocol="official").facts()["fingerprint"] == "fresh at each evaluation"
