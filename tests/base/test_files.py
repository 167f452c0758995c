"""Files are whole or not there; damaged and foreign ones are told from good ones; full disks lose nothing."""

import contextlib
import errno
import hashlib
import os
import signal
import subprocess
from pathlib import Path

import pytest
import run_child
import run_harness as h
from refusals import refuses
from variants import variants

from physml.base import files
from physml.base.errors import DataError, RunFailed
from physml.cli import main
from physml.records import record
from physml.training import checkpoint

SAVING = ["net.dropout=0.2", "runtime.checkpoint_every_s=0"]

# ---------------------------------------------------------------------------- atomic files


@pytest.mark.parametrize("named", [False, True])
@pytest.mark.parametrize("old", [None, "old"])
def test_a_writer_killed_in_the_middle_leaves_the_old_file_or_none(old, named, tmp_path):
    path, begun = tmp_path / "file", tmp_path / "begun"
    if old:
        path.write_text(old)
    process = h.Started(
        run_child.write_slowly, [str(path), str(begun), *(["named"] if named else [])], tmp_path / "output"
    )
    h.until(begun.exists)
    process.kill()
    process.wait()
    assert (path.read_text() if path.exists() else None) == old
    assert [file.read_text() for file in tmp_path.glob(".file.*.tmp")] == (["half"] if named else [])
    files.sweep(path)
    assert not list(tmp_path.glob(".file.*.tmp"))


def test_a_run_removes_what_a_killed_one_has_left():
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True, exist_ok=True)
    for name in ("progress.json", "curves.png", "model.safetensors"):
        (spec.work_folder / f".{name}.x.tmp").touch()
    h.make(spec)
    assert not list(spec.work_folder.glob(".*.tmp"))


def test_a_file_whose_time_was_set_back_is_another_and_an_error_names_the_file_that_was_meant(tmp_path):
    path = tmp_path / "data"
    path.write_bytes(b"true")
    before, status = files.fingerprint(path), path.stat()
    path.write_bytes(b"fake")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert path.stat().st_mtime_ns == status.st_mtime_ns and files.fingerprint(path) != before
    for path, says in ((tmp_path, "Is a directory"), (tmp_path / ("a" * 250), "File name too long")):
        with pytest.raises(OSError, match=says) as error:
            files.write_text(path, "x")
        assert error.value.filename == str(path)


def test_a_folder_that_refuses_a_temporary_file_is_told_by_the_name_of_the_file(tmp_path, monkeypatch):
    def refused(path, *arguments, **options):
        raise OSError(errno.EROFS, "Read-only file system", str(path))

    monkeypatch.setattr(os, "open", refused)
    monkeypatch.setattr(Path, "unlink", refused)
    with pytest.raises(OSError, match="Read-only") as caught, files.writing(tmp_path / "curves.png"):
        pass
    assert caught.value.filename == str(tmp_path / "curves.png")


def test_files_have_the_mode_that_the_umask_leaves(tmp_path):
    before = os.umask(0o027)
    try:
        files.write_text(tmp_path / "a", "x")
        with files.writing(tmp_path / "b") as temporary:
            temporary.write_text("x")
    finally:
        os.umask(before)
    assert [(tmp_path / name).stat().st_mode & 0o777 for name in "ab"] == [0o640, 0o640]


