"""Data sets of others: what conf/dataset says, fixtures through the real readers, what verification says."""

import hashlib
import io
import subprocess
import sys
import zipfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from each import each
from refusals import refuses

from physml.base.errors import ConfigError, DataError
from physml.base.paths import ROOT
from physml.cli.main import main
from physml.data import verify
from physml.data.datasets import (
    Content,
    DataFile,
    DataSet,
    Statistic,
    Upstream,
    dataset_names,
    kind_of,
    upstream,
)
from physml.data.readers import webkb
from physml.data.store import Store, Verify

A, B = b"3\n1\n2\n", b"1\n2\n3\n"  # the same content in another order


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def items(arrays) -> list[bytes]:
    return [str(n).encode() for n in arrays["n"]]


CONTENT = verify.fingerprint(DataSet("numbers", 1, dict, lambda _: None, items), {"n": np.array([1, 2, 3])})


class Numbers:
    """A data set of one text file, whose reader counts its calls."""

    def __init__(self, monkeypatch, *, sha: str | None = sha256(A), known: bool = False, **keys) -> None:
        self.calls, content = 0, CONTENT if known else None
        file = DataFile("set/n.txt", "numbers", sha256=sha, hash_source="here", **keys)
        self.upstream = Upstream("Numbers", "nowhere", "CC0", (file,), Content(content), "numbers")
        monkeypatch.setattr(DataSet, "upstream", property(lambda _: self.upstream))
        self.set = DataSet("numbers", 1, self.read, self.fixture, items)

    def read(self, files) -> dict[str, np.ndarray]:
        self.calls += 1
        return {"n": np.array(files.path("set/n.txt").read_text().split(), dtype=int)}

    @staticmethod
    def fixture(root: Path) -> None:
        (root / "set").mkdir(parents=True)
        (root / "set/n.txt").write_bytes(b"7\n")


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "data", tmp_path / "cache")


def with_verify(store: Store, mode: Verify) -> Store:
    return Store(store.data, store.cache, mode)


def place(store: Store, content: bytes, name: str = "set/n.txt") -> Path:
    assert store.data
    path = store.data / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def cached(store: Store) -> list[Path]:
    return list((store.cache / "processed").glob("*.npz"))


# ---------------------------------------------------------------------------- conf/dataset


@each("name", dataset_names())
def test_every_data_set_says_where_it_comes_from(name: str) -> None:
    origin = upstream(name)
    assert origin.title and origin.source.startswith("http") and origin.licence
    for file in origin.files:
        assert file.urls or file.inside or "published nowhere" in file.purpose, f"{file.name}: no address"
        assert all(url.startswith(("http://", "https://", "hf://")) for url in file.urls)
        assert file.purpose


def test_the_table_of_data_sets_is_that_of_conf() -> None:
    from runpy import run_path

    page = run_path(str(ROOT / "scripts" / "data_table.py"))["page"]
    text = (ROOT / "docs" / "data.md").read_text(encoding="utf-8")
    assert text == page(text), "python scripts/data_table.py writes it anew"


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ({"name": "../x"}, "below the data root"),
        ({"name": "/x"}, "below the data root"),
        ({"sha256": "abc", "hash_source": "h"}, "sha256 must be 64 hex digits"),
        ({"md5": "0" * 32}, "hash_source must say"),
    ],
)
def test_a_file_that_cannot_be_right_is_refused_and_an_unknown_data_set_gets_a_near_name(keys, says) -> None:
    refuses(ConfigError, says, DataFile, **({"name": "x", "purpose": "y"} | keys))
    refuses(ConfigError, r"no data set mnits\. Did you mean mnist", upstream, "mnits")


# ---------------------------------------------------------------------------- verification


SIZE = {"n": Statistic("a book", shape=(4,))}
MD5 = {"sha": None, "md5": hashlib.md5(A).hexdigest()}


@pytest.mark.parametrize("keys", [{}, MD5], ids=["sha256", "md5"])
def test_a_file_with_the_published_checksum_is_read_once(store, monkeypatch, keys) -> None:
    numbers = Numbers(monkeypatch, **keys)
    place(store, A)
    for _ in range(2):
        assert store.read(numbers.set)["n"].tolist() == [3, 1, 2]
    assert numbers.calls == 1
    assert store.used == {"set/n.txt": {"sha256": sha256(A), "verified": "bytes"}}
    assert kind_of(store.used.values()) == "verified"


