"""Noise padded CIFAR-10: the layout of a row, what the noise is and when it is drawn."""

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from refusals import refuses

from physml.base.errors import DataError
from physml.data.readers.cifar10 import CIFAR10
from physml.data.splits import divide
from physml.data.store import Store
from tasks.ncifar import NoisePaddedCIFAR10

ARGUMENTS = {
    **{"length": 1000, "valid": "cifar-valid-3000", "noise": "fixed_normal", "noise_seed": 5544},
    "protocol": "official",
}
PARTS = ("train", "valid", "test")
FRESH = [("fresh_normal", "clean"), ("fresh_uniform", "clean"), ("fresh_uniform", "paper")]


def loaded(store: Store, **changes) -> NoisePaddedCIFAR10:
    return with_data(NoisePaddedCIFAR10(**(ARGUMENTS | changes)), store)


def inputs(task: NoisePaddedCIFAR10, part: str, size: int = 8, seed: int | None = None) -> torch.Tensor:
    rng = None if seed is None else torch.Generator().manual_seed(seed)
    return torch.cat([batch.input for batch in task.batches(part, size, rng)])


def test_a_step_is_one_row_with_three_colours_and_the_parts_every_tenth_image_and_the_rest(store) -> None:
    # Against the images as they are stored, pixel by pixel: red is 0..31, green 32..63, blue 64..95.
    x = store.read(CIFAR10)["x_test"]
    sequences = inputs(loaded(store), "test")
    assert sequences.shape == (20, 1000, 96)
    for i in (0, 7, 19):
        for row in range(32):
            for channel in range(3):
                want = torch.from_numpy(x[i, channel, row].astype(np.float32)) / 255
                assert torch.equal(sequences[i, row, 32 * channel : 32 * channel + 32], want)
    task, arrays = loaded(store), store.read(CIFAR10)
    assert task.sizes == {"train": 54, "valid": 6, "test": 20}
    without = loaded(store, valid=None)
    assert without.sizes == {"train": 60, "test": 20} and list(without.batches("valid", 4)) == []
    assert whole(task, "valid").target.tolist() == arrays["y_train"][::10].tolist()
    assert whole(task).target.tolist() == np.delete(arrays["y_train"], np.arange(0, 60, 10)).tolist()


@pytest.mark.parametrize(("name", "n"), [("cifar-valid-3000", 3000), ("cifar-valid-2000", 2000)])
def test_the_published_sizes(name, n):
    train, valid = divide(name, 50_000, 50_000, fixture=False)
    assert (len(train), len(valid)) == (50_000 - n, n)
    assert sorted([*train, *valid]) == list(range(50_000))
    refuses(DataError, "must have 50000 items; got 49999", divide, name, 49_999, 50_000, fixture=False)
    refuses(DataError, "is for more than", divide, "mnist-valid-3000", 50_000, 50_000, fixture=False)


def test_the_official_noise_is_one_tail_for_all_images_parts_and_passes(store):
    task = loaded(store)
    (tail,) = {inputs(task, "test", seed=s)[0, 32:].numpy().tobytes() for s in (0, 1)}
    drawn = torch.randn(1, 968, 96, generator=torch.Generator().manual_seed(5544))[0]
    assert tail == drawn.numpy().tobytes()
    for part in PARTS:
        assert (inputs(task, part, seed=3)[:, 32:] == drawn).all()
    assert not torch.equal(inputs(loaded(store, noise_seed=12345), "test")[0, 32:], drawn)


@pytest.mark.parametrize(("noise", "protocol"), FRESH)
def test_fresh_noise_has_its_distribution_and_differs_between_images(store, noise, protocol):
    tail = inputs(loaded(store, noise=noise, protocol=protocol), "test")[:, 32:].double()
    n = tail.numel()
    if noise == "fresh_uniform":
        mean, sd = 0.5, 12**-0.5
        assert 0 <= tail.min() < 1e-3 and 1 - 1e-3 < tail.max() < 1
    else:
        mean, sd = 0.0, 1.0
        assert float(tail.pow(4).mean()) == pytest.approx(3, rel=0.02)
    assert float(tail.mean()) == pytest.approx(mean, abs=5 * sd / n**0.5)
    assert float(tail.std()) == pytest.approx(sd, rel=5 / (2 * n) ** 0.5)
    first, second = tail[0].flatten(), tail[1].flatten()
    assert abs(float(torch.corrcoef(torch.stack([first, second]))[0, 1])) < 0.02


@pytest.mark.parametrize(("noise", "protocol"), FRESH[:2])
def test_fresh_noise_is_drawn_anew_in_training_and_once_for_evaluations(store, noise, protocol):
    task = loaded(store, noise=noise, protocol=protocol, length=40)

    def tails(part: str, seed: int, size: int = 8) -> set[bytes]:
        return {x[32:].numpy().tobytes() for x in inputs(task, part, size, seed)}

    assert len(tails("train", 0)) == 54 and not tails("train", 0) & tails("train", 1)
    for part in ("valid", "test"):
        assert tails(part, 0) == tails(part, 1) == tails(part, 2, 3)
    assert not tails("valid", 0) & tails("test", 0)
