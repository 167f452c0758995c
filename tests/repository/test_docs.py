"""README and how-tos: links resolve, commands exist, names are those of conf/, settings those of the code."""

import ast
import itertools
import json
import re
import shlex
import tomllib
from pathlib import Path

import pytest
import yaml
from each import each

from physml import results
from physml.base import errors
from physml.base.errors import PhysmlError
from physml.base.paths import ROOT
from physml.cli import main
from physml.cli.distribution import pilot_command
from physml.config import compose, conf_files
from physml.estimators.layers import names
from physml.records.searches import spread_of_search
from physml.report.table.spec import find_table
from scripts import readme_commands as readme

PAGES = sorted((ROOT / "docs").rglob("*.md"))
INDEX = ROOT / "docs" / "README.md"
DOCUMENTS = [ROOT / "README.md", ROOT / "CHANGELOG.md", *PAGES]
CODE = [path for folder in ("physml", "tasks", "scripts") for path in (ROOT / folder).rglob("*.py")]


def text_of(path: Path | str) -> str:
    """The text of a file, which a name in the repository stands for too."""
    return (ROOT / path).read_text(encoding="utf-8")


TESTS = {
    name
    for path in (ROOT / "tests").rglob("*.py")
    for name in (path.stem, *re.findall(r"^ *def (test_\w+)", text_of(path), re.MULTILINE))
}
REFERENCE, MAKEFILE = text_of("docs/reference.md"), text_of("Makefile")
VARIABLE = re.compile(r"PHYSML_\w+=")
VARIABLES = {*re.findall(r"^([A-Z_]+) \?=", MAKEFILE, re.MULTILINE)}
HOW_TO = readme.files(text_of("docs/add-a-model.md"))
ESTIMATORS = readme.files(text_of("docs/estimators.md"))


def commands() -> list[tuple[str, list[str]]]:
    """(file, words) of every command that the documents show, run or not; without the variables before it."""
    shown = []
    for path in DOCUMENTS:
        lines = [command.text for command in readme.commands(text_of(path))]
        for block in readme.blocks(text_of(path)):
            if block.language == "text":
                lines += [line for line in block.lines if re.match(r"(physml|make) ", line)]
        shown += [(path.name, list(itertools.dropwhile(VARIABLE.match, shlex.split(line)))) for line in lines]
    return shown


@each("path", DOCUMENTS)
def test_links_named_files_and_shown_code_of_a_page_are_whole(path: Path) -> None:
    text = text_of(path)
    prose = re.sub(r"^```.*?^```", "", text, flags=re.DOTALL | re.MULTILINE)
    targets = [target.partition("#")[0] for target in re.findall(r"\]\(([^)]+)\)", prose)]
    assert [name for name in targets if "://" not in name and not (path.parent / name).exists()] == []
    named = re.findall(r"`((?:physml|tasks|conf|scripts|docs|tests)/[\w/.-]+\.(?:py|yaml|md))`", text)
    assert [name for name in named if "my_" not in name and not (ROOT / name).exists()] == []
    for block in readme.blocks(text):
        source = "\n".join(block.lines)
        if block.language == "python":
            ast.parse(source)
        if block.language == "yaml":
            yaml.safe_load(source)


def test_every_page_is_in_the_index_once_and_the_short_readme_leads_there() -> None:
    text = text_of(INDEX)
    times = {path.name: text.count(f"({path.relative_to(INDEX.parent)})") for path in PAGES if path != INDEX}
    assert {name: n for name, n in times.items() if n != 1} == {}
    assert "(docs/README.md)" in text_of("README.md")
    assert len(text_of("README.md").splitlines()) <= 180


@each("document, words", commands)
def test_commands_exist_and_name_what_conf_has(document: str, words: list[str]) -> None:
    program, *words = words
    if program == "make":
        target = next(word for word in words if "=" not in word)
        pattern = re.sub(r"^(table|figure)-.+$", r"\1-%", target)
        assert re.search(rf"^{re.escape(pattern)}:", MAKEFILE, re.MULTILINE), target
        assert {word.partition("=")[0] for word in words if "=" in word} <= VARIABLES
    else:
        assert program == "physml"
        assert main.parsed(pilot_command(words[1:]) if words[0] == "pilot" else words).command
    words = [word for word in words if word != "pilot"]
    for kind in ("model", "task", "experiment"):
        known = compose.names(kind)
        chosen = [word.partition("=")[2] for word in words if word.startswith(f"{kind}=")]
        named = [name for names in chosen for name in names.split(",") if not _of_reader(name)]
        assert [name for name in named if name not in known] == []
    for table, paper in _tables(program, words):
        assert _of_reader(table) or find_table(table, paper).is_file()


