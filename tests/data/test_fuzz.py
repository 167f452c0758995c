"""Every reader on spoilt files: they are read or refused in bounded time and memory, and nothing else.

The files are those of its fixture, of which one is changed: as a whole, or a member of it, packed again.
"""

import gzip
import importlib
import io
import os
import pkgutil
import resource
import shutil
import signal
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from physml.base.errors import PhysmlError
from physml.data import readers
from physml.data.datasets import DataSet
from physml.data.store import Store
from physml.data.verify import FoundFiles

EXAMPLES, SECONDS, MEMORY_MIB = int(os.environ.get("PHYSML_FUZZ", "8")), 20, 500

Change = Callable[[bytes], bytes]
Members = dict[str, bytes]


def one_of_each() -> Iterator[DataSet]:
    """A data set of every module; those of a module are read alike, but for large graphs and bidmc_tsr."""
    for module in pkgutil.iter_modules(readers.__path__):
        loaded = importlib.import_module(f"{readers.__name__}.{module.name}")
        found = [value for value in vars(loaded).values() if isinstance(value, DataSet)]
        yield from found if module.name in ("large_graphs", "zinc") else found[:1]


SETS = list(one_of_each())


# ---------------------------------------------------------------------------- changes


@st.composite
def changes(draw: st.DrawFn) -> Change:
    kind = draw(st.sampled_from(["cut", "empty", "flip", "digits", "insert", "repeat", "noise", "head"]))
    at, n, byte = draw(st.floats(0, 1)), draw(st.integers(1, 6)), draw(st.integers(1, 255))
    noise = draw(st.binary(max_size=40))

    def change(content: bytes) -> bytes:
        i = int(at * max(len(content) - 1, 0))
        match kind:
            case "cut":
                return content[:i]
            case "empty":
                return b""
            case "flip":
                spoilt = bytearray(content)
                for k in range(i, min(i + n, len(content))):
                    spoilt[k] ^= byte
                return bytes(spoilt)
            case "digits":  # a number of a text becomes very long
                found = next((k for k in range(i, len(content)) if content[k : k + 1].isdigit()), i)
                return content[:found] + b"9" * 5**n + content[found:]
            case "insert":
                return content[:i] + noise + content[i:]
            case "repeat":
                return content[:i] + content[max(0, i - 50 * n) :]
            case "head":  # where sizes and types are declared
                k = i % 128
                return content[:k] + bytes([byte]) * n + content[k + n :]
        return noise

    return change


def packed(content: bytes) -> tuple[Members, Callable[[Members], bytes]] | None:
    """The members of a zip, tar.gz or gz, and what packs them again; None for other files."""
    if zipfile.is_zipfile(io.BytesIO(content)):
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return {name: archive.read(name) for name in archive.namelist()}, zip_of
    if content.startswith(b"\x1f\x8b"):
        plain = gzip.decompress(content)
        try:
            with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
                return {m.name: archive.extractfile(m).read() for m in archive if m.isfile()}, tar_gz_of
        except tarfile.TarError:
            return {"": plain}, lambda members: gzip.compress(members.get("", b""), 1)
    return None


def zip_of(members: Members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def tar_gz_of(members: Members) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()


def spoil(data: st.DataObject, content: bytes, depth: int = 0) -> bytes:
    """Other content: the bytes are changed, or one member is, or two of them are swapped, or one is lost."""
    archive = packed(content) if depth < 2 else None
    kind = data.draw(
        st.sampled_from(["bytes"] if archive is None else ["bytes", "member", "member", "swap", "lose"])
    )
    if kind == "bytes" or archive is None:
        return data.draw(changes())(content)
    members, pack = archive
    names = st.sampled_from(sorted(members))
    first, second = data.draw(names), data.draw(names)
    if kind == "member":
        return pack({**members, first: spoil(data, members[first], depth + 1)})
    if kind == "swap":
        return pack({**members, first: members[second], second: members[first]})
    return pack({name: value for name, value in members.items() if name != first} or {"other": b""})


# ---------------------------------------------------------------------------- every reader


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Callable[[DataSet], Path]:
    root = tmp_path_factory.mktemp("sound")

    def folder(data: DataSet) -> Path:
        if not (root / data.name).exists():
            data.fixture(root / data.name)
        return root / data.name

    return folder


def too_slow(*_: object) -> None:
    raise TimeoutError(f"a reader took more than {SECONDS} s")


@pytest.fixture(autouse=True)
def watched() -> Iterator[None]:
    before = signal.signal(signal.SIGALRM, too_slow)
    yield
    signal.alarm(0)
    signal.signal(signal.SIGALRM, before)


def peak_mib() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


@pytest.mark.parametrize("dataset", SETS, ids=lambda dataset: dataset.name)
def test_a_spoilt_file_is_read_or_refused(
    dataset: DataSet, sound: Callable[[DataSet], Path], tmp_path: Path
) -> None:
    """The reader itself is called, without the net that `verify.parse` holds below it."""
    whole = sound(dataset)
    shutil.copytree(whole, tmp_path / "data")
    names = sorted(path.relative_to(whole) for path in whole.rglob("*") if path.is_file())
    found = FoundFiles(dataset.upstream, Store(tmp_path / "data", tmp_path / "cache", "off"))
    outcomes = set()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert dataset.read(found), "the sound files are read; and what reads them is imported"
    before = peak_mib()

    @settings(
        max_examples=EXAMPLES,
        deadline=None,
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(st.data())
    def spoilt(data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(names))
        content = (whole / name).read_bytes()
        (tmp_path / "data" / name).write_bytes(spoil(data, content))
        shutil.rmtree(tmp_path / "cache", ignore_errors=True)
        signal.alarm(SECONDS)
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                assert dataset.read(found)
            outcomes.add("read")
        except PhysmlError as error:
            assert "\n" not in str(error) and len(str(error)) < 2000
            outcomes.add("refused")
        finally:
            signal.alarm(0)
            (tmp_path / "data" / name).write_bytes(content)

    spoilt()
    assert "refused" in outcomes
    assert peak_mib() - before < MEMORY_MIB
