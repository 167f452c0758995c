"""Completion in shells: scripts that a shell accepts, with the commands, options and ids that there are."""

import shutil
import subprocess
import sys

import pytest

from physml.base.errors import ConfigError
from physml.cli import main
from physml.config import conf_files


def script(shell: str, capsys: pytest.CaptureFixture[str]) -> str:
    assert main.main(["completion", shell]) == 0
    return capsys.readouterr().out


def completed(text: str, *words: str) -> set[str]:
    """What bash offers for the last word of a command line."""
    line = " ".join(f"'{word}'" for word in words)
    ask = f"COMP_WORDS=({line}); COMP_CWORD={len(words) - 1}; _shtab_physml; echo ${{COMPREPLY[@]}}"
    command = ["bash", "-c", f"{text}\n{ask}"]
    done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=60)
    return set(done.stdout.split())


def test_bash_completes_commands_options_and_ids_and_accepts_others(capsys) -> None:
    text = script("bash", capsys)
    assert subprocess.run(["bash", "-n"], input=text, text=True, timeout=60).returncode == 0
    assert {"table", "run", "completion", "pilot"} <= completed(text, "physml", "")
    assert completed(text, "physml", "table", "--no-r") == {"--no-run"}
    tables = {name for name in conf_files.files("table") if name.startswith("lem-1")}
    assert completed(text, "physml", "table", "lem-1") == tables and len(tables) > 1
    assert "lem-fig-4" in completed(text, "physml", "figure", "lem-fig")
    script("bash", capsys)
    assert main.parsed(["table", "./mine.yaml"]).ids == ["./mine.yaml"]


@pytest.mark.parametrize("shell", ["zsh", "tcsh"])
def test_other_shells_have_a_script_too(shell: str, capsys: pytest.CaptureFixture[str]) -> None:
    text = script(shell, capsys)
    assert "lem-4" in text and "no-run" in text
    if shell == "zsh" and shutil.which("zsh"):
        assert subprocess.run(["zsh", "-n"], input=text, text=True, timeout=60).returncode == 0


def test_a_file_named_as_a_command_and_a_missing_extra_are_refused(tmp_path, monkeypatch, prints) -> None:
    monkeypatch.setenv("PHYSML_CONF", str(tmp_path))
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "evil$(touch X)-1.yaml").touch()
    said = prints(2, "completion", "bash")
    assert "Rename it." in said.err and not said.out
    assert conf_files.find("table", "evil$(touch X)-1") is None
    with pytest.raises(ConfigError, match=r"Rename it\."):
        conf_files.absolute("./evil`x`.yaml")
    monkeypatch.setitem(sys.modules, "shtab", None)
    assert "Install it with: pip install 'shtab>=1.7'" in prints(2, "completion", "bash").err
