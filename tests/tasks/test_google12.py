"""Google12 on a tiny set in the form of Speech Commands: parts, labels, features, both conventions."""

import io
from itertools import product

import numpy as np
import pytest
import soundfile
import torch
from loaded_tasks import with_data

from physml.base.errors import DataError
from physml.data.files.archives import open_tree
from physml.data.readers import speech_commands as reader
from physml.data.readers.speech_commands import COMMANDS, SPEECH_COMMANDS, WORDS
from physml.data.spectrograms import log_mel
from physml.data.store import Store
from physml.data.verify import fingerprint
from tasks import google12
from tasks.google12 import CLASSES, Google12


@pytest.fixture(scope="module")
def arrays(store):
    return store.read(SPEECH_COMMANDS)


@pytest.fixture(scope="module")
def official(store) -> Google12:
    return loaded(store, "official", None)


@pytest.fixture(scope="module")
def clean(store) -> Google12:
    return loaded(store, "clean", 7)


def loaded(store: Store, protocol: str, data_seed: int | None) -> Google12:
    return with_data(Google12(protocol=protocol, data_seed=data_seed), store)


def whole(task: Google12, part: str) -> tuple[np.ndarray, np.ndarray]:
    (batch,) = task.batches(part, task.sizes[part])
    return batch.input.numpy(), batch.target.numpy()


def clip_names(store: Store) -> tuple[dict[str, bytes], dict[str, list[str]]]:
    """What lies in the fixture, and the names of the clips of each part, as upstream tells them."""
    members = dict(open_tree(next(store.cache.rglob(reader.ARCHIVE))).items())
    lists = {part: members[name].decode().split() for part, name in reader.LISTS.items()}
    every = sorted(name for name in members if name.endswith(".wav") and not name.startswith(reader.NOISE))
    lists["train"] = [name for name in every if name not in lists["valid"] + lists["test"]]
    return members, lists


def test_the_reader_gives_back_every_clip_in_its_part_and_classes_are_those_of_the_code(store, arrays):
    assert CLASSES[:2] == ("unknown", "silence")
    assert CLASSES[2:] == ("yes", "no", "up", "down", "left", "right", "on", "off", "stop", "go")
    assert len(WORDS) == len(set(WORDS)) == 35
    members, lists = clip_names(store)
    assert arrays["sizes"].tolist() == [len(lists[part]) for part in reader.PARTS]
    names = [name for part in reader.PARTS for name in sorted(lists[part])]
    assert [WORDS[w] for w in arrays["word"]] == [name.split("/")[0] for name in names]
    for name, wave, length in zip(names, arrays["wave"], arrays["length"], strict=True):
        samples, rate = soundfile.read(io.BytesIO(members[name]), dtype="int16")
        assert rate == 16000 and len(samples) == length
        assert np.array_equal(wave[:length], samples) and not wave[length:].any()
    assert 16000 in arrays["length"] and arrays["length"].min() < 3000
    assert arrays["noise_length"].sum() == len(arrays["noise"])


def test_the_fingerprint_sees_every_clip_its_word_and_its_part(arrays):
    want = fingerprint(SPEECH_COMMANDS, arrays)
    for name, at in [("wave", (3, 5)), ("word", 3), ("noise", 9)]:
        changed = {key: array.copy() for key, array in arrays.items()}
        changed[name][at] += 1
        assert fingerprint(SPEECH_COMMANDS, changed) != want
    assert fingerprint(SPEECH_COMMANDS, {**arrays, "sizes": arrays["sizes"] + [-1, 1, 0]}) != want
    order = np.r_[np.arange(1, arrays["sizes"][0]), 0, np.arange(arrays["sizes"][0], len(arrays["word"]))]
    mixed = {**arrays, **{name: arrays[name][order] for name in ("wave", "word", "length")}}
    assert fingerprint(SPEECH_COMMANDS, mixed) == want


