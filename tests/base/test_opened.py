"""Files in a folder that others may write: a link, a FIFO or a device in place of one is refused at once."""

import gzip
import json
import logging
import lzma
import os
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from refusals import refuses

from physml.base import files, lease, lock, opened, paths
from physml.base.errors import DataError, InputError
from physml.data.files.archives import FolderTree
from physml.queue import processes
from physml.records import record
from physml.run import perform

PLACES = {
    "link": lambda path: path.symlink_to("/etc/hostname"),
    "link to nothing": lambda path: path.symlink_to("/nowhere"),
    "device": lambda path: path.symlink_to("/dev/zero"),
    "fifo": lambda path: os.mkfifo(path),
    "folder": lambda path: path.mkdir(),
}
PLACE = pytest.mark.parametrize("place", PLACES)


@PLACE
@pytest.mark.parametrize("flags", [os.O_RDONLY, os.O_WRONLY | os.O_APPEND | os.O_CREAT, os.O_RDWR])
def test_what_is_no_file_is_refused_by_its_kind(place: str, flags: int, tmp_path: Path) -> None:
    path = tmp_path / "file"
    PLACES[place](path)
    with pytest.raises(OSError) as caught:
        opened.descriptor(path, flags)
    kind = {"fifo": "a FIFO", "folder": "a folder"}.get(place, "a link")
    assert caught.value.strerror == f"{kind}, expected a file"


def test_links_are_followed_and_a_file_is_read_up_to_its_bound(tmp_path) -> None:
    assert opened.irregular(Path("/dev/zero"), links=True) == "a device"
    assert opened.irregular(Path("/nowhere")) is None
    path = tmp_path / "file"
    path.write_bytes(b"x" * 100)
    assert opened.read_bytes(path, 100) == b"x" * 100
    refuses(OSError, "100 bytes, more than the 99", opened.read_bytes, path, 99)
    path.write_text("[" * 100_000)
    refuses(ValueError, "nested too deeply", opened.read_json, path, 1 << 20)
    text = json.dumps({"a": -(1 << 62), "sha256": "9" * 64, "b": 0.00012345678901234567})
    assert opened.parsed(text) == json.loads(text)
    assert opened.parsed("1" + 307 * "0") == 10**307
    for n in (309, 400, 5000):
        refuses(ValueError, rf"a whole number of {n} digits", opened.parsed, f'{{"a": [{"9" * n}]}}')


def test_a_small_file_takes_little_memory(tmp_path: Path) -> None:
    """A bound of gigabytes is no buffer of gigabytes: clusters set `ulimit -v`."""
    (tmp_path / "file").write_bytes(b"x" * 100)
    code = (
        "import sys; from pathlib import Path; from physml.data.files.limits import read_bytes; "
        "assert len(read_bytes(Path(sys.argv[1]))) == 100"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(tmp_path / "file")],
        check=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)),
    )


@pytest.mark.parametrize("compress", [gzip.compress, lzma.compress])
def test_a_compressed_file_unpacks_to_a_bound(compress) -> None:
    assert opened.inflated(compress(b"step,loss\n1,2\n")) == b"step,loss\n1,2\n"
    refuses(ValueError, "unpacks to more than", opened.inflated, compress(bytes(20 << 20)))
    refuses(ValueError, "truncated", opened.inflated, compress(b"step")[:-3])
    for content in (b"", b"\x1f\x8b", b"nothing"):
        with pytest.raises(ValueError):
            opened.inflated(content)


# ---------------------------------------------------------------------------- locks and leases


@PLACE
def test_a_lock_that_is_no_file_touches_nothing_else(place: str, tmp_path: Path) -> None:
    victim, path = tmp_path / "victim", tmp_path / "run" / "lock"
    victim.write_text("kept")
    path.parent.mkdir()
    if place == "link":
        path.symlink_to(victim)
    else:
        PLACES[place](path)
    says = r"run cannot be written: a (link|FIFO|folder), expected a file"
    with pytest.raises(DataError, match=says), lock.held(path.parent):
        pass
    assert not files.is_locked(path) and victim.read_text() == "kept"


