"""Packed runs: read as before, rerun, merged, and never lost, whatever happens while they are packed."""

import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
from made_records import finished
from refusals import refuses

from physml.base import files
from physml.base.errors import RecordError
from physml.base.paths import own_folders
from physml.cli import main
from physml.records import record
from physml.records.pack import pack
from physml.records.record import PACK
from physml.records.schema import Record

ONE, TWO = "0123abcd", "89abcdef"


def made(seed: int = 0, split: int = 0, identity: str = ONE, mse: float = 0.25, **changes: Any) -> Any:
    data = {"version": 1, "sizes": {"test": 8 + split}}
    config = {"seed": seed, "split": split, "profile": "full", "model": {"dt": 0.1, "name": "\u0394\u2028"}}
    of = {"identity": identity, "split": split, "test": {"mse": mse}, "data": data, "config": config}
    return finished("t/a", seed, **of | changes)


def write(folder: Path, **changes: Any) -> Path:
    content = made(**changes)
    path = folder / f"{record.stem_of(content)}.json"
    record.write(path, content)
    return path


def write_packed(folder: Path, *runs: dict[str, Any]) -> Path:
    """The pack of some runs."""
    for run in runs:
        write(folder, **run)
    pack(folder, folder)
    return folder / PACK


def append(path: Path, content: bytes) -> None:
    path.write_bytes(path.read_bytes() + content)


def content(folder: Path) -> dict[Path, Record]:
    return {path: record.read(path) for path in record.run_paths(folder)}


def lines_of(folder: Path) -> list[bytes]:
    return (folder / PACK).read_bytes().splitlines()


def test_packed_runs_read_as_before_and_packing_again_changes_nothing(tmp_path: Path) -> None:
    for seed, split, identity in ((10, 0, ONE), (2, 0, ONE), (0, 1, ONE), (0, 0, TWO)):
        write(tmp_path, seed=seed, split=split, identity=identity)
    before = content(tmp_path)
    assert pack(tmp_path, tmp_path) == 4 and [path.name for path in tmp_path.iterdir()] == [PACK]
    assert content(tmp_path) == before and len(before) == 4
    text = (tmp_path / PACK).read_text(encoding="utf-8")
    lines = [json.loads(line) for line in text.split("\n")[:-1]]
    order = [(entry["identity"], entry.get("split"), entry.get("seed")) for entry in lines]
    assert order == [
        (ONE, None, None),
        (ONE, 0, 2),
        (ONE, 0, 10),
        (ONE, 1, 0),
        (TWO, None, None),
        (TWO, 0, 0),
    ]
    assert pack(tmp_path, tmp_path) == 0 and (tmp_path / PACK).read_text(encoding="utf-8") == text


def test_a_run_made_anew_counts_before_its_line_and_replaces_it(tmp_path: Path) -> None:
    write_packed(tmp_path, *({"seed": seed} for seed in range(3)))
    before = lines_of(tmp_path)
    path = write(tmp_path, seed=1, mse=0.5)
    for _ in range(2):
        assert len(content(tmp_path)) == 3 and record.read(path)["metrics"]["best"] == {"test": {"mse": 0.5}}
        pack(tmp_path, tmp_path)
    after = lines_of(tmp_path)
    assert len(after) == 4 and len(set(before) - set(after)) == 1 and not path.exists()


def test_a_setting_that_no_run_has_any_more_goes(tmp_path: Path) -> None:
    write_packed(tmp_path, {"seed": 1})
    write(tmp_path, seed=1, protocol="clean")
    assert pack(tmp_path, tmp_path) == 1 and len(lines_of(tmp_path)) == 2


def test_a_run_that_is_worked_on_stays_a_file_and_keeps_its_setting(tmp_path: Path) -> None:
    folder, work = tmp_path / "runs", tmp_path / "work"
    paths = [write(folder, seed=seed, protocol=f"p{seed}") for seed in range(2)]
    before = content(folder)
    with files.locked(work / paths[1].stem / "lock"):
        assert pack(folder, work) == 1
    assert not paths[0].exists() and paths[1].exists() and content(folder) == before
    write(folder, seed=0, protocol="p1")
    with files.locked(work / paths[1].stem / "lock"):
        assert pack(folder, work) == 1
    assert record.read(paths[1]) == before[paths[1]]
    assert pack(folder, work) == 1 and record.read(paths[1]) == before[paths[1]]


def test_packs_of_two_machines_are_joined_line_by_line(tmp_path: Path) -> None:
    here = write_packed(tmp_path / "a", {"seed": 0}, {"seed": 1})
    append(here, write_packed(tmp_path / "b", {"seed": 1}, {"seed": 2}).read_bytes())
    assert [run["seed"] for run in content(here.parent).values()] == [0, 1, 2]
    pack(here.parent, tmp_path)
    assert len(lines_of(here.parent)) == 4
    append(here, write_packed(tmp_path / "c", {"mse": 0.5}).read_bytes())  # two lines of a run that differ
    refuses(RecordError, r"runs\.jsonl, line 6, is another record of .*seed0 than", content, here.parent)


RUN = b'{"identity": "0123abcd", "split": 0, "seed": 1, "schema": '
FOREIGN = r"seed1 in .*runs\.jsonl belongs to the setting .*"


