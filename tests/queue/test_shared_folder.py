"""Two processes meet in a folder and say whether pilots can share it."""

import subprocess
import sys
import threading

from refusals import refuses

from physml.base import files
from physml.base.errors import DataError
from physml.cli import main
from physml.queue import shared_folder


def test_two_nodes_meet_by_the_same_command_and_one_alone_by_itself(tmp_path, prints) -> None:
    (folder := tmp_path / "shared").mkdir()
    (left := folder / shared_folder.NAME).mkdir()
    for message in ("held", "seen", "killed", "written", "result"):  # of a trial that was killed
        files.write_json(left / message, {"created": 50, "findings": []})
    out = prints(0, "doctor", "--shared", str(folder), "--wait", "60").out
    assert "seen by the other process" in out and "freed" in out and "0 of " in out
    assert "50 files were created by 50 processes in all" in out
    assert "Pilots can share this folder." in out
    assert list(folder.iterdir()) == []
    command = [sys.executable, "-m", "physml", "doctor", "--shared", str(tmp_path), "--nodes", "2"]
    both = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    outputs = [process.communicate(timeout=120)[0] for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert outputs[0] == outputs[1] and "Pilots can share" in outputs[0]


def test_a_folder_whose_locks_are_local_is_refused(tmp_path, monkeypatch, capsys):
    """The second process looks here, where no lock is ever seen; the first one is started by hand."""
    (place := tmp_path / ".physml-shared").mkdir()
    other = threading.Thread(target=lambda: shared_folder._Meeting(place, 60).findings())
    monkeypatch.setattr(shared_folder.files, "is_locked", lambda _: False)
    other.start()
    assert main.main(["doctor", "--shared", str(tmp_path), "--nodes", "2"]) == 1
    other.join()
    out = capsys.readouterr().out
    assert "! lock" in out and "set PHYSML_LOCKS=lease" in out and "must not share" in out


def test_nobody_comes_a_folder_cannot_be_written_or_both_create_a_file(tmp_path, monkeypatch, prints):
    refuses(DataError, "waited in vain for a second process", shared_folder.check, tmp_path, 2, 0.2)
    assert not list((tmp_path / shared_folder.NAME).iterdir())
    (tmp_path / "file").touch()
    refuses(DataError, "is no folder", shared_folder.check, tmp_path / "file" / "x", 2, 0.2)
    monkeypatch.setattr(shared_folder._Meeting, "_created", lambda _: shared_folder.RACES)
    assert "! created files" in prints(1, "doctor", "--shared", str(tmp_path), "--wait", "60").out
