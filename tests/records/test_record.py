"""Records: a run's file joined with its setting's, and files that cannot be used."""

import json
from pathlib import Path
from typing import Any

import pytest
from made_records import finished
from refusals import refuses

from physml.base.errors import RecordError
from physml.records import record
from physml.records.schema import SCHEMA

IDENTITY = "0123abcd"


def made(**changes: Any) -> dict[str, Any]:
    """A small record of today, whole."""
    files = [{"name": "a.zip", "sha256": "0f", "verified": "bytes"}]
    of = {
        "identity": IDENTITY, "metrics": {"best": {"test": {"mse": 0.25}}, "last": {"test": {"mse": 0.5}}},
        "selected": {"rule": "min valid/mse", "step": 10, "epoch": 1}, "hashed": {"model": {"dt": 0.1}},
        "data": {"version": 1, "sizes": {"test": 8}, "files": files}, "curve": None,
        "config": {"seed": 3, "split": 0, "profile": "full", "model": {"dt": 0.1}},
    }  # fmt: skip
    return finished("t/a", 3, **of) | changes


def path_of(folder: Path, seed: int = 3) -> Path:
    return folder / f"{IDENTITY}-split0-seed{seed}.json"


def setting_of(folder: Path) -> Path:
    (path,) = folder.glob("*.setting.json")
    return path


def refused(folder: Path, says: str, seed: int = 3) -> None:
    """In one line, with the name of the file."""
    said = refuses(RecordError, says, record.read, path_of(folder, seed))
    assert path_of(folder, seed).name in said and "\n" not in said


def change(path: Path, **changes: Any) -> None:
    """As if the file had been written so: without a check, as older ones are."""
    content = json.loads(path.read_text()) | changes
    content.pop("check", None)
    path.write_text(json.dumps(content))


def test_a_failure_hides_no_result_of_a_later_results_folder(tmp_path: Path, monkeypatch) -> None:
    roots = [tmp_path / "own", tmp_path / "checkout"]
    monkeypatch.setattr(record, "results_roots", lambda: roots)
    later = {3: "finished", 4: "failed", 5: "finished", 6: "diverged"}
    for root, ends in zip(roots, (dict.fromkeys((3, 4, 6), "failed"), later), strict=True):
        for seed, status in ends.items():
            record.write(path_of(root / "runs/t/a", seed), made(seed=seed, status=status))
    ends = {run["seed"]: run["status"] for run in record.records("t/a")}
    assert ends == later
    (failed,) = record.records("t/a", places={(0, 4)})
    assert failed["path"] == str(path_of(roots[0] / "runs/t/a", 4)), "of two failures the first"
    assert record.records("t/a", places={(4, 0)}) == []
    # The runs beside one of a results folder are those of all of them.
    beside = record.records_beside(path_of(roots[0] / "runs/t/a"))
    assert {run["seed"] for run in beside} == {3, 4, 5, 6}
    (tmp_path / "own").rename(tmp_path / "sent")
    assert len(record.records_beside(path_of(tmp_path / "sent/runs/t/a"))) == 3


def test_a_changed_digit_is_noticed_and_a_damaged_setting_mended_by_the_next_run(tmp_path: Path) -> None:
    path = path_of(tmp_path)
    record.write(path, made())
    text = path.read_text()
    assert '"seed": 3' in text
    path.write_text(text.replace('"seed": 3', '"seed": 4'))
    refused(tmp_path, r"seed3.json is damaged: its content has the hash \w{8}, not \w{8}")
    path.write_text(text)
    assert record.read(path) == made(path=str(path))
    record.write(path_of(tmp_path), made())
    setting_of(tmp_path).write_text("{")
    refuses(RecordError, r"setting\.json is damaged", record.read, path_of(tmp_path))
    record.write(path_of(tmp_path, 4), made(seed=4))
    assert record.read(path) == made(path=str(path))


def test_runs_of_a_setting_share_one_file_and_one_that_differs_in_it_has_its_own(tmp_path: Path) -> None:
    runs = [made(seed=seed, config=made()["config"] | {"seed": seed}) for seed in range(5)]
    runs[4]["config"]["tracker"] = "wandb"
    for seed, files in enumerate((2, 3, 4, 5, 7)):
        record.write(path_of(tmp_path, seed), runs[seed])
        assert len(list(tmp_path.iterdir())) == files
    assert "config" not in json.loads(path_of(tmp_path).read_text())
    paths = [path_of(tmp_path, seed) for seed in range(5)]
    assert [{**record.read(path), "path": None} for path in paths] == [run | {"path": None} for run in runs]


