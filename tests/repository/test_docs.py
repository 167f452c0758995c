"""README and how-tos: links resolve, commands exist, names are those of conf/, settings those of the code."""

import ast
import importlib.util
import itertools
import re
import shlex
import tomllib
from pathlib import Path
from types import ModuleType

import pytest
import yaml
from each import each

from physml.base import errors
from physml.base.errors import PhysmlError
from physml.base.paths import ROOT
from physml.cli import main
from physml.cli.distribution import pilot_command
from physml.config import compose, conf_files
from physml.estimators.layers import names
from physml.report.table.spec import find_table

PAGES = sorted((ROOT / "docs").rglob("*.md"))
INDEX = ROOT / "docs" / "README.md"
REFERENCE = (ROOT / "docs" / "reference.md").read_text(encoding="utf-8")
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES]
CODE = [*(ROOT / "physml").rglob("*.py"), *(ROOT / "tasks").rglob("*.py"), *(ROOT / "scripts").rglob("*.py")]


def _script(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, ROOT / "scripts" / f"{name}.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


readme = _script("readme_commands")


def commands() -> list[tuple[str, str]]:
    """(file, command) of every command that the documents show, also in the blocks that are not run."""
    shown = []
    for path in DOCUMENTS:
        text = path.read_text(encoding="utf-8")
        shown += [(path.name, command.text) for command in readme.commands(text)]
        for block in readme.blocks(text):
            if block.language == "text":
                shown += [(path.name, line) for line in block.lines if re.match(r"(physml|make) ", line)]
    return shown


documents = each("path", DOCUMENTS)
every_command = each("document, command", commands)


@documents
def test_links_lead_somewhere(path: Path) -> None:
    text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.DOTALL | re.MULTILINE)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", text)]
    inside = [target for target in targets if "://" not in target]
    assert [target for target in inside if not (path.parent / target).exists()] == []


