"""`physml compare`: rows of tables, experiments and records of one's own, and what it refuses."""

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest
from made_records import finished

from physml.base.paths import ROOT
from physml.config.compose import compose
from physml.config.identity import identity
from physml.records import record
from physml.records.record import Place

Physml = Callable[..., tuple[int, str, str]]
TABLE = "--table graphcon-2"
STUDY = """task: fitzhugh_nagumo
provenance: {kind: own, source: mine}
common: {trainer: {epochs: 1, batch_size: 32}}
rows:
  mine: {model: lem, set: {model: {d_hidden: 3}}}
  slow: {base: mine, set: {optim: {lr: 0.5}}}
"""
MINE = """task: fitzhugh_nagumo
provenance: {kind: own, source: mine}
rows:
  lem: {model: lem, set: {model: {d_hidden: 4}, trainer: {epochs: 1}}}
"""
MY_TABLE = """title: Mine
source: me
seeds: [0, 1, 2]
columns:
  - {key: clean, label: RMSE, metric: test/rmse, better: lower, protocol: clean}
rows:
  - {label: mine, experiment: "./study.yaml:mine"}
  - {label: slow, experiment: "./study.yaml:slow"}
"""


@pytest.fixture(autouse=True)
def own_results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.chdir(tmp_path)


def kept(name: str, identity: str, seeds: range, shift: float, experiment: str = "") -> Path:
    """Records of a model of one's own, as ad hoc runs leave them; the path of the last one."""
    for seed in seeds:
        config = {"profile": "full", "task": {"_target_": "tasks.mine.Mine"}}
        content = finished(
            experiment or f"adhoc/{name}", seed, test={"rmse": shift * (1 + 0.01 * seed**2)},
            identity=identity, protocol="clean", config=config, choices={"task": None},
        )  # fmt: skip
        path = Path("results") / Place(f"adhoc/{name}", identity, 0, seed).relative
        record.write(path, content)
    return path


def test_two_rows_of_a_table_and_records_of_ones_own_are_compared(physml: Physml) -> None:
    code, out, err = physml("compare", "GraphCON-GCN", "--table", "graphcon-2", "MLP", "--out", "it.md")
    assert (code, err) == (0, "")
    assert out.startswith("graphcon-2: GraphCON-GCN (A) against MLP (B)\n")
    assert max(map(len, out.splitlines())) <= 80
    for column in ("Texas", "Wisconsin", "Cornell"):
        assert re.search(rf"^{column}: GraphCON-GCN ", out, re.M)
        assert f"{column}: test/accuracy, higher is better" not in out  # the runs: --long
    assert "10 splits" in out and out.endswith("written: it.md\n")
    assert Path("it.md").read_text().startswith("# graphcon-2: GraphCON-GCN (A) against MLP (B)\n")
    first, second = kept("mine-a", "aaaaaaaa", range(5), 1.0), kept("mine-b", "bbbbbbbb", range(5), 2.0)
    code, out, _ = physml("compare", "mine-a", "adhoc/mine-b", "--out", "it.csv")
    assert code == 0 and "mine-a is better than adhoc/mine-b" in " ".join(out.split())
    assert Path("it.csv").read_text().count(",pair\n") == 5
    code, out, _ = physml("compare", str(first), str(second))
    assert code == 0 and "adhoc/mine-a aaaaaaaa is better" in " ".join(out.split())
    kept("mine-a", "cccccccc", range(2), 1.0)
    code, _, err = physml("compare", "mine-a", "mine-b")
    assert code == 2 and "adhoc/mine-a has runs of 2 settings. Name a record of one instead" in err


def test_the_output_in_the_docs_is_real_nothing_is_trained_and_columns_without_runs_named(physml, tmp_path):
    _, out, _ = physml("compare", "GraphCON-GCN", "MLP", *TABLE.split())
    assert not list(tmp_path.iterdir())
    page = (ROOT / "docs" / "verdicts.md").read_text(encoding="utf-8")
    shown = page.partition("```text\ngraphcon-2: ")[2].partition("\n```")[0]
    real = "\n".join(line.rstrip() for line in out.splitlines())
    assert shown and real.startswith(f"graphcon-2: {shown}")
    code, out, _ = physml("compare", "G2-GAT, mean over heads", "G2-GAT", "--table", "g2-2")
    says = "Film: not compared: G2-GAT, mean over heads has no finished run"
    assert code == 0 and says in " ".join(out.split())
    code, out, _ = physml("compare", "g2/texas-mlp", "g2/texas-gcn", "--metric", "test/accuracy")
    assert code == 0 and "cross_entropy" not in out
    assert "test/accuracy: g2/texas-mlp is better than g2/texas-gcn by" in " ".join(out.split())


