"""The shipped index files are what their script draws; damage is told."""

import shutil
from runpy import run_path

import numpy as np
from each import each
from refusals import refuses

from physml.base.errors import DataError
from physml.base.paths import ROOT
from physml.data import splits

SCRIPT = run_path(str(ROOT / "scripts" / "make_indices.py"))
MADE = SCRIPT["INDICES"]


@each("name", MADE)
def test_a_file_is_what_its_script_draws(name):
    assert np.array_equal(splits.load_index(name), MADE[name]())
    assert (splits.FOLDER / f"{name}.npy").read_bytes() == SCRIPT["content"](MADE[name]())


def test_every_file_is_made_by_the_script_and_changed_ones_are_refused(tmp_path, monkeypatch) -> None:
    assert {path.stem for path in splits.FOLDER.glob("*.npy")} == set(MADE)
    assert len(splits.SUMS.read_text().splitlines()) == len(MADE)
    folder = tmp_path / "index"
    shutil.copytree(splits.FOLDER, folder)
    monkeypatch.setattr(splits, "FOLDER", folder)
    monkeypatch.setattr(splits, "SUMS", folder / "SHA256SUMS")
    path = folder / "psmnist-torch-5544.npy"
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    refuses(DataError, r"psmnist-torch-5544\.npy is damaged", splits.load_index, "psmnist-torch-5544")
    (folder / "mnist-valid-3000.npy").unlink()
    refuses(DataError, r"mnist-valid-3000\.npy cannot be read", splits.load_index, "mnist-valid-3000")
    refuses(DataError, r"no index mnist-valid-300\. .*mnist-valid-3000", splits.load_index, "mnist-valid-300")