@documents
def test_files_that_are_named_exist(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    named = re.findall(r"`((?:physml|tasks|conf|scripts|docs|tests)/[\w/.-]+\.(?:py|yaml|md))`", text)
    assert [name for name in named if "my_" not in name and not (ROOT / name).exists()] == []


def test_every_page_is_in_the_index_once_and_the_readme_leads_there() -> None:
    text = INDEX.read_text(encoding="utf-8")
    times = {path.name: text.count(f"({path.relative_to(INDEX.parent)})") for path in PAGES if path != INDEX}
    assert {name: n for name, n in times.items() if n != 1} == {}
    assert "(docs/README.md)" in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_readme_is_short() -> None:
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 180


@every_command
def test_commands_exist(document: str, command: str) -> None:
    program, *words = _words(command)
    if program == "make":
        target = next(word for word in words if "=" not in word)
        makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
        pattern = re.sub(r"^(table|figure)-.+$", r"\1-%", target)
        assert re.search(rf"^{re.escape(pattern)}:", makefile, re.MULTILINE), target
        variables = [word.partition("=")[0] for word in words if "=" in word]
        assert [name for name in variables if not re.search(rf"^{name} \?=", makefile, re.MULTILINE)] == []
    else:
        assert program == "physml"
        assert main.parsed(pilot_command(words[1:]) if words[0] == "pilot" else words).command


@every_command
def test_commands_name_what_conf_has(document: str, command: str) -> None:
    program, *words = [word for word in _words(command) if word != "pilot"]
    for kind in ("model", "task", "experiment"):
        known = compose.names(kind)
        chosen = [word.partition("=")[2] for word in words if word.startswith(f"{kind}=")]
        named = [name for names in chosen for name in names.split(",") if not _of_reader(name)]
        assert [name for name in named if name not in known] == []
    for table, paper in _tables(program, words):
        assert _of_reader(table) or find_table(table, paper).is_file()


def _words(command: str) -> list[str]:
    """Without the variables before it."""
    return list(itertools.dropwhile(re.compile(r"PHYSML_\w+=").match, shlex.split(command)))


def _of_reader(name: str) -> bool:
    """Whether a file that the document shows."""
    return conf_files.is_path(name) or name.startswith("my_")


def _tables(program: str, words: list[str]) -> list[tuple[str, str]]:
    if program == "make":
        paper = next((word.removeprefix("PAPER=") for word in words if word.startswith("PAPER=")), "lem")
        return [(word.removeprefix("table-"), paper) for word in words if word.startswith("table-")]
    options = main.parsed(words)
    return [(name, options.paper) for name in options.ids] if words[0] == "table" else []


@documents
def test_configs_and_code_that_are_shown_are_whole(path: Path) -> None:
    for block in readme.blocks(path.read_text(encoding="utf-8")):
        source = "\n".join(block.lines)
        if block.language == "python":
            ast.parse(source)
        if block.language == "yaml":
            yaml.safe_load(source)


def test_the_experiment_of_the_how_to_composes(tmp_path: Path) -> None:
    files = readme.files((ROOT / "docs" / "add-a-model.md").read_text(encoding="utf-8"))
    assert set(files) == {
        "leaky.py",
        "my_rnn.py",
        "my_gnn.py",
        "graph_layers.py",
        "mine.yaml",
        "mine_on_texas.yaml",
    }
    for name, content in files.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    config = compose.compose([f"experiment={tmp_path / 'mine.yaml'}:rnn"]).config
    assert config["model"] == {"_target_": "my_rnn.MyRNN", "d_hidden": 16, "leak": 0.2}
    assert config["plugins"] == [str(tmp_path / "my_rnn.py")]
    on_texas = compose.compose([f"experiment={tmp_path / 'mine_on_texas.yaml'}:gnn"]).config
    assert on_texas["model"]["coupling"] == {"_target_": "my_gnn.MyGNN", "d_in": 32, "d_hidden": 32}
    assert on_texas["net"]["_target_"] == "physml.models.graph.graph_net.GraphNet"


def test_the_layers_of_the_how_to_run() -> None:
    source = readme.files((ROOT / "docs" / "add-a-model.md").read_text(encoding="utf-8"))["graph_layers.py"]
    assert "assert" in source
    exec(compile(source, "graph_layers.py", "exec"), {})  # its last line checks shapes


ESTIMATORS = readme.files((ROOT / "docs" / "estimators.md").read_text(encoding="utf-8"))


@pytest.mark.parametrize("name", ESTIMATORS)
def test_the_estimators_of_the_how_to_run(name: str) -> None:
    pytest.importorskip("sktime" if "sktime" in name else "sklearn", reason="needs an extra")
    assert "assert" in ESTIMATORS[name]
    exec(compile(ESTIMATORS[name], name, "exec"), {})


def test_the_how_to_names_every_recurrent_model_that_can_be_exported() -> None:
    text = (ROOT / "docs" / "export.md").read_text(encoding="utf-8")
    (row,) = [line for line in text.splitlines() if line.startswith("| lem, ")]
    (refused,) = [line for line in text.splitlines() if line.startswith("| bilstm |")]
    assert "from both ends" in refused
    assert any(line.startswith("| ncde, nrde | no: windows") for line in text.splitlines())
    (stateless,) = [line for line in text.splitlines() if "there is no state to loop over" in line]
    exported, others = ({*line.split("|")[1].strip().split(", ")} for line in (row, stateless))
    assert exported | others | {"bilstm", "ncde", "nrde"} == set(names())


def test_the_reference_lists_the_environment_variables_that_the_code_reads() -> None:
    used = {
        name for path in CODE for name in re.findall(r"\bPHYSML_[A-Z]+\b", path.read_text(encoding="utf-8"))
    }
    assert set(re.findall(r"^\| `(PHYSML_[A-Z]+)` \|", REFERENCE, re.MULTILINE)) == used


def test_the_reference_lists_the_variables_of_the_makefile() -> None:
    set_by_users = re.findall(
        r"^([A-Z_]+) \?=", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    assert set(re.findall(r"^\| `([A-Z_]+)=", REFERENCE, re.MULTILINE)) == set(set_by_users)


def test_the_reference_lists_the_extras() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    listed = set(re.findall(r"^\| `([a-z]+)` \|", REFERENCE, re.MULTILINE))
    assert {*listed, "all", "dev"} == set(project["optional-dependencies"])


def test_the_reference_lists_the_exit_codes_of_the_errors() -> None:
    listed = {int(code) for code in re.findall(r"^\| (\d+) \|", REFERENCE, re.MULTILINE)}
    kinds = [
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, PhysmlError)
    ]
    assert listed == {0} | {kind.exit_code for kind in kinds}


# ---------------------------------------------------------------------------- the extraction itself

SAMPLE = """\
```console
$ make table-4 SEEDS=0   # a comment
  output, not a command
$ make table-4 RUN=0
```

<!-- not run: takes an hour -->
```console
$ make demo
```

```python my_rnn.py
x = 1
```

```console elsewhere
$ physml run 'plugins=[my_rnn.py]' task=adding
$ physml table lem-4 --plan
```

```text
$ not a command
```
"""


def test_which_lines_are_commands_and_how_they_are_tested() -> None:
    parsed = readme.commands(SAMPLE)
    assert [(command.line, command.tiny) for command in parsed] == [
        (2, "make SMOKE=1 table-4 SEEDS=0"),
        (4, "make table-4 RUN=0"),
        (9, "make SMOKE=1 demo"),
        (17, "physml run profile=smoke 'plugins=[my_rnn.py]' task=adding"),
        (18, "physml table lem-4 --plan"),
    ]
    assert [command.skip for command in parsed] == [None, None, "takes an hour", None, None]
    assert [command.elsewhere for command in parsed] == [False, False, False, True, True]
    assert readme.files(SAMPLE) == {"my_rnn.py": "x = 1\n"}


def test_an_open_block_is_an_error() -> None:
    with pytest.raises(SystemExit, match="line 2 is not closed"):
        list(readme.blocks("text\n```console\n$ make\n"))


def test_commands_run_in_their_folders_and_failures_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(readme, "ROOT", tmp_path)
    document = tmp_path / "README.md"
    document.write_text(
        '```console\n$ pwd; test -z "${SEEDS:-}"\n$ false\n```\n```yaml mine.yaml\na: 1\n```\n'
        "```console elsewhere\n$ cat mine.yaml\n$ false | true\n```\n",
        encoding="utf-8",
    )
    monkeypatch.setenv("SEEDS", "9")
    assert readme.run(document, {}) == 2
    out = capfd.readouterr().out
    assert f"{tmp_path}\n" in out
    assert "a: 1\n" in out
    assert out.count("FAILED, exit code 1") == 2