def test_every_utterance_is_normalised_and_official_takes_every_clip(official, clean, store, arrays) -> None:
    for task, part in product((official, clean), ("train", "valid", "test")):
        x, y = whole(task, part)
        assert x.shape[1:] == (126, 80) and x.dtype == np.float32 and y.dtype == np.int64
        assert x.mean((1, 2)) == pytest.approx(0, abs=1e-5)
        assert x.std((1, 2), ddof=1) == pytest.approx(1, abs=1e-5)
    _, lists = clip_names(store)
    n_noise = len(arrays["noise_length"])
    for part in official.sizes:
        _, y = whole(official, part)
        words = [name.split("/")[0] for name in sorted(lists[part])]
        want = [CLASSES.index(w) if w in COMMANDS else 0 for w in words] + [1] * (n_noise * (part == "train"))
        assert y.tolist() == want


def test_official_features_are_those_of_single_clips_and_of_whole_recordings(official, arrays):
    x, _ = whole(official, "valid")
    first = arrays["sizes"][0]
    for i in (0, 7, len(x) - 1):
        n = int(arrays["length"][first + i])
        wave = torch.tensor(arrays["wave"][first + i, :n] / 32768, dtype=torch.float32)
        assert x[i] == pytest.approx(log_mel(wave[None], torch.tensor([n]))[0].numpy(), abs=1e-3)
    # silence is the first second of the features of a whole recording
    x, y = whole(official, "train")
    n = int(arrays["noise_length"][0])
    recording = torch.tensor(arrays["noise"][:n] / 32768, dtype=torch.float32)
    assert x[y == 1][0] == pytest.approx(log_mel(recording[None], torch.tensor([n]))[0].numpy(), abs=1e-3)
    second = log_mel(recording[None, :16000], torch.tensor([16000]))[0].numpy()
    assert np.abs(x[y == 1][0] - second).max() > 0.1


def test_clean_keeps_all_commands_and_has_one_unknown_clip_for_ten(clean, arrays, official, store) -> None:
    for part, size in zip(reader.PARTS, arrays["sizes"], strict=True):
        _, y = whole(clean, part)
        counts = np.bincount(y, minlength=12)
        n = -(-counts[2:].sum() // 10)
        assert counts[0] == counts[1] == n and n > 0
        assert counts[2:].sum() == 10 * {"train": 3, "valid": 1, "test": 1}[part] < size
    for part in clean.sizes:
        (x, y), (all_x, all_y) = whole(clean, part), whole(official, part)
        assert np.array_equal(y[y > 1], all_y[all_y > 1])
        assert x[y > 1] == pytest.approx(all_x[all_y > 1], abs=1e-3)
    x, y = whole(clean, "train")
    again, other = (whole(loaded(store, "clean", seed), "train")[0] for seed in (7, 8))
    assert np.array_equal(again, x) and not np.array_equal(other[y < 2], x[y < 2])


def test_clean_silence_of_the_parts_has_no_sample_in_common_and_needs_a_second_of_noise_for_each():
    """Recordings that count their samples show where each second was cut out."""
    n = 200_000
    arrays = {"noise": np.tile(np.arange(n) // 10, 2).astype(np.int16), "noise_length": np.array([n, n])}
    samples = {}
    for part in reader.PARTS:
        seconds = google12._seconds_of_noise(arrays, part, 40, np.random.RandomState(0))
        assert seconds.shape == (40, 16000)
        assert len({tuple(second[:40]) for second in seconds}) > 10
        samples[part] = set(np.unique(seconds))
    assert not samples["train"] & samples["valid"] and not samples["valid"] & samples["test"]
    assert max(samples["train"]) < 16000 <= min(samples["valid"]) and min(samples["test"]) >= 18000
    arrays = {"noise": np.zeros(100_000, np.int16), "noise_length": np.array([100_000])}
    with pytest.raises(DataError, match=r"leaves 0\.6 s for test.*physml data get speech_commands"):
        google12._seconds_of_noise(arrays, "test", 3, np.random.RandomState(0))
