"""Figures from synthetic records: curves, histograms, simulations, and what is missing or damaged."""

import dataclasses
import gzip
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from made_records import finished, ids
from PIL import Image
from refusals import refuses
from variants import variants

from physml.base.errors import ConfigError, DataError, RecordError
from physml.base.paths import CONF, share_compiled
from physml.config import studies
from physml.config.load import structure
from physml.report.figure import collect as figures
from physml.report.figure import simulated as simulated_figures
from physml.report.figure.collect import Curve, Figure, collect, state_lines
from physml.report.figure.files import write_figure
from physml.report.figure.pictures import plot_rows
from physml.report.figure.plot import draw, histogram_edges, joined, legible
from physml.report.figure.spec import FigureSpec, experiments_of, find_figure, load_figure
from physml.report.figure.style import COLOURS, MARKERS
from physml.report.outcome import State

STEPS = np.arange(100, 600, 100)


def spec(**changes: Any) -> FigureSpec:
    series = [{"label": "A", "experiment": "t/a"}, {"label": "B", "experiment": "t/b"}]
    content: dict[str, Any] = {
        "id": "nobody-fig-1", "title": "A figure", "source": "nobody", "kind": "curves", "metric": "test/mse",
        "seeds": [0, 1], "x_label": "training steps", "y_label": "test MSE", "y_scale": "log",
        "marks": [{"y": 0.167, "label": "always answering 1"}], "panels": panel(*series, title="T = 5"),
    }  # fmt: skip
    return structure(FigureSpec, content | changes, "nobody-fig-1.yaml")


def panel(*series: dict[str, Any], title: str = "p", **changes: Any) -> list[dict[str, Any]]:
    return [{"title": title, "series": list(series), **changes}]


def histogram(**changes: Any) -> FigureSpec:
    labels = {"dt_n": "Δt_n", "dtbar_n": "Δt̄_n"}
    series = [{"label": label, "experiment": "t/a", "array": name} for name, label in labels.items()]
    content = {"marks": [{"x": 0.02, "label": "slow"}], "panels": panel(*series, title="scales"), "bins": 20}
    return spec(kind="histogram", metric=None, seeds=[0], **content, **changes)


def record(folder: Path, experiment: str, seed: int, last: int = 500, **changes: Any) -> dict[str, Any]:
    """A record with its curve, which ends after some steps as a rule may end it, and its arrays beside it."""
    stem = f"{experiment.replace('/', '-')}-seed{seed}"
    lines = ["epoch,step,seconds,lr,train/loss,valid/mse,test/mse"]
    for i, step in enumerate(range(100, last + 1, 100)):
        test = "" if step == 300 and seed == 1 else f"{(1 + seed) / step}"  # a row without a test score
        lines.append(f"{i},{step},1.0,0.1,0.5,0.4,{test}")
    with gzip.open(folder / f"{stem}.curve.csv.gz", "wt") as file:
        file.write("\n".join(lines) + "\n")
    arrays = {"dt_n": np.linspace(0, 1, 50, dtype=np.float32), "dtbar_n": np.full((5, 10), 0.02)}
    np.savez(folder / f"{stem}.npz", **arrays)  # type: ignore[arg-type]
    beside = {"path": str(folder / f"{stem}.json"), "curve": f"{stem}.curve.csv.gz", "arrays": f"{stem}.npz"}
    return finished(experiment, seed, **beside | changes)


def made(runs: list[dict[str, Any]], of: FigureSpec | None = None, **options: Any) -> Any:
    figure = of or spec()
    return collect(figure, ids(*experiments_of(figure)), runs, **options)


def first(figure: Any) -> Any:
    return figure.panels[0][1][0]


def test_a_curve_is_the_mean_over_seeds_at_their_common_steps(tmp_path: Path) -> None:
    records = [record(tmp_path, "t/a", k) for k in range(2)]
    figure, steps = made(records), np.array([100, 200, 400, 500])
    curve = first(figure)
    np.testing.assert_array_equal(curve.x, steps)
    np.testing.assert_allclose([curve.y, curve.low, curve.high], [1.5 / steps, 1 / steps, 2 / steps])
    assert state_lines(figure) == ["T = 5, A: 2/2, complete", "T = 5, B: 0/2, missing"]
    canvas = draw(made(records[:1]))
    (axes,) = canvas.axes
    assert said(canvas) == ["A (1 of 2 runs)", "always answering 1"] and notes(canvas) == ["not run: B"]
    assert axes.get_yscale() == "log" and axes.get_xlabel() == "training steps"
    assert len(axes.lines[0].get_xdata()) == len(STEPS)  # type: ignore[arg-type]
    assert notes(draw(made([]))) == ["not run: A, B"]


