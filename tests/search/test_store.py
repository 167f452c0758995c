"""The copy of a search as an Optuna study: records win, damage is one line, nothing in it runs."""

import contextlib
import json
import os
import pickle
import sqlite3
import sys

import optuna
import pytest
from refusals import refuses
from search_conf import TINY, write_study

from physml.base.errors import ConfigError, DataError, MissingExtra
from physml.base.lock import held
from physml.cli import main
from physml.records import searches as results
from physml.search.store import TrialStore, place_of

LSTM, ID = "lem/fitzhugh_nagumo-lstm", "lem-fitzhugh_nagumo-lstm"
SPACE = {"a": {"low": 1e-3, "high": 1.0, "log": True}, "b": ["x", None]}
ROWS = [("finished", [3.0, 2.5], 2.5), ("pruned", [4.0], None), ("diverged", [None], None)]
ROWS.append(("waiting", [2.0], None))


def content(rows=ROWS):
    """What a search knows of its trials."""
    trials = [
        {"point": {"a": 0.1 * (i + 1), "b": None}, "status": status, "means": means, "value": value}
        for i, (status, means, value) in enumerate(rows)
    ]
    return {"rounds": [{"trials": len(rows), "space": SPACE}], "trials": trials}


def copied(storage):
    """A file or a database with a study of these trials."""
    TrialStore("s", "lower", str(storage)).update(content())
    return storage


@pytest.mark.parametrize("ending", ["", "-journal", "-wal", "-shm"])
@pytest.mark.parametrize("kind", ["a link", "a FIFO", "a folder"])
def test_sqlite_follows_nothing_that_lies_in_place_of_its_files(kind, ending, tmp_path):
    target, elsewhere = tmp_path / f"x.db{ending}", tmp_path / "elsewhere"
    elsewhere.write_bytes(b"")
    {"a link": lambda: target.symlink_to(elsewhere), "a FIFO": lambda: os.mkfifo(target)}.get(
        kind, target.mkdir
    )()
    with pytest.raises(DataError, match=rf"x\.db{ending} is {kind}, expected a file"):
        TrialStore("s", "lower", f"sqlite:///{tmp_path}/x.db").update(content())
    assert elsewhere.read_bytes() == b""


@pytest.mark.parametrize(
    ("change", "damage"),
    [
        ("trial_params", "distribution_json = '{}'"),
        ("trial_params", "distribution_json = 'x'"),
        ("studies", "study_name = CAST(x'ff73' AS TEXT)"),
        ("trials", "state = CAST(x'ff' AS TEXT)"),
        ("trial_values", "value_type = 'x'"),
    ],
)
def test_changed_values_in_a_database_are_one_line(change, damage, tmp_path):
    storage = copied(f"sqlite:///{tmp_path}/x.db")
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as database, database:
        database.execute(f"UPDATE {change} SET {damage}")
    with contextlib.suppress(DataError):  # what still can be read is made again
        copied(storage)


def study_of(storage, name="s"):
    if storage.endswith(".journal"):
        storage = optuna.storages.JournalStorage(optuna.storages.journal.JournalFileBackend(storage))
    return optuna.load_study(study_name=name, storage=storage)


@pytest.mark.parametrize("folder", ["a?b", "q%41", "u@v", "a b"])
def test_its_file_lies_in_the_work_folder_whatever_its_name(folder, tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / folder))
    TrialStore("s", "lower").update(content())
    assert (tmp_path / folder / "search" / "s.db").is_file()
    assert {path.name for path in tmp_path.iterdir()} == {folder, "cache"}


@pytest.mark.parametrize("place", ["{}/x.journal", "sqlite:///{}/x.db"])
def test_the_study_has_what_the_records_say_and_follows_them(place, tmp_path, capsys):
    storage = place.format(tmp_path)
    copy = TrialStore("s", "lower", storage)
    copy.update(content())
    study = study_of(storage)
    assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "FAIL", "RUNNING"]
    assert study.best_value == 2.5 and study.trials[0].intermediate_values == {0: 3.0, 1: 2.5}
    assert study.trials[1].params == {"a": 0.2, "b": None}
    after = [*ROWS[:3], ("finished", [2.0, 1.5], 1.5), ("missing", [None], None)]
    for _ in range(2):
        copy.update(content(after))
    study = study_of(storage)
    assert study.best_trial.number == 3 and len(study.trials) == 5
    assert study.trials[3].intermediate_values == {0: 2.0, 1: 1.5}
    again = ("finished", [9.0, 1.0], 1.0)  # the pruned trial, which a later round took up
    assert after[1][0] == "pruned"
    for row in (("waiting", [9.0], None), again):
        copy.update(content([after[0], row, *after[2:]]))
    assert [study_of(storage).trials[i].state.name for i in (1, 4)] == ["COMPLETE", "RUNNING"]
    assert capsys.readouterr().out == ""


def test_records_win_over_a_study_that_disagrees(tmp_path, capsys):
    """A digit that was changed would be the best value of the search."""
    path = tmp_path / "x.journal"
    changes = {'"value":2.5': '"value":0.5', '"a":0.2': '"a":"far"', '"state":2': '"state":1'}
    for right, wrong in changes.items():
        text = copied(path).read_text()
        assert right in text
        path.write_text(text.replace(right, wrong))
        copied(path)
        study = study_of(str(path))
        assert study.best_value == 2.5 and study.trials[1].params["a"] == 0.2
        assert [trial.state.name for trial in study.trials] == ["COMPLETE", "PRUNED", "FAIL", "RUNNING"]
        assert "x.journal: made again, since it differed from the records" in capsys.readouterr().out
        path.unlink()


