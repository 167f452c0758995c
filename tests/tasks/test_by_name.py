"""Tasks that take the name of a data set: archives of time series, the Hugging Face hub, torch_geometric."""

import os
import pickle
from collections.abc import Sequence
from pathlib import Path, PurePath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from loaded_tasks import with_data
from refusals import refuses
from scipy.sparse import csr_matrix

from physml.base.errors import DataError, InputError
from physml.config.compose import compose
from physml.config.identity import identity
from physml.config.schema import checked
from physml.data import splits
from physml.data.fetch import hub
from physml.data.files.safe_pickle import no_code
from physml.data.store import Store
from tasks.hf import FIRST, PADDING, HubSeries, HubText
from tasks.pyg import PyGNodes
from tasks.uea import UEA

TS = """@problemName {name}
@timeStamps false
@missing false
@univariate false
@dimensions 2
@equalLength false
@classLabel true a b
@data
"""


@pytest.fixture
def store(tmp_path: Path) -> Store:
    (tmp_path / "data").mkdir()
    return Store(tmp_path / "data", tmp_path / "cache")


# ---------------------------------------------------------------------------- series of the archives


def write_series(store: Store, name: str, folder: str = "ucr_uea", *, labels: Sequence[str] = "ab") -> None:
    """Series of 3 to 7 steps; the first dimension is the class, the second one is constant."""
    rng = np.random.default_rng(0)
    (store.data / folder).mkdir(parents=True, exist_ok=True)
    for part, n in {"TRAIN": 20, "TEST": 6}.items():
        rows = []
        for i in range(n):
            steps = 3 + i % 5
            first = ",".join(f"{v:.4f}" for v in rng.normal(i % 2, 0.1, steps))
            rows.append(f"{first}:{','.join(['7'] * steps)}:{labels[i % 2]}")
        text = TS.format(name=name) + "\n".join(rows) + "\n"
        (store.data / folder / f"{name}_{part}.ts").write_text(text, encoding="utf-8")


def uea(store: Store, name: str = "Toy", **changes: Any) -> UEA:
    keys = {"name": name, "valid": 0.2, "standardize": True, "protocol": "clean"}
    return with_data(UEA(**{**keys, **changes}), store)


@pytest.mark.parametrize("folder", ["ucr_uea", "Multivariate_ts/Toy", "Toy", "."])
def test_a_set_of_the_archives_is_found_by_its_name(store: Store, folder: str) -> None:
    write_series(store, "Toy", folder)
    task = uea(store)
    assert (task.d_in, task.d_out) == (2, 2)
    assert task.sizes == {"train": 16, "valid": 4, "test": 6}
    assert task.facts()["kind"] == "pinned"
    assert set(task.facts()["verified"].values()) == {"first seen"}
    path = next(store.data.rglob("Toy_TEST.ts"))
    path.write_text(path.read_text().replace("0.9", "0.8"))
    refuses(DataError, "first seen", uea, store)


def test_shorter_series_are_padded_keep_their_length_and_are_scaled_by_training_steps(store: Store) -> None:
    write_series(store, "Toy")
    (batch,) = uea(store).batches("test", 10)
    assert batch.lengths is not None and batch.lengths.tolist() == [3, 4, 5, 6, 7, 3]
    assert batch.input.shape == (6, 7, 2)
    for row, n in zip(batch.input, batch.lengths.tolist(), strict=True):
        assert (row[n:] == 0).all() and (row[:n, 0] != 0).all()
    (batch,) = uea(store).batches("train", 100)
    assert batch.lengths is not None
    steps = torch.cat([row[:n] for row, n in zip(batch.input, batch.lengths.tolist(), strict=True)])
    torch.testing.assert_close(steps[:, 0].mean(), torch.tensor(0.0), atol=1e-6, rtol=0)
    torch.testing.assert_close(steps[:, 0].std(correction=0), torch.tensor(1.0), atol=1e-6, rtol=0)
    assert (steps[:, 1] == 0).all()  # it never changes
    assert (next(uea(store, standardize=False).batches("test", 1)).input[..., 1] == 7).all()


