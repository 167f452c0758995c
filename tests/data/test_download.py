"""Downloads: resumed, compared before they get their name, address after address; what `data` says."""

import contextlib
import errno
import hashlib
import io
import logging
import os
import threading
import zipfile
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import ConfigError, DataError
from physml.cli import main
from physml.data import catalogue, locate, verify
from physml.data.cache import Generated
from physml.data.datasets import Content, DataFile, DataSet, Upstream
from physml.data.fetch import download
from physml.data.store import Store

CONTENT = bytes(range(256)) * 4000  # about a MiB
SHA256 = hashlib.sha256(CONTENT).hexdigest()
NOWHERE = "http://127.0.0.1:9/none"


class Served:
    """A file server on this machine, with faults on demand: nothing leaves it."""

    def __init__(self) -> None:
        self.content = CONTENT
        self.version = '"1"'
        self.ranges = True  # whether it can send the rest of a file
        self.cuts: list[int] = []  # after how many bytes the next answers end
        self.asked: list[str | None] = []  # the Range of each request
        self.headers: dict[str, str | None] = {}  # of each answer, in place of the usual ones; None: not sent
        self.leads: list[str] = []  # where the next answers lead
        self.url = ""

    def answer(self, request: BaseHTTPRequestHandler) -> None:
        byte_range, condition = (request.headers.get(name) for name in ("Range", "If-Range"))
        self.asked.append(byte_range)
        status, headers, body, size = 200, {"ETag": self.version}, self.content, len(self.content)
        if self.leads:
            status, headers, body = 302, {"Location": self.leads.pop(0)}, b""
        elif byte_range and self.ranges and condition in (None, self.version):
            start = int(byte_range.removeprefix("bytes=").rstrip("-"))
            rest = (206, body[start:], f"{start}-{size - 1}")
            status, body, place = rest if start < size else (416, b"", "*")
            headers["Content-Range"] = f"bytes {place}/{size}"
        request.send_response(status)
        for name, value in (headers | {"Content-Length": str(len(body))} | self.headers).items():
            if value is not None:
                request.send_header(name, value)
        request.end_headers()
        request.wfile.write(body[: self.cuts.pop(0)] if self.cuts else body)


@pytest.fixture
def server(monkeypatch) -> Iterator[Served]:
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.setenv(name, "127.0.0.1")
    served = Served()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            served.answer(self)

        def log_message(self, *_) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
        thread = threading.Thread(target=http.serve_forever)
        thread.start()
        served.url = f"http://127.0.0.1:{http.server_port}/set.bin"
        yield served
        http.shutdown()
        thread.join()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(tmp_path / "data", tmp_path / "cache")


def dataset(*urls: str, sha256: str | None = SHA256, size: int | None = len(CONTENT), **keys) -> Upstream:
    file = DataFile("set/set.bin", "all", urls or (NOWHERE,), size, sha256, hash_source="a test", **keys)
    return Upstream("Set", "https://x.org", "CC0", (file,), Content(), "set")


def target(store: Store) -> Path:
    return store.cache / "files/set/set.bin"


def part(store: Store) -> Path:
    return target(store).with_name("set.bin.part")


