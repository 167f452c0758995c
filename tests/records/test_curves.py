"""Curves: six digits, thinned, packed by setting, and read the same from either file."""

import gzip
import lzma
import shutil
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from refusals import refuses

from physml.base.errors import RecordError
from physml.records import curves

IDENTITY = "0123abcd"


def rows_of(n: int, test_every: int = 1) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = []
    for k in range(1, n + 1):
        rows.append({"epoch": k, "step": 1000 * k, "seconds": 0.5, "valid/mse": 1 / (k + 0.123456789)})
        if k % test_every == 0:
            rows[-1]["test/mse"] = 2 / (k + 0.123456789)
    return rows


def of_run(folder: Path, seed: int, identity: str = IDENTITY) -> Any:
    """The parts of a record by which its curve is found."""
    stem = f"{identity}-split0-seed{seed}"
    path = str(folder / f"{stem}.json")
    return {"identity": identity, "split": 0, "seed": seed, "path": path, "curve": f"{stem}.curve.csv.gz"}


def write(folder: Path, seed: int, rows: list[dict[str, Any]]) -> Any:
    run = of_run(folder, seed)
    curves.own_path(Path(run["path"])).write_bytes(curves.curve_csv(rows))
    return run


def packed_elsewhere(folder: Path, seed: int, rows: list[dict[str, Any]]) -> None:
    """A pack of one curve, made on another machine and copied here."""
    with tempfile.TemporaryDirectory() as elsewhere:
        write(Path(elsewhere), seed, rows)
        curves.pack(Path(elsewhere))
        shutil.copytree(elsewhere, folder, dirs_exist_ok=True)


def steps(rows: list[dict[str, Any]]) -> list[int]:
    return [row["step"] for row in rows]


def test_a_short_curve_keeps_all_rows_and_six_digits(tmp_path: Path) -> None:
    rows = rows_of(curves.MOST)
    run = write(tmp_path, 0, rows)
    text = gzip.decompress((tmp_path / run["curve"]).read_bytes()).decode().splitlines()
    assert text[:2] == ["epoch,step,seconds,valid/mse,test/mse", "1,1000,0.5,0.89011,1.78022"]
    at, values = curves.read_curve(run, "valid/mse")
    assert at.tolist() == steps(rows)
    np.testing.assert_allclose(values, [row["valid/mse"] for row in rows], rtol=5e-6)


def test_a_long_curve_is_thinned_evenly_and_keeps_first_last_selected_and_rare_test_scores() -> None:
    kept, other = (steps(curves.thinned(rows_of(5000), selected=s)) for s in (1_234_000, 5_000))
    assert len(kept) <= curves.MOST
    assert (kept[0], kept[-1]) == (1000, 5_000_000) and 1_234_000 in kept
    assert max(np.diff(kept)) <= 2 * 5_000_000 / curves.MOST
    assert len({*kept} ^ {*other}) <= 2, "runs of one length keep the same steps"
    for test_every in (7, 100):
        once = curves.thinned(rows_of(5000, test_every), selected=1_234_000)
        assert curves.thinned(once, selected=1_234_000) == once
    assert sum("test/mse" in row for row in once) == 50


def test_a_packed_curve_reads_as_it_did_before(tmp_path: Path) -> None:
    records = [write(tmp_path, seed, rows_of(40 + seed, test_every=1 + seed)) for seed in range(3)]
    before = [curves.read_curve(run, "test/mse") for run in records]
    assert curves.pack(tmp_path) == 3
    (file,) = tmp_path.iterdir()
    assert lzma.decompress(file.read_bytes()).startswith(b"split,seed,epoch,step,")
    for run, curve in zip(records, before, strict=True):
        np.testing.assert_array_equal(curves.read_curve(run, "test/mse"), curve)
    content = file.read_bytes()
    assert curves.pack(tmp_path) == 0 and file.read_bytes() == content


def test_a_run_made_anew_counts_before_its_packed_curve_and_replaces_it(tmp_path: Path) -> None:
    for seed in range(2):
        write(tmp_path, seed, rows_of(5))
    curves.pack(tmp_path)
    write(tmp_path, 1, rows_of(9))
    for packed in (1, 0):
        for seed, n in ((0, 5), (1, 9)):
            assert len(curves.read_curve(of_run(tmp_path, seed), "test/mse")[0]) == n
        assert curves.pack(tmp_path) == packed
    assert len(list(tmp_path.iterdir())) == 1


def test_packs_of_two_machines_are_read_side_by_side_and_joined(tmp_path: Path) -> None:
    for seed in range(2):
        packed_elsewhere(tmp_path, seed, rows_of(5 + seed))
    for count in (2, 1):
        assert len(curves.packs(tmp_path, IDENTITY)) == count
        for seed in range(2):
            assert len(curves.read_curve(of_run(tmp_path, seed), "valid/mse")[0]) == 5 + seed
        curves.pack(tmp_path)


def test_the_same_curve_in_packs_with_other_columns_is_the_same(tmp_path: Path) -> None:
    packed_elsewhere(tmp_path, 0, rows_of(5, test_every=9))
    with tempfile.TemporaryDirectory() as elsewhere:
        for seed, every in enumerate((9, 1)):
            write(Path(elsewhere), seed, rows_of(5, every))
        curves.pack(Path(elsewhere))
        shutil.copytree(elsewhere, tmp_path, dirs_exist_ok=True)
    curves.pack(tmp_path)
    assert len(curves.packs(tmp_path, IDENTITY)) == 1
    assert len(curves.read_curve(of_run(tmp_path, 1), "test/mse")[0]) == 5


def test_packs_that_disagree_are_named_and_kept(tmp_path: Path) -> None:
    for n in (5, 6):
        packed_elsewhere(tmp_path, 0, rows_of(n))
    refuses(RecordError, r"have different curves of split 0 seed 0\. Delete the file", curves.pack, tmp_path)
    assert len(curves.packs(tmp_path, IDENTITY)) == 2


def test_a_damaged_curve_stops_its_packing_and_is_kept(tmp_path: Path) -> None:
    whole, cut = write(tmp_path, 0, rows_of(5)), write(tmp_path, 1, rows_of(5))
    path = tmp_path / cut["curve"]
    path.write_bytes(path.read_bytes()[:-20])
    refuses(RecordError, rf"{path.name} can't be read", curves.pack, tmp_path)
    assert (tmp_path / whole["curve"]).exists() and path.exists()
    path.write_bytes(gzip.compress(b"epoch,step,test/mse\n1,10,low\n"))
    refuses(RecordError, rf"{path.name} can't be read: could not convert", curves.pack, tmp_path)


def test_a_curve_that_is_nowhere_has_no_finite_value_or_a_damaged_pack_says_so(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match=r"seed0\.curve\.csv\.gz can't be read: .*No such file"):
        curves.read_curve(of_run(tmp_path, 0), "test/mse")
    run = write(tmp_path, 0, [{"step": 1, "test/mse": float("nan")}])
    refuses(RecordError, "has no finite value of test/mse", curves.read_curve, run, "test/mse")
    for content in (b"", b"no xz", lzma.compress(b"split,step\n,1\n"), lzma.compress(b"\xff")):
        (tmp_path / f"{IDENTITY}-00000000.curves.csv.xz").write_bytes(content)
        with pytest.raises(RecordError, match=r"curves\.csv\.xz can't be read"):
            curves.read_curve(of_run(tmp_path, 1), "test/mse")