def test_a_series_may_have_a_metric_and_seeds_of_its_own(tmp_path: Path) -> None:
    # As the lags of own-gradients-training, where the figure has none.
    series = [{"label": m, "experiment": "t/a", "metric": m} for m in ("test/mse", "valid/mse")]
    own = spec(metric=None, panels=panel(*series), seeds=[0])
    (_, (test, valid)) = made([record(tmp_path, "t/a", 0)], own).panels[0]
    np.testing.assert_allclose(test.y, 1 / STEPS)
    np.testing.assert_allclose(valid.y, np.full(len(STEPS), 0.4))
    with pytest.raises(ConfigError, match="kind curves needs a metric"):
        spec(metric=None, panels=panel(*series, {"label": "B", "experiment": "t/b"}))
    own = {"label": "B", "experiment": "t/b", "seeds": [0]}
    figure = spec(panels=panel({"label": "A", "experiment": "t/a"}, own, title="T = 5"))
    assert figure.runs == [("t/a", 0, 0), ("t/a", 0, 1), ("t/b", 0, 0)]
    assert figure.with_seeds((7,)).runs == [("t/a", 0, 7), ("t/b", 0, 7)]  # of the command line
    records = [record(tmp_path, e, seed) for e in ("t/a", "t/b") for seed in range(2)]
    collected = made(records, figure)
    assert state_lines(collected) == ["T = 5, A: 2/2, complete", "T = 5, B: 1/1, complete"]
    assert said(draw(collected)) == ["A (2 runs)", "B (1 run)", "always answering 1"]
    assert said(draw(made(records))) == ["2 runs", "A", "B", "always answering 1"]


def said(canvas: Any, panel: int = 0) -> list[str]:
    """The words of a legend, its title first if it has one."""
    legend = canvas.axes[panel].get_legend()
    assert legend is not None
    title = legend.get_title().get_text()
    return [*([title] if title else []), *(text.get_text() for text in legend.get_texts())]


def notes(canvas: Any, panel: int = 0) -> list[str]:
    return [text.get_text() for text in canvas.axes[panel].texts]


SHORT = "500 of 60,000 steps"


def test_runs_that_end_at_different_steps_are_no_mean_but_lines_of_their_own(tmp_path: Path) -> None:
    figure = made([record(tmp_path, "t/a", 0, last=200), record(tmp_path, "t/a", 1)])
    curve = first(figure)
    assert curve.y is None and curve.drawn
    assert [steps[-1] for steps, _ in curve.each] == [200, 500]
    assert state_lines(figure)[0] == "T = 5, A: 2/2, complete; ends with 0.005 at step 200, 0.004 at step 500"
    canvas: Any = draw(figure)
    assert said(canvas) == ["A (2 runs)", "always answering 1"] and notes(canvas) == ["not run: B"]
    lines = [line for line in canvas.axes[0].lines if line.get_color() == COLOURS[0]]
    assert [line.get_xdata()[-1] for line in lines] == [200, 200, 500, 500]
    assert canvas.get_supxlabel() == "Each run is a line, with a marker at its end."


def test_a_short_budget_stands_in_the_legend_and_below(tmp_path: Path) -> None:
    """Even where all runs end at the same step they are no mean of the paper's."""
    records = [record(tmp_path, "t/a", seed, short=SHORT) for seed in range(2)]
    figure = made(records)
    assert len(first(figure).each) == 2 and first(figure).shorts == (SHORT,)
    canvas = draw(figure)
    assert said(canvas)[0] == "A (2 runs, short budget)"
    assert canvas.get_supxlabel().startswith(f"Short budget: {SHORT}.")
    assert said(draw(collect(spec(), ids("t/a"), records[:1])))[0] == "A (1 of 2 runs, short budget)"


def test_a_legend_stands_beside_the_axes(tmp_path: Path) -> None:
    names = [f"t/{letter}" for letter in "abcdef"]
    lines = spec(panels=panel(*({"label": name, "experiment": name} for name in names)))
    of_points = ({"label": name, "points": [{"x": 1, "experiment": name}]} for name in names)
    dots = spec(kind="points", metric="test/accuracy", panels=panel(*of_points))
    records = [scored(tmp_path, name, seed, 0.5) for name in names for seed in range(2)]
    for figure in (lines, dots):
        canvas: Any = draw(made(records, figure))
        canvas.draw_without_rendering()
        (axes,) = canvas.axes
        assert len(said(canvas)) == 8
        box = axes.get_legend().get_window_extent()
        assert axes.get_window_extent().x1 < box.x0 and box.x1 <= canvas.bbox.x1 and box.y0 >= 0