@pytest.fixture
def number(tmp_path: Path) -> Path:
    """Where the first number of a lease of the test's folder stands."""
    (tmp_path / "lease").mkdir()
    return tmp_path / "lease" / "1"


@PLACE
def test_a_lease_that_is_no_file_is_read_as_empty(place: str, number: Path, tmp_path: Path) -> None:
    PLACES[place](number)
    assert lease.is_held(tmp_path)  # until it has been seen unchanged for long enough
    assert lease.holder(tmp_path) == "another process"


@pytest.mark.parametrize("period", ["1e999", "-1", "NaN", "null", '"x"', "[]", "true", "1e30", "9" * 5000])
def test_an_odd_period_is_not_believed(period: str, number: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_LEASE_S", "0.01")
    number.write_text(f'{{"host": "a", "pid": 3, "period_s": {period}}}\n')
    own_lease = lease.Lease(number.parent.parent)
    own_lease.give_back()
    assert own_lease.number == 2


@pytest.mark.parametrize(
    "line", ['{"host": "a\\u001b[2J", "pid": 3}', '{"host": "a", "pid": "../1"}', "[" * 9000]
)
def test_odd_holders_are_nobody(line: str, number: Path, tmp_path: Path) -> None:
    number.write_text(f"{line}\n")
    number.with_name("\u0663").touch()  # a digit, of no number that we write
    assert lease.is_held(tmp_path)
    assert lease.holder(tmp_path) == "another process"


def test_a_long_lease_is_not_read_whole(number: Path, tmp_path: Path) -> None:
    number.write_bytes(b"{}\n")
    os.truncate(number, 1 << 40)
    assert lease.is_held(tmp_path)
    with number.open("ab") as file:
        file.write(lease.FREE)
    assert not lease.is_held(tmp_path)


# ---------------------------------------------------------------------------- logs, folders


def test_what_a_run_prints_goes_into_no_other_file(tmp_path: Path) -> None:
    (tmp_path / "victim").write_text("kept")
    log = tmp_path / "log.txt"
    log.symlink_to(tmp_path / "victim")
    refuses(OSError, "a link, expected a file", processes.start_fresh, ["spec.json"], log, dict(os.environ))
    with perform._logging(log):  # the run goes on: standard error has its warnings too
        logging.getLogger("physml").warning("lost")
    assert (tmp_path / "victim").read_text() == "kept"


@pytest.mark.parametrize(
    "read",
    [
        *(files.names_in, record.run_paths, record.folders_below, lambda path: FolderTree(path).names()),
        lambda path: record.records("lem/adding-lem", [path]),
    ],
)
def test_a_folder_that_cannot_be_read_is_not_an_empty_one(read, tmp_path, monkeypatch) -> None:
    def refuse(path: object) -> None:
        raise PermissionError(13, "Permission denied", str(path))

    assert read(tmp_path / "nowhere") == []
    monkeypatch.setattr(os, "scandir", refuse)
    monkeypatch.setattr(os, "listdir", refuse)
    with pytest.raises(PermissionError):
        read(tmp_path)


# ---------------------------------------------------------------------------- owners


@pytest.mark.parametrize("mode", [0o777, 0o757, 0o1777])
def test_a_cache_that_others_may_write_is_not_used(mode: int, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "own"))
    assert paths.cache_root().stat().st_mode & 0o777 == 0o700
    (tmp_path / "own").chmod(mode)
    refuses(InputError, "others may write it", paths.cache_root)
    (tmp_path / "own").chmod(0o755)
    assert paths.cache_root() == tmp_path / "own"


@pytest.mark.skipif(os.geteuid() != 0, reason="root alone may give a file away")
def test_a_cache_of_another_user_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path))
    os.chown(tmp_path, 65534, -1)
    refuses(InputError, "it belongs to", paths.cache_root)
