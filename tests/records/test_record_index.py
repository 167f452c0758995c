"""The index of records gives what the files say, whatever happens to either."""

import json
import os
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from physml.base.errors import RecordError
from physml.base.paths import OWN_RESULTS, cache_root, results_root
from physml.records import record, record_index
from physml.records.record_index import RecordIndex, file_stats
from physml.records.schema import Record
from scripts.bench.many_records import fill

FOLDER = "lem/fitzhugh_nagumo-lem"
EVERY = {(0, seed) for seed in range(20)}
OLD = 1_700_000_000  # of files that have not just been changed


@pytest.fixture(autouse=True)
def roots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("RESULTS", "CACHE"):
        monkeypatch.setenv(f"PHYSML_{name}", str(tmp_path / name.lower()))
    monkeypatch.setattr("physml.base.files.SETTLED_S", -3600.0)
    monkeypatch.setattr("physml.records.record_index.SETTLED_S", -3600.0)
    shutil.copytree(OWN_RESULTS / "runs" / FOLDER, folder())
    yield
    record._setting.cache_clear()


def folder() -> Path:
    return results_root() / "runs" / FOLDER


def paths() -> list[Path]:
    return sorted(folder().glob(record.RUNS))


def by_index(wanted: set[tuple[int, int]] = EVERY) -> list[Record]:
    with closing(RecordIndex()) as index:
        return index.records(FOLDER, wanted, [results_root()])


def by_files(wanted: set[tuple[int, int]] = EVERY) -> list[Record]:
    every = record.records(FOLDER, [results_root()])
    return [one for one in every if (one["split"], one["seed"]) in wanted]


@pytest.fixture
def read(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files of runs that are read."""
    names: list[str] = []
    original = record.read_with_content

    def reading(path: Path) -> object:
        names.append(path.name)
        return original(path)

    monkeypatch.setattr(record, "read_with_content", reading)
    return names


def test_the_index_gives_what_the_files_say_and_reads_them_once(read: list[str]) -> None:
    assert by_index() == by_files() and len(by_index()) == len(paths())
    read.clear()
    assert by_index({(0, 1), (0, 3), (5, 5)}) == by_files({(0, 1), (0, 3)})
    read.clear()
    by_index()
    assert not read


def test_a_record_that_is_changed_added_or_removed_is_seen(read: list[str]) -> None:
    by_index()
    first, second, *_ = paths()
    first.write_text(first.read_text().replace("finished", "diverged"))  # as long as before
    second.unlink()
    content = json.loads(first.read_text())
    (folder() / f"{content['identity']}-split0-seed19.json").write_text(
        json.dumps({k: v for k, v in content.items() if k != "check"} | {"seed": 19})
    )
    read.clear()
    assert by_index() == by_files()
    assert {"diverged", "finished"} == {one["status"] for one in by_index()}
    assert 19 in {one["seed"] for one in by_index()}
    read.clear()
    by_index()
    assert not read


def test_a_setting_that_is_changed_or_missing_is_seen() -> None:
    by_index()
    setting = next(folder().glob(f"*{record.SETTING}"))
    text = setting.read_text()
    setting.write_text(text.replace("lem", "LEM"))
    with pytest.raises(RecordError, match="not what its name says"):
        by_index()
    setting.unlink()
    with pytest.raises(RecordError, match="Put that file beside"):
        by_index()
    setting.write_text(text)
    assert by_index() == by_files()


def test_a_damaged_record_is_an_error_each_time_also_where_it_is_not_wanted() -> None:
    by_index()
    paths()[-1].write_text("{")
    for _ in range(2):
        with pytest.raises(RecordError, match="damaged"):
            by_index({(0, 0)})


def test_the_seed_in_the_file_counts_not_the_one_in_its_name() -> None:
    by_index()
    path = paths()[0]
    content = json.loads(path.read_text()) | {"seed": 17}
    path.write_text(json.dumps({k: v for k, v in content.items() if k != "check"}))
    for _ in range(2):
        assert by_index({(0, 17)}) == by_files({(0, 17)}) != []


def test_what_has_just_been_written_is_read_again(read: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("physml.records.record_index.SETTLED_S", 2.0)
    for path in folder().iterdir():
        os.utime(path, (OLD, OLD))  # the time of the change is now, all the same
    by_index()
    read.clear()
    by_index()
    assert len(read) == len(paths())


def test_the_first_root_wins(tmp_path: Path) -> None:
    other = tmp_path / "other"
    shutil.copytree(results_root(), other)
    paths()[0].unlink()
    both = [results_root(), other]
    for _ in range(2):
        with closing(RecordIndex()) as index:
            assert index.records(FOLDER, EVERY, both) == record.records(FOLDER, both)


def test_the_content_of_a_record_is_kept_once_it_is_wanted(read: list[str]) -> None:
    by_index({(0, 1)})
    read.clear()
    assert by_index({(0, 1), (0, 3)}) == by_files({(0, 1), (0, 3)})
    assert read[:1] == [path.name for path in paths() if "seed3" in path.name]
    read.clear()
    by_index({(0, 1), (0, 3)})
    assert not read


def test_a_setting_that_had_just_been_written_when_it_was_read_counts_as_new(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settled = record_index._settled
    names = {file_stats(folder())[path.name] for path in folder().glob(f"*{record.SETTING}")}
    monkeypatch.setattr(
        record_index, "_settled", lambda stat, began: stat not in names and settled(stat, began)
    )
    by_index()
    for path in folder().glob(f"*{record.SETTING}"):
        path.unlink()
    with pytest.raises(RecordError, match="Put that file beside"):
        by_index()


@pytest.mark.parametrize(
    "value", ["[]", "3", '{"files": {}}', '{"files": {}, "runs": 3}', '{"files": {}, "runs": {"a": 3}}']
)
def test_a_row_of_another_form_is_made_anew(value: str, read: list[str]) -> None:
    made = by_index()
    with closing(RecordIndex()) as index:
        index.rows.put(record_index.FOLDERS, [(str(folder()), "", value)])
    assert by_index() == made
    read.clear()
    assert by_index() == made and not read


def test_an_index_that_is_damaged_is_made_anew(read: list[str]) -> None:
    made = by_index()
    path = cache_root() / "records.sqlite"
    for content in (b"nothing", path.read_bytes()[: path.stat().st_size // 2]):
        path.write_bytes(content)
        assert by_index() == made
    by_index()
    read.clear()
    assert by_index() == made and not read


def test_made_up_records_are_sound_and_of_many_experiments(tmp_path: Path) -> None:
    assert fill(tmp_path / "many", 1200) == 1200
    files = list((tmp_path / "many" / "runs").rglob(record.RUNS))
    assert len(files) == 1200
    assert len({path.parent for path in files}) > 100
    assert {record.read(path)["status"] for path in files[:50]} <= {"finished", "diverged"}