def test_panels_stand_in_rows_and_a_label_has_one_colour() -> None:
    solid = {"label": "slow", "arguments": {"frequency": 1.0}}
    dashed = {"label": "fast", "arguments": {"frequency": 5.0}, "line": "dashed"}
    panels = [
        {"title": title, "series": series, "arguments": {"dt": 0.1, "horizon": 1.0}, "y_label": title}
        for title, series in (("p", [solid]), ("q", [dashed, solid]), ("r", [dashed]))
    ]
    panels[0]["function"] = "physml.lab.simulate.oscillators.signal"  # its own, the others have the figure's
    figure = spec(
        kind="trajectories", metric=None, seeds=[], marks=[], panels=panels, columns=2,
        function=panels[0]["function"], y_scale="linear", y_limits=[-1.5, 2.5],
    )  # fmt: skip
    collected = made([], figure)
    np.testing.assert_allclose(first(collected).y, np.cos(0.1 * np.arange(1, 11)))
    assert state_lines(collected)[0] == "p, slow: simulated"
    canvas = draw(collected)
    assert len(canvas.axes) == 4 and not canvas.axes[3].axison
    shown = canvas.axes[:3]
    assert [axes.get_ylabel() for axes in shown] == ["p", "q", "r"]
    assert [axes.get_ylim() for axes in shown] == [(-1.5, 2.5)] * 3
    lines = [[(line.get_color(), line.get_linestyle()) for line in axes.lines] for axes in shown]
    slow, fast = (COLOURS[0], "-"), (COLOURS[1], "--")
    assert lines == [[slow], [fast, slow], [fast]]
    assert shown[0].get_legend() is None and said(canvas, 1) == ["slow", "fast"]


def test_a_curve_alone_in_a_panel_is_named_where_its_row_has_a_legend() -> None:
    series = {name: {"label": name, "arguments": {"frequency": f}} for f, name in enumerate("uab")}
    common = {"arguments": {"dt": 0.1, "horizon": 1.0}}
    panels = [
        common | {"title": str(k), "series": [series[i] for i in of]} for k, of in enumerate(("u", "ab", "b"))
    ]
    figure = spec(
        kind="trajectories", metric=None, seeds=[], marks=[], panels=panels, columns=2,
        function="physml.lab.simulate.oscillators.signal", y_scale="linear",
    )  # fmt: skip
    canvas = draw(made([], figure))
    assert said(canvas, 1) == ["u", "a", "b"]
    colours = [[line.get_color() for line in axes.lines] for axes in canvas.axes[:3]]
    assert colours == [[COLOURS[0]], [COLOURS[1], COLOURS[2]], [COLOURS[2]]]


def heights(canvas: Any) -> list[float]:
    """The sum of each outline of a histogram."""
    return [patch.get_data().values.sum() for patch in canvas.axes[0].patches if not patch.get_fill()]


def test_a_histogram_has_an_area_on_a_linear_axis_bins_of_equal_width_and_finite_numbers(tmp_path) -> None:
    for scale, filled in (("log", 0), ("linear", 2)):
        figure = made([record(tmp_path, "t/a", 0)], histogram(y_scale=scale))
        canvas = draw(figure)
        assert figure.panels[0][1][1].values.shape == (50,) and heights(canvas) == [50, 50]
        assert sum(patch.get_fill() for patch in canvas.axes[0].patches) == filled
    values = np.array([1e-6, 1e-3, 0.1, 0.0])
    edges = histogram_edges(values, histogram(x_scale="log"))
    assert np.diff(np.log(edges)) == pytest.approx(np.log(1e5) / 20, rel=1e-5)
    assert np.histogram(values, edges)[0].sum() == 3
    assert histogram_edges(values, histogram()) == pytest.approx(np.linspace(0, 0.1, 21))
    figure = made([record(tmp_path, "t/a", 0)], histogram(x_scale="log"))
    assert draw(figure).axes[0].get_xscale() == "log"
    run = record(tmp_path, "t/a", 0, arrays="a.npz")
    np.savez(tmp_path / "a.npz", dt_n=np.array([0.1, np.nan, np.inf]), dtbar_n=np.array([np.nan]))
    figure = made([run], histogram())
    assert first(figure).values.tolist() == [0.1] and heights(draw(figure)) == [1]
    assert "failed: the array dtbar_n has no finite number" in state_lines(figure)[1]