@pytest.mark.parametrize(
    ("line", "said"),
    [
        (b'{"identity"', "line 3, is damaged"),
        (b"\xff", "line 3, is damaged"),
        (b"[1]", "line 3, is no run and no setting"),
        (b'{"seed": 1}', "line 3, is no run and no setting"),
        (RUN + b'3, "setting": "0"}', "seed1 in .* schema 3"),
        (RUN + b'2, "setting": "0"}', "its setting is '0'"),
        (RUN + b'2, "setting": "01234567"}', rf"{FOREIGN}0123abcd-01234567\.setting\.json, which cannot"),
    ],
)
def test_a_line_that_is_no_record_is_named(tmp_path: Path, line: bytes, said: str) -> None:
    append(write_packed(tmp_path, {}), line + b"\n")
    refusal = refuses(RecordError, said, content, tmp_path)
    assert PACK in refusal and "\n" not in refusal


def test_a_line_whose_setting_was_edited_is_refused(tmp_path: Path) -> None:
    path = write_packed(tmp_path, {})
    text = path.read_text(encoding="utf-8")
    assert text.count('"dt": 0.1') == 1
    path.write_text(text.replace('"dt": 0.1', '"dt": 0.2'), encoding="utf-8")
    refuses(RecordError, "belongs to the setting", content, tmp_path)


@pytest.mark.parametrize("text", ["{", json.dumps(made(seed=5))], ids=["damaged", "of another run"])
def test_a_file_that_cannot_be_packed_is_named_and_nothing_is_removed(tmp_path: Path, text: str) -> None:
    write(tmp_path, seed=0)
    (tmp_path / f"{ONE}-split0-seed1.json").write_text(text)
    refuses(RecordError, r"0123abcd-split0-seed1\.json is", pack, tmp_path, tmp_path)
    assert len(list(tmp_path.glob(record.RUNS))) == 2 and not (tmp_path / PACK).exists()


def test_the_command_packs_all_folders_and_one_process_at_a_time(tmp_path, monkeypatch, capsys, prints):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / "work"))
    for folder in ("t/a", "t/b"):
        write(tmp_path / "runs" / folder)
    with files.locked(tmp_path / "work" / "pack" / "lock"):
        assert main.main(["records", "pack"]) != 0
    assert "works on" in capsys.readouterr().err
    assert "packed 2 runs" in prints(0, "records", "pack").out
    assert len(list(tmp_path.rglob(PACK))) == 2 and not list(tmp_path.rglob(record.RUNS))


def test_a_packed_run_is_done_and_force_makes_it_anew(tmp_path: Path, monkeypatch, capsys) -> None:
    for key, value in own_folders(tmp_path).items():
        monkeypatch.setenv(key, value)
    run = ["run", "model=lem", "task=fitzhugh_nagumo", "profile=smoke", "tracker=none"]
    assert main.main(run) == 0 and main.main(["records", "pack"]) == 0
    (packed,) = (tmp_path / "results").rglob(PACK)
    ((path, first),) = content(packed.parent).items()
    capsys.readouterr()
    assert main.main(run) == 0 and "finished already" in capsys.readouterr().out
    assert main.main([*run, "--force"]) == 0 and "finished already" not in capsys.readouterr().out
    second = record.read(path)
    assert path.exists() and first["cost"] != second["cost"] and first["metrics"] == second["metrics"]
    assert main.main(["records", "pack"]) == 0
    assert content(packed.parent) == {path: second} and not path.exists()
    assert main.main(["diff", str(path), str(path)]) == 0 and "no difference" in capsys.readouterr().out


KILLS = 12
PACKING = """
import sys
from pathlib import Path
from physml.records.pack import pack
print("begun", flush=True)
pack(Path(sys.argv[1]), Path(sys.argv[1]))
"""


@pytest.mark.slow
def test_no_run_is_lost_or_counted_twice_when_packing_is_killed(tmp_path: Path) -> None:
    """At random moments, with runs that come and runs that are made anew; half are read meanwhile."""
    rng, expected, killed, takes = random.Random(0), {}, 0, 0.0
    for kill in range(KILLS):
        for n in range(40):
            seed, mse = kill * 20 + n, rng.random()  # half of them are there already
            path = write(tmp_path, seed=seed, mse=mse, protocol=rng.choice(("clean", "paper")))
            expected[path] = record.read(path)
        command = [sys.executable, "-c", PACKING, str(tmp_path)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, start_new_session=True)
        assert process.stdout and process.stdout.readline() == b"begun\n"
        begun = time.perf_counter()
        if kill == 0:  # how long it takes on this machine
            process.wait()
            takes = time.perf_counter() - begun
        elif kill % 2:
            assert content(tmp_path) == expected
        else:
            time.sleep(rng.uniform(0, takes))
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        killed += process.wait() == -signal.SIGKILL
        process.stdout.close()
        assert content(tmp_path) == expected
    assert killed > 1
    pack(tmp_path, tmp_path)
    assert content(tmp_path) == expected and not list(tmp_path.glob(record.RUNS))


@pytest.mark.parametrize("step", range(6))
def test_every_step_of_packing_may_be_the_last(step: int, tmp_path: Path, monkeypatch) -> None:
    """Each removal and the renaming in turn raises, before and after it is done."""
    for seed in range(2):
        write(tmp_path, seed=seed)
    before, steps = content(tmp_path), iter(range(step))

    def until(function: Any) -> Any:
        def counted(*arguments: Any, **options: Any) -> Any:
            if next(steps, None) is None:
                raise SystemExit("killed")
            return function(*arguments, **options)

        return counted

    with monkeypatch.context() as patch:
        patch.setattr(Path, "unlink", until(Path.unlink))
        patch.setattr(Path, "replace", until(Path.replace))
        with pytest.raises(SystemExit) if step < 4 else contextlib.nullcontext():
            pack(tmp_path, tmp_path)
    assert content(tmp_path) == before
    pack(tmp_path, tmp_path)
    assert content(tmp_path) == before
    assert [path.name for path in tmp_path.iterdir() if path.suffix != ".tmp"] == [PACK]
