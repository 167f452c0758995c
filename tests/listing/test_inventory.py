"""What `physml list` shows: every file of conf/, described from its source alone."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from refusals import refuses

from physml.base.errors import ConfigError
from physml.cli import listing
from physml.config import conf_files, studies
from physml.listing import inventory

GROUPS = {"models": "model", "tasks": "task", "tables": "table", "figures": "figure"}


@pytest.mark.parametrize("kind", [*GROUPS, "experiments"])
def test_everything_is_listed_and_described(kind: str) -> None:
    files = set(studies.names() if kind == "experiments" else conf_files.files(GROUPS[kind]))
    entries = inventory.entries(kind)
    assert {entry.name for entry in entries} == files and all(entry.about for entry in entries)


@pytest.mark.parametrize("named", ["g2/texas", "texas-g2", "lem/*-short", "2/cora-gcn", "texas graphcon"])
def test_reading_fewer_studies_leaves_nothing_out(named: str) -> None:
    every = [entry.name for entry in inventory.experiments()]
    fitting = [name for name in every if all(fnmatchcase(name, f"*{word}*") for word in named.split())]
    assert [entry.name for entry in inventory.entries("experiments", named)] == fitting != []


def test_a_row_of_a_file_is_listed_by_its_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("my files").mkdir()
    Path("my files/study.yaml").write_text(
        "{task: adding, provenance: {kind: own, source: me}, rows: {lem: {model: lem, search: s}, "
        "gru: {model: gru}}, searches: {s: {space: {optim.lr: [0.1, 1]}}}, "
        "search: {metric: mse, better: lower, trials: 2, seed: 9}}"
    )
    name = "./my files/study.yaml:lem"
    assert inventory.entries("experiments", name) == [inventory.Entry(name, "lem on adding; me", "own")]
    assert inventory.entries("searches", name) == [inventory.Entry(name, "not made")]
    refuses(ConfigError, "has no row 'x'", inventory.entries, "experiments", "./my files/study.yaml:x")
    refuses(ConfigError, "search", inventory.entries, "searches", "./my files/study.yaml:gru")


def test_the_settings_of_experiments_are_listed_and_a_name_that_nothing_has_gets_near_ones() -> None:
    (entry,) = inventory.entries("experiments", "g2/texas-g2_gcn-h8", settings=True)
    assert "net: input_dropout 0.0411, dropout 0.225, hidden 8" in entry.below
    entry = inventory.entries("experiments", "cornn/adding-5000-cornn", settings=True)[0]
    assert entry.name == "cornn/adding-5000-cornn"
    assert "trainer: epochs 600, batch_size 50, test_every 1, select Last()" in entry.below
    with pytest.raises(ConfigError, match="--settings is for experiments alone; got tables"):
        inventory.entries("tables", settings=True)
    with pytest.raises(ConfigError, match=r"^none of the \d+ models has graphcom in its name\. Did you mean"):
        inventory.entries("models", "graphcom")


def test_a_class_is_described_by_its_docstring_and_a_template_by_its_comment() -> None:
    models = {entry.name: entry for entry in inventory.models()}
    assert models["lem"].about.startswith("Two states per unit")
    assert models["lem"].target == "physml.models.sequence.lem.LEM"
    assert models["own"].target is None
    assert "plugins=[my_rnn.py]" in models["own"].about
    (table,) = (entry for entry in inventory.tables() if entry.name == "lem-4")
    assert "FitzHugh-Nagumo" in table.about and "thesis-5.4" in table.facts
    (row,) = inventory.entries("experiments", "lem/fitzhugh_nagumo-lem")[:1]
    assert row.about.startswith("lem on fitzhugh_nagumo; ") and row.facts == "official-code"


@pytest.mark.parametrize("kind", ["models", "tasks"])
def test_configs_of_one_class_are_told_apart(kind: str) -> None:
    descriptions = [entry.about for entry in inventory.entries(kind)]
    assert sorted(descriptions) == sorted(set(descriptions))
    assert not any(":math:" in about for about in descriptions)


def test_numbers_in_names_are_sorted_as_numbers(own_conf: Path) -> None:
    for name in ("lem-10", "lem-9", "cornn-2"):
        (own_conf / "table" / f"{name}.yaml").write_text("title: T\n", encoding="utf-8")
    assert [entry.name for entry in inventory.tables()] == ["cornn-2", "lem-9", "lem-10"]


def test_long_descriptions_go_on_below_themselves_and_lines_below_are_wrapped_and_hang(monkeypatch) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    entries = [inventory.Entry("a", "word " * 30, "searched-here"), inventory.Entry("longer", "short")]
    lines = listing.text(entries).splitlines()
    assert lines[0].startswith("a       word")
    assert lines[1].startswith("        word")
    entry = inventory.Entry("task", "about", below=("data: mnist", "  linear: " + "rmse 0.1, " * 12))
    below = listing.text([entry]).splitlines()
    assert below[1] == "      data: mnist" and below[2].startswith("        linear: rmse 0.1, ")
    assert all(line.startswith("            ") for line in below[3:]) and len(below) > 4
    assert max(map(len, lines + below)) <= 60


@pytest.mark.parametrize(
    ("content", "says"),
    [
        *((text, r"lem-4\.yaml") for text in (b"title: [", b"just words", b"", b"# T\n\xed: 1")),
        (b"seeds: [0]\n", r"table/lem-4.yaml: it needs a `title`"),
        (b"title: T\naliases: 3\n", r"table/lem-4.yaml: aliases must be a list; got 3"),
        (b"title: [T]\n", r"table/lem-4.yaml: title must be text; got \['T'\]"),
        (None, r"no configs in .*table: physml is not whole"),
    ],
)
def test_a_damaged_config_is_named(own_conf: Path, content: bytes | None, says: str) -> None:
    if content is not None:
        (own_conf / "table" / "lem-4.yaml").write_bytes(content)
    refuses(ConfigError, says, inventory.tables)


@pytest.fixture
def own_conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for group in GROUPS.values():
        (tmp_path / group).mkdir()
    monkeypatch.setattr(conf_files, "CONF", tmp_path)
    return tmp_path