def test_axes_have_ticks_whatever_is_drawn_and_numbers_of_settings_do_not_touch(tmp_path: Path) -> None:
    simulated = spec(
        kind="simulation", function="physml.lab.simulate.graphs.traffic", metric=None, seeds=[], bins=4,
        x_scale="log", panels=panel({"label": "A"}),
    )  # fmt: skip
    values = Curve("A", State("simulated"), values=np.geomspace(1e-4, 1, 50))
    assert len(draw(Figure(simulated, [(simulated.panels[0], (values,))])).axes[0].get_xticks()) > 3
    small = [1e-6, 1e-5, 1e-4, 0.001, 0.01]
    assert legible([*small, 0.03, 0.1, 0.3]) == [*small, 0.1, 0.3]
    assert legible([5, 10, 20, 40]) == [5, 10, 20, 40] and legible([3.0]) == [3.0]


def test_arrays_are_drawn_one_against_another(tmp_path: Path) -> None:
    series = {"label": "A", "experiment": "t/a", "array": "error", "over": "step"}
    made_of = spec(kind="arrays", metric=None, seeds=[0], panels=panel(series))
    np.savez(tmp_path / "a.npz", step=np.array([1.0, 2.0]), error=np.array([0.5, 0.1]))
    run = record(tmp_path, "t/a", 0, arrays="a.npz")
    curve = first(made([run], made_of))
    assert (str(curve.state), [*curve.x], [*curve.y]) == ("complete", [1.0, 2.0], [0.5, 0.1])
    np.savez(tmp_path / "a.npz", error=np.array([0.5, 0.1]))
    assert "has no array step" in state_lines(made([run], made_of))[0]
    np.savez(tmp_path / "a.npz", step=np.array([1.0]), error=np.array([0.5, 0.1]))
    assert "failed: arrays step and error have 1 and 2 numbers" in state_lines(made([run], made_of))[0]
    two = dataclasses.replace(made_of, seeds=(0, 1))
    np.savez(tmp_path / "a.npz", step=np.array([1.0, 2.0, 2.0]), error=np.array([0.5, 0.1, 0.3]))
    np.savez(tmp_path / "b.npz", step=np.array([2.0, 3.0]), error=np.array([0.7, 0.1]))
    runs = [record(tmp_path, "t/a", k, arrays=f"{name}.npz") for k, name in enumerate("ab")]
    curve = first(made(runs, two))
    assert ([*curve.x], [*curve.low], [*curve.high]) == ([2.0], [0.3], [0.7])
    np.savez(tmp_path / "b.npz", step=np.array([3.0]), error=np.array([0.1]))
    assert state_lines(made(runs, two)) == ["p, A: 2/2, failed: the runs have no step in common"]
    again = spec(kind="arrays", metric=None, seeds=[0, 1], panels=panel(series, series | {"label": "B"}))
    assert state_lines(made(runs, again))[1] == "p, B: 2/2, failed, as above"
    with pytest.raises(ConfigError, match="kind arrays needs an over"):
        spec(kind="arrays", metric=None, panels=panel({**series, "over": None}))


def points(names: str = "abc", **changes: Any) -> FigureSpec:
    of = [{"x": 2**i, "experiment": f"t/{name}"} for i, name in enumerate(names)]
    content = {"panels": panel({"label": "A", "points": of}), "y_scale": "linear"}
    return spec(kind="points", metric="test/accuracy", **content, **changes)


def scored(folder: Path, experiment: str, seed: int, accuracy: float, **changes: Any) -> dict[str, Any]:
    return record(folder, experiment, seed, test={"accuracy": accuracy}, **changes)


def test_points_are_means_over_seeds_with_their_standard_deviation(tmp_path: Path) -> None:
    scores = {("t/a", 0): 0.5, ("t/a", 1): 0.7, ("t/c", 0): 0.9}
    figure = made([scored(tmp_path, *run, accuracy) for run, accuracy in scores.items()], points())
    curve = first(figure)
    assert curve.x.tolist() == [1, 4] and curve.y == pytest.approx([0.6, 0.9])
    assert curve.high - curve.y == pytest.approx([np.std([0.5, 0.7], ddof=1), 0.0])
    assert (curve.done, curve.wanted, str(curve.state)) == (3, 6, "partial 3/6")
    assert points().runs == [(f"t/{name}", 0, seed) for name in "abc" for seed in (0, 1)]
    (bars,) = draw(figure).axes[0].containers
    assert bars.get_label() == "A" and bars.has_yerr
    assert said(draw(figure))[0] == "A (1 to 2 runs per point, 3 of 6\nruns)"


