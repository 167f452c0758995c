"""Mean ranks below a table, and the critical-difference diagram."""

import csv
import dataclasses
import io
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import finished, ids, on_terminal
from PIL import Image
from refusals import refuses

from physml.base.errors import ConfigError
from physml.base.paths import CONF
from physml.config.load import structure
from physml.report.figure import collect as figures
from physml.report.figure.collect import Figure, state_lines
from physml.report.figure.files import write_figure
from physml.report.figure.plot import draw
from physml.report.figure.spec import FigureSpec, experiments_of, load_figure
from physml.report.stats.across import mean_ranks, rank_gaps
from physml.report.table.collect import collect
from physml.report.table.ranks import TOO_FEW, Ranking, rank_blocks
from physml.report.table.spec import TableSpec, load_table, only_ranked, table_ids
from physml.report.text.document import FORMS, NONE, Cell, Grid, Lines, text_of
from physml.report.view.text import document

KEYS = ("p", "q", "r", "s", "t", "u")
ROWS = ("A", "B", "C", "D")
SPLITS = range(4)


def spec(**changes: Any) -> TableSpec:
    score = {"metric": "test/accuracy", "scale": 100, "unit": "%", "better": "higher", "protocol": "official"}
    columns = [{"key": key, "label": key.upper(), **score} for key in KEYS]
    rows = [{"label": row, "cells": {key: {"experiment": f"t/{row}-{key}"} for key in KEYS}} for row in ROWS]
    content: dict[str, Any] = {
        "id": "nobody-1", "title": "Ranks", "source": "nobody", "seeds": [0], "splits": list(SPLITS),
        "spread": "splits", "ranks": ["p", "q", "r", "s", "t"], "columns": columns, "rows": rows,
    }  # fmt: skip
    return structure(TableSpec, content | changes, "nobody-1.yaml")


def record(experiment: str, split: int, accuracy: float) -> dict[str, Any]:
    return finished(experiment, split=split, test={"accuracy": accuracy})


def records(rows: tuple[str, ...] = ROWS) -> list[dict[str, Any]]:
    """A is best everywhere, D worst; B and C take turns, and no row counts in column u."""
    rng = np.random.default_rng(0)
    level = {"A": 0.9, "B": 0.8, "C": 0.8, "D": 0.5}
    return [
        record(f"t/{row}-{key}", split, level[row] + 0.02 * (row == "BC"[k % 2]) + 0.001 * rng.normal())
        for row in rows
        for k, key in enumerate(KEYS[:5])
        for split in SPLITS
    ]


def made(runs: Any, *, of: TableSpec | None = None) -> Any:
    return collect(of or spec(), ids(*(f"t/{row}-{key}" for row in ROWS for key in KEYS)), runs)


def ranking(runs: list[dict[str, Any]]) -> Any:
    return made(runs).ranking


def test_rows_at_chance_share_the_last_rank_unless_their_mean_is_better_than_one_that_is_not() -> None:
    # In column p the constant has 0.85, which only A beats: B, C and D are last together.
    chance = {"references": {"majority class": {"accuracy": 0.85}, "linear": {"accuracy": 0.99}}}
    ranked = ranking([r | chance if r["experiment"].endswith("-p") else r for r in records()])
    assert ranked.untrained == dict.fromkeys("BCD", ("P",))
    assert ranked.ranks.mean == pytest.approx({"A": 1.0, "B": 2.6, "C": 2.6, "D": 3.8})
    assert list(ranked.behind) == ["B", "C", "D"]
    assert ranked.behind["D"].mean == pytest.approx(2.8)
    lines = rank_blocks(ranked)[1].lines
    (line,) = (text for text in lines if text.startswith("Not shown to beat a constant"))
    assert line.endswith("B (P); C (P); D (P)")
    # C trains on two splits of four, so its gain is not shown; that of D is small and sure.
    lucky = iter((0.9, 0.5, 0.9, 0.5))
    few = [record("t/C-p", r["split"], next(lucky)) if r["experiment"] == "t/C-p" else r for r in records()]
    sure = {"t/C-p": 0.5, "t/D-p": 0.49}
    chance = {name: {"references": {"majority class": {"accuracy": least}}} for name, least in sure.items()}
    ranked = ranking([r | chance.get(r["experiment"], {}) for r in few])
    assert not ranked.untrained and ranked.ranks.mean["C"] < ranked.ranks.mean["D"] == 4.0


def test_rows_that_still_improve_are_counted() -> None:
    late = {"t/A-q": range(4), "t/B-q": range(1, 4), "t/C-s": (2, 3)}  # all splits, most and half of them
    steps = [95 if r["split"] in late.get(r["experiment"], ()) else 40 for r in records()]
    chosen = [{"selected": {"rule": "max valid/accuracy", "step": step}, "n_steps": 100} for step in steps]
    ranked = ranking([r | more for r, more in zip(records(), chosen, strict=True)])
    assert ranked.improving == {"Q": 2}
    assert any("last tenth" in line and line.endswith("Q 2 of 4") for line in rank_blocks(ranked)[1].lines)


