"""Sequential MNIST: the pixels against the idx files, order, split, scale, and the disturbances of test."""

import gzip
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from refusals import refuses

from physml.base.errors import ConfigError, DataError, InputError
from physml.base.paths import own_folders
from physml.base.seeding import stream
from physml.cli import main
from physml.data import splits
from physml.data.readers.mnist import name as file_name
from physml.data.store import Store
from physml.records.record import read
from physml.training.selection import BestValid
from tasks.smnist import PERTURBATIONS, SequentialMNIST

ARGUMENTS = {
    **{"permutation": None, "valid": "mnist-valid-3000", "scale": "unit", "stride": 1, "perturb": None},
    "protocol": "official",
}
NEEDED = file_name("train", "images")


def make(**changes) -> SequentialMNIST:
    return SequentialMNIST(**(ARGUMENTS | changes))


def loaded(store: Store, **changes) -> SequentialMNIST:
    return with_data(make(**changes), store)


def whole(task: SequentialMNIST, part: str, size: int = 7) -> tuple[torch.Tensor, torch.Tensor]:
    batches = list(task.batches(part, size))
    return torch.cat([b.input for b in batches]), torch.cat([b.target for b in batches])


def idx(path: Path) -> np.ndarray:
    """A gzipped idx file of bytes, read from its description alone."""
    content = gzip.decompress(path.read_bytes())
    _, kind, dimensions = struct.unpack(">HBB", content[:4])
    assert kind == 8
    shape = struct.unpack(f">{dimensions}I", content[4 : 4 + 4 * dimensions])
    return np.frombuffer(content, np.uint8, offset=4 + 4 * dimensions).reshape(shape)


def fixture_root(store: Store) -> Path:
    store.read(SequentialMNIST.datasets[0])
    (root,) = (p for p in (store.cache / "fixtures").iterdir() if p.name.startswith("mnist-") and p.is_dir())
    return root


ORDERS = ("psmnist-torch-12008", "psmnist-torch-5544", "psmnist-numpy-92916")