@pytest.mark.parametrize(
    ("keys", "mode", "content", "says"),
    [
        ({}, "bytes", B, r"set/n\.txt: sha256 is .*physml data get numbers"),
        (MD5, "bytes", B, "md5 is"),
        ({"size": 6}, "bytes", A[:-2], "4 bytes, expected 6"),
        ({}, "content", B, "no fingerprint of the content"),
        ({"known": True}, "content", b"1\n2\n4\n", "not the published one"),
        ({"known": True, "sha": None}, "bytes", b"1\n2\n4\n", "not the published one"),
    ],
)
def test_what_is_unpublished_is_refused_by_name_and_not_cached(store, monkeypatch, keys, mode, content, says):
    numbers, store = Numbers(monkeypatch, **keys), with_verify(store, mode)
    place(store, content)
    refuses(DataError, says, store.read, numbers.set)
    assert numbers.calls == ("known" in keys), "it is not read before it is known"
    assert not cached(store) and not store.used and not (store.cache / "pins").exists()


def test_a_missing_file_is_told_with_all_one_needs(store, monkeypatch) -> None:
    numbers = Numbers(monkeypatch, urls=("https://x.org/n.txt",))
    said = refuses(DataError, "set/n.txt", store.read, numbers.set)
    for part in ("physml data get numbers", "https://x.org/n.txt", "PHYSML_DATA", sha256(A)):
        assert part in said


def test_without_a_published_checksum_the_first_file_counts(store, monkeypatch, caplog) -> None:
    numbers = Numbers(monkeypatch, sha=None)
    place(store, A)
    store.read(numbers.set)
    assert store.used["set/n.txt"]["verified"] == "first seen" and "unverified" in caplog.text
    assert kind_of(store.used.values()) == "pinned"
    place(store, B)
    refuses(DataError, "first seen here", store.read, numbers.set)
    (pin,) = (store.cache / "pins").rglob("*.sha256")
    pin.write_bytes(b"\xff\xfe")  # no text
    place(store, A)
    refuses(DataError, "first seen here", store.read, numbers.set)


def test_pins_of_a_data_set_are_one_warning(store, monkeypatch, caplog) -> None:
    numbers = Numbers(monkeypatch, sha=None)
    files = tuple(DataFile(f"set/{name}.txt", name) for name in "nab")
    numbers.upstream = Upstream("Numbers", "nowhere", "CC0", files, name="numbers")
    for file in files:
        place(store, A, file.name)
    store.read(numbers.set)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert "numbers: no checksum is published of 3 files" in warning
    assert len(list((store.cache / "pins").rglob("*.sha256"))) == 3


def test_other_bytes_of_the_right_content_run_as_content_verified(store, monkeypatch) -> None:
    numbers = Numbers(monkeypatch, known=True)
    store = with_verify(store, "content")
    place(store, B)
    assert store.read(numbers.set)["n"].tolist() == [1, 2, 3]
    assert kind_of(store.used.values()) == "content-verified"
    place(store, A)
    store.read(numbers.set)
    assert kind_of(store.used.values()) == "verified", "the published bytes need no comparison of content"
    numbers, store = Numbers(monkeypatch, sha=None, known=True), with_verify(store, "bytes")
    place(store, B)
    store.read(numbers.set)
    assert kind_of(store.used.values()) == "content-verified" and not (store.cache / "pins").exists()


def test_what_its_statistics_refuse_is_not_cached_and_what_is_known_later_is_compared(store, monkeypatch):
    numbers = Numbers(monkeypatch)
    numbers.upstream = replace(numbers.upstream, statistics=SIZE)
    place(store, A)
    refuses(DataError, "These are other data", store.read, numbers.set)
    assert not cached(store)
    place(store, b"1\n2\n4\n")
    store.read(Numbers(monkeypatch, sha=None).set)
    numbers = Numbers(monkeypatch, sha=None, known=True)
    refuses(DataError, "not the published one", store.read, numbers.set)
    numbers.upstream = replace(numbers.upstream, content=Content(), statistics=SIZE)
    refuses(DataError, "These are other data", store.read, numbers.set)


def test_off_takes_another_content_says_so_and_is_not_taken_for_checked(store, monkeypatch) -> None:
    numbers = Numbers(monkeypatch)
    loose = with_verify(store, "off")
    for content, want in ((A, [3, 1, 2]), (B, [1, 2, 3]), (A, [3, 1, 2])):
        place(store, content)
        assert loose.read(numbers.set)["n"].tolist() == want
    assert numbers.calls == 2, "a changed file is read again"
    numbers = Numbers(monkeypatch, known=True)
    place(store, b"1\n2\n4\n")
    assert loose.read(numbers.set)["n"].tolist() == [1, 2, 4]
    assert kind_of(loose.used.values()) == "unverified data"
    refuses(DataError, "not the published one", with_verify(store, "content").read, numbers.set)


