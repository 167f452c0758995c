"""Parquet mirrors: files written again, compared with the published content, read as if downloaded."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from physml.base.errors import DataError
from physml.data import catalogue
from physml.data.datasets import Content, DataSet, upstream
from physml.data.fetch import download, mirror
from physml.data.readers import cifar10, imdb, mnist
from physml.data.store import Store
from physml.data.verify import fingerprint


def fixture_arrays(dataset: DataSet, store: Store) -> dict[str, np.ndarray]:
    return replace(store, fixtures=True).read(dataset)


def images(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    parts = {"train": "train_", "test": "test_"}
    return {
        part: {"image": list(arrays[f"{k}x"]), "label": arrays[f"{k}y"].tolist()} for part, k in parts.items()
    }


def colours(arrays: dict[str, np.ndarray]) -> dict[str, Any]:
    return {
        part: {
            "img": list(arrays[f"x_{part}"].transpose(0, 2, 3, 1)),
            "label": arrays[f"y_{part}"].tolist(),
        }
        for part in ("train", "test")
    }


def reviews(store: Store) -> dict[str, Any]:
    """The texts of the fixture, by its files."""
    imdb.IMDB.fixture(store.cache / "made")
    from physml.data.files.archives import open_tree

    tree = open_tree(store.cache / "made" / imdb.ARCHIVE, "aclImdb")
    found: dict[str, dict[str, list[Any]]] = {part: {"text": [], "label": []} for part in imdb.PARTS}
    for name, content in tree.items("aclImdb/t*/[np][eo][gs]/*.txt"):
        if match := imdb.NAME.fullmatch(name):
            found[match[1]]["text"].append(content.decode())
            found[match[1]]["label"].append(imdb.LABELS[match[2]])
    return found


pytestmark = pytest.mark.usefixtures("small_data")


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "cache").mkdir()
    return Store(None, tmp_path / "cache")


def mirrored(
    monkeypatch: pytest.MonkeyPatch, store: Store, dataset: DataSet, splits: dict[str, Any], content: str
) -> DataSet:
    """The data set with a mirror of `splits`, and with the fingerprint of its true content."""
    about = replace(upstream(dataset.name), content=Content(content, "a test"))
    monkeypatch.setattr(mirror.hub, "contents", lambda *_: {"x": {"sha256": "a" * 40, "verified": "bytes"}})
    monkeypatch.setattr(mirror.hub, "rows", lambda *_: splits)
    return replace(dataset, about=about)


CASES: dict[str, tuple[DataSet, Callable[[Store], dict[str, Any]]]] = {
    "mnist": (mnist.MNIST, lambda store: images(fixture_arrays(mnist.MNIST, store))),
    "cifar10": (cifar10.CIFAR10, lambda store: colours(fixture_arrays(cifar10.CIFAR10, store))),
    "imdb": (imdb.IMDB, reviews),
}


@pytest.mark.parametrize("name", CASES)
def test_a_mirror_gives_the_arrays_of_the_files(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, splits = CASES[name]
    wanted = fixture_arrays(dataset, store)
    one = mirrored(monkeypatch, store, dataset, splits(store), fingerprint(dataset, wanted))
    made = mirror.get(one, store)
    assert made and all(path.is_file() for path in made)
    reading = replace(store, verify="content", used={})
    arrays = reading.read(one)
    assert arrays.keys() == wanted.keys()
    assert all(np.array_equal(arrays[key], wanted[key]) for key in wanted)
    assert {found["verified"] for found in reading.used.values()} == {"content"}
    with pytest.raises(DataError):  # other bytes than published
        replace(store, used={}).read(one)


@pytest.mark.parametrize("name", CASES)
def test_a_mirror_with_another_content_leaves_nothing(
    name: str, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    dataset, splits = CASES[name]
    content = fingerprint(dataset, fixture_arrays(dataset, store))
    changed = splits(store)
    changed["test"]["label"][0] = 1 - changed["test"]["label"][0] % 2
    changed["test"]["label"][-1] = 1 - changed["test"]["label"][-1] % 2
    with pytest.raises(DataError, match=r"the mirror .* at aaaaaaaaaa: "):
        mirror.get(mirrored(monkeypatch, store, dataset, changed, content), store)
    assert not (store.cache / "files").exists()


def test_training_batches_of_cifar_go_where_their_first_image_says(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    import hashlib

    wanted = fixture_arrays(cifar10.CIFAR10, store)
    n = cifar10.FIXTURE_IMAGES["train"]
    firsts = [hashlib.sha256(x.tobytes()).hexdigest()[:16] for x in wanted["x_train"][::n]]
    monkeypatch.setattr(cifar10, "FIRST_IMAGES", tuple(firsts))
    splits = colours(wanted)
    order = np.concatenate([np.arange(k * n, (k + 1) * n) for k in (3, 0, 4, 1, 2)])
    splits["train"] = {key: [rows[i] for i in order] for key, rows in splits["train"].items()}
    one = mirrored(monkeypatch, store, cifar10.CIFAR10, splits, fingerprint(cifar10.CIFAR10, wanted))
    mirror.get(one, store)
    arrays = replace(store, verify="content").read(one)
    assert np.array_equal(arrays["x_train"], wanted["x_train"])


def test_the_mirror_is_asked_when_no_address_answers(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(*_: Any) -> None:
        raise DataError("no address answers.")

    asked = []
    monkeypatch.setattr(download, "get", unreachable)
    monkeypatch.setattr(mirror, "get", lambda dataset, store: asked.append(dataset.name))
    catalogue.get_data(catalogue.choose(["mnist"]), store)
    assert asked == ["mnist"]
    monkeypatch.setattr(mirror, "get", unreachable)
    with pytest.raises(DataError, match=r"no address answers\.\n  its mirror: no address answers"):
        catalogue.get_data(catalogue.choose(["mnist"]), store)
    with pytest.raises(DataError, match=r"^no address answers\.$"):
        catalogue.get_data(catalogue.choose(["ptb"]), store)


@pytest.mark.parametrize("name", CASES)
def test_a_mirror_needs_a_fingerprint_to_be_compared_with(name: str) -> None:
    about = upstream(name)
    assert about.mirror and about.mirror.revision is None and about.content.sha256