def test_a_set_that_sktime_ships_needs_no_file(tmp_path: Path) -> None:
    task = uea(Store(None, tmp_path), "JapaneseVowels")
    assert (task.d_in, task.n_classes) == (12, 9)
    (tmp_path / "data").mkdir()
    own = Store(tmp_path / "data", tmp_path / "cache")
    write_series(own, "JapaneseVowels")  # comes first
    task.load(own, 0)
    assert (task.d_in, task.n_classes) == (2, 2)


def test_files_that_are_not_there_say_where_to_get_them(store: Store) -> None:
    refuses(DataError, r"Get it with `curl -LO https://.*/Toy.zip && unzip Toy.zip`", uea, store)
    refuses(InputError, "name must be that of a set", uea, store, "../secret")
    write_series(store, "Other")
    for path in list((store.data / "ucr_uea").glob("*")):
        path.rename(path.with_name(path.name.replace("Other", "Toy")))
    refuses(DataError, "is the problem Other; expected Toy", uea, store)


def changed(store: Store, part: str, old: str, new: str, count: int = -1) -> None:
    path = store.data / "ucr_uea" / f"Toy_{part}.ts"
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, count), encoding="utf-8")


def test_labels_are_texts_as_they_stand(store: Store) -> None:
    """PriorLabs/TabPFN#29, scikit-learn/scikit-learn#22628: `A` and `a`, and texts with blanks."""
    for labels, header in (("Aa", "A a"), (("walk up", "walk down"), '"walk up" "walk down"')):
        write_series(store, "Toy", labels=labels)
        for part in ("TRAIN", "TEST"):
            changed(store, part, "true a b", f"true {header}")
        task = uea(Store(store.data, store.cache / header))
        assert task.n_classes == 2
        assert next(task.batches("test", 10)).target.tolist() == [0, 1, 0, 1, 0, 1]
    changed(store, "TEST", '"walk up" "walk down"', "walk up walk down")
    refuses(DataError, r"'walk up' is none of the classes .* A class with a blank in it has q", uea, store)


def test_a_byte_order_mark_and_windows_lines_are_read_and_labels_that_cannot_be_right_refused(store) -> None:
    """BIMSBbioinfo/flexynesis#156. What else can be wrong with labels: tests/data/test_labels.py."""
    write_series(store, "Toy")
    for path in (store.data / "ucr_uea").iterdir():
        path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    uea(Store(store.data, store.cache / "with marks"))
    write_series(store, "Toy")
    changed(store, "TEST", ":b", ":B")
    refuses(DataError, r"'B' is none of the classes a, b. B and b are two classes.", uea, store)
    for part in ("TRAIN", "TEST"):
        changed(store, part, "true a b", "true a B b")
    refuses(DataError, r"Toy, test: 3 of 6 items are of no class of train, .* 'B' \(item 1\)", uea, store)


def test_series_with_gaps_are_refused_filled_or_left_out(store: Store) -> None:
    write_series(store, "Toy")
    changed(store, "TEST", "7,7,7,7:b", "7,?,NaN,7:b", 1)
    refuses(DataError, r"_TEST.ts: 1 of 6 series have .* at line 10, dimension 2, step 2. Set", uea, store)
    task = uea(store, missing="fill", standardize=False)
    assert next(task.batches("test", 10)).input[1, :5, 1].tolist() == [7, 7, 7, 7, 0]
    task = uea(store, missing="drop")
    assert task.sizes["test"] == 5
    for part in ("TRAIN", "TEST"):
        changed(store, part, "true a b", "true a b c")
    changed(store, "TRAIN", "7,7,7:a", "?,7,7:c", 1)
    others = Store(store.data, store.cache / "others")
    assert uea(others, missing="drop").n_classes == 2  # none of those that are left is of the class c
    changed(store, "TEST", "7,7,7:a", "7,7,7:c", 1)
    says = r"test: 1 of 5 items are of no class of train, .* 'c' \(item 0\)"
    refuses(DataError, says, uea, Store(store.data, store.cache / "new"), missing="drop")
    refuses(InputError, "missing must be one of", uea, store, missing="ignore")


def test_held_out_items_are_a_share_of_each_class() -> None:
    y = np.repeat([0, 1, 2], [10, 5, 1])
    train, valid = splits.held_out(y, 0.2, 0)
    assert sorted([*train, *valid]) == list(range(16))
    assert np.bincount(y[valid], minlength=3).tolist() == [2, 1, 0]
    assert any((splits.held_out(y, 0.2, 0)[1] != splits.held_out(y, 0.2, k)[1]).any() for k in range(1, 4))
    refuses(DataError, "single item", splits.held_out, np.arange(4), 0.5, 0)