def test_a_panel_without_runs_is_left_out_and_the_caption_says_what_is_drawn(tmp_path: Path) -> None:
    panels = panel({"label": "A", "experiment": "t/a"}, title="T = 5")
    panels += panel({"label": "B", "experiment": "t/b"}, title="T = 9")
    runs = [record(tmp_path, "t/a", 0)]
    canvas = draw(made(runs, spec(panels=panels, seeds=[0]), blocked={"t/b": "no data"}))
    assert [axes.get_title() for axes in canvas.axes] == ["T = 5"]
    assert canvas.get_supxlabel() == "Not run, and left out: T = 9."
    runs = [scored(tmp_path, "t/a", seed, 0.5 + seed) for seed in (0, 1)]

    def caption(figure: FigureSpec) -> str:
        return draw(collect(figure, ids("t/a"), runs)).get_supxlabel()

    assert caption(points()).startswith("Means, with bars of one standard")
    assert caption(spec()) == "Means over runs, with bands from the least to the greatest."
    assert caption(spec(seeds=[0])) == ""


def test_points_are_joined_where_no_run_is_missing_between_them_and_two_alone_are_no_line(tmp_path) -> None:
    def slices(names: str) -> list[slice]:
        records = [scored(tmp_path, f"t/{name}", 0, 0.5) for name in names]
        return joined(first(made(records, points("abcde", seeds=[0]))))

    assert slices("abcde") == [slice(0, 5)]
    assert slices("abde") == [slice(0, 2), slice(2, 4)]
    assert slices("ace") == [] and slices("ab") == []
    values, figure = np.array([1.0, 2.0, 4.0]), spec(y_scale="linear", marks=[])
    for n in (2, 3):
        few, complete = values[:n], State("complete")
        curves = (Curve("A", complete, 1, 1, each=((few, few),)), Curve("B", complete, 1, 1, x=few, y=few))
        lines = draw(Figure(figure, ((figure.panels[0], curves),))).axes[0].get_lines()
        whole = [line for line in lines if len(line.get_xdata()) == n]
        assert len(whole) == 2
        for line in whole:
            assert (line.get_linestyle() == "None") == (n == 2)
            assert n > 2 or line.get_marker() in ("o", "s")


def test_an_axis_of_points_holds_those_that_are_missing(tmp_path: Path) -> None:
    figure = collect(points(), ids("t/a"), [scored(tmp_path, "t/a", 0, 0.5, short=SHORT)])
    low, high = draw(figure).axes[0].get_xlim()
    assert low < 1 and high > 4
    assert str(first(figure).state) == "partial 1/6"  # and not comparable, which the legend says by itself
    assert said(draw(figure))[0] == "A (1 run per point, 1 of 6 runs,\nshort budget)"
    assert draw(figure).get_supxlabel() == f"Short budget: {SHORT}."  # and nothing of lines
    wrong = dataclasses.replace(points(), metric="test/acuracy")
    figure = collect(wrong, ids("t/a"), [scored(tmp_path, "t/a", 0, 0.5)])
    assert "has no test/acuracy. Did you mean accuracy" in state_lines(figure)[0]


def under_noise(of: str = "A") -> FigureSpec:
    """Points of one experiment, each with a metric of its own, beside a printed curve."""
    metrics = ("test/accuracy", "test/accuracy_white")
    points = [{"x": x, "experiment": "t/a", "metric": metric} for x, metric in enumerate(metrics)]
    printed = [{"label": "A, printed", "x": [0, 1], "y": [0.9, 0.8], "of": of}]
    panels = panel({"label": "A", "points": points}, title="noise", printed=printed)
    return spec(kind="points", metric=None, panels=panels, y_scale="linear")


def test_points_of_one_experiment_may_have_metrics_of_their_own_and_printed_ones_its_colour(tmp_path) -> None:
    scores = [{"accuracy": a, "accuracy_white": a - 0.2} for a in (0.5, 0.7)]
    records = [record(tmp_path, "t/a", seed, test=scores[seed]) for seed in range(2)]
    figure = under_noise()
    assert figure.runs == [("t/a", 0, 0), ("t/a", 0, 1)]
    noisy = made(records, figure)
    assert first(noisy).y == pytest.approx([0.6, 0.4])
    assert state_lines(noisy) == ["noise, A: 2/2, complete"]  # two runs, though they are behind both points
    lost = scored(tmp_path, "t/a", 0, 0.5)
    assert "has no test/accuracy_white" in state_lines(made([lost, records[1]], figure))[0]
    scores = {"accuracy": 0.5, "accuracy_white": 0.2}
    canvas = draw(made([record(tmp_path, "t/a", 0, test=scores)], under_noise()))
    (printed,) = [line for line in canvas.axes[0].lines if line.get_label() == "A, printed"]
    assert (printed.get_color(), printed.get_marker()) == (COLOURS[0], MARKERS[0])
    refuses(ConfigError, "`of` must name a series of the panel; got 'B'", under_noise, of="B")


