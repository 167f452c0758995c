"""States of tables are kept, and read anew as soon as anything that they come from has changed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from physml.base import files
from physml.base.paths import CONF, OWN_RESULTS, cache_root, own_folders, results_root, work_root
from physml.config import composed_cache
from physml.listing import tables as table_index
from physml.listing.tables import Listed, TableIndex, read
from physml.queue import requested as requested_runs
from physml.queue.requested import RequestedRuns, RunOptions
from physml.report.table import collect as table
from physml.report.table.collect import collect
from physml.report.table.spec import find_table, load_table

TABLE, FOLDER = "lem-9", "lem/fitzhugh_nagumo-lem"
OLD = 1_700_000_000  # of files that have not just been changed


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of our own with the records of one experiment, and nothing else."""
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "data"))
    monkeypatch.delenv("PHYSML_CONF", raising=False)
    monkeypatch.setattr(table_index, "results_roots", lambda: [results_root()])
    shutil.copytree(OWN_RESULTS / "runs" / FOLDER, results_root() / "runs" / FOLDER)
    for path in (results_root() / "runs" / FOLDER).iterdir():
        os.utime(path, (OLD, OLD))


def kept(table: str = TABLE) -> Listed:
    index = TableIndex()
    listed = read(table, index)
    index.save()
    return listed


def records() -> list[Path]:
    return sorted((results_root() / "runs" / FOLDER).glob("*-seed*.json"))


def test_a_kept_state_is_given_without_a_look_at_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept()
    assert "runs" in first.state and first.title
    monkeypatch.setattr(requested_runs, "RequestedRuns", None)  # a call would raise
    assert kept() == first


def test_another_record_or_another_content_is_seen() -> None:
    kept()
    assert TableIndex().get(TABLE) is not None
    path = records()[0]
    text = path.read_text()
    path.write_text(text.replace("finished", "diverged"))  # as long as before
    os.utime(path, (OLD, OLD))
    assert (path.stat().st_size, path.stat().st_mtime) == (len(text.encode()), OLD)
    assert TableIndex().get(TABLE) is None
    kept()
    path.unlink()
    assert TableIndex().get(TABLE) is None


def test_what_has_just_been_written_is_not_kept() -> None:
    records()[0].touch()
    kept()
    assert TableIndex().get(TABLE) is None


def test_a_run_that_is_worked_on_is_seen_and_its_end_too() -> None:
    kept()
    folder = work_root() / FOLDER / records()[0].stem
    with files.locked(folder / "lock"):
        assert TableIndex().get(TABLE) is None
    assert TableIndex().get(TABLE) is not None


def test_data_that_appear_are_seen(tmp_path: Path) -> None:
    blocked = kept("lem-2")
    assert "blocked" in blocked.state
    entry = json.loads((cache_root() / "tables.json").read_text())["tables"]["lem-2"]
    assert entry["data"]
    file = tmp_path / "data" / entry["data"][0]
    file.parent.mkdir(parents=True)
    file.touch()
    assert TableIndex().get("lem-2") is None


def test_another_program_or_other_places_start_an_index_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept()
    with monkeypatch.context() as patch:
        patch.setenv("PHYSML_DATA", str(tmp_path / "elsewhere"))
        assert TableIndex().get(TABLE) is None
    with monkeypatch.context() as patch:
        patch.setattr(table_index, "TASKS", tmp_path)  # other files
        assert TableIndex().get(TABLE) is None
    assert TableIndex().get(TABLE) is not None


@pytest.mark.parametrize(
    ("name", "counts"),
    [
        *((name, True) for name in ("table/lem-9", "model/lem", "study/lem/fitzhugh_nagumo", "run")),
        *((name, False) for name in ("table/lem-2", "model/gcn", "study/lem/adding")),
    ],
)
def test_a_config_counts_for_the_tables_that_are_read_from_it(
    name: str, counts: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept()
    original = table_index._config

    def edited(path: Path) -> tuple[str, float]:
        return ("edited", OLD) if path == CONF / f"{name}.yaml" else original(path)

    monkeypatch.setattr(table_index, "_config", edited)
    assert (TableIndex().get(TABLE) is None) == counts


@pytest.mark.parametrize("other", [False, True])
def test_a_config_that_leaves_all_identities_the_same_spares_reading_records(
    other: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = kept()
    original, content = table_index._config, composed_cache._content
    edited = CONF / "model" / "lem.yaml"
    monkeypatch.setattr(
        table_index, "_config", lambda path: ("edited", OLD) if path == edited else original(path)
    )
    monkeypatch.setattr(
        composed_cache, "_content", lambda name: "edited" if name == str(edited) else content(name)
    )
    if other:
        monkeypatch.setattr(composed_cache, "identity", lambda config: "00000000")
    collected: list[str] = []
    monkeypatch.setattr(
        table,
        "collect",
        lambda spec, *given, **options: collected.append(spec.id) or collect(spec, *given, **options),
    )
    assert (kept() == first) == (not other)
    assert collected == ([TABLE] if other else [])
    kept()
    assert len(collected) == int(other)


def test_a_table_is_made_of_its_spec_identities_and_records_alone() -> None:
    """Configs that `collect` read would be missing among the inputs of a table."""
    spec = load_table(find_table(TABLE))
    requested = RequestedRuns(spec.runs, RunOptions(), TABLE)
    with files.noting() as noted:
        collect(spec, requested.identities, requested.wanted_records(), requested.running(), ranks=False)
    assert not noted


@pytest.mark.parametrize("ident", ["lem-9", "cornn-6", "g2-2"])
def test_a_table_is_the_same_with_the_index_of_records_and_without(ident: str) -> None:
    spec = load_table(find_table(ident))
    requested = RequestedRuns(spec.runs, RunOptions(), ident)
    whole = repr(collect(spec, requested.identities, requested.records()))
    assert "n=" in whole
    for _ in range(2):  # filled, and used
        again = RequestedRuns(spec.runs, RunOptions(), ident)
        assert again.identities == requested.identities
        assert repr(collect(spec, again.identities, again.wanted_records())) == whole
    assert (cache_root() / "records.sqlite").exists() and (cache_root() / "composed.sqlite").exists()


def test_configs_of_ones_own_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").mkdir()
    monkeypatch.setenv("PHYSML_CONF", str(tmp_path))
    kept()
    assert not TableIndex().usable and not (cache_root() / "tables.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"base": 1}', '{"base": "BASE", "tables": {"lem-9": 3}}'])
def test_a_damaged_index_is_written_anew(content: str) -> None:
    first = kept()
    path = cache_root() / "tables.json"
    path.write_text(content.replace("BASE", TableIndex().base))
    assert TableIndex().get(TABLE) is None and kept() == first
    assert TableIndex().get(TABLE) == first