def test_a_file_that_is_not_there_is_named_and_not_a_number_becomes_null(tmp_path: Path) -> None:
    refused(tmp_path, r"seed3\.json cannot be read: No such file")
    refuses(RecordError, r"cannot be read: a folder, expected a file", record.read, tmp_path)
    record.write(path_of(tmp_path), made())
    setting_of(tmp_path).unlink()
    refused(tmp_path, r"seed3\.json belongs to the setting .*setting\.json, which cannot")
    assert record.finite({"a": [float("nan"), float("inf"), 1.5]}) == {"a": [None, None, 1.5]}
    record.write(path_of(tmp_path), made(metrics={"best": {"test": {"mse": float("nan")}}, "last": None}))
    assert record.read(path_of(tmp_path))["metrics"] == {"best": {"test": {"mse": None}}, "last": None}


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"schema": "one"}, "its schema is 'one'"),
        ({"schema": True}, "its schema is True"),
        ({"schema": 3}, f"has schema 3; this physml reads up to {SCHEMA}"),
        ({"seed": "3"}, "its seed is '3', not a whole number"),
        ({"seed": None}, "its seed is None, not a whole number"),
        ({"split": True}, "its split is True, not a whole number"),
        ({"status": "done"}, "its status is 'done', not one of finished"),
        ({"metrics": []}, r"its metrics is \[\], not a mapping"),
        ({"metrics": {"best": None}}, "its metrics has no last"),
        ({"metrics": {"best": {"test": {"mse": "low"}}, "last": None}}, r"metrics\.best\.test\.mse is 'low'"),
        ({"cost": {"train_s": 1}}, "its cost has no eval_s, ms_per_step, peak_memory_mib"),
        ({"curve": ["a"]}, r"its curve is \['a'\], not a text"),
        ({"identity": "../../x"}, r"its identity is '../../x'"),
        ({"setting": "../../../x"}, r"its setting is '../../../x'"),
        ({"setting": None}, "its setting is None"),
        ({"identity": "0123abcd/../x"}, r"its identity is '0123abcd/../x'"),
        ({"setting": "0123abcdef"}, r"its setting is '0123abcdef'"),
        ({"note": json.loads("[" * 100 + "]" * 100)}, "nested more than 32 levels"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_kind_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    record.write(path_of(tmp_path), made())
    change(path_of(tmp_path), **changes)
    refused(tmp_path, said)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"protocol": 3}, "its protocol is 3, not a text"),
        ({"precision": None}, "its precision is None, not a text"),
        ({"scoring": {"a": "b", "c": 1}}, r"its scoring\.c is 1, not a text"),
        ({"provenance": "paper"}, "its provenance is 'paper', not a mapping"),
        ({"data": {"version": 1.5}}, r"its data\.version is 1\.5, not a whole number"),
        ({"data": {"sizes": {"test": 8}, "files": [{"name": "a"}]}}, r"its data\.files\.0 has no sha256"),
        ({"data": {"sizes": {"test": True}, "version": 1}}, r"its data\.sizes\.test is True"),
        ({"data": 3}, "its data is 3, not a mapping"),
    ],
    ids=str,
)
def test_a_value_of_the_wrong_kind_is_named_in_each_run_of_a_setting(tmp_path: Path, changes, said) -> None:
    for seed in (3, 4):
        record.write(path_of(tmp_path, seed), made(**changes, seed=seed))
    for seed in (3, 4, 3):
        refused(tmp_path, said, seed)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b'{"schema": 2, "seed"', "is damaged"),
        (b"", "is damaged"),
        (b"\xff\xfe", "is damaged"),
        (b'{"a": ' * 100_000, "is damaged"),
        (b'{"a": ' * 100_000 + b"1" + b"}" * 100_000, "nested too deeply"),
        (b'{"seed": ' + b"1" * 5000 + b"}", "is damaged"),
        (b"[1, 2]", r"it is \[1, 2\], not a mapping"),
        (b'{"schema": 1, "seed": 0}', "has schema 1, which is no longer read"),
        (b'{"seed": 0}', "it has no schema"),
    ],
    ids=["cut", "empty", "no text", "deep and cut", "deep", "digits", "a list", "older", "no schema"],
)
def test_a_file_that_is_no_record_is_named(tmp_path: Path, content: bytes, said: str) -> None:
    path_of(tmp_path).write_bytes(content)
    refused(tmp_path, said)


def test_only_a_damaged_file_among_results_is_to_be_deleted(tmp_path: Path, monkeypatch) -> None:
    """A file of the user's own, given for a record, stays."""
    path = path_of(tmp_path)
    path.write_bytes(b"rows: {}")
    refused(tmp_path, "Name the file of a run")
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    refused(tmp_path, "Delete it and run again")


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"identity": "ffffffff"}, "not what its name says: it has identity ffffffff"),
        ({"config": {"model": {"dt": 0.2}}}, "not what its name says: it has identity 0123abcd and hash"),
        ({"config": 1}, "is not a setting of physml"),
    ],
    ids=["another identity", "another dt", "no config"],
)
def test_a_setting_that_was_changed_is_named(tmp_path: Path, changes: dict[str, Any], said: str) -> None:
    record.write(path_of(tmp_path), made())
    change(setting_of(tmp_path), **changes)
    refuses(RecordError, rf"setting\.json is {said}|setting\.json {said}", record.read, path_of(tmp_path))


def test_a_setting_under_the_identity_of_another_is_named_and_the_order_of_keys_makes_no_hash(
    tmp_path: Path,
) -> None:
    record.write(path_of(tmp_path), made())
    file = setting_of(tmp_path)
    file.rename(file.with_name(file.name.replace(IDENTITY, "ffffffff")))
    change(path_of(tmp_path), identity="ffffffff")
    refused = f"not what its name says: it has identity {IDENTITY}"
    refuses(RecordError, refused, record.read, path_of(tmp_path))
    assert record.digest_of({"a": 1, "b": {"c": 2, "d": 3}}) == record.digest_of(
        {"b": {"d": 3, "c": 2}, "a": 1}
    )


def test_diff_joins_runs_with_their_settings(tmp_path: Path, prints) -> None:
    other = made(seed=4)
    other["config"] |= {"seed": 4, "model": {"dt": 0.2}}
    other["data"]["files"][0]["verified"] = "content"
    record.write(path_of(tmp_path), made())
    record.write(path_of(tmp_path, 4), other)
    assert prints(0, "diff", str(path_of(tmp_path)), str(path_of(tmp_path, 4))).out.splitlines() == [
        "config.model.dt: 0.1 | 0.2",
        "config.seed: 3 | 4",
        "data.files.a.zip.verified: 'bytes' | 'content'",
        "seed: 3 | 4",
    ]
    assert record.split(made())[0]["config"] == {"profile": "full", "model": {"dt": 0.1}}