def _of_reader(name: str) -> bool:
    """Whether a file that the document shows."""
    return conf_files.is_path(name) or name.startswith("my_")


def _tables(program: str, words: list[str]) -> list[tuple[str, str]]:
    if program == "make":
        paper = next((word.removeprefix("PAPER=") for word in words if word.startswith("PAPER=")), "lem")
        return [(word.removeprefix("table-"), paper) for word in words if word.startswith("table-")]
    options = main.parsed(words)
    return [(name, options.paper) for name in options.ids] if words[0] == "table" else []


def test_the_experiment_of_the_how_to_composes(tmp_path: Path) -> None:
    code = {"leaky.py", "my_rnn.py", "my_gnn.py", "graph_layers.py"}
    assert set(HOW_TO) == {*code, "mine.yaml", "mine_on_texas.yaml"}
    for name, content in HOW_TO.items():
        (tmp_path / name).write_text(content, encoding="utf-8")
    config = compose.compose([f"experiment={tmp_path / 'mine.yaml'}:rnn"]).config
    assert config["model"] == {"_target_": "my_rnn.MyRNN", "d_hidden": 16, "leak": 0.2}
    assert config["plugins"] == [str(tmp_path / "my_rnn.py")]
    on_texas = compose.compose([f"experiment={tmp_path / 'mine_on_texas.yaml'}:gnn"]).config
    assert on_texas["model"]["coupling"] == {"_target_": "my_gnn.MyGNN", "d_in": 32, "d_hidden": 32}
    assert on_texas["net"]["_target_"] == "physml.models.graph.graph_net.GraphNet"


@pytest.mark.parametrize("name", ["graph_layers.py", *ESTIMATORS])
def test_the_code_of_a_how_to_runs_and_checks_itself(name: str) -> None:
    if name in ESTIMATORS:
        pytest.importorskip("sktime" if "sktime" in name else "sklearn", reason="needs an extra")
    source = (HOW_TO | ESTIMATORS)[name]
    assert "assert" in source
    exec(compile(source, name, "exec"), {})


def test_the_how_to_names_every_recurrent_model_that_can_be_exported() -> None:
    text = text_of("docs/export.md")
    (row,) = [line for line in text.splitlines() if line.startswith("| lem, ")]
    (refused,) = [line for line in text.splitlines() if line.startswith("| bilstm |")]
    assert "from both ends" in refused
    assert any(line.startswith("| ncde, nrde | no: windows") for line in text.splitlines())
    (stateless,) = [line for line in text.splitlines() if "there is no state to loop over" in line]
    exported, others = ({*line.split("|")[1].strip().split(", ")} for line in (row, stateless))
    assert exported | others | {"bilstm", "ncde", "nrde"} == set(names())


TABLES_WITH_RANKS = ("own-sequence", "own-heterophily", "own-long-range")  # in the order of the page


@pytest.mark.parametrize("table", TABLES_WITH_RANKS)
def test_ranks_in_words_are_those_of_the_table(table: str) -> None:
    section = text_of(f"results/tables/{table}.md").partition("## Mean ranks over ")[2]
    exact = re.findall(r"^\| [^|]+ \| (\d+\.\d\d) \|", section, re.MULTILINE)
    ranks = [f"{float(rank):.1f}" for rank in exact]
    sentence = text_of("docs/which-model.md").split("By mean rank")[1 + TABLES_WITH_RANKS.index(table)]
    quoted = re.findall(r" (\d+\.\d)[,; ]", sentence.partition(". ")[0])
    assert any(quoted == ranks[:k] + ranks[len(ranks) - len(quoted) + k :] for k in range(3, len(quoted) + 1))


# Those of a ridge regression, which tests/tasks has, and of one start of ten that is chosen for each split.
NO_CELL = {"80.5 ± 6.5", "82.4 ± 3.3", "82.2 ± 6.9", "82.4 ± 4.3", "84.1 ± 3.1", "83.0 ± 5.9"}