@pytest.mark.parametrize(
    ("changes", "running", "state"),
    [
        ({"status": "diverged", "curve": None}, (), "diverged 1/1"),
        ({"status": "failed", "reason": "out of memory"}, (), "failed: out of memory"),
        ({"identity": "ffffffff"}, (), "stale"),
        ({"short": "3 of 400 epochs"}, (), "not comparable: short budget"),
        ({}, (("t/a", 0, 0),), "running"),
        ({}, (), "complete"),
    ],
)
def test_states(tmp_path: Path, changes: dict[str, Any], running: tuple[Any, ...], state: str) -> None:
    figure = made([record(tmp_path, "t/a", 0, **changes)], spec(seeds=[0]), running=running)
    assert str(first(figure).state) == state


def test_a_damaged_file_is_the_state_of_its_curve(tmp_path: Path) -> None:
    run = record(tmp_path, "t/a", 0)
    path, arrays = tmp_path / run["curve"], tmp_path / run["arrays"]
    whole = path.read_bytes()
    for damaged in (whole[:40], whole[:60] + bytes(10) + whole[70:]):
        path.write_bytes(damaged)
        assert "can't be read" in str(first(made([run], spec(seeds=[0]))).state)
    assert "has no curve file" in str(first(made([run | {"curve": None}], spec(seeds=[0]))).state)
    path.write_bytes(whole)
    refuses(RecordError, r"no column test/mes. Did you mean test/mse", figures.read_curve, run, "test/mes")
    refuses(RecordError, r"no array dt\. Did you mean dt_n", figures.read_array, run, "dt")
    arrays.write_bytes(b"PK\x03\x04 cut")
    assert "can't be read" in str(first(made([run], histogram())).state)
    np.savez(arrays, dt_n=np.array([{"a": 1}], dtype=object))
    with pytest.raises(RecordError, match="can't be read"):  # code is not run
        figures.read_array(run, "dt_n")


def test_a_figure_and_one_run_are_written_as_readable_pictures(tmp_path: Path) -> None:
    path = write_figure(made([record(tmp_path, "t/a", k) for k in range(2)]), tmp_path / "figures")[0]
    names = [f"nobody-fig-1.{form}" for form in ("csv", "png", "svg")]
    assert sorted(p.name for p in path.parent.iterdir()) == names
    with Image.open(path) as image:
        assert image.height == 600 and image.width > 870
        assert round(image.info["dpi"][0]) == 150
        assert len(np.unique(np.asarray(image.convert("RGB")).reshape(-1, 3), axis=0)) > 10
    scores = enumerate([0.5, None, 0.4])
    rows = [{"epoch": i, "step": 10 * i, "train/loss": 1.0, "valid/rmse": score} for i, score in scores]
    plot_rows(rows, "t/a split 0 seed 0", tmp_path / "curves.png")
    with Image.open(tmp_path / "curves.png") as image:
        image.verify()


def simulated(function: str, **arguments: Any) -> FigureSpec:
    panels = panel({"label": "F", "arguments": arguments}, title="F")
    return spec(kind="trajectories", metric=None, seeds=[], marks=[], function=function, panels=panels)


def simulation(monkeypatch: pytest.MonkeyPatch, function: Any, **changes: Any) -> FigureSpec:
    """A figure of two panels, each with a line and another, by a function that is given here."""
    monkeypatch.setattr(simulated_figures, "function_of", lambda name: function)
    series = [{"label": "A"}, {"label": "B", "line": "dots", "arguments": {"n": 2}}]
    same = {"equal": True, "series": series, "arguments": {"scale": 1.0}}
    panels = [{"title": title, "x_label": title, **same} for title in "pq"]
    kind = {"kind": "simulation", "metric": None, "function": "tasks.a.b", "marks": [], "y_scale": "linear"}
    return spec(**({"seeds": [], "panels": panels} | kind | changes))


def powers(scale: float, n: int = 3, seed: int = 0) -> dict[str, Any]:
    return {"x": np.arange(n), "y": scale * 10.0**seed * np.ones(n)}


def test_the_median_over_seeds_is_drawn_with_the_least_and_the_greatest(monkeypatch: pytest.MonkeyPatch):
    spread = simulation(monkeypatch, powers, seeds=[0, 1, 3])
    figure = made([], spread)
    curve = first(figure)
    assert [values.tolist() for values in (curve.y, curve.low, curve.high)] == [[10] * 3, [1] * 3, [1000] * 3]
    assert state_lines(figure)[0] == "p, A: simulated with 3 seeds"
    assert len(draw(figure).axes[0].collections) == 2  # a band for each series
    fewer = made([], spread.with_seeds((3,)))
    assert first(fewer).high is None and state_lines(fewer)[0] == "p, A: simulated"


