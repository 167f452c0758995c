"""ECG5000: the split, and the noise that test is scored with."""

import numpy as np
import pytest
import torch
from loaded_tasks import whole, with_data
from torch import Generator

from physml.data import splits
from physml.data.readers.ecg5000 import ECG5000
from physml.data.store import Store
from tasks.ecg5000 import PERTURBATIONS, Beats


@pytest.fixture(scope="module")
def task(store: Store) -> Beats:
    return with_data(Beats(perturb="robustness", protocol="paper"), store)


@pytest.mark.parametrize("sigma", [0.4, 0.8, 1.2])
def test_white_noise_is_added_to_every_value_and_multiplicative_noise_scales_it(task: Beats, sigma) -> None:
    batch, name = whole(task, "test"), str(sigma).replace(".", "_")
    noise = task.perturb(batch, f"white_{name}", Generator().manual_seed(0)).input - batch.input
    assert noise.std().item() == pytest.approx(sigma, rel=0.02)
    assert noise.mean().item() == pytest.approx(0, abs=0.02 * sigma)
    neighbours = (noise[:, 1:] * noise[:, :-1]).mean().item()
    assert neighbours == pytest.approx(0, abs=0.02 * sigma**2), "a draw of its own for each step"
    factor = task.perturb(batch, f"mult_{name}", Generator().manual_seed(0)).input / batch.input
    assert factor[batch.input.abs() > 0.1].std().item() == pytest.approx(sigma, rel=0.02)
    assert factor[batch.input.abs() > 0.1].mean().item() == pytest.approx(1, abs=0.02)


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_noise_does_not_depend_on_how_test_is_cut_and_changes_the_input_alone(task: Beats, name: str) -> None:
    inputs = []
    for size in (7, 128, 5000):
        rng = Generator().manual_seed(1)
        inputs.append(torch.cat([task.perturb(b, name, rng).input for b in task.batches("test", size)]))
    assert torch.equal(inputs[0], inputs[1]) and torch.equal(inputs[0], inputs[2])
    batch = whole(task, "valid")
    disturbed = task.perturb(batch, name, Generator().manual_seed(0))
    assert torch.equal(disturbed.target, batch.target) and disturbed.index is batch.index
    assert not torch.equal(disturbed.input, batch.input)


def test_valid_and_test_are_beats_of_the_archive_with_declared_disturbances(task, store) -> None:
    arrays, held = store.read(ECG5000), splits.load_index("ecg5000-valid")
    np.testing.assert_array_equal(whole(task, "train").input.numpy(), arrays["x_train"])
    np.testing.assert_array_equal(whole(task, "valid").input.numpy(), arrays["x_test"][held])
    rest = np.setdiff1d(np.arange(4500), held)
    np.testing.assert_array_equal(whole(task, "test").input.numpy(), arrays["x_test"][rest])
    np.testing.assert_array_equal(whole(task, "test").target.numpy(), arrays["y_test"][rest])
    assert set(task.better) == {"accuracy", "cross_entropy", *(f"accuracy_{n}" for n in PERTURBATIONS)}
    reference = task.references()["majority class"]
    assert reference["accuracy_mult_1_2"] == reference["accuracy"]
    assert set(reference) == set(task.better)


def test_the_talk_has_two_classes_normal_and_abnormal(store: Store) -> None:
    kinds = with_data(Beats(perturb=None, protocol="paper"), store)
    two = with_data(Beats(perturb=None, protocol="paper", target="abnormal"), store)
    assert kinds.perturbations == () and set(kinds.better) == {"accuracy", "cross_entropy"}
    assert (kinds.d_out, two.d_out) == (5, 2)
    for part in ("train", "valid", "test"):
        of_kinds, of_two = whole(kinds, part), whole(two, part)
        assert torch.equal(of_two.input, of_kinds.input)
        assert torch.equal(of_two.target, (of_kinds.target > 0).long()), "label 1 of the archive is normal"