def test_means_and_spreads_in_words_are_those_of_the_tables_of_the_page_and_searches_are_counted() -> None:
    cells = results.cells()
    for path in sorted((ROOT / "docs" / "papers").glob("*.md")):
        text = text_of(path)
        shown = [cell for cell in cells if f"/{cell.table}.md" in text]
        pairs = [(c.ours.mean, c.ours.sd) for c in shown if c.ours and c.ours.sd is not None]
        pairs += [(c.printed.value, c.printed.sd) for c in shown if c.printed and c.printed.sd is not None]
        known = {f"{mean:.{n}f} ± {sd:.{k}f}" for mean, sd in pairs for n in range(4) for k in range(4)}
        said = re.findall(r"(?<![-+.\d])\d[\d.]* ±\s[\d.]*\d", text)  # those with a sign are differences
        assert {" ".join(pair.split()) for pair in said} <= known | NO_CELL, path.name
    stored = [p for p in (ROOT / "results" / "search").glob("*.json") if "-repeat" not in p.name]
    random = [path for path in stored if "design" not in json.loads(text_of(path))]
    page = text_of("docs/search.md")
    assert f"{len(random)} of {len(stored)}, are of an earlier form" in page
    assert f"\n{spread_of_search('g2-texas-g2_sage')}\n" in page
    lem_4 = [f"fitzhugh_nagumo-{row}" for row in ("cornn", "lem", "lstm")]
    for ident in (*lem_4, "sequence-fitzhugh_nagumo-lem"):
        spread = spread_of_search(ident)
        assert spread and f"({spread.ratio:.3g} after " in page, spread


def test_what_the_direction_of_edges_is_worth_is_what_tables_have() -> None:
    page = text_of("docs/papers/g2.md")
    block = page.split("| row | direction | Chameleon: stored |")[1].split("\n\n")[0]
    cells, gains = results.cells(), {}
    for row in block.splitlines()[2:]:
        name, _, *numbers = (part.strip() for part in row.strip("|").split("|"))
        for graph, (stored, so, quoted) in (("chameleon", numbers[:3]), ("squirrel", numbers[3:])):
            near = [
                cell
                for cell in cells
                if cell.table in ("g2-2", "own-directions") and cell.column == graph
                if cell.row.split(",")[0] == name.replace("²", "2")
            ]
            ours = {f"{cell.ours.mean:.1f}" for cell in near if cell.ours}
            assert {stored, so} <= ours, row
            assert quoted in {f"{cell.printed.value:.1f}" for cell in near if cell.printed}, row
            gains[name, graph] = float(so) - float(stored)
    less = f"{gains.pop(('GCNII', 'squirrel')):.0f} and {gains.pop(('F²GAT', 'squirrel')):.0f}"
    others = f"{min(gains.values()):.0f} to {max(gains.values()):.0f}"
    assert f"GCNII and F²GAT on Squirrel ({less}) gains {others} points" in page


@each("path", [*PAGES, *sorted((ROOT / "conf").rglob("*.yaml"))])
def test_tests_that_are_named_exist(path: Path) -> None:
    assert {*re.findall(r"`(test_\w+)`", text_of(path))} <= TESTS


def listed(pattern: str) -> set[str]:
    """What the first column of a table of the reference has of a pattern."""
    return set(re.findall(rf"^\| {pattern}", REFERENCE, re.MULTILINE))


def test_the_reference_lists_variables_of_the_environment_and_the_makefile_extras_and_exit_codes() -> None:
    used = {name for path in CODE for name in re.findall(r"\bPHYSML_[A-Z]+\b", text_of(path))}
    assert listed(r"`(PHYSML_[A-Z]+)` \|") == used
    assert listed("`([A-Z_]+)=") == VARIABLES
    project = tomllib.loads(text_of("pyproject.toml"))["project"]
    assert listed(r"`([a-z]+)` \|") | {"all", "dev"} == set(project["optional-dependencies"])
    kinds = [k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, PhysmlError)]
    assert listed(r"(\d+) \|") == {"0"} | {str(kind.exit_code) for kind in kinds}


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


def test_which_lines_are_commands_how_they_are_tested_and_that_no_block_stays_open() -> None:
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
    with pytest.raises(SystemExit, match="line 2 is not closed"):
        list(readme.blocks("text\n```console\n$ make\n"))


def test_commands_run_in_their_folders_and_failures_are_counted(tmp_path: Path, monkeypatch, capfd) -> None:
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
