"""`physml plot`, the LaTeX options of `physml table`, and what a run says at its end."""

import gzip
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from configs import write

from physml.base.paths import work_root
from physml.cli import plot
from physml.cli.console import describe
from physml.records import record
from physml.report.figure.run_curves import metrics_of, run_curves

LEM = "lem/fitzhugh_nagumo-lem"
Physml = Callable[..., tuple[int, str, str]]

pytestmark = pytest.mark.usefixtures("own_roots")  # nothing is written elsewhere


def test_runs_are_drawn_with_their_means_a_record_in_the_form_of_its_file(physml: Physml, own_roots) -> None:
    out = own_roots / "curves.csv"
    code, said, _ = physml("plot", LEM, "lem/fitzhugh_nagumo-lst?", "--mean", "--out", str(out))
    assert code == 0 and "lem: 10 runs, valid/rmse" in said and "lstm: 10 runs" in said
    lines = out.read_text().splitlines()
    assert {line.split(",")[1] for line in lines[1:]} == {"lem", "lstm"}
    assert lines[1].split(",")[2] == "point" and lines[1].split(",")[-2] == "10"
    assert physml("plot", LEM, "--mean", "--seeds", "0,1", "--out", str(out))[0] == 0
    assert out.read_text().splitlines()[1].split(",")[-2] == "2"
    out = own_roots / "one.pdf"
    path = record.records(LEM)[0]["path"]
    code, said, _ = physml("plot", path, "--metric", "train/loss", "--log-y", "--out", str(out))
    assert code == 0 and "1 run, train/loss" in said and out.read_bytes().startswith(b"%PDF")


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("lem/fitzhugh_nagumo-lme",), "there are no runs of lem/fitzhugh_nagumo-lme. Did you mean"),
        ((LEM, "--metric", "valid/rms"), "has no 'valid/rms'. Did you mean valid/rmse"),
        ((LEM, "--seeds", "77"), "has these seeds; there are [0, 1"),
        ((LEM, "--out", "a.jpg"), "--out must end in .png, .svg, .pdf, .csv; got a.jpg"),
    ],
)
def test_wrong_words_are_one_line(physml: Physml, words: tuple[str, ...], says: str) -> None:
    code, _, error = physml("plot", *words)
    assert code == 2 and says in error and error.count("\n") == 1


def test_every_run_is_a_line_or_all_are_a_mean() -> None:
    some = record.records(LEM)[:3]
    each = run_curves({"LEM": some}, "valid/rmse").panels[0][1][0]
    assert len(each.each) == 3 and each.y is None
    mean = run_curves({"LEM": some}, "valid/rmse", mean=True, log_x=True)
    curve = mean.panels[0][1][0]
    assert curve.y is not None and curve.low is not None and (curve.low <= curve.y).all()
    assert (mean.spec.x_scale, mean.spec.y_scale) == ("log", "linear")
    assert metrics_of(some[0])[0] == "valid/rmse" and "train/loss" in metrics_of(some[0])
    records = record.records("g2/texas-gprgnn")
    ends = run_curves({"GPRGNN": records}, "valid/accuracy", mean=True).panels[0][1][0]
    assert len(ends.each) > 1 and ends.y is None and "no mean: runs end at different steps" in str(ends.state)
    broken = run_curves({"LEM": [*some, {**some[0], "curve": None}]}, "valid/rmse").panels[0][1][0]
    assert "has no curve file" in str(broken.state) and not broken.drawn


def test_labels_leave_out_what_they_share_and_a_study_is_found_by_its_path(own_roots: Path) -> None:
    some = record.records(LEM)[:1]
    chart = run_curves({"g2/texas-gcn": some, "g2/texas-gat": some}, "valid/rmse")
    assert [curve.label for curve in chart.panels[0][1]] == ["gcn", "gat"] and chart.spec.title == "g2/texas"
    chart = run_curves({"g2/texas-gcn": some, "g2/texas-gcn-official": some}, "valid/rmse")
    assert [curve.label for curve in chart.panels[0][1]] == ["gcn", "gcn-official"]
    chart = run_curves({"adhoc/_a-gcn": some, "adhoc/b-gcn": some}, "valid/rmse")
    assert [curve.label for curve in chart.panels[0][1]] == ["adhoc/_a-gcn", "adhoc/b-gcn"]
    write(own_roots / "results" / "runs" / "adhoc" / "study-mine" / "a-split0-seed0.json", "{}")
    assert plot._experiments("./study.yaml:mine") == ["./study.yaml:mine"]


def test_a_table_is_printed_for_a_paper(physml: Physml, own_roots: Path) -> None:
    options = ("--no-run", "--latex", "-", "--only", "LEM", "--only", "LSTM", "--columns", "official")
    code, out, _ = physml("table", "lem-4", *options, "--show", "ours", "--bold-best")
    assert code == 0 and out.startswith("% needs \\usepackage{booktabs}\n") and out.count("\\textbf{") == 1
    file = own_roots / "mine.tex"
    code, said, _ = physml("table", "lem-4", "--no-run", "--latex", str(file))
    assert code == 0 and said.startswith("written: ") and file.read_text().count(" \\\\\n") > 5
    assert not (own_roots / "results" / "tables").exists()
    code, _, error = physml("table", "lem-4", "--no-run", "--bold-best")
    assert code == 2 and "--bold-best need --latex FILE" in error
    pipe = own_roots / "pipe.tex"
    os.mkfifo(pipe)
    code, _, error = physml("table", "lem-4", "--no-run", "--latex", str(pipe))
    assert code == 2 and "pipe.tex is no file that can be written anew" in error and pipe.is_fifo()


def test_to_read_the_rules_of_a_table_trains_and_writes_nothing(physml: Physml, own_roots: Path) -> None:
    code, out, _ = physml("table", "lem-4", "--rules", "--seeds", "0")
    assert code == 0 and "two one-sided tests" in out
    assert not (own_roots / "results").exists() or not any((own_roots / "results").rglob("*.json"))
    assert not (own_roots / "results" / "tables").exists()


def test_the_end_of_a_run_names_its_files_and_what_was_typed(own_roots: Path) -> None:
    path = own_roots / "results" / "runs" / "adhoc" / "adding-lem" / "0123abcd-split0-seed0.json"
    path.parent.mkdir(parents=True)
    best = {"test": {"mse": 0.25}}
    content = {
        "status": "finished", "path": str(path), "reason": None, "metrics": {"best": best},
        "selected": {"rule": "min valid/mse", "epoch": 3}, "curve": "0123abcd-split0-seed0.curve.csv.gz",
    }  # fmt: skip
    before = describe(content, ["optim.lr=0.01"])
    assert "mse 0.25" in before and "  with optim.lr=0.01" in before.splitlines()
    assert "curve:" not in before and "picture:" not in before and "W&B" not in before
    path.with_name(content["curve"]).write_bytes(gzip.compress(b""))
    work = work_root() / "adhoc" / "adding-lem" / path.stem
    (work / "wandb" / "offline-run-1").mkdir(parents=True)
    (work / "curves.png").touch()
    after = describe(content)
    for words in ("curve: ", "physml plot", "picture: ", "curves.png", "W&B, offline: ", "offline-run-1"):
        assert words in after
