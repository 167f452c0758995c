"""Data files: those of every reader's fixture, spoilt, are read in bounded time and memory or refused.

One file of a set is changed, as a whole, or a member of it, packed again. A round tries several of them.
"""

import functools
import gzip
import importlib
import io
import pickle
import pkgutil
import random
import resource
import shutil
import signal
import tarfile
import warnings
import zipfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

import physml
from physml.base.errors import PhysmlError
from physml.data import readers
from physml.data.datasets import DataSet
from physml.data.readers import uea
from physml.data.store import Store
from physml.data.verify import FoundFiles
from scripts.campaign import furnished
from scripts.campaign.driver import Found, one_command

EACH = 5  # files of a round
SECONDS, MEMORY_MIB = 10, 600  # of the processor; of growth
Members = dict[str, bytes]


@dataclass(frozen=True)
class Reader:
    """One way to read files: what puts sound ones into a folder, and what reads them with a cache beside."""

    name: str
    fixture: Callable[[Path], None]
    read: Callable[[Path, Path], object]


# ---------------------------------------------------------------------------- readers


def of_data_set(dataset: DataSet) -> Reader:
    """The reader itself, without the net that `verify.parse` holds below it."""

    def read(folder: Path, cache: Path) -> object:
        return dataset.read(FoundFiles(dataset.upstream, Store(folder, cache, "off")))

    return Reader(dataset.name, dataset.fixture, read)


def every_reader(weights: Path | None) -> list[Reader]:
    """Each module of readers, series by name, graphs of PyG, tables of the hub, and weights."""
    chosen = []
    for module in pkgutil.iter_modules(readers.__path__):
        loaded = importlib.import_module(f"{readers.__name__}.{module.name}")
        sets = [value for value in vars(loaded).values() if isinstance(value, DataSet)]
        chosen += sets if module.name in ("large_graphs", "zinc") else sets[:1]
    chosen.append(uea.data_set("Toy"))
    return [*map(of_data_set, chosen), *_by_name(), *([_weights(weights)] if weights else [])]


def _by_name() -> Iterator[Reader]:
    from tasks.hf import HubSeries, HubText, _fixture
    from tasks.pyg import PyGNodes

    common: Found = {"config": None, "revision": None, "input": "text", "target": "label", "train": "train"}
    common |= {"valid": 0.2, "test": "test", "max_length": None, "protocol": "clean"}
    for cls, more in ((HubText, {"units": "words", "n_words": 50}), (HubSeries, {})):

        def fixture(folder: Path, cls: type = cls) -> None:
            fixture_folder = _fixture(Store(None, folder / "made", "off"), cls is HubText)
            for path in fixture_folder.rglob("*.parquet"):
                (folder / path.name).write_bytes(path.read_bytes())
                path.unlink()

        def read(folder: Path, cache: Path, cls: type = cls, more: Found = more) -> None:
            cls(name=str(folder), **common, **more).load(Store(None, cache, "off"), 0)

        yield Reader(cls.__name__, fixture, read)

    def planetoid(folder: Path) -> None:
        from scipy.sparse import csr_matrix

        x, y = np.eye(640, 6, dtype=np.float32), np.eye(2)[np.arange(640) % 2]
        rows = {"x": csr_matrix(x[:140]), "tx": csr_matrix(x[540:]), "allx": csr_matrix(x[:540])}
        parts = {**rows, "y": y[:140], "ty": y[540:], "ally": y[:540]}
        for key, value in {**parts, "graph": {i: [(i + 2) % 640] for i in range(640)}}.items():
            (folder / f"ind.cora.{key}").write_bytes(pickle.dumps(value, 2))
        (folder / "ind.cora.test.index").write_text("".join(f"{i}\n" for i in range(540, 640)))

    def read_pyg(folder: Path, cache: Path) -> None:
        root = cache / "data"
        root.mkdir(parents=True, exist_ok=True)
        link = root / "planetoid"
        link.unlink(missing_ok=True)
        link.symlink_to(folder)
        task = PyGNodes(dataset="Planetoid", options={"name": "Cora"}, split_of="masks", protocol="clean")
        task.load(Store(root, cache, "off"), 0)

    yield Reader("PyG", planetoid, read_pyg)


def _weights(path: Path) -> Reader:
    def fixture(folder: Path) -> None:
        (folder / "it.safetensors").write_bytes(path.read_bytes())

    return Reader("weights", fixture, lambda folder, _: physml.load(folder / "it.safetensors"))


# ---------------------------------------------------------------------------- rounds


def prepared(base: Path) -> Callable[[int], tuple[Reader, Path]]:
    """A function of the number of a round: its reader, and a folder with sound files of it."""
    furnished.lab(base)
    furnished.carried_out(base, "run experiment=mine/fitzhugh_nagumo-lem")
    all_readers = every_reader(next((base / "runs").rglob("*.safetensors"), None))

    @functools.cache
    def sound(place: int) -> tuple[Reader, Path]:
        reader = all_readers[place]
        folder = base / "sound" / reader.name
        folder.mkdir(parents=True)
        reader.fixture(folder)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            reader.read(folder, base / "first" / reader.name)  # and what reads them is imported
        return reader, folder

    return lambda number: sound(number % len(all_readers))


