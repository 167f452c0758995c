"""Times that a benchmark wrote, as a figure draws them; the benchmark itself at tiny sizes."""

import json
from pathlib import Path

import pytest
import torch

from physml.base.errors import DataError
from physml.base.paths import CONF
from physml.lab.simulate.timings import per_batch
from physml.report.figure import collect as figures
from physml.report.figure.spec import load_figure
from scripts.bench import layers, rounds, store

TINY = ["--lengths", "6", "3", "--batch", "2", "--hidden", "4", "--rounds", "3"]


@pytest.fixture(autouse=True)
def results(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    monkeypatch.setattr(rounds, "SAMPLE_S", 0.0)  # one call is a sample
    return tmp_path / "bench"


def test_every_layer_is_timed_and_read_in_the_order_of_the_lengths(results: Path, capsys) -> None:
    assert layers.main(TINY) == 0
    (path,) = results.glob("layers-*.json")
    assert path.with_suffix(".md").read_text() in capsys.readouterr().out
    written = json.loads(path.read_text())["lengths"]
    for name in layers.LAYERS:
        curve = per_batch(file=path.stem, layer=name)
        assert curve["x"].tolist() == [3, 6]
        assert curve["y"].tolist() == [written["3"][name]["ms"], written["6"][name]["ms"]]
    with pytest.raises(DataError, match=r"has no times of 'nn\.LTSM'\. Did you mean nn\.LSTM"):
        per_batch(file=path.stem, layer="nn.LTSM")


def test_the_figure_says_what_to_do_where_nothing_is_measured_and_draws_what_is(results, monkeypatch) -> None:
    figure = load_figure(CONF / "figure" / "unicornn-fig-2.yaml")
    (panel,) = figure.panels
    assert {series.label for series in panel.series} == set(layers.LAYERS)
    lines = figures.state_lines(figures.collect(figure, {}, []))
    assert all(line.endswith(": measured") for line in lines), "in the checkout"
    monkeypatch.setattr("physml.base.paths.OWN_RESULTS", results.parent)
    blocked = figures.collect(figure, {}, [])
    first, *others = figures.state_lines(blocked)
    assert "`python -m scripts.bench.layers` writes it" in first
    assert all(line.endswith(": blocked, as above") for line in others)
    times = {name: {"ms": 10.0 * k} for k, name in enumerate(layers.LAYERS, 1)}
    file = results / f"{panel.arguments['file']}.json"
    file.parent.mkdir()
    file.write_text(json.dumps({"lengths": {"2000": times, "1000": times}}))
    collected = figures.collect(figure, {}, [])
    assert all(line.endswith(": measured") for line in figures.state_lines(collected))
    curve = collected.panels[0][1][1]
    assert curve.x is not None and curve.x.tolist() == [1000, 2000]
    assert curve.y is not None and curve.y.tolist() == [20, 20]


@pytest.mark.parametrize(
    "content", [b"\xff", b"[", b"{}", b'{"lengths": {"x": {"a": {"ms": 1}}}}', b'{"lengths": [1]}']
)
def test_a_damaged_file_of_times_is_one_line(content: bytes, results: Path) -> None:
    results.mkdir()
    (results / "x.json").write_bytes(content)
    with pytest.raises(DataError, match=r"x\.json is damaged: .*scripts\.bench\.layers` writes it anew\.$"):
        per_batch(file="x", layer="a")


@pytest.mark.grid
def test_a_layer_that_does_not_run_is_a_line_of_the_report(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    class Broken(torch.nn.LSTM):
        def forward(self, *_: object) -> object:  # type: ignore[override]
            raise RuntimeError("no kernel")

    monkeypatch.setitem(layers.LAYERS, "nn.LSTM", Broken)
    assert layers.main([*TINY, "--no-write"]) == 0
    out = capsys.readouterr().out
    assert "Not run: nn.LSTM: no kernel." in out
    (row,) = [line for line in out.splitlines() if line.startswith("| nn.LSTM")]
    assert [cell.strip() for cell in row.split("|")[2:-1]] == ["–"] * 4
    assert not store.path_of("layers-x").parent.exists()
    if not torch.cuda.is_available():
        assert layers.main([*TINY, "--device", "cuda"]) == 2
        assert "device cuda needs a GPU" in capsys.readouterr().err
