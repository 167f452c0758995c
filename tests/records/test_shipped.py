"""Runs that a wheel ships: written by scripts/build_wheel.py, read as a results folder."""

import lzma
import runpy
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from physml.base import paths
from physml.base.paths import OWN_RESULTS, ROOT
from physml.records import costs, record, searches, shipped
from physml.report.compare.rerun import verdict

FOLDERS = ("lem/fitzhugh_nagumo-lem", "g2/texas-mlp")


def build_wheel() -> dict[str, Any]:
    return runpy.run_path(str(ROOT / "scripts" / "build_wheel.py"))


@pytest.fixture
def wheel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A file with the runs of two folders, in place of the checkout's results."""
    for name in (*FOLDERS, "adhoc/mine"):
        (tmp_path / "results" / "runs" / name).mkdir(parents=True)
        source = OWN_RESULTS / "runs" / (name if name in FOLDERS else FOLDERS[0])
        shutil.copy(source / record.PACK, tmp_path / "results" / "runs" / name)
    (tmp_path / "results" / "search").mkdir()
    for file in (OWN_RESULTS / "search").glob("g2-texas-g2_sage*.json"):
        shutil.copy(file, tmp_path / "results" / "search")
    line = '{"key": "a-cpu-auto", "experiment": "x", "hours": 2.0}\n'
    (tmp_path / "results" / "costs.jsonl").write_text(line)
    monkeypatch.chdir(tmp_path)
    file = tmp_path / "records.xz"
    file.write_bytes(lzma.compress("\n".join(build_wheel()["_shipped_lines"]()).encode()))
    for module in (paths, shipped):
        monkeypatch.setattr(module, "SHIPPED", file)
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "own"))
    monkeypatch.setattr(paths, "OWN_RESULTS", tmp_path / "own")
    _forget()
    yield file
    _forget()


def _forget() -> None:
    shipped._packs.cache_clear()
    record._shipped.cache_clear()


def test_searches_and_their_repeats_are_those_of_the_checkout(wheel: Path) -> None:
    ident = "g2-texas-g2_sage"
    shipped_ones = [searches.recorded(name) for name in (ident, f"{ident}-repeat5")]
    spread = searches.spread_of_search(ident)
    assert searches.is_done(ident) and not searches.is_done("g2-texas-gcn")
    assert searches.recorded("g2-texas-gcn") is None
    paths.OWN_RESULTS.mkdir(exist_ok=True)
    (paths.OWN_RESULTS / "search").symlink_to(OWN_RESULTS / "search")
    assert [searches.recorded(name) for name in (ident, f"{ident}-repeat5")] == shipped_ones
    assert searches.spread_of_search(ident) == spread and len(spread.values) == 5


def test_they_are_the_runs_of_the_packs_without_what_no_table_reads(wheel: Path) -> None:
    gone = build_wheel()["LEFT_OUT"] | {"path", "metrics"}
    assert paths.results_roots() == [paths.OWN_RESULTS, wheel]
    folders = [folder.relative_to(wheel).as_posix() for folder in record.folders_below(wheel / "runs")]
    assert folders == [f"runs/{name}" for name in sorted(FOLDERS)]
    for name in FOLDERS:
        ours, packed = record.records(name, [OWN_RESULTS]), record.records(name)
        assert len(packed) == len(ours) >= 10
        for own, other in zip(ours, packed, strict=True):
            assert shipped.is_shipped(other) and not shipped.is_shipped(own)
            assert other["metrics"] == {"best": own["metrics"]["best"], "last": None}
            assert {**own, **dict.fromkeys(gone)} == {**other, **dict.fromkeys(gone)}
    assert record.exists(wheel / "runs" / FOLDERS[0] / Path(str(record.records(FOLDERS[0])[0]["path"])).name)


def test_a_run_of_the_reader_counts_first(wheel: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *others = record.records(FOLDERS[0])
    own = paths.OWN_RESULTS / "runs" / FOLDERS[0] / Path(str(first["path"])).name
    record.write(own, {**first, "n_parameters": 7})
    runs = record.records(FOLDERS[0])
    assert [run["n_parameters"] for run in runs].count(7) == 1 and len(runs) == len(others) + 1


def test_the_same_run_is_equal_costs_are_shipped_too_and_without_the_file_there_are_none(wheel: Path) -> None:
    (again, *_), (first, *_) = record.records(FOLDERS[0], [OWN_RESULTS]), record.records(FOLDERS[0])
    assert verdict(first, again).sentence.startswith("equal to the bit")
    assert costs.hours_of_settings() == {"a": 2.0}
    wheel.unlink()
    assert paths.results_roots() == [paths.OWN_RESULTS]
    assert record.records(FOLDERS[0]) == []