def test_another_form_of_a_file_runs_as_content_verified(store, monkeypatch) -> None:
    numbers = Numbers(monkeypatch, sha=None, known=True, also=("n.lst",))
    numbers.set = replace(numbers.set, read=lambda files: {"n": np.array([1, 2, 3])})
    path = place(store, B, "n.lst")
    refuses(DataError, rf"{path} stands in for set/n\.txt in another form", store.read, numbers.set)
    loose = with_verify(store, "content")
    loose.read(numbers.set)
    assert kind_of(loose.used.values()) == "content-verified"


# ---------------------------------------------------------------------------- archives


def zip_of(content: bytes) -> bytes:
    with zipfile.ZipFile(file := io.BytesIO(), "w") as archive:
        archive.writestr(zipfile.ZipInfo("z/n.txt"), content)
    return file.getvalue()


class Zipped(Numbers):
    """The same numbers as members of a zip, which unpacks to a folder `z`."""

    def __init__(self, monkeypatch, *members: DataFile, content: str | None = None) -> None:
        super().__init__(monkeypatch)
        archive = DataFile("z.zip", "all", sha256=sha256(zip_of(A)), hash_source="here", folder="z")
        self.upstream = Upstream("Zipped", "x", "CC0", (archive, *members), Content(content), "zipped")
        self.set = DataSet("zipped", 1, self.read, self.fixture, items)

    def read(self, files) -> dict[str, np.ndarray]:
        (content,) = [content for _, content in files.tree("z.zip").items("z/*.txt")]
        return {"n": np.array(content.split(), dtype=int)}


def inside(**checksum: str) -> DataFile:
    return DataFile("z/n.txt", "numbers", hash_source="here", inside="z.zip", **checksum)


def test_an_archive_is_read_packed_and_has_its_members(store, monkeypatch) -> None:
    zipped = Zipped(monkeypatch, inside(sha256=sha256(A)))
    place(store, zip_of(A), "z.zip")
    assert store.read(zipped.set)["n"].tolist() == [3, 1, 2]
    assert store.used["z.zip"]["verified"] == "bytes"
    files = verify.FoundFiles(zipped.upstream, store)
    assert files.has("z/n.txt") and files.path("z/n.txt").read_bytes() == A


def test_its_folder_will_do_where_the_content_is_compared(store, monkeypatch) -> None:
    zipped = Zipped(monkeypatch, content=CONTENT)
    place(store, A, "z/n.txt")
    refuses(DataError, r"unpacked z\.zip, whose members have no published checksums", store.read, zipped.set)
    loose = with_verify(store, "content")
    assert loose.read(zipped.set)["n"].tolist() == [3, 1, 2]
    assert kind_of(loose.used.values()) == "content-verified"


@pytest.mark.parametrize("checksum", [{"sha256": sha256(A)}, {"md5": hashlib.md5(A).hexdigest()}])
def test_its_folder_will_do_where_each_member_that_is_read_has_a_checksum(store, monkeypatch, checksum):
    zipped = Zipped(monkeypatch, inside(**checksum))
    place(store, A, "z/n.txt")
    place(store, B, "z/foreign.txt")  # it is not read
    assert store.read(zipped.set)["n"].tolist() == [3, 1, 2]
    assert {entry["verified"] for entry in store.used.values()} == {"bytes"}
    place(store, B, "z/n.txt")
    refuses(DataError, r"z/n\.txt", store.read, zipped.set)


def test_a_fixture_stands_in_and_is_written_anew_when_its_own_module_changes(tmp_path, store, monkeypatch):
    """One of a family too."""
    Store(None, tmp_path, fixtures=True).read(webkb.TEXAS)
    source = sha256(Path(webkb.__file__).read_bytes())
    assert (tmp_path / "fixtures" / f"geom_texas-{source[:12]}" / "whole").exists()
    numbers = Numbers(monkeypatch)
    place(store, A)
    smoke = Store(store.data, store.cache, fixtures=True)
    assert smoke.read(numbers.set)["n"].tolist() == [7]
    assert kind_of(smoke.used.values()) == "fixture"
    assert not cached(store)


def test_readers_import_no_torch() -> None:
    code = (
        "import sys, pkgutil, importlib\nfrom physml.data import readers\n"
        "for m in pkgutil.iter_modules(readers.__path__):\n"
        "    importlib.import_module(f'physml.data.readers.{m.name}')\n"
        "slow = ('torch', 'torchvision', 'torchaudio', 'sktime', 'soundfile', 'pandas')\n"
        "print([name for name in slow if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


@pytest.mark.parametrize(("names", "code"), [(["mnist"], 2), (["glove"], 2), (["psmnist"], 2), ([], 0)])
def test_a_check_of_absent_files_fails_where_they_are_named(names, code, tmp_path, monkeypatch) -> None:
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path))
    assert main(["data", "check", *names]) == code
    assert main(["data", "list", *names]) == 0
