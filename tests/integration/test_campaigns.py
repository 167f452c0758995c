"""Rounds of the campaigns that train first: hostile changes of a shared folder, and kills."""

from pathlib import Path

from campaigns import rounds_of


def test_a_shared_folder_and_killed_commands_show_no_fault(tmp_path: Path) -> None:
    rounds = rounds_of({"shared": 2, "kills": 2}, tmp_path / "rounds.jsonl")
    assert {entry["kind"] for entry in rounds} == {"shared", "kills"}
