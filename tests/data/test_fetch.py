"""Files of others: verified, fetched once, and a message that says what to do without network."""

import hashlib
import logging
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer

import numpy as np
import pytest

from physml.data.catalogue import check_data, get_data, list_data
from physml.data.fetch import DataFile, find, get, verified
from physml.data.store import Generated, Store
from physml.errors import DataError

CONTENT = b"1, 2, 3\n" * 100
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NOWHERE = "http://127.0.0.1:9/none"


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *args) -> None:
        pass


@pytest.fixture
def server(tmp_path, monkeypatch):
    """A file server on this machine: nothing leaves it."""
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    served = tmp_path / "served"
    served.mkdir()
    (served / "set.csv").write_bytes(CONTENT)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=served)) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{http.server_port}/set.csv"
        http.shutdown()
        thread.join()


@pytest.fixture
def store(tmp_path) -> Store:
    return Store(tmp_path / "data", tmp_path / "cache")


def data_file(*urls: str, sha256: str | None = SHA256, size: int | None = len(CONTENT)) -> DataFile:
    return DataFile("folder/set.csv", urls or (NOWHERE,), size, sha256, "CC0", "a test")


def place(store: Store, content: bytes, below: str = "data") -> None:
    path = store.data / "folder/set.csv" if below == "data" else store.cache / "files/folder/set.csv"
    path.parent.mkdir(parents=True)
    path.write_bytes(content)


def test_a_file_below_the_data_root_is_used_without_network(store):
    place(store, CONTENT)
    assert get(data_file(), store) == store.data / "folder/set.csv"


def test_downloaded_once_into_the_cache(server, store):
    path = get(data_file(server), store)
    assert path == store.cache / "files/folder/set.csv" and path.read_bytes() == CONTENT
    assert get(data_file(NOWHERE), store) == path


def test_the_next_address_is_tried(server, store):
    assert get(data_file(NOWHERE, server), store).read_bytes() == CONTENT


def test_another_content_is_refused(server, store):
    with pytest.raises(DataError, match="could not be downloaded"):
        get(data_file(server, sha256="0" * 64), store)
    assert find(data_file(), store) is None


def test_without_a_published_checksum_the_first_download_is_pinned(server, store, caplog):
    file = data_file(server, sha256=None)
    path = get(file, store)
    (record,) = [r for r in caplog.records if r.name.startswith("physml") and r.levelno >= logging.WARNING]
    assert "unverified" in record.getMessage() and SHA256 in record.getMessage()
    path.write_bytes(CONTENT[::-1])
    with pytest.raises(DataError, match="sha256 is"):
        verified(file, store)


@pytest.mark.parametrize("below", ["data", "cache"])
def test_a_damaged_file_is_refused(store, below):
    place(store, CONTENT[::-1], below)
    with pytest.raises(DataError, match=r"sha256 is \w{8}, expected \w{8}. Delete the file"):
        get(data_file(), store)


def test_a_truncated_file_is_refused_by_its_size(store):
    place(store, CONTENT[:-1])
    with pytest.raises(DataError, match="799 bytes, expected 800"):
        get(data_file(), store)


def test_without_network_the_message_says_path_checksum_and_root(store):
    with pytest.raises(DataError) as caught:
        get(data_file(), store)
    text = str(caught.value)
    for part in ("folder/set.csv", SHA256, "PHYSML_DATA", str(store.data), str(store.cache), NOWHERE):
        assert part in text


class Task:
    """What the catalogue asks of a task."""

    def __init__(self, *sources) -> None:
        self._sources = sources

    def sources(self):
        return self._sources


def generated() -> Generated:
    return Generated("noise", {"n": 3, "sizes": {"train": 2, "test": 1}}, 1, lambda: {"a": np.ones(3)})


def states(rows) -> dict[str, str]:
    return {row.name: row.state for row in rows}


def test_list_get_check(store, server):
    tasks = {"one": Task(generated(), data_file(server)), "two": Task()}
    before = states(list_data(tasks, store))
    assert before == {"noise": "absent", "folder/set.csv": "absent", "two": "drawn when used"}
    assert states(check_data(tasks, store)) == before
    assert not store.cache.exists()
    after = {"noise": "sound", "folder/set.csv": "sound", "two": "drawn when used"}
    assert states(get_data(tasks, store)) == after
    rows = {row.name: row for row in list_data(tasks, store)}
    assert rows["noise"].state == rows["folder/set.csv"].state == "present"
    assert rows["folder/set.csv"].size == len(CONTENT)
    assert rows["noise"].note == "n 3, sizes 2/1"
    assert rows["noise"].size == rows["noise"].path.stat().st_size
    for row in rows.values():
        if row.path:
            row.path.write_bytes(row.path.read_bytes()[:-30])
    damaged = check_data(tasks, store)
    assert states(damaged) == {"noise": "damaged", "folder/set.csv": "damaged", "two": "drawn when used"}
    assert all(row.note for row in damaged if row.state == "damaged")


def test_the_size_of_an_absent_file_is_the_published_one(store):
    (row,) = list_data({"one": Task(data_file())}, store)
    assert (row.state, row.size, row.kind) == ("absent", len(CONTENT), "file")