# ---------------------------------------------------------------------------- the hub

PARQUET = "data/{}-00000-of-00001.parquet"
FILES = {PARQUET.format(part) for part in ("train", "test")}
TEXTS: dict[str, dict[str, list[Any]]] = {
    "train": {
        "sentence": [f"Good film {i}" for i in range(10)] + ["bad film"] * 10,
        "kind": [1] * 10 + [0] * 10,
    },
    "test": {"sentence": ["good", "an unseen word"], "kind": [1, 0]},
}


def repository(folder: Path, content: dict[str, dict[str, list[Any]]]) -> str:
    """A folder of Parquet files in the layout of the hub."""
    from datasets import Dataset

    (folder / "data").mkdir(parents=True, exist_ok=True)
    for split, columns in content.items():
        Dataset.from_dict(columns).to_parquet(str(folder / PARQUET.format(split)))
    return str(folder)


HUB = {"config": None, "revision": None, "train": "train", "valid": 0.2, "test": "test", "protocol": "clean"}


def text(store: Store, name: str, **changes: Any) -> HubText:
    keys = {"input": "sentence", "target": "kind", "units": "words", "n_words": 3, "max_length": None}
    return with_data(HubText(**{"name": name, **HUB, **keys, **changes}), store)


def test_texts_become_ids_and_the_hashed_files_are_those_that_are_read(store: Store, tmp_path: Path) -> None:
    name = repository(tmp_path / "films", TEXTS)
    task = text(store, name)
    assert task.sizes == {"train": 16, "valid": 4, "test": 2}
    assert (task.d_in, task.d_out) == (5, 2)  # film, good, bad; unknown, padding
    (batch,) = task.batches("test", 10)
    assert batch.lengths is not None and batch.lengths.tolist() == [1, 3]
    assert batch.input[0, 1:].tolist() == [PADDING, PADDING]
    assert batch.input[0, 0] >= FIRST and batch.input[1].tolist() == [0, 0, 0]
    assert task.facts()["kind"] == "pinned" and set(task.facts()["sha256"]) == FILES
    other = repository(tmp_path / "other", {"train": {"sentence": ["x"] * 9, "kind": [0, 1, 0] * 3}})
    for i in range(5):
        (tmp_path / "films" / f"train-{i}.csv").write_text("sentence,kind\nx,0\n")
    (tmp_path / "films" / "README.md").write_text(
        f"---\nconfigs:\n- config_name: default\n  data_files: {other}/data/*.parquet\n---\n"
    )
    read = hub.rows(hub.Repository(name), None, store)
    assert {split: len(read[split]) for split in read} == {"train": 20, "test": 2}
    assert set(hub.contents(hub.Repository(name), store)) == FILES


def test_the_split_of_a_file_is_in_its_name(tmp_path: Path) -> None:
    for file in ("en/dev.parquet", "en/test/1.parquet", "en/a.parquet", "en/extra-00000-of-00002.parquet"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).write_bytes(b"PAR1PAR1")
    assert hub._parquet(tmp_path, "en") == {
        "train": ["en/a.parquet"],
        "validation": ["en/dev.parquet"],
        "extra": ["en/extra-00000-of-00002.parquet"],
        "test": ["en/test/1.parquet"],
    }
    (tmp_path / "en" / "[a].parquet").touch()
    for config in (None, "en", "..", "fr"):
        refuses(DataError, r"has no `\*|name of a folder|has no Parquet", hub._parquet, tmp_path, config)


def test_a_refusal_has_the_reason_that_the_library_leaves_in_the_cause() -> None:
    cause = ValueError("column kind has another type in b.parquet\nmore")
    error = RuntimeError("An error occurred while generating the dataset")
    error.__cause__ = cause
    assert hub._said(error) == f"{error}: column kind has another type in b.parquet"
    assert hub._said(TimeoutError()) == "TimeoutError"


def test_bytes_lengths_and_a_split_of_its_own(store: Store, tmp_path: Path) -> None:
    name = repository(tmp_path / "films", {**TEXTS, "validation": TEXTS["test"]})
    task = text(store, name, units="bytes", valid="validation", max_length=4)
    assert task.d_in == 258 and task.sizes == {"train": 20, "valid": 2, "test": 2}
    (batch,) = task.batches("valid", 10)
    assert batch.input.tolist() == [[b + FIRST for b in word] for word in (b"good", b"an u")]