@pytest.mark.parametrize("permutation", [None, *ORDERS[::2]])
@pytest.mark.parametrize("scale", ["unit", "bytes"])
def test_every_pixel_of_the_fixture_is_that_of_the_file(store, permutation, scale):
    root = fixture_root(store)
    images, labels = (idx(root / file_name("test", kind)) for kind in ("images", "labels"))
    x, y = whole(loaded(store, permutation=permutation, scale=scale), "test")
    order = range(784) if permutation is None else splits.load_index(permutation)
    for i, image in enumerate(images):
        for step, pixel in enumerate(order):
            want = float(image[pixel // 28][pixel % 28]) / (255 if scale == "unit" else 1)
            assert float(x[i, step, 0]) == pytest.approx(want, rel=1e-7)
    assert y.tolist() == labels.tolist()


def test_an_index_that_is_no_order_of_the_pixels_and_another_number_of_images_are_refused(store, tmp_path):
    refuses(InputError, r"one of 784 pixels; mnist-valid-3000", loaded, store, permutation="mnist-valid-3000")
    # The files of the fixture in the place of the real ones, with checksums off.
    other = Store(fixture_root(store), tmp_path, verify="off")
    refuses(DataError, "must have 60000 items; got 60", make().load, other, 0)


def test_the_real_images_are_rebuilt_from_the_idx_files_and_have_their_majority_class(real):
    task = loaded(real, permutation="psmnist-torch-5544")
    assert task.sizes == {"train": 57_000, "valid": 3_000, "test": 10_000}
    order = splits.load_index("psmnist-torch-5544")
    held = np.sort(splits.load_index("mnist-valid-3000"))
    kept = np.delete(np.arange(60_000), held)
    places = (("train", "train", kept), ("valid", "train", held), ("test", "test", np.arange(10_000)))
    for part, file, positions in places:
        images = idx(real.data / file_name(file, "images"))[positions].reshape(-1, 784)[:, order]
        x, y = whole(task, part, 5000)
        np.testing.assert_allclose(x[..., 0].double().numpy(), images / 255, atol=1e-7)
        np.testing.assert_array_equal(y.numpy(), idx(real.data / file_name(file, "labels"))[positions])
    assert task.facts()["kind"] == "verified"
    # the digit 1: 1135 of 10,000
    reference = loaded(real).references()["majority class"]
    assert reference["accuracy"] == 0.1135
    assert reference["cross_entropy"] == pytest.approx(np.log(10), abs=5e-3)
    assert loaded(real, valid=None).sizes == {"train": 60_000, "test": 10_000}


@pytest.mark.parametrize("name", ORDERS)
def test_the_permutations_are_what_torch_or_numpy_draws(name):
    _, library, seed = name.split("-")
    torch.manual_seed(int(seed))
    drawn = {"torch": torch.randperm(784), "numpy": np.random.RandomState(int(seed)).permutation(784)}
    assert splits.load_index(name).tolist() == drawn[library].tolist()


def test_parts_are_every_tenth_image_and_the_rest_and_a_stride_every_kth_pixel(store) -> None:
    root = fixture_root(store)
    images = idx(root / file_name("train", "images")).reshape(-1, 784, 1)
    task = loaded(store)
    assert task.sizes == {"train": 54, "valid": 6, "test": 20}
    np.testing.assert_allclose(whole(task, "valid")[0].numpy() * 255, images[::10], atol=1e-4)
    rest = np.delete(images, np.arange(0, 60, 10), 0)
    np.testing.assert_allclose(whole(task, "train")[0].numpy() * 255, rest, atol=1e-4)
    pixels, rows, image = (loaded(store, per_step=n) for n in (None, 28, 784))
    (x, _), (by_row, _), (whole_image, _) = (whole(task, "test") for task in (pixels, rows, image))
    assert by_row.shape[1:] == (28, 28) and whole_image.shape[1:] == (1, 784) and image.d_in == 784
    assert torch.equal(by_row.flatten(1), x.flatten(1)) and torch.equal(whole_image.flatten(1), x.flatten(1))
    plain = whole(loaded(store, permutation="psmnist-torch-5544"), "test")[0]
    strided = whole(loaded(store, permutation="psmnist-torch-5544", stride=28), "test")[0]
    assert torch.equal(strided, plain[:, ::28])


def test_without_validation_only_the_last_or_the_best_on_test_can_be_selected(tmp_path, roots, capsys):
    assert run("task.valid=null") == 2
    assert "has no valid items, which trainer.select=BestValid looks at" in capsys.readouterr().err
    assert run("task.valid=null", "trainer.select._target_=physml.training.selection.BestTest") == 0
    metrics = the_record(tmp_path)["metrics"]
    assert metrics["best"]["valid"] == {} and set(metrics["best"]["test"]) == {"accuracy", "cross_entropy"}


# ---------------------------------------------------------------------------- disturbances


def disturbed(task: SequentialMNIST, name: str, size: int = 7) -> torch.Tensor:
    rng = stream(0, "perturb", name)
    return torch.cat([task.perturb(batch, name, rng).input for batch in task.batches("test", size)])


def test_only_asked_for_disturbances_are_scored(store):
    assert make().perturbations == ()
    assert set(make().better) == {"accuracy", "cross_entropy"}
    task = loaded(store, perturb="robustness")
    assert task.perturbations == tuple(PERTURBATIONS)
    assert set(task.better) == set(SequentialMNIST.better) == set(task.references()["majority class"])
    assert set(task.better) == {"accuracy", "cross_entropy", *(f"accuracy_{name}" for name in PERTURBATIONS)}
    assert set(task.in_rows) == {"accuracy", "cross_entropy"}, "the others are scored once, after training"
    with pytest.raises(ConfigError, match="no metric accuracy_white_0_1"):
        BestValid("accuracy_white_0_1").bind(task.metric, task.in_rows)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_a_disturbance_is_the_same_in_all_runs_and_for_all_batch_sizes(store, name):
    task = loaded(store, perturb="robustness")
    once = disturbed(task, name)
    assert torch.equal(once, disturbed(task, name, 1)) and torch.equal(once, disturbed(task, name, 20))
    assert not torch.equal(once, whole(task, "test")[0])


@pytest.mark.parametrize(("name", "sigma"), [("white_0_1", 0.1), ("white_0_2", 0.2), ("white_0_3", 0.3)])
@pytest.mark.parametrize(("scale", "white"), [("unit", 1.0), ("bytes", 255.0)])
def test_white_noise_has_its_standard_deviation_and_is_not_cut(store, name, sigma, scale, white):
    task = loaded(store, perturb="robustness", scale=scale)
    noise = ((disturbed(task, name) - whole(task, "test")[0]) / white).double()
    n = noise.numel()
    assert float(noise.mean()) == pytest.approx(0, abs=4 * sigma / n**0.5)
    assert float(noise.std()) == pytest.approx(sigma, rel=4 / (2 * n) ** 0.5)
    assert (disturbed(task, name) < 0).any()
    assert not torch.equal(noise[0], noise[1])


@pytest.mark.parametrize(
    ("name", "alpha"), [("salt_pepper_0_03", 0.03), ("salt_pepper_0_05", 0.05), ("salt_pepper_0_1", 0.1)]
)
@pytest.mark.parametrize(("scale", "white"), [("unit", 1.0), ("bytes", 255.0)])
def test_salt_and_pepper_turn_a_share_of_the_pixels_white_or_black(store, name, alpha, scale, white):
    task = loaded(store, perturb="robustness", scale=scale)
    clean, noisy = whole(task, "test")[0], disturbed(task, name)
    changed = noisy != clean
    assert set(noisy[changed].tolist()) == {0.0, white}
    n = clean.numel()  # no pixel of the fixture is white, and 1 in 90 black
    salt = float((noisy == white).double().mean())
    spread = 4 * (alpha / 2 / n) ** 0.5
    assert salt == pytest.approx(alpha / 2, abs=spread)
    assert float(changed.double().mean()) == pytest.approx(alpha, abs=2 * spread + alpha / 90)


# ---------------------------------------------------------------------------- from the command line


@pytest.fixture
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)


def run(*overrides: str) -> int:
    return main.main(["run", "model=lem", "task=smnist", *overrides, "profile=smoke", "tracker=none"]) or 0


def the_record(tmp_path: Path) -> dict[str, Any]:
    (path,) = (tmp_path / "results").rglob("*seed0.json")
    return read(path)


def test_a_run_scores_every_disturbed_part_for_the_selected_and_for_the_last_weights(tmp_path, roots):
    assert run("task.perturb=robustness") == 0
    metrics = the_record(tmp_path)["metrics"]
    for which in ("best", "last"):
        assert set(metrics[which]["test"]) == set(SequentialMNIST.better)
        assert set(metrics[which]["valid"]) == {"accuracy", "cross_entropy"}