def test_a_writer_that_fails_leaves_nothing(tmp_path):
    file = tmp_path / "folder" / "file"
    files.write_text(file, "old")
    refuses(ValueError, "not JSON compliant", files.write_json, file, {"a": float("nan")})

    def fill(out):
        out.write(b"half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        files.write(file, fill)
    assert list(file.parent.iterdir()) == [file]
    assert file.read_text() == "old"


# ---------------------------------------------------------------------------- checkpoints


DAMAGES = {
    "truncated": lambda data: data[: len(data) // 2],
    "empty": lambda data: b"",
    "one bit": lambda data: data[:200] + bytes([data[200] ^ 1]) + data[201:],
    "foreign": lambda data: b"PK\x03\x04 something else",
}


@pytest.mark.parametrize("how", DAMAGES)
def test_the_older_checkpoint_steps_in_for_a_damaged_one(how, tmp_path, caplog):
    for step in (1, 2, 3):
        checkpoint.save(tmp_path, {"identity": "aaaaaaaa", "step": step})
    assert checkpoint.load(tmp_path, "aaaaaaaa")["step"] == 3
    last, previous = (tmp_path / name for name in checkpoint.NAMES)
    last.write_bytes(DAMAGES[how](last.read_bytes()))
    assert checkpoint.load(tmp_path, "aaaaaaaa")["step"] == 2
    assert f"{last} is damaged and is not used" in caplog.text
    previous.write_bytes(DAMAGES[how](previous.read_bytes()))
    assert checkpoint.load(tmp_path, "aaaaaaaa") is None
    assert f"no checkpoint in {tmp_path} can be used: the run starts from scratch" in caplog.text


def test_a_run_with_damaged_checkpoints_ends_with_the_same_bits(tmp_path):
    healthy = h.make(h.spec_of(h.odd(*SAVING)))
    spec = h.spec_of(h.odd(*SAVING, "runtime.score_test=true", step_s=0.02))
    process = h.start(spec)
    h.until(lambda: h.steps_done(spec) >= 3)
    process.kill()
    process.wait()
    last, previous = (spec.work_folder / name for name in checkpoint.NAMES)

    def damage(path):
        """A kill between the two renames of a checkpoint leaves the older one alone."""
        path.write_bytes(DAMAGES["truncated"]((path if path.exists() else previous).read_bytes()))

    damage(last)
    before = checkpoint.load(spec.work_folder, spec.place.identity)["trainer"]["step"]
    assert before >= 1
    going_on = h.start(spec)
    h.until(lambda: h.steps_done(spec) > before + 1)
    going_on.kill()
    going_on.wait()
    assert f"{last} is damaged and is not used" in (spec.work_folder / "log.txt").read_text()
    assert f"continuing at step {before}" in going_on.text()
    for path in (last, previous):
        damage(path)
    assert h.start(spec).wait() == 0
    log = (spec.work_folder / "log.txt").read_text()
    assert f"{previous} is damaged and is not used" in log
    assert f"no checkpoint in {spec.work_folder} can be used: the run starts from scratch" in log
    assert record.read(spec.record_path)["metrics"] == healthy["metrics"]


def test_a_checkpoint_of_another_setting_is_not_used_and_none_runs_foreign_code(tmp_path, caplog):
    checkpoint.save(tmp_path, {"identity": "aaaaaaaa", "state": pytest.raises})
    assert checkpoint.load(tmp_path, "aaaaaaaa") is None
    assert "last.pt cannot be read: UnpicklingError: Weights only load failed" in caplog.text
    checkpoint.save(tmp_path, {"identity": "aaaaaaaa"})
    assert checkpoint.load(tmp_path, "bbbbbbbb") is None
    assert "belongs to another setting and is not used" in caplog.text
    assert checkpoint.load(tmp_path, "aaaaaaaa") == {"identity": "aaaaaaaa"}


@pytest.mark.parametrize("name", checkpoint.NAMES)
@pytest.mark.parametrize("flags", [[], ["--force"]])
@pytest.mark.parametrize("kind", variants(["fifo"], ["folder"]))
def test_a_checkpoint_that_is_not_a_file_is_one_line(kind, flags, name, prints):
    spec = h.spec_of(h.odd())
    path = spec.work_folder / name
    spec.work_folder.mkdir(parents=True)
    path.mkdir() if kind == "folder" else os.mkfifo(path)
    message = prints(2, "run", *h.odd(), *flags).err
    assert f"error: {path} must be a file, a checkpoint. Remove it and start again." in message
    assert "Traceback" not in message and not spec.record_path.exists()
    path.rmdir() if kind == "folder" else path.unlink()
    assert main.main(["run", *h.odd()]) == 0


@pytest.mark.parametrize(
    "content", ["a word", ["a", "list"], {}, {"trainer": []}, {"trainer": {"net": None}}]
)
def test_a_checkpoint_of_other_content_is_one_line(content, prints, caplog):
    """With the right checksum, as if written by another program."""
    spec = h.spec_of(h.odd())
    spec.work_folder.mkdir(parents=True)
    if isinstance(content, dict):
        checkpoint.save(spec.work_folder, {"identity": spec.place.identity, **content})
        message = prints(2, "run", *h.odd()).err
        assert "error: the checkpoint does not fit the code as it is now" in message
        assert "Traceback" not in message
    else:
        checkpoint.save(spec.work_folder, content)
        assert main.main(["run", *h.odd()]) == 0
        assert "last.pt is damaged and is not used" in caplog.text


def test_a_body_that_torch_cannot_read_is_one_line(tmp_path, caplog):
    for body in (b"", b"no archive", b"PK\x03\x04 half an archive"):
        (tmp_path / "last.pt").write_bytes(checkpoint.MAGIC + hashlib.sha256(body).digest() + body)
        caplog.clear()
        assert checkpoint.load(tmp_path, "aaaaaaaa") is None
        assert "last.pt cannot be read: " in caplog.text and "Traceback" not in caplog.text


# ---------------------------------------------------------------------------- records


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (lambda text: text[:500], "is damaged"),
        (lambda text: text.replace('"setting": "', '"setting": "f'), "its setting is 'f"),
        (lambda text: "[" * 100_000 + "]" * 100_000, "nested too deeply"),
    ],
    ids=["truncated", "another setting", "deeply nested"],
)
def test_a_record_that_cannot_be_used_is_named(content, said, capsys, prints):
    overrides = h.odd()
    path = h.spec_of(overrides).record_path
    h.make(h.spec_of(overrides))
    path.write_text(content(path.read_text()))
    capsys.readouterr()
    error = prints(2, "run", *overrides).err
    assert error.startswith("error: ") and str(path) in error and said in error
    assert main.main(["diff", str(path), str(path)]) == 2


