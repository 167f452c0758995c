"""States of tables are kept, and read anew as soon as anything that they come from has changed."""

import json
import os
import shutil
from pathlib import Path

import pytest

from physml.base import files
from physml.base.paths import CONF, OWN_RESULTS, TASKS, cache_root, results_root, work_root
from physml.listing import tables as table_index
from physml.listing.tables import Listed, TableIndex, read
from physml.queue import requested as requested_runs
from physml.queue.requested import RequestedRuns, RunOptions
from physml.records import record
from physml.records.record import PACK, records
from physml.report.table.collect import collect
from physml.report.table.spec import find_table, load_table

TABLE, FOLDER = "lem-9", "lem/fitzhugh_nagumo-lem"
OLD = 1_700_000_000  # of files that have not just been changed


@pytest.fixture(autouse=True)
def one_experiment(roots: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Results of our own with the records of one experiment, and nothing else."""
    monkeypatch.setenv("PHYSML_DATA", str(roots / "data"))
    monkeypatch.delenv("PHYSML_CONF", raising=False)
    monkeypatch.setattr(table_index, "results_roots", lambda: [results_root()])
    shutil.copytree(OWN_RESULTS / "runs" / FOLDER, folder())
    for path in folder().iterdir():
        os.utime(path, (OLD, OLD))
    monkeypatch.setattr(files, "SETTLED_S", -3600.0)


def folder() -> Path:
    return results_root() / "runs" / FOLDER


def kept(table: str = TABLE) -> Listed:
    index = TableIndex()
    listed = read(table, index)
    index.save()
    return listed


def test_a_kept_state_is_given_without_a_look_at_configs(monkeypatch: pytest.MonkeyPatch) -> None:
    first = kept()
    assert "runs" in first.state and first.title
    monkeypatch.setattr(requested_runs, "RequestedRuns", None)  # a call would raise
    assert kept() == first


def test_another_record_or_another_content_is_seen() -> None:
    first = kept()
    assert TableIndex().get(TABLE) is not None
    path = folder() / PACK
    text, size = path.read_text(), path.stat().st_size
    lines = map(json.loads, text.replace('"finished"', '"diverged"').splitlines())
    path.write_text(
        "".join(f"{json.dumps(record.checked(line) if 'seed' in line else line)}\n" for line in lines)
    )
    os.utime(path, (OLD, OLD))
    assert path.stat().st_size == size
    assert TableIndex().get(TABLE) is None and kept() != first
    path.unlink()
    assert TableIndex().get(TABLE) is None


def test_packing_changes_no_table() -> None:
    first = kept()
    runs = {path: record.read(path) for path in record.run_paths(folder())}
    shutil.rmtree(folder())
    for path, content in runs.items():
        record.write(path, content)
    assert TableIndex().get(TABLE) is None and kept() == first


def test_a_run_that_is_worked_on_is_seen_and_its_end_too() -> None:
    kept()
    place = work_root() / FOLDER / record.run_paths(folder())[0].stem
    with files.locked(place / "lock"):
        assert TableIndex().get(TABLE) is None
    assert TableIndex().get(TABLE) is not None


def test_what_has_just_been_written_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "SETTLED_S", 2.0)
    (folder() / PACK).touch()
    kept()
    assert TableIndex().get(TABLE) is None


def test_data_that_appear_are_seen(tmp_path: Path) -> None:
    assert "blocked" in kept("lem-2").state
    entry = json.loads((cache_root() / "tables.json").read_text())["tables"]["lem-2"]
    file = tmp_path / "data" / entry["data"][0]
    file.parent.mkdir(parents=True)
    file.touch()
    assert TableIndex().get("lem-2") is None


def test_another_program_or_other_places_start_an_index_anew(tmp_path: Path, monkeypatch) -> None:
    kept()
    monkeypatch.setattr(table_index, "TASKS", tmp_path)  # other files
    assert TableIndex().get(TABLE) is None
    monkeypatch.setattr(table_index, "TASKS", TASKS)
    assert TableIndex().get(TABLE) is not None
    monkeypatch.setenv("PHYSML_DATA", str(tmp_path / "elsewhere"))
    assert TableIndex().get(TABLE) is None


@pytest.mark.parametrize("name", ["table/lem-9.yaml", "model/gcn.yaml", "study/lem/new.yaml"])
def test_a_config_that_changes_or_is_new_counts_for_all_tables(name, tmp_path: Path, monkeypatch) -> None:
    shutil.copytree(CONF, tmp_path / "conf")
    monkeypatch.setattr(table_index, "CONF", tmp_path / "conf")
    kept()
    assert TableIndex().get(TABLE) is not None
    with (tmp_path / "conf" / name).open("a") as file:
        file.write("\n")
    assert TableIndex().get(TABLE) is None


@pytest.mark.parametrize("ident", ["lem-9", "cornn-6", "g2-2"])
def test_a_table_is_the_same_of_all_records_and_of_the_wanted_ones(ident: str) -> None:
    spec = load_table(find_table(ident))
    requested = RequestedRuns(spec.runs, RunOptions(), ident)
    whole = repr(collect(spec, requested.identities, requested.records()))
    assert "n=" in whole
    assert repr(collect(spec, requested.identities, requested.wanted_records())) == whole


def test_configs_of_ones_own_are_read_each_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "table").mkdir()
    monkeypatch.setenv("PHYSML_CONF", str(tmp_path))
    kept()
    assert not TableIndex().usable and not (cache_root() / "tables.json").exists()


@pytest.mark.parametrize("content", ["", "[]", '{"base": 1}', '{"base": "BASE", "tables": {"lem-9": 3}}'])
def test_a_damaged_index_is_written_anew(content: str) -> None:
    first = kept()
    path = cache_root() / "tables.json"
    path.write_text(content.replace("BASE", TableIndex().base[0]))
    assert TableIndex().get(TABLE) is None
    assert kept() == first == TableIndex().get(TABLE)


def test_the_search_of_a_row_is_told_as_its_study_has_it_now() -> None:
    """The records of this LSTM were made when settings did not say on how many seeds a search has judged."""
    experiment = "cornn/lorenz96-f8-lstm"
    requested = RequestedRuns([(experiment, 0, 0)], RunOptions(), "cornn-6")
    of = requested.identities[experiment]
    (shown,) = [run for run in requested.wanted_records() if run["identity"] == of]
    (recorded,) = [run for run in records(experiment) if run["path"] == shown["path"]]
    assert (recorded["provenance"].get("seeds"), shown["provenance"]["seeds"]) == (None, 1)
