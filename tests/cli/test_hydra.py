"""What a user of Hydra types: docs/hydra.md, line by line, works or names the way."""

import os
import re
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from configs import write

from physml.base.paths import ROOT
from physml.config import hydra_words
from physml.config.compose import names
from physml.config.overrides import expand

PAGE = (ROOT / "docs" / "hydra.md").read_text(encoding="utf-8")
TYPED, REFUSED, _ = PAGE.partition("## What you type")[2].split("\n## ")
TINY = ("model=lem", "task=adding", "profile=smoke")
Physml = Callable[..., tuple[int, str, str]]


def table(text: str) -> list[list[str]]:
    """The rows below the head, a list of code spans for each cell."""
    lines = [line for line in text.splitlines() if line.startswith("|")][2:]
    return [line.strip("| ").split(" | ") for line in lines]


def spans(cell: str) -> list[str]:
    return re.findall(r"`([^`]+)`", cell)


@pytest.fixture(autouse=True)
def elsewhere(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PHYSML_CONF", raising=False)


@pytest.fixture
def files(tmp_path: Path) -> Path:
    write(tmp_path / "conf2" / "model" / "mine.yaml", (ROOT / "conf" / "model" / "lem.yaml").read_text())
    study = "task: adding\nprovenance: {kind: own, source: me}\nrows: {lem: {model: lem}}\n"
    write(tmp_path / "mine.yaml", study)
    (tmp_path / "my_net.py").write_text(
        "from torch import nn\n\nclass MyNet(nn.Module):\n"
        "    def __init__(self, layer: nn.Module, d_out: int):\n"
        "        super().__init__()\n        self.layer = layer\n"
    )
    return tmp_path


COMMANDS = [c for row in table(TYPED) for c in spans(row[1]) if c.startswith("physml run")]


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_of_the_page_composes(physml: Physml, files: Path, command: str, monkeypatch) -> None:
    words = shlex.split(command)[1:]
    if "~net" in words:
        words.append("plugins=[my_net.py]")
    code, out, err = physml(*words, *([] if "--cfg" in words else ["--cfg"]))
    assert (code, err) == (0, "") or "runs code of" in err, err
    assert out.startswith("# identity ") and "PHYSML_CONF" not in os.environ


def test_every_word_that_is_refused_is_on_the_page() -> None:
    left = " ".join(row[0] for row in table(REFUSED))
    for key in hydra_words.KEYS:
        assert re.search(rf"`hydra[./]{key}", left), key
    for options in hydra_words.OPTIONS:
        assert all(f"`{option}`" in left for option in options)


@pytest.mark.parametrize("words", [w for row in table(REFUSED) for w in spans(row[0])])
def test_a_word_without_a_meaning_names_the_way(physml: Physml, words: str) -> None:
    word = words if words.startswith("-") or "=" in words else f"{words}=x"
    code, out, err = physml("run", word, *TINY)
    assert (code, out) == (2, "")
    here = next(row[1] for row in table(REFUSED) if f"`{words}`" in row[0])
    named = [word for way in spans(here) for word in re.findall(r"PHYSML_\w+|--?[a-z]+|physml \w+", way)]
    assert err.startswith("error: ") and (not named or any(word in err for word in named)), err


def test_cfg_shows_the_same_in_every_form_words_alone_are_repeated_and_an_empty_mapping_empties(physml):
    assert (plain := physml("run", *TINY, "--cfg"))[0] == 0
    for form in (("--cfg", "job"), ("--cfg=job",), ("-c", "job"), ("--cfg", "job", "--resolve")):
        assert physml("run", *form, *TINY) == plain
    assert "no config of Hydra's own" in physml("run", *TINY, "--cfg", "hydra")[2]
    assert "--resolve belongs to --cfg" in physml("run", *TINY, "--resolve")[2]
    for words in (("model=lem", "task=adding"), ("-m", "seed=0,1", *TINY), ("--cfg", "job", *TINY)):
        code, _, err = physml(*words)
        assert code == 2 and f"Did you mean: physml run {' '.join(words)}" in err
    assert expand(["seed=0,0,1"], names) == [["seed=0"], ["seed=1"]]
    said = physml("run", "model=gcn", "task=pyg", "task.dataset=Actor", "task.options={}", "--cfg")[1]
    assert "options: {}" in said
    merged = physml("run", "model=gcn", "task=pyg", "+task.options={split: public}", "--cfg")[1]
    assert "name: Cora" in merged and "split: public" in merged


def test_config_dir_is_the_folder_of_own_configs(physml: Physml, files: Path) -> None:
    assert "no model named mine" in physml("run", "model=mine", "task=adding", "--cfg")[2]
    code, out, _ = physml("run", "--config-dir", "conf2", "model=mine", "task=adding", "--cfg")
    assert code == 0 and "_target_: physml.models.sequence.lem.LEM" in out
    assert "\nmine " in physml("list", "models", "--config-dir=conf2")[1]
    assert "--config-dir nope: there is no such folder" in physml("list", "models", "--config-dir", "nope")[2]