@pytest.mark.parametrize("key", [{"a": {"low": 1e-3, "high": 1.0}}, {"b": ["x", None, "y"]}])
def test_a_space_that_was_changed_makes_the_study_again(key, tmp_path, capsys):
    """Another scale or a choice more, of which Optuna would refuse trials beside the earlier ones."""
    storage = f"sqlite:///{tmp_path}/x.db"
    copied(storage)
    changed = content([*ROWS, ("missing", [None], None)])
    changed["rounds"][0]["space"] = SPACE | key
    TrialStore("s", "lower", storage).update(changed)
    assert "made again" in capsys.readouterr().out and len(study_of(storage).trials) == 5


@pytest.mark.parametrize(
    "damage",
    [
        lambda line: line[: len(line) // 2],
        lambda line: line.replace('"study_id":0', '"study_id":[]'),
        lambda line: line.replace('"op_code"', '"op_cod"'),
        lambda line: line.replace('"op_code":4', '"op_code":99'),
        lambda line: line.replace('"op_code":4', '"op_code":"4"'),
        lambda line: line.replace("FloatDistribution", "NoDistribution"),
        lambda line: "[" * 100_000,
        lambda line: "\x00\xff\x00",
        lambda line: "7",
    ],
)
def test_any_damage_of_a_journal_is_one_line_with_its_place(damage, tmp_path):
    path = copied(tmp_path / "x.journal")
    lines = path.read_text().splitlines()
    number = next(i for i, line in enumerate(lines) if '"a":0.2' in line)
    assert damage(lines[number]) != lines[number]
    lines[number] = damage(lines[number])
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    says = rf"x\.journal:{number + 1}: damaged: .*made again"
    assert "\n" not in refuses(DataError, says, copied, path)


@pytest.mark.parametrize("kind", ["link", "link to nothing", "FIFO"])
def test_a_journal_is_a_file_of_its_own(kind, tmp_path):
    path, victim = tmp_path / "x.journal", tmp_path / "victim"
    if kind == "FIFO":
        os.mkfifo(path)
    else:
        path.symlink_to(victim)
    if kind == "link":
        victim.write_bytes(b"half a line")
    with pytest.raises(DataError, match=rf"x\.journal does not answer: a {kind.split()[0]}, expected a file"):
        copied(path)
    assert victim.read_bytes() == b"half a line" if kind == "link" else not victim.exists()


def test_half_a_line_of_a_killed_writer_is_removed(tmp_path):
    path = copied(tmp_path / "x.journal")
    whole = path.read_bytes()
    path.write_bytes(whole + b'{"op_code":4,"worker')
    copied(path)
    assert path.read_bytes().startswith(whole + b'{"op_code":')
    assert all(map(json.loads, path.read_text().splitlines()))


def test_nothing_in_a_study_is_unpickled(tmp_path):
    """CMA-ES keeps its state as a pickle in an attribute of a trial: who could write it could run code."""
    path, victim = tmp_path / "x.journal", tmp_path / "victim"

    class Evil:
        def __reduce__(self):
            return (open, (str(victim), "w"))

    state, text = pickle.dumps(Evil()).hex(), copied(path).read_text()
    for number in range(4):
        for key in ("cma:optimizer", "cma:optimizer:0", "cmawm:optimizer:0", "popsize"):
            change = {"op_code": 9, "worker_id": "w", "trial_id": number, "system_attr": {key: state}}
            text += json.dumps(change) + "\n"
    path.write_text(text)
    copied(path)
    assert not victim.exists()


def test_two_workers_do_not_copy_at_once(tmp_path):
    copy = TrialStore("s", "lower")
    with held(copy.folder):
        copy.update(content())
        assert not list(tmp_path.rglob("s.db"))
    copy.update(content())
    assert len(study_of(copy.storage).trials) == 4


def test_secrets_of_a_storage_are_not_shown_and_a_silent_one_is_named(tmp_path, monkeypatch) -> None:
    assert place_of("postgresql+psycopg://u:secret@host/x") == "postgresql+psycopg://***@host/x"
    assert "secret" not in place_of("postgresql://u@host/x?password=secret&sslpassword=secret&timeout=1")
    no_port = "postgresql://u:secret@host:x/y"
    for wrong in ("u:secret@host/x", "postgresql//u:secret@host/x", no_port, "trials.txt"):
        assert "secret" not in refuses(
            ConfigError, "--storage takes a URL such as postgresql", place_of, wrong
        )
    with pytest.raises(DataError, match=r"does not answer: .*Once it does, the same command goes on"):
        copied(f"sqlite:///{tmp_path}/no/such/folder/x.db")
    (tmp_path / "x.db").write_bytes(b"no database" * 100)
    with pytest.raises(DataError, match=r"x\.db does not answer: .*made again from the records"):
        copied(f"sqlite:///{tmp_path}/x.db")
    monkeypatch.setitem(sys.modules, "psycopg", None)
    with pytest.raises(MissingExtra, match=r"://\*\*\*@host/x needs a driver .*pip install .*psycopg"):
        copied("postgresql+psycopg://u:secret@host/x")


# ---------------------------------------------------------------------------- of a search


def test_a_search_keeps_a_copy_and_a_damaged_one_stops_it_first(conf, tmp_path, forked, monkeypatch, capsys):
    write_study(conf, TINY, {"lstm": {"model": "lstm", "search": "tiny"}})
    path = tmp_path / "x.journal"
    path.write_text("nonsense\n")
    command = ["search", LSTM, "--jobs", "1"]
    assert main.main([*command, "--storage", str(path)]) == 2 and not forked
    assert "x.journal:1: damaged" in capsys.readouterr().err
    path.unlink()
    monkeypatch.setenv("PHYSML_STORAGE", str(path))
    assert main.main(command) == 0 and len(forked) == 2
    assert study_of(str(path), ID).best_value == results.recorded(ID)["best"]["value"]