@pytest.mark.parametrize("kinds", [["no", "yes"], [1, 2_000_000]], ids=["names", "numbers with gaps"])
def test_classes_count_in_their_order_and_hidden_labels_are_refused(kinds, store: Store, tmp_path) -> None:
    """Hidden: EricFillion/happy-transformer#248 and others, see tests/data/test_labels.py."""
    content = {part: {**c, "kind": [kinds[k] for k in c["kind"]]} for part, c in TEXTS.items()}
    task = text(store, repository(tmp_path / "named", content))
    assert task.d_out == 2 and next(task.batches("test", 10)).target.tolist() == [1, 0]
    hidden = TEXTS | {"test": {**TEXTS["test"], "kind": [-1, -1]}}
    with pytest.raises(DataError, match="films, test: all 2 labels are -1: they are hidden"):
        text(store, repository(tmp_path / "films", hidden))


def series(store: Store, name: str, **changes: Any) -> HubSeries:
    keys = {"name": name, **HUB, "input": "x", "target": "y", "max_length": 3}
    return with_data(HubSeries(**{**keys, **changes}), store)


def test_series_of_numbers(store: Store, tmp_path: Path) -> None:
    rows = [[[float(i), 1.0]] * (2 + i % 3) for i in range(12)]
    content = {"train": {"x": rows, "y": [i % 2 for i in range(12)]}, "test": {"x": rows[:3], "y": [0, 1, 0]}}
    name = repository(tmp_path / "series", content)
    (batch,) = series(store, name).batches("test", 10)
    assert batch.lengths is not None and batch.lengths.tolist() == [2, 3, 3]
    assert batch.input[1].tolist() == [[1.0, 1.0]] * 3 and batch.input[0, 2].tolist() == [0.0, 0.0]
    rows[1] = [[1.0, 1.0], [None, 1.0], [5.0, float("nan")]]
    name = repository(tmp_path / "gaps", {**content, "test": {"x": rows[:3], "y": [0, 1, 0]}})
    says = r"column x, train: 1 of 12 series have .* at row 1, step 2, value 1. Set"
    refuses(DataError, says, series, store, name)
    filled = series(store, name, missing="fill")
    assert next(filled.batches("test", 10)).input[1].tolist() == [[1, 1], [3, 1], [5, 1]]
    assert series(store, name, missing="drop").sizes == {"train": 9, "valid": 2, "test": 2}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"input": "sentense"}, "has no column sentense. Did you mean sentence?"),
        ({"test": "tset"}, "has no split tset; it has train, test"),
        ({"input": "kind"}, "expected a text; got"),
        ({"name": "/nowhere/at/all"}, "there is no folder /nowhere/at/all. Name a folder of Parquet files"),
    ],
)
def test_what_does_not_fit_is_said(store: Store, tmp_path: Path, changes, message: str, monkeypatch) -> None:
    def offline(*args: Any, **kwargs: Any) -> None:
        raise OSError("no network in tests")

    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", offline)
    with pytest.raises(DataError, match=message.replace("?", r"\?")):
        text(store, **{"name": repository(tmp_path / "films", TEXTS), **changes})