def test_simulated_values_are_a_histogram_and_panels_share_a_legend(monkeypatch: pytest.MonkeyPatch) -> None:
    canvas = draw(made([], simulation(monkeypatch, powers)))
    assert said(canvas, 1) == ["A", "B"] and canvas.axes[0].get_legend() is None
    assert [axes.get_xlabel() for axes in canvas.axes] == ["p", "q"]
    assert all(axes.get_aspect() == 1 for axes in canvas.axes)
    line, dots = canvas.axes[0].lines
    assert (line.get_linestyle(), dots.get_linestyle(), dots.get_marker()) == ("-", "None", "s")

    def values(scale: float, seed: int, n: int = 1) -> dict[str, Any]:
        return {"values": [scale * seed] * n}

    figure = made([], simulation(monkeypatch, values, seeds=[1, 2]))
    assert figure.panels[0][1][1].values.tolist() == [1, 1, 2, 2] and heights(draw(figure)) == [2, 4]


def test_what_cannot_be_run_and_a_simulation_without_its_data_are_blocked(monkeypatch) -> None:
    a, b = state_lines(collect(spec(), ids("t/a"), [], blocked={"t/a": "no data"}))
    assert a == "T = 5, A: 0/2, blocked: no data"
    assert b == "T = 5, B: 0/2, blocked: the experiment can't be composed"

    def lost(scale: float, n: int = 3) -> dict[str, Any]:
        if n == 2:
            raise DataError("a.csv is missing: looked for /b/a.csv. Get it.")
        return powers(scale)

    figure = made([], simulation(monkeypatch, lost))
    a, b = state_lines(figure)[:2]
    assert a == "p, A: simulated" and b == "p, B: blocked: a.csv is missing: looked for /b/a.csv. Get it."
    assert notes(draw(figure)) == ["not run: B"]


def test_a_simulation_on_few_settings_has_their_numbers_and_a_smoke_run_its_arguments(monkeypatch) -> None:
    lengths = {"x": np.array([25.0, 50, 400]), "y": np.array([1.0, 2, 3])}
    panels = panel({"label": "A"}) + panel({"label": "A"}, y_limits=[0.5, 2.5])
    changes = {"x_scale": "log", "panels": panels, "y_limits": [0, 4]}
    canvas = draw(made([], simulation(monkeypatch, lambda: lengths, **changes)))
    canvas.draw_without_rendering()
    assert [text.get_text() for text in canvas.axes[0].get_xticklabels()] == ["25", "50", "400"]
    assert [axes.get_ylim() for axes in canvas.axes] == [(0, 4), (0.5, 2.5)]
    figure = made([], simulation(monkeypatch, powers, smoke={"n": 5, "scale": 7.0}).shrunk())
    assert [curve.y.tolist() for curve in figure.panels[0][1]] == [[7.0] * 3, [7.0] * 5]


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (3.0, "must return a mapping with x and y of the same length, or with values.*; got float"),
        ({"x": [1], "z": [1]}, r"got \['x', 'z'\]"),
        ({"x": [1], "y": [1, 2]}, r"got x \(1,\), y \(2,\)"),
        ({"values": []}, r"got values \(0,\)"),
        (lambda seed: {"x": [seed], "y": [1]}, "x must be the same for every seed"),
    ],
)
def test_what_a_simulation_must_return(monkeypatch: pytest.MonkeyPatch, answer: Any, message: str) -> None:
    def function(scale: float, seed: int, n: int = 1) -> Any:
        return answer(seed) if callable(answer) else answer

    refuses(ConfigError, message, made, [], simulation(monkeypatch, function, seeds=[0, 1]))


LORENZ, OTHERS = (
    "tasks.lorenz96.trajectories",
    {"forcing": 0.9, "n_points": 7, "spacing": 0.01, "substeps": 1},
)