def test_a_row_needs_all_comparable_runs_and_those_that_lack_them_are_named_together() -> None:
    data = {"t/B-r": {"data": {"kind": "substitute data"}}, "t/C-r": {"data": {"kind": "content-verified"}}}
    few = [r for r in records() if (r["experiment"], r["split"]) != ("t/A-q", 3)]
    ranked = ranking([r | data.get(r["experiment"], {}) for r in few])
    assert ranked.left_out == {"A": "3/4 runs on Q", "B": "substitute data on R"}
    assert ranked.ranks is None and list(ranked.rows) == ["C", "D"]
    assert ranking(records(("A", "B", "C"))).left_out == {"D": "not run on P, Q, R, S, T"}
    lost = [r | ({"status": "diverged"} if r["experiment"] == "t/A-q" else {}) for r in records()]
    assert ranking(lost).left_out == {"A": "0/4 runs on Q"}
    few = [r for r in records() if r["experiment"] not in ("t/A-q", "t/C-q", "t/D-r")]
    lines = [text for block in document(made(few)).long if isinstance(block, Lines) for text in block.lines]
    (line,) = (text for text in lines if text.startswith("Without a rank"))
    assert line == "Without a rank: A, C (not run on Q); D (not run on R)"


def test_rows_are_ranked_by_their_means_which_columns_of_several_units_do_not_have() -> None:
    ranked = ranking(records())
    assert ranked.ranks.mean == pytest.approx({"A": 1.0, "C": 2.6, "B": 2.4, "D": 4.0})
    assert list(ranked.ranks.mean) == ["A", "B", "C", "D"]
    assert ranked.ranks.n_columns == 5 and not ranked.left_out
    middle = ranked.middle["A"]
    assert middle.low <= middle.mean <= middle.high and middle.mean == pytest.approx(90, abs=0.2)
    columns = [dataclasses.replace(c, unit="1" if c.key == "p" else "%") for c in spec().columns]
    ranked = made(records(), of=dataclasses.replace(spec(), columns=tuple(columns))).ranking
    assert ranked.ranks and not ranked.middle


def test_the_section_is_in_every_form() -> None:
    page = document(made(records()))
    forms = {name: form(page) for name, form in FORMS.items()}
    assert "## Mean ranks over 5 columns: P, Q, R, S, T" in forms["md"]
    assert "| A | 1.00 |" in forms["md"] and "Friedman's test" in forms["md"]
    lines = list(csv.DictReader(io.StringIO(forms["csv"])))
    ranks = {line["row"]: float(line["mean"]) for line in lines if line["state"] == "mean rank"}
    assert ranks == pytest.approx({"A": 1.0, "B": 2.4, "C": 2.6, "D": 4.0})
    states = [line["state"] for line in lines]
    assert states.count("interquartile mean") == 4
    assert states[-2:] == ["critical difference", "Friedman's p"]
    short, long = (on_terminal(page, long=long) for long in (False, True))
    assert "interquartile mean" in long and "behind the" in long and "interquartile" not in short


def test_a_table_of_our_own_has_its_means_by_rank_the_best_in_bold() -> None:
    table = made([r for r in records(("D", "C", "B", "A")) if r["experiment"] != "t/D-t"])
    shown = document(table)
    grid = shown.first[2]
    assert isinstance(grid, Grid) and grid.narrow is not None
    assert grid.heads == ("model", "mean rank", *(key.upper() for key in KEYS))
    means = grid.narrow.lines
    lines = {text_of(row): tuple(map(text_of, rest)) for row, *rest in means}
    assert list(lines) == ["A", "B", "C", "D"] and lines["D"] == (NONE, *lines["D"][1:5], NONE, NONE)
    want = [cell.summary.mean for cell in table.cells if cell.row == "A" and cell.summary]
    assert [float(mean) for mean in lines["A"][1:6]] == pytest.approx(want, abs=0.05)
    bold = {text_of(line[0]) for line in means for text in line if isinstance(text, Cell) and text.bold}
    assert bold == {"A"}
    heads = {head for block in shown.long if isinstance(block, Grid) for head in block.heads}
    assert "ours" in heads and not {"published", "difference"} & heads
    assert "published" in shown.values[0]


def test_too_few_rows_say_so_and_tables_without_ranks_have_no_section() -> None:
    few = document(made(records(("A", "B"))))
    assert TOO_FEW in FORMS["md"](few) and "mean rank" not in FORMS["csv"](few)
    table = made(records(), of=spec(ranks=[]))
    assert table.ranking is None
    assert "rank" not in "".join(form(document(table)) for form in FORMS.values()).replace("Ranks", "")
    with pytest.raises(ConfigError, match="table graphcon-2 names no columns to rank its rows over"):
        _ = ranks_spec(table="graphcon-2").runs


@pytest.mark.parametrize(
    ("ranks", "message"),
    [
        ("pqrs", "ranks must name at least 5 different columns"),
        ("pqrss", "ranks must name at least 5 different columns"),
        (["p", "q", "r", "s", "tt"], r"ranks: there is no column tt. Did you mean t\?"),
    ],
)
def test_wrong_columns_are_refused(ranks: str | list[str], message: str) -> None:
    refuses(ConfigError, message, spec, ranks=list(ranks))