def test_the_first_commit_of_the_hub_is_pinned(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    commits = (SimpleNamespace(sha=letter * 40) for letter in "ab")
    monkeypatch.setattr("huggingface_hub.HfApi.dataset_info", lambda self, name, revision: next(commits))
    pinned = hub.contents(hub.Repository("someone/set"), store)
    assert pinned == {"someone/set": {"sha256": "a" * 40, "verified": "first seen"}}
    assert hub.contents(hub.Repository("someone/set"), store) == pinned
    named = hub.contents(hub.Repository("someone/set", revision="c" * 40), store)
    assert named == {"someone/set": {"sha256": "c" * 40, "verified": "bytes"}}
    (store.cache / "file").touch()
    blocked = Store(None, store.cache / "file")
    refuses(DataError, "cannot be written: .* set PHYSML_CACHE", hub.contents, hub.Repository("a/b"), blocked)
    (pin,) = (store.cache / "pins" / "hub").iterdir()
    pin.write_bytes(b"\xff")
    with pytest.raises(DataError, match=r"pins/hub/.* is damaged: it holds no commit\. Delete it"):
        hub.contents(hub.Repository("someone/set"), store)


@pytest.mark.parametrize("content", [b"", b"PAR1", b"PAR1 and no end", 1 << 40])
def test_what_is_no_parquet_is_refused_before_it_is_hashed(content, store: Store, tmp_path: Path) -> None:
    name = repository(tmp_path / "films", TEXTS)
    with (tmp_path / "films" / "data" / "other.parquet").open("wb") as file:
        file.truncate(content) if isinstance(content, int) else file.write(content)
    refuses(DataError, r"data/other\.parquet is no Parquet file", text, store, name)


def test_each_configuration_of_a_folder_is_pinned_by_itself_and_a_changed_folder_refused(store, tmp_path):
    for config in ("en", "fr"):
        repository(tmp_path / "films" / config, TEXTS)
    for config in ("en", "fr", "en", None):
        text(store, str(tmp_path / "films"), config=config)
    repository(tmp_path / "films" / "fr", {**TEXTS, "test": {"sentence": ["bad"], "kind": [0]}})
    text(store, str(tmp_path / "films"), config="en")
    refuses(DataError, "is not what was first seen here", text, store, str(tmp_path / "films"), config="fr")
    text(store, name := repository(tmp_path / "others", TEXTS))
    repository(tmp_path / "others", {**TEXTS, "test": {"sentence": ["bad"], "kind": [0]}})
    refuses(DataError, "is not what was first seen here", text, store, name)


# ---------------------------------------------------------------------------- graphs of torch_geometric


def write_planetoid(folder: Path) -> None:
    """Cora's eight files for 700 nodes: rings of classes, whose features tell the class with noise."""
    rng = np.random.default_rng(0)
    n, n_train, n_test = 700, 40, 100
    y = np.arange(n) % 2
    x = csr_matrix((rng.random((n, 6)) < 0.2 + 0.5 * (np.arange(6) % 2 == y[:, None])).astype(np.float32))
    one_hot = np.eye(2)[y]
    known = n - n_test
    content: dict[str, Any] = {
        **{"x": x[:n_train], "tx": x[known:], "allx": x[:known]},
        **{"y": one_hot[:n_train], "ty": one_hot[known:], "ally": one_hot[:known]},
        "graph": {i: [(i + 2) % n, (i - 2) % n] for i in range(n)},
    }
    folder.mkdir(parents=True)
    for key, value in content.items():
        (folder / f"ind.cora.{key}").write_bytes(pickle.dumps(value, 2))
    (folder / "ind.cora.test.index").write_text("".join(f"{i}\n" for i in range(known, n)), encoding="utf-8")


CORA = ("Planetoid", {"name": "Cora"})


def pyg(store: Store, dataset: str, options: Any, split_of: str = "masks", split: int = 0) -> PyGNodes:
    task = PyGNodes(dataset=dataset, options=options, split_of=split_of, protocol="clean")
    return with_data(task, store, split)


@pytest.mark.filterwarnings("ignore")  # of PyG's reader
@pytest.mark.parametrize("folder", ["pyg/Planetoid/Cora/raw", "planetoid"])
def test_raw_files_of_pyg_are_read_where_they_lie(store: Store, folder: str) -> None:
    write_planetoid(store.data / folder)
    before = sorted(store.data.rglob("*"))
    task = pyg(store, *CORA)
    assert (task.d_in, task.d_out) == (6, 2)
    assert task.sizes == {"train": 40, "valid": 500, "test": 100}
    assert task.facts()["kind"] == "pinned" and len(task.facts()["sha256"]) == 8
    assert sorted(store.data.rglob("*")) == before  # PyG writes nothing beside them
    assert pyg(store, *CORA, "random", 1).sizes == {"train": 420, "valid": 140, "test": 140}
    refuses(DataError, r"1 split\(s\), counted from 0; got split=1", pyg, store, *CORA, split=1)
    full = pyg(store, "Planetoid", {"name": "Cora", "split": "full"})  # of the same files
    assert full.sizes == {"train": 100, "valid": 500, "test": 100}


@pytest.mark.filterwarnings("ignore")  # of PyG's reader
def test_raw_files_of_pyg_run_no_code(store: Store, tmp_path: Path) -> None:
    """PyG opens raw files of Planetoid and others as pickles."""

    class Call:
        def __reduce__(self) -> tuple[Any, ...]:
            return os.mkdir, (str(tmp_path / "was_run"),)

    write_planetoid(store.data / "planetoid")
    (store.data / "planetoid" / "ind.cora.ty").write_bytes(pickle.dumps(Call(), 2))
    refuses(DataError, r"ind\.cora\.ty cannot be read: it names posix\.mkdir", pyg, store, *CORA)
    with no_code(), pytest.raises(pickle.UnpicklingError, match=r"a pickle names posix\.mkdir"):
        pickle.loads(pickle.dumps(Call()))  # by another way
    assert not (tmp_path / "was_run").exists()
    assert pickle.loads(pickle.dumps(PurePath("x"))) == PurePath("x"), "other pickles stay as they are"


def test_a_set_that_pyg_has_in_code_needs_no_files_and_one_that_it_draws_leaves_none(store, monkeypatch):
    task = pyg(store, "KarateClub", {}, "random")
    assert (task.d_in, task.d_out, sum(task.sizes.values())) == (34, 4, 34)
    with pytest.raises(DataError, match=r"the data come without val_mask\. Set task.split_of=random"):
        pyg(store, "KarateClub", {})
    monkeypatch.chdir(store.data)
    options = {"num_classes": 2, "num_nodes_per_class": 10, "node_homophily_ratio": 0.5, "average_degree": 3}
    refuses(DataError, "has no x", pyg, store, "RandomPartitionGraphDataset", options)
    options["num_channels"] = 4
    refuses(InputError, "cannot be made with options", pyg, store, "RandomPartitionGraphDataset", options)
    assert not list(store.data.iterdir())


@pytest.mark.parametrize(
    ("dataset", "options", "error", "message"),
    [
        ("Planetoit", {}, InputError, "Did you mean Planetoid"),
        ("Planetoid", {"nam": "Cora"}, InputError, "Planetoid cannot be made with options"),
        ("Planetoid", {"name": "Cora"}, DataError, "is missing: looked for"),
        ("WebKB", {"name": "texas"}, DataError, "from torch_geometric.datasets import WebKB"),
        ("Data", {}, InputError, "has no data set Data"),
        ("MedShapeNet", {}, InputError, "No module named 'MedShapeNet'"),
        (CORA[0], {**CORA[1], "transform": ["x"]}, InputError, r"options\.transform must be a number"),
    ],
)
def test_what_pyg_does_not_have_is_said(store, dataset, options, error, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refuses(error, message, pyg, store, dataset, options)
    assert [path.name for path in tmp_path.iterdir()] == ["data"], "nothing is left behind"


def test_classes_of_a_graph_are_those_of_train(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    """Numbers with gaps make no further classes; with published masks a class may be in test alone."""
    import tasks.pyg

    original = tasks.pyg._arrays

    def with_gaps(dataset: Any, name: str) -> dict[str, np.ndarray]:
        arrays = original(dataset, name)
        y = np.array([3, 9, 40, 70])[arrays["y"]]
        masks = {key: np.arange(len(y)) % 3 == k for k, key in enumerate(tasks.pyg.PARTS.values())}
        y[2] = 50  # a node that tests
        return {**arrays, "y": y, **masks}

    monkeypatch.setattr(tasks.pyg, "_arrays", with_gaps)
    task = pyg(store, "KarateClub", {})
    assert task.n_classes == 5 and task._y.max() == 4
    drawn = pyg(store, "KarateClub", {}, "random")
    assert drawn.n_classes == 5 and drawn._y[2] == 3  # 3, 9, 40, 50, 70


def test_a_share_that_is_held_out_lies_between_0_and_1_and_name_and_gaps_are_of_the_identity() -> None:
    for share in ("0.0", "1.0", "1", "2"):
        overrides = ["model=lem", "task=hf", "net.embedding=10", f"task.valid={share}"]
        refuses(InputError, "valid must be a split, or a share", checked, compose(overrides).config, run=True)

    def of(*overrides: str) -> str:
        return identity(compose(["model=lem", "task=uea", *overrides]).config)

    assert of("task.name=PLAID") != of("task.name=JapaneseVowels") == of("task.name=JapaneseVowels")
    assert of("task.missing=fill") != of()