# ---------------------------------------------------------------------------- full and unwritable disks


@pytest.fixture
def small_disk(tmp_path):
    """A file system of 256 KiB, and a way to fill it up and to free it again."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=256k", "test", str(folder)], capture_output=True, text=True
    )
    if mount.returncode:
        pytest.skip(f"mounting a tmpfs is not permitted: {mount.stderr.strip()}")
    try:
        yield folder
    finally:
        subprocess.run(["umount", str(folder)], check=True)


def fill(folder):
    filler = folder / "filler"
    with contextlib.suppress(OSError), filler.open("ab", buffering=0) as file:
        while True:
            file.write(b"x" * 4096)
    return filler


def test_training_goes_on_when_no_checkpoint_can_be_written(small_disk, monkeypatch):
    spec = h.spec_of(h.odd(*SAVING))
    want = h.make(spec)
    monkeypatch.setenv("PHYSML_RUNS", str(small_disk))
    monkeypatch.setenv("PHYSML_RESULTS", str(small_disk.parent / "others"))
    output = small_disk.parent / "output"
    fill(small_disk)
    process = h.start_command(["run", *h.odd(*SAVING)], output)
    assert process.wait() == 0, process.text()
    said = process.text()
    assert "the checkpoint could not be written: No space left on device. Training goes on." in said
    assert "metrics.jsonl could not be written" in said and "Traceback" not in said
    assert h.numbers(record.read(spec.record_path)) == h.numbers(want)


def test_a_stop_on_a_full_disk_says_what_is_lost(small_disk, monkeypatch):
    monkeypatch.setenv("PHYSML_RUNS", str(small_disk))
    overrides = h.odd(step_s=0.05)
    fill(small_disk)
    process = h.start_command(["run", *overrides], small_disk.parent / "output")
    h.until(lambda: "12 steps" in process.text())
    process.send_signal(signal.SIGTERM)
    assert process.wait() == 75
    assert "The next start goes on from an older one, if there is one." in process.text()
    assert "Traceback" not in process.text()


def test_a_record_that_does_not_fit_on_the_disk_is_written_next_time(small_disk, monkeypatch):
    want = h.make(h.spec_of(h.odd()))
    monkeypatch.setenv("PHYSML_RESULTS", str(small_disk))
    spec = h.spec_of(h.odd(step_s=0.02))
    process = h.start(spec)
    h.until(lambda: (spec.work_folder / "metrics.jsonl").exists())
    filler = fill(small_disk)
    assert process.wait() == 1
    said = process.text()
    assert f"the record {spec.record_path} could not be written: No space left on device" in said
    assert "Free space and start the same command again" in said and "Traceback" not in said
    with pytest.raises(DataError, match=r"cannot be written: No space left on device.*PHYSML_RESULTS"):
        h.make(spec)  # told before training
    filler.unlink()
    again = h.start(spec)
    assert again.wait() == 0
    assert "continuing at step 12" in again.text()
    assert record.read(spec.record_path)["metrics"] == want["metrics"]


@pytest.mark.parametrize(
    ("root", "beside"), [("PHYSML_RESULTS", None), ("PHYSML_RUNS", None), ("PHYSML_RESULTS", "PHYSML_RUNS")]
)
def test_an_unwritable_root_is_told_before_training(root, beside, tmp_path, monkeypatch, prints):
    """Also where it is named alone, and the work folder lies beside the results."""
    (tmp_path / "a file").touch()
    monkeypatch.setenv(root, str(tmp_path / "a file" / "below"))
    if beside:
        monkeypatch.delenv(beside)
    said = prints(2, "run", *h.odd()).err
    assert "cannot be written: Not a directory" in said and f"set {root} to another folder" in said
    assert "steps" not in said


def test_a_failure_does_not_replace_a_finished_record(monkeypatch):
    spec = h.spec_of(h.odd())
    want = h.make(spec)
    with monkeypatch.context() as context:
        context.setattr(h.task_class("Odd"), "loss", lambda *_: 1 / 0)
        refuses(RunFailed, r"ZeroDivisionError.*The earlier record .* is kept", h.make, spec, force=True)
    assert h.numbers(h.make(spec)) == h.numbers(want)