def test_of_many_columns_a_summary_is_shown_first_and_their_sentences_with_long(physml: Physml) -> None:
    code, out, _ = physml("compare", "LEM", "coRNN", "--table", "own-sequence")
    lines = out.splitlines()
    text = " ".join(out.split())
    assert code == 0 and len(lines) <= 32 and max(map(len, lines)) <= 80
    won, open = re.search(
        r"LEM is better than coRNN in (\d) of 9 columns: adding \([\d.]+ × 1e-2\), .* "
        r"In (\d) of 9 columns the two cannot be told apart. Outcomes are corrected for 9 columns",
        text,
    ).groups()  # type: ignore[union-attr]
    assert out.count("A better") == int(won) and out.count(" cannot be told apart") - 1 == int(open)
    assert "Lorenz 96: coRNN: 1 of 5 runs diverged and are left out" in text
    assert "A: LEM (" not in text and "adding: LEM is better" not in text
    code, out, _ = physml("compare", "LEM", "coRNN", "--table", "own-sequence", "--long")
    text = " ".join(out.split())
    assert "A: LEM (sequence/adding-lem, " in text and "adding: LEM is better than coRNN by " in text
    assert "d_z" in text and "| split" not in text and "HAR-2: test/accuracy" in text


@pytest.fixture
def own(physml: Physml) -> None:
    """A study, an experiment and a table in the working folder, with records of all."""
    for name, text in {"study.yaml": STUDY, "mine.yaml": MINE, "mytable.yaml": MY_TABLE}.items():
        Path(name).write_text(text)
    for shift, folder in enumerate(("study-mine", "study-slow", "mine-lem"), 1):
        experiment = f"./{folder.replace('-', '.yaml:')}"
        kept(folder, identity(compose([f"experiment={experiment}"]).config), range(3), shift, experiment)


@pytest.mark.parametrize("prefix", ["", "../"])
def test_files_of_a_folder_of_ones_own(physml: Physml, own: None, prefix: str) -> None:
    if prefix:
        Path("below").mkdir()
        os.chdir("below")
    here = prefix or "./"
    study, mine, table = f"{here}study.yaml:slow", f"{here}mine.yaml:lem", f"{here}mytable.yaml"
    for arguments, says in {
        (study, mine): f"{study} is better than {mine} by",
        (mine, "study-mine"): f"study-mine is better than {mine} by",
        ("slow", "mine", "--table", table): "mine is better than slow by",
        ("mine", "M", "--table", table, "--row", f"label=M,experiment={mine}"): "mine is better than M by",
    }.items():
        code, out, err = physml("compare", *arguments)
        assert (code, err) == (0, "") and says in " ".join(out.split())
    code, _, err = physml("compare", table, mine)
    says = f"{table} is a table. Compare two of its rows: physml compare A B --table {table}."
    assert code == 2 and says in err
    code, _, err = physml("compare", "study-mine", f"{here}study.yaml:mine")
    assert code == 2 and "a comparison needs two settings; study-mine and" in err


def test_runs_of_other_seeds_are_no_pairs(physml: Physml) -> None:
    kept("mine-a", "aaaaaaaa", range(2), 1.0)
    kept("mine-b", "bbbbbbbb", range(3, 5), 1.0)
    code, out, err = physml("compare", "mine-a", "mine-b")
    says = (
        "needs finished runs of both rows with equal split and seed; they share no run of equal split and "
        "seed: mine-a has split 0, seeds 0-1; mine-b has split 0, seeds 3-4. Train more with physml run"
    )
    assert (code, out) == (2, "") and says in err


UNKNOWN = "there is no experiment g2/texas-mpl; rows of a table need --table ID. Did you mean g2/texas-mlp"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (f"GraphCON-GNC MLP {TABLE}", "has no row 'GraphCON-GNC'. Did you mean GraphCON-GCN"),
        (f"MLP UniCORNN {TABLE}", "graphcon-2 has no row 'UniCORNN'."),
        (f"MLP MLP {TABLE}", "a comparison needs two rows; both are MLP"),
        (f"MLP GAT {TABLE} --column texsa", "has no column 'texsa'. Did you mean texas"),
        (f"MLP GAT {TABLE} --metric test/accuracy", "--metric and --better are for two experiments"),
        ("GIN GCN --table graphcon-5", "GIN has no finished run with test/accuracy. Train what is missing"),
        ("MLP GAT --table graphcon-22", "there is no table 'graphcon-22'"),
        (f"MLP GAT {TABLE} --out it.pdf", "--out must end in .md, .csv; got it.pdf"),
        ("MLP GAT --column texas", "--column is for rows of a table: give --table too"),
        ("g2/texas-mpl g2/texas-gcn", UNKNOWN),
        ("g2/texas-mlp g2/texas-mlp", "needs two experiments; both are g2/texas-mlp"),
        ("g2/texas-mlp g2/wisconsin-mlp", "needs runs of one task; g2/texas-mlp has texas"),
        ("g2/texas-mlp g2/texas-gcn --metric test/acc", "Did you mean test/accuracy"),
        ("g2/texas-mlp g2/texas-gcn --better lower", "give --metric too"),
        ("g2/texas-mlp nothing.json", "nothing.json cannot be read"),
        ("g2/texas-mlp ./nothing.yaml", "nothing.yaml names no row of a study"),
        ("g2/texas-mlp", "required: B"),
    ],
)
def test_what_is_refused(physml: Physml, words: str, says: str) -> None:
    code, out, err = physml("compare", *words.split())
    assert (code, out) == (2, "") and says in err