@pytest.mark.parametrize(
    ("function", "arguments", "message"),
    [
        ("os.system", {"command": "true"}, "function must be one of tasks/ or physml/lab/simulate/"),
        ("physml.cli.main.main", {}, "function must be one of tasks/ or physml/lab/simulate/"),
        ("physml.lab.simulate.oscillator.signal", {}, "Did you mean physml.lab.simulate.oscillators"),
        ("tasks.lorenz97.trajectories", {}, "there is no module tasks.lorenz97. Did you mean tasks.lorenz96"),
        ("tasks.lorenz96.trajectory", {}, "has no function trajectory. Did you mean trajectories"),
        (LORENZ, {"x": 1}, f"series F: {LORENZ}"),
        (LORENZ, OTHERS | {"x0": {"a": 1}}, r"F: x0 must not be a mapping; got \{'a': 1\}"),
        (LORENZ, OTHERS | {"x0": [[1], [1, 2]]}, r"F: x0 must be numbers in a list; got \[\[1\], \[1, 2\]\]"),
    ],
)
def test_only_functions_of_tasks_are_called(function: str, arguments: dict[str, Any], message: str) -> None:
    refuses(ConfigError, message, made, [], simulated(function, **arguments))


LIMITS = "y_limits must be a number and a greater one; got "


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"metric": None}, "kind curves needs a metric"),
        (
            {"kind": "bars"},
            "kind must be one of 'curves', 'points', 'histogram', 'arrays', 'ranks', 'trajectories'",
        ),
        ({"kind": "simulation", "metric": None}, "kind simulation needs a function"),
        ({"kind": "simulation", "function": "tasks.a.b"}, "series A: kind simulation takes no experiment"),
        ({"kind": "points"}, "series A: kind points takes no experiment"),
        ({"kind": "points", "metric": None}, "kind points needs a metric"),
        ({"panels": panel({"label": "_A", "experiment": "t/a"})}, "label '_A': matplotlib leaves one out"),
        ({"kind": "points", "panels": panel({"label": "A"})}, "series A: kind points needs points"),
        ({"columns": 0}, "columns must be positive; got 0"),
        ({"y_limits": [1, 0]}, rf"{LIMITS}\[1.0, 0.0\]"),
        ({"y_limits": [1]}, LIMITS),
        ({"panels": panel({"label": "A", "experiment": "t/a"}, y_limits=[1, 1])}, rf"{LIMITS}\[1.0, 1.0\]"),
        ({"seeds": []}, "seeds must name at least one run"),
        ({"seeds": [0, 0]}, r"seeds must be different whole numbers from 0 on; got \[0, 0\]"),
        ({"splits": []}, "splits must be different whole numbers from 0 on; got"),
        ({"panels": panel({"label": "A", "experiment": "t/a", "seeds": [1, 1]})}, "A: seeds must be"),
        ({"bins": 0}, "bins must be positive; got 0"),
        ({"y_limits": [0, 1]}, "y_limits must be positive on a logarithmic axis; got"),
        ({"marks": [{"label": "a", "x": 1, "y": 1}]}, "must have either x or y"),
        ({"panels": panel({"label": "A"})}, "series A: kind curves needs an experiment"),
        ({"kind": "histogram"}, "series A: kind histogram needs an array"),
        ({"kind": "arrays"}, "series A: kind arrays needs an array"),
        ({"panels": [{"title": "a", "serie": []}]}, r"there is no key serie. Did you mean series"),
    ],
)
def test_a_wrong_config_is_refused_by_name(change: dict[str, Any], message: str) -> None:
    refuses(ConfigError, message, spec, **change)


FIGURES = {path.stem: path for path in sorted((CONF / "figure").glob("*.yaml"))}
KINDS = {(load_figure(path).kind, name.partition("-")[0]): name for name, path in FIGURES.items()}


@pytest.mark.parametrize("name", variants(KINDS.values(), FIGURES))
def test_every_figure_of_conf_is_drawn(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    share_compiled(tmp_path / "cache")
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    conf = load_figure(FIGURES[name])
    assert all(map(studies.is_name, experiments_of(conf)))
    conf = conf.with_seeds((0,)) if conf.kind == "simulation" else conf  # those alone that draw numbers
    figure = made([], conf.shrunk())
    write_figure(figure, tmp_path, ("svg", "csv"))
    expected = {"measured", "blocked"} if conf.kind == "measurement" else {"missing", "simulated"}
    assert {curve.state.word.split()[0] for _, curves in figure.panels for curve in curves} <= expected


def test_a_figure_is_found_by_its_names_and_another_one_gets_near_names() -> None:
    stems = dict.fromkeys(("lem-fig-4", "fig-4", "5.4"), "lem-fig-4") | {"thesis-fig-2.2": "cornn-fig-5"}
    assert {name: find_figure(name, "lem").stem for name in stems} == stems
    assert find_figure("1", "cornn").stem == "cornn-fig-1"
    refuses(ConfigError, r"there is no figure 'lem-fig-44'.*lem-fig-4", find_figure, "lem-fig-44")