def put(path: Path, content: bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def left(store: Store) -> set[str]:
    return {path.name for path in target(store).parent.iterdir() if not path.name.endswith(".lock")}


# ---------------------------------------------------------------------------- whole downloads


@pytest.mark.parametrize("optional", [False, True])
def test_downloaded_once_into_the_cache_even_where_readers_do_without(server, store, optional) -> None:
    origin = dataset(NOWHERE, server.url, optional=optional)
    assert bool(locate.missing(origin, store)) != optional
    assert download.get(origin, store) == [target(store)], "the next address is tried"
    assert target(store).read_bytes() == CONTENT and left(store) == {"set.bin"}
    assert download.get(dataset(NOWHERE, optional=optional), store) == []


def test_a_file_below_the_data_root_is_used_without_network(store) -> None:
    put(store.data / "set/set.bin", CONTENT)
    assert download.get(dataset(), store) == []


LONGER = CONTENT + bytes(9)


@pytest.mark.parametrize(
    ("content", "headers", "says"),
    [
        (CONTENT[::-1], {}, "sha256 is .*, expected"),
        (CONTENT[:-1], {}, "it sent 1023999 bytes, expected 1024000"),
        (b"<!DOCTYPE html><p>moved</p>", {}, "it sent a web page"),
        (LONGER, {}, "it sent 1024009 bytes, expected 1024000"),
        (LONGER, {"Content-Length": None}, "it sent more than 1024000 bytes"),
        (LONGER, {"Content-Encoding": "gzip"}, "it sent the file packed by gzip, which was not asked for"),
    ],
)
def test_what_is_not_the_file_is_refused_and_not_kept(server, store, content, headers, says) -> None:
    server.content, server.headers = content, headers
    refuses(DataError, f"{server.url}: {says}", download.get, dataset(server.url), store)
    assert left(store) == set()


def test_an_address_may_lead_on_but_not_for_ever_nor_from_https_to_http(server, store, monkeypatch) -> None:
    server.leads = ["/a", server.url]
    assert download.get(dataset(server.url), store) == [target(store)]
    server.leads = ["/a"] * 99
    target(store).unlink()
    refuses(DataError, "leads on more than 10 times", download.get, dataset(server.url), store)
    for place, says in (("http://[x/", "Invalid IPv6 URL"), ("ftp://x.org", "from http to ftp:")):
        server.leads = [place]
        refuses(DataError, says, download.get, dataset(server.url), store)
    import requests

    def answer(url: str, **_) -> requests.Response:
        response = requests.Response()
        response.status_code, response.url = 302, url
        response.headers["Location"] = "http://x.org/a"
        response.raw = io.BytesIO()
        return response

    monkeypatch.setattr(requests, "get", answer)
    refuses(DataError, "it leads from https to http:", download.get, dataset("https://x.org/a"), store)


def test_without_network_the_message_has_all_one_needs(server, store) -> None:
    gone = f"{server.url}/gone"
    server.answer = lambda request: request.send_error(404)  # type: ignore[method-assign]
    said = refuses(DataError, "set/set.bin", download.get, dataset(NOWHERE, gone), store)
    first, *lines = said.splitlines()
    for fact in ("set/set.bin", SHA256, "PHYSML_DATA", str(store.data), str(target(store))):
        assert fact in first
    assert lines == [f"  {NOWHERE}: connection refused", f"  {gone}: HTTP 404 Not Found"]


def test_without_a_published_checksum_the_first_download_is_pinned(server, store, caplog) -> None:
    unhashed = dataset(server.url, sha256=None, size=None)
    download.get(unhashed, store)
    (record,) = [r for r in caplog.records if r.name.startswith("physml") and r.levelno >= logging.WARNING]
    assert "unverified" in record.getMessage() and SHA256 in record.getMessage()
    target(store).write_bytes(CONTENT[::-1])
    refuses(DataError, "first seen here", verify.verified, unhashed, store)


def test_a_member_comes_from_its_archive_where_it_has_no_address_of_its_own(server, store, tmp_path) -> None:
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("top/n.txt", "1 2")
    server.content = (tmp_path / "a.zip").read_bytes()
    member = DataFile("n.txt", "numbers", inside="a.zip")
    whole = DataFile("a.zip", "all", (server.url,), optional=True)
    origin = Upstream("Set", "https://x.org", "CC0", (member, whole), name="set")
    download.get(origin, store)
    assert locate.missing(origin, store) == []
    assert verify.FoundFiles(origin, store).path("n.txt").read_text() == "1 2"


# ---------------------------------------------------------------------------- halves


def test_a_cut_connection_is_taken_up_where_it_ended(server, store) -> None:
    server.cuts = [5 * download.CHUNK, 2 * download.CHUNK]
    download.get(dataset(server.url), store)
    assert target(store).read_bytes() == CONTENT
    assert server.asked == [None, f"bytes={5 * download.CHUNK}-", f"bytes={7 * download.CHUNK}-"]


def test_a_stopped_download_is_kept_and_goes_on_next_time(server, store, monkeypatch) -> None:
    def stop(n: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(download, "CHUNK", 100_000)
    with monkeypatch.context() as patched:
        patched.setattr(download, "_progress", lambda *_: contextlib.nullcontext(stop))
        with pytest.raises(KeyboardInterrupt):
            download.get(dataset(server.url), store)
    assert part(store).stat().st_size == 100_000
    download.get(dataset(server.url), store)
    assert server.asked == [None, "bytes=100000-"] and target(store).read_bytes() == CONTENT
    assert left(store) == {"set.bin"}


@pytest.mark.parametrize("is_full", [False, True])
def test_a_file_that_changed_meanwhile_is_sent_anew_and_never_joined(server, store, monkeypatch, is_full):
    """A disk that is full, or a kill, just after a newer file has begun to come."""
    server.cuts = [download.CHUNK, 0]
    unhashed = dataset(server.url, sha256=None, size=None)
    refuses(DataError, "connection ended too early", download.get, unhashed, store)
    server.content, server.version = CONTENT[::-1], '"2"'

    def full(*_) -> None:
        raise OSError(errno.ENOSPC, "full")

    if is_full:
        with monkeypatch.context() as patched, pytest.raises(DataError):
            patched.setattr(download, "_room", full)
            download.get(unhashed, store)
    download.get(unhashed, store)
    assert is_full or server.asked[-1] == f"bytes={download.CHUNK}-"
    assert target(store).read_bytes() == CONTENT[::-1]


def test_another_part_than_was_asked_for_is_not_the_file(server, store) -> None:
    put(part(store), CONTENT[:1000])
    size = len(CONTENT)
    server.headers = {"Content-Range": f"bytes 2000-{size - 1}/{size}"}
    download.get(dataset(server.url), store)
    assert server.asked == ["bytes=1000-", None] and target(store).read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("half", "ranges", "sha256", "asked"),
    [
        pytest.param(CONTENT[:1000], False, SHA256, ["bytes=1000-"], id="the server sends all"),
        pytest.param(b"x" * 1000, True, SHA256, ["bytes=1000-", None], id="of another file"),
        pytest.param(CONTENT[:1000], True, None, [None], id="of unknown origin and no checksum"),
        pytest.param(CONTENT, True, SHA256, ["bytes=1024000-"], id="whole"),
        pytest.param(CONTENT + b"x", True, SHA256, ["bytes=1024001-", None], id="too long"),
    ],
)
def test_half_a_file_is_used_where_it_can_be(server, store, half, ranges, sha256, asked) -> None:
    put(part(store), half)
    server.ranges = ranges
    download.get(dataset(server.url, sha256=sha256), store)
    assert server.asked == asked and target(store).read_bytes() == CONTENT


def test_a_full_disk_is_said_before_it_is_full(server, store, monkeypatch) -> None:
    monkeypatch.setattr(download.shutil, "disk_usage", lambda _: type("Usage", (), {"free": 1000}))
    with pytest.raises(DataError, match=r"disk is full .*1 MiB are to come, 0 MiB are free.*PHYSML_CACHE"):
        download.get(dataset(server.url), store)


def test_two_at_once_download_once(server, store) -> None:
    with ThreadPoolExecutor() as pool:
        list(pool.map(lambda _: download.get(dataset(server.url), store), range(2)))
    assert server.asked == [None] and target(store).read_bytes() == CONTENT


# ---------------------------------------------------------------------------- physml data list, get, check


@pytest.fixture
def known(server, monkeypatch) -> Upstream:
    """The catalogue with one data set of one file, and one task that generates its data."""
    return use(monkeypatch, dataset(server.url))


def use(monkeypatch, origin: Upstream) -> Upstream:
    monkeypatch.setattr(catalogue, "upstream", lambda name: origin)
    monkeypatch.setattr(catalogue, "dataset_names", lambda: ["set"])
    monkeypatch.setattr(catalogue, "task_datasets", lambda: {"reads": ["set"], "noise": []})
    monkeypatch.setattr(DataSet, "upstream", property(lambda _: origin))
    monkeypatch.setattr(catalogue, "cached_as", lambda task: (task, "hub_Noise"))
    source = Generated("noise", {"n": 3}, 1, lambda: {"a": np.ones(3)})
    task = type("Task", (), {"sources": lambda _: [source]})()
    monkeypatch.setattr(catalogue, "_built", lambda tasks: [task] if tasks else [])
    return origin


def states(rows) -> dict[str, str]:
    return {row.dataset: row.state for row in rows}


def test_list_get_check(known, store, monkeypatch) -> None:
    monkeypatch.setattr(catalogue, "reader", lambda name: None)  # this set has none
    chosen = catalogue.choose([])
    before = {"set": "absent", "noise": "made when used"}
    assert states(catalogue.list_data(chosen, store)) == before
    assert states(catalogue.check_data(chosen, store)) == before
    assert not store.cache.exists()
    assert states(catalogue.get_data(chosen, store)) == {"set": "sound", "noise": "sound"}
    rows = catalogue.list_data(chosen, store)
    assert states(rows) == {"set": "present", "noise": "present"}
    for row in rows:
        assert row.path and row.size == row.path.stat().st_size
        row.path.write_bytes(row.path.read_bytes()[:-30])
    damaged = catalogue.check_data(chosen, store)
    assert states(damaged) == {"set": "damaged", "noise": "damaged"} and all(row.note for row in damaged)


def test_generated_data_are_found_whichever_task_generates_them(store) -> None:
    tasks = catalogue.choose([]).tasks
    for name, task in zip(tasks, catalogue._built(tasks), strict=True):
        assert {source.name for source in task.sources()} <= {*catalogue.cached_as(name)}, name
    for name in ("graph_properties", "pendulum", "hub_HubSeries"):
        put(store.cache / f"generated/{name}-0.npz", b"")
    names = ["diameter", "distance", "eccentricity", "pendulum_windows", "hf_series", "hf"]
    rows = states(catalogue.list_data(catalogue.choose(names), store))
    assert rows == dict.fromkeys(names, "present") | {"hf": "made when used"}


def test_a_change_that_keeps_size_and_time_is_seen_by_check(known, store) -> None:
    (path,) = download.get(known, store)
    times = path.stat()
    path.write_bytes(CONTENT[::-1])
    os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
    assert states(catalogue.check_data(catalogue.choose(["set"]), store)) == {"set": "damaged"}


def test_names_are_of_data_sets_or_of_tasks_and_may_stand_behind_options(known) -> None:
    assert catalogue.choose(["reads"]) == catalogue.choose(["set"]) == catalogue.Chosen(("set",), ())
    assert catalogue.choose(["noise"]) == catalogue.Chosen((), ("noise",))
    refuses(ConfigError, r"no data set or task raeds\. Did you mean reads", catalogue.choose, ["raeds"])
    options = main.parsed(["data", "check", "--verify", "content", "mnist", "ptb"])
    assert (options.names, options.verify) == (["mnist", "ptb"], "content")


def reads_text(monkeypatch, text: str) -> None:
    """A reader that takes only files that begin with `text`."""

    def read(files) -> dict[str, np.ndarray]:
        content = files.path("set/set.bin").read_bytes()
        if not content.startswith(text.encode()):
            raise DataError("set/set.bin: it does not begin as it should.")
        return {"x": np.array(sorted(content))}

    data_set = DataSet("set", 1, read, lambda _: None, lambda arrays: [arrays["x"].tobytes()])
    monkeypatch.setattr(catalogue, "reader", lambda _: data_set)


def test_without_a_checksum_a_file_is_unverified_once_it_can_be_read(store, monkeypatch) -> None:
    use(monkeypatch, dataset(sha256=None, size=None))
    reads_text(monkeypatch, "good")
    contents = {b"bad": "damaged", b"": "damaged", b"good": "unverified", b"good too": "damaged"}
    for content, state in contents.items():
        put(store.data / "set/set.bin", content)
        (row,) = catalogue.check_data(catalogue.choose(["set"]), store)
        assert row.state == state and row.note
    assert "first seen here" in row.note


def test_other_bytes_of_the_same_content_are_content_verified(store, monkeypatch) -> None:
    content = hashlib.sha256(hashlib.sha256(np.array(sorted(b"good")).tobytes()).digest()).hexdigest()
    origin = dataset()
    use(monkeypatch, Upstream("Set", "https://x.org", "CC0", origin.files, Content(content, "a test"), "set"))
    reads_text(monkeypatch, "go")
    for text, verified, state in (
        (b"good", "bytes", "damaged"),
        (b"good", "content", "content-verified"),
        (b"goodd", "content", "damaged"),
        (b"goodd", "off", "unverified"),
        (b"bad", "off", "damaged"),
    ):
        put(store.data / "set/set.bin", text)
        (row,) = catalogue.check_data(catalogue.choose(["set"]), Store(store.data, store.cache, verified))
        assert row.state == state, row.note
        assert row.note.endswith("as --verify off says") == (state == "unverified"), row.note
