"""Laws of every data set in conf/dataset: its fixture, and its archives packed and unpacked."""

import hashlib
import shutil
from pathlib import Path

import numpy as np
import pytest
from unpacked import unpack

from physml.data.datasets import Arrays, dataset_names, upstream
from physml.data.readers import reader
from physml.data.store import Store

NAMES = dataset_names()
OF_TORCH = ("zinc", "superpixels")  # whose bytes hold addresses in memory, so that arrays alone are compared


def read(root: Path, name: str) -> Arrays:
    return Store(root, root.with_name(f"{root.name}-cache"), verify="off").read(reader(name))


def same(ours: Arrays, theirs: Arrays) -> bool:
    return ours.keys() == theirs.keys() and all(
        np.array_equal(array, theirs[key], equal_nan=array.dtype.kind == "f") for key, array in ours.items()
    )


@pytest.mark.parametrize("name", NAMES)
def test_a_fixture_is_small_always_the_same_and_reads_alike_packed_and_unpacked(name, tmp_path: Path) -> None:
    roots, sums = (tmp_path / "a", tmp_path / "b"), []
    for root in roots:
        reader(name).fixture(root)
        files = sorted(path for path in root.rglob("*") if path.is_file())
        assert {str(path.relative_to(root)) for path in files} <= {f.name for f in upstream(name).files}
        assert sum(path.stat().st_size for path in files) < 4 << 20
        sums.append([hashlib.sha256(path.read_bytes()).hexdigest() for path in files])
    assert sums[0] == sums[1] or name in OF_TORCH
    if name in OF_TORCH:
        assert same(*(read(root, name) for root in roots))
    if not (folders := [file for file in upstream(name).files if file.folder]):
        return
    packed = read(root, name)
    for file in folders:
        below = root / (file.folder if name == "speech_commands" else ".")
        below.mkdir(parents=True, exist_ok=True)
        unpack(root / file.name, below)
        (root / file.name).unlink()
    shutil.rmtree(tmp_path / "b-cache")
    assert same(read(root, name), packed)