def test_tables_of_conf_rank_over_different_data() -> None:
    ranked = [ident for ident in table_ids(kind="runs") if load_table(CONF / f"table/{ident}.yaml").ranks]
    assert ranked == ["g2-2", "own-directions", "own-heterophily", "own-long-range", "own-sequence"]
    for ident in ranked:
        table = only_ranked(load_table(CONF / f"table/{ident}.yaml"))
        for row in table.rows:
            tasks = {(table.cell(row, c).experiment or "").partition("-")[0] for c in table.columns}
            assert len(tasks) == len(table.columns)


def figure(rows: int, columns: int = 7, long: bool = False) -> Figure:
    rng = np.random.default_rng(0)
    name = "G2-GraphSAGE with edges both ways and number " if long else "row "
    scores = {f"{name}{i}": list(rng.normal(0.3 * i, 1.0, size=columns)) for i in range(rows)}
    return Figure(ranks_spec(), (), Ranking((), scores, mean_ranks(scores, ["higher"] * columns), {}, {}))


def ranks_spec(**changes: Any) -> FigureSpec:
    return dataclasses.replace(load_figure(CONF / "figure" / "own-g2-2-ranks.yaml"), **changes)


@pytest.mark.parametrize(("rows", "long"), [(3, True), (9, False), (18, True)])
def test_labels_stand_in_the_picture_and_do_not_overlap(rows: int, long: bool) -> None:
    canvas = draw(figure(rows, long=long))
    canvas.draw_without_rendering()
    renderer = canvas.canvas.get_renderer()  # type: ignore[attr-defined]
    boxes = [text.get_window_extent(renderer) for text in canvas.axes[0].texts]
    assert len(boxes) >= rows + 3
    for i, box in enumerate(boxes):
        assert box.x0 >= -2 and box.x1 <= canvas.bbox.x1 + 2 and box.y0 >= -2 and box.y1 <= canvas.bbox.y1 + 2
        assert not any(box.overlaps(other) for other in boxes[i + 1 :])


def test_bars_join_rows_that_are_not_told_apart() -> None:
    made_of: Any = figure(9)
    bars = [line for line in draw(made_of).axes[0].lines if line.get_linewidth() == 3.5]
    mean = made_of.ranking.ranks.mean
    for bar, group in zip(bars, made_of.ranking.ranks.groups(), strict=True):
        low, high = np.asarray(bar.get_xdata(), float)
        assert low < mean[group[0]] and mean[group[-1]] < high


def test_a_figure_takes_the_runs_of_its_table(tmp_path: Path) -> None:
    figure_spec = ranks_spec(families={"universities": ("texas", "wisconsin"), "film": ("film",)})
    # 27 rows, 5 graphs; on two of them GCN and GAT are their rows as stored.
    assert len(experiments_of(figure_spec)) == 131
    assert len(figure_spec.runs) == 1310
    assert {seed for _, _, seed in figure_spec.with_seeds((3, 4)).runs} == {3, 4}
    identities = ids(*experiments_of(figure_spec))
    rng = np.random.default_rng(0)
    every = [record(e, split, rng.random()) for e, split, _ in figure_spec.runs]
    collected: Any = figures.collect(figure_spec, identities, every)
    lines = state_lines(collected)
    assert len(lines) == 28 and all(": mean rank " in line for line in lines[:27])
    assert list(collected.gaps) == ["all 5 columns", "universities", "film"]
    runs = {row: samples[2:3] for row, samples in collected.ranking.samples.items()}
    assert collected.gaps["film"] == rank_gaps(runs, ["higher"], next(iter(collected.ranking.ranks.mean)))
    path, data = write_figure(collected, tmp_path, ("png", "csv"))
    before = path.read_bytes()
    assert write_figure(collected, tmp_path, ("png",))[0].read_bytes() == before
    assert data.read_text().count(",mean rank,") == 27
    with Image.open(path) as image:
        assert image.width == 1620 and len(np.unique(np.asarray(image.convert("L")))) > 10
    nothing = figures.collect(figure_spec, identities, [])
    assert state_lines(nothing)[0] == TOO_FEW
    assert [text.get_text() for text in draw(nothing).axes[0].texts] == [TOO_FEW]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"families": {"pages": ("texs",)}}, "families: g2-2 ranks no column texs. Did you mean texas"),
        ({"families": {"pages": ()}}, "families: pages must name at least one column; got none"),
        ({"kind": "histogram"}, "a table belongs to kind ranks"),
        ({"table": None}, "a table belongs to kind ranks"),
        ({"kind": "curves", "table": None, "metric": "test/mse", "seeds": (0,)}, "kind curves needs panels"),
    ],
)
def test_a_wrong_figure_is_refused(change: dict[str, Any], message: str) -> None:
    refuses(ConfigError, message, lambda: ranks_spec(**change).ranked_table())