def round_of(
    rng: random.Random, number: int, folder: Path, material: Callable[[int], tuple[Reader, Path]]
) -> Found:
    reader, sound = material(number)
    shutil.copytree(sound, folder / "sound" / reader.name, dirs_exist_ok=True)
    kept = folder / "spoilt"

    def call(arguments: list[str]) -> int:
        return tried(rng, reader, folder, kept)

    result = one_command(folder, [], call, reader=reader.name)
    words = (folder / "counts").read_text().split() if (folder / "counts").exists() else []
    result["counts"] = {name: words.count(name) for name in ("read", "refused")}
    if result["fault"] and kept.exists():
        result["file"] = kept.read_bytes()[:20000].hex()
    return result


def tried(rng: random.Random, reader: Reader, folder: Path, kept: Path) -> int:
    """Read EACH spoilt sets; what a reader raises beside PhysmlError ends it."""
    where = folder / "sound" / reader.name
    names = sorted(path for path in where.rglob("*") if path.is_file())
    signal.signal(signal.SIGVTALRM, _too_slow)
    warnings.simplefilter("ignore")
    with (folder / "counts").open("a") as counts:
        for i in range(EACH):
            path = rng.choice(names)
            sound = path.read_bytes()
            kept.write_bytes(spoilt(rng, sound))
            path.write_bytes(kept.read_bytes())
            before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
            signal.setitimer(signal.ITIMER_VIRTUAL, SECONDS)
            try:
                print(f"{path.relative_to(where)}", flush=True)
                reader.read(where, folder / "tried" / str(i))
                outcome = "read"
            except (PhysmlError, OSError) as error:
                outcome = "refused"
                if "\n" in str(error) or len(str(error)) > 2000:
                    raise
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) >> 10
            if grown > MEMORY_MIB:
                raise MemoryError(f"{grown} MiB for a file of {len(sound)} bytes")
            counts.write(f"{outcome}\n")
            path.write_bytes(sound)
    return 0


def _too_slow(*_: object) -> None:
    raise TimeoutError(f"a reader took more than {SECONDS} s of the processor")


# ---------------------------------------------------------------------------- changes


def spoilt(rng: random.Random, content: bytes, depth: int = 0) -> bytes:
    """Other content: bytes are changed, or a member is, or two of them are swapped, or one is lost."""
    archive = _unpacked(content) if depth < 2 and rng.random() < 0.8 else None
    if archive is None:
        return changed(rng, content)
    members, pack = archive
    first, second = rng.choice(sorted(members)), rng.choice(sorted(members))
    match rng.choice(("member", "member", "member", "swap", "lose")):
        case "member":
            return pack({**members, first: spoilt(rng, members[first], depth + 1)})
        case "swap":
            return pack({**members, first: members[second], second: members[first]})
    return pack({name: value for name, value in members.items() if name != first} or {"other": b""})


def changed(rng: random.Random, content: bytes) -> bytes:
    i, n, byte = rng.randrange(len(content) + 1), rng.randint(1, 6), rng.randint(1, 255)
    match rng.choice(
        ("cut", "flip", "flip", "digits", "number", "insert", "repeat", "head", "head", "empty")
    ):
        case "cut":
            return content[:i]
        case "flip":
            return content[:i] + bytes(octet ^ byte for octet in content[i : i + n]) + content[i + n :]
        case "digits":  # a number of a text becomes very long
            start = next((k for k in range(i, len(content)) if content[k : k + 1].isdigit()), i)
            return content[:start] + b"9" * 5**n + content[start:]
        case "number":  # of 8 bytes, such as a size
            value = rng.choice((-1, 0, 1 << 31, 1 << 40, 1 << 62, -(1 << 63)))
            return (
                content[:i] + value.to_bytes(8, rng.choice(("little", "big")), signed=True) + content[i + 8 :]
            )
        case "insert":
            return content[:i] + rng.randbytes(rng.randint(1, 40)) + content[i:]
        case "repeat":
            return content[:i] + content[max(0, i - 50 * n) :]
        case "head":  # where sizes and types are declared
            k = i % 128
            return content[:k] + bytes([byte]) * n + content[k + n :]
    return b""


def _unpacked(content: bytes) -> tuple[Members, Callable[[Members], bytes]] | None:
    """The members of a zip, tar.gz or gz, and what packs them again; None for other files."""
    try:
        if zipfile.is_zipfile(io.BytesIO(content)):
            with zipfile.ZipFile(io.BytesIO(content)) as archive:
                return {name: archive.read(name) for name in archive.namelist()}, _zip
        if not content.startswith(b"\x1f\x8b"):
            return None
        plain = gzip.decompress(content)
    except (zipfile.BadZipFile, OSError, EOFError, NotImplementedError):
        return None
    try:
        with tarfile.open(fileobj=io.BytesIO(plain)) as archive:
            files = {m.name: archive.extractfile(m) for m in archive if m.isfile()}
            return {name: file.read() for name, file in files.items() if file}, _tar_gz
    except tarfile.TarError:
        return {"": plain}, lambda members: gzip.compress(members.get("", b""), 1)


def _zip(members: Members) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w") as archive:
        for name, content in members.items():
            archive.writestr(name, content)
    return file.getvalue()


def _tar_gz(members: Members) -> bytes:
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w:gz", compresslevel=1) as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))
    return file.getvalue()
