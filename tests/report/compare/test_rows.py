"""Two rows compared: tests against scipy, power against simulation, pairs, directions, and the words."""

import dataclasses
import math
import re
from typing import Any

import numpy as np
import pytest
from made_records import by_seed, finished, identity, on_terminal
from refusals import refuses
from scipy import stats

from physml.base.errors import ConfigError, InputError
from physml.base.paths import CONF
from physml.report.compare import rows as pairs
from physml.report.compare.rows import Side, columns_of, compare_runs, compare_values, corrected, spread_of
from physml.report.compare.text import compared, document, sentence
from physml.report.stats.claims import Gain
from physml.report.stats.summary import Values
from physml.report.table.runs import Runs
from physml.report.table.spec import Column, load_table, table_ids
from physml.report.text.document import FORMS, Document

NAMES = ("Ours", "Theirs")


def column(better: Any = "higher", **changes: Any) -> Column:
    metric = "test/accuracy" if better == "higher" else "test/error"
    return Column(**{"key": "acc", "metric": metric, "better": better, "protocol": "official"} | changes)


def random_rows(n: int, shift: float = 0.5, seed: int = 0) -> tuple[Values, Values]:
    rng = np.random.default_rng(seed)
    first = rng.normal(size=n)
    return by_seed(first), by_seed(first - shift + rng.normal(size=n))


def test_tests_and_effect_size_are_those_of_scipy_for_many_pairs_by_the_normal_approximation() -> None:
    first, second = random_rows(12)
    comparison = compare_values(column(), first, second)
    a, b = list(first.values()), list(second.values())
    expected = stats.ttest_rel(a, b)
    assert comparison.p == pytest.approx(expected.pvalue)
    gain = comparison.gain
    assert (gain.low, gain.high) == pytest.approx(tuple(expected.confidence_interval()))
    assert comparison.p_wilcoxon == pytest.approx(stats.wilcoxon(a, b, method="exact").pvalue)
    differences = np.subtract(a, b)
    assert comparison.d_z == pytest.approx(differences.mean() / differences.std(ddof=1))
    first, second = random_rows(51, 0.2)
    expected = stats.wilcoxon(list(first.values()), list(second.values()), method="approx")
    assert compare_values(column(), first, second).p_wilcoxon == pytest.approx(expected.pvalue)


def test_rows_that_were_trained_in_another_way_say_so() -> None:
    def facts(first: tuple[str, int, float], second: tuple[str, int, float]) -> tuple[str, ...]:
        sides = []
        for label, epochs, lr in (first, second):
            trainer = {"epochs": epochs, "clip_norm": None}
            config = {"trainer": trainer, "optim": {"lr": lr}, "model": {"d": epochs}}
            sides.append(side(label, by_seed([0.5, 0.51, 0.52]), config=config))
        return compared("compare", [column()], {"acc": tuple(sides)}, {}, "runs", "").facts

    unlike = "A and B differ in: trainer.epochs 30 / 400, optim.lr 0.001 / 0.01"
    assert facts(("mine", 30, 0.001), ("theirs", 400, 0.01))[-1] == unlike
    assert not any("differ in" in line for line in facts(("a", 30, 0.1), ("b", 30, 0.1)))


@pytest.mark.parametrize("differences", [[1, 1, 2, -1, 3, 0, 0, 2, 2], [0.5, -0.5, 1.5, 1.5]])
def test_tied_differences_have_an_exact_p_value_too(differences: list[float]) -> None:
    sizes = np.array([d for d in differences if d])
    ranks = stats.rankdata(np.abs(sizes))
    signs = np.array(np.meshgrid(*[[-1, 1]] * len(sizes))).reshape(len(sizes), -1)
    extreme = np.abs(ranks @ signs) >= abs(ranks @ np.sign(sizes)) - 1e-9
    assert pairs.wilcoxon_p(differences) == pytest.approx(extreme.mean())


@pytest.mark.parametrize(("n", "d_z"), [(5, 1.0), (10, 0.5), (10, -1.0), (30, 0.5)])
def test_power_is_that_of_simulated_tests(n: int, d_z: float) -> None:
    drawn = np.random.default_rng(n).normal(d_z, 1.0, size=(20_000, n))
    power = (stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.05).mean()
    assert pairs.power_of(n, d_z) == pytest.approx(power, abs=0.012)


def test_power_of_a_great_effect_at_a_small_level_is_that_of_simulated_tests() -> None:
    drawn = np.random.default_rng(3).normal(20.0, 1.0, size=(20_000, 3))
    power = (stats.ttest_1samp(drawn, 0.0, axis=1).pvalue < 0.001).mean()
    assert 0.1 < power < 0.9 and pairs.power_of(3, 20.0, 0.001) == pytest.approx(power, abs=0.012)
    assert pairs.power_of(3, -20.0, 0.001) == pairs.power_of(3, 20.0, 0.001)


def test_effect_sizes_without_spread_are_infinite_with_their_sign() -> None:
    gains = [Gain(5, mean, 0.0) for mean in (-1.0, 0.0, 2.0)]
    assert [*map(pairs.effect_size, gains), pairs.effect_size(Gain(1, 2.0))] == [
        -math.inf,
        0.0,
        math.inf,
        None,
    ]
    differences = [1.0, 2.5, -0.5, 3.0, 4.0]
    assert pairs.wilcoxon_p([1e-12 * d for d in differences]) == pairs.wilcoxon_p(differences)


def test_power_is_a_probability_everywhere_and_grows() -> None:
    for d_z in (0.0, 0.01, 0.3, 0.72, 1.5, 5.0, 50.0, math.inf):
        powers = [pairs.power_of(n, d_z) for n in (2, 3, 5, 10, 30, 100, 300, 500, 1000, 2000)]
        assert all(0 <= p <= 1 + 1e-12 for p in powers)
        assert powers == sorted(powers) or d_z == 0.0
    for d_z in (1.6, 2.2, 5.0):
        powers = [pairs.power_of(n, d_z, 0.05 / 9) for n in range(3, 1006)]
        assert powers == sorted(powers) and powers[-1] == 1
    assert [pairs.pairs_needed(1.78, 0.05 / 9, most) for most in (1000, 1005)] == [8, 8]
    assert pairs.power_of(20, 0.0) == pytest.approx(0.05)
    for d_z in (0.1, 0.3, 0.8, 2.0):
        n = pairs.pairs_needed(d_z)
        assert pairs.power_of(n, d_z) >= 0.8 and (n == 3 or pairs.power_of(n - 1, d_z) < 0.8), "the fewest"
    assert pairs.pairs_needed(0.0) == pairs.MOST + 1 and pairs.pairs_needed(math.inf) == 6
    refuses(InputError, "at least 2 pairs; got 1", pairs.power_of, 1, 0.5)


def test_only_common_pairs_count_and_rounding_breaks_no_ties() -> None:
    first = {(0, 0): 1.0, (0, 1): 2.0, (1, 0): 3.0, (2, 0): 9.0}
    second = {(0, 0): 0.0, (0, 1): 0.0, (1, 0): 1.0, (3, 0): 9.0}
    paired = compare_values(column(), first, second, "splits", 0.5)
    assert [(p.split, p.seed, p.difference) for p in paired.pairs] == [(0, 0, 1.0), (0, 1, 2.0), (1, 0, 2.0)]
    assert (paired.over, paired.gain.n, paired.gain.mean) == ("splits", 2, 1.75)
    assert (paired.first, paired.second) == (2.25, 0.5)
    assert paired.gain.new_low is not None and paired.verdict == "too few pairs"
    alone = compare_values(column(), first, second)
    assert (alone.over, alone.gain.n, alone.gain.new_low) == ("runs", 3, None)
    with pytest.raises(InputError, match="runs of equal split and seed"):
        compare_values(column(), {(0, 0): 1.0}, {(0, 1): 1.0})
    noisy = [1.0, 1.0 + 1e-14, -1.0 + 1e-14, 2.0, 3.0]
    assert pairs.wilcoxon_p(noisy) == pairs.wilcoxon_p([1.0, 1.0, -1.0, 2.0, 3.0])
    comparison = compare_values(column(), by_seed([0.1 + 0.2, 0.5, 0.7]), by_seed([0.3, 0.5, 0.7]))
    assert comparison.verdict == "equal" and comparison.d_z == 0.0 and comparison.p_wilcoxon == 1.0


@pytest.mark.parametrize(("better", "verdict"), [("higher", "first better"), ("lower", "second better")])
def test_the_sign_follows_the_direction(better: Any, verdict: str) -> None:
    first, second = by_seed([3.0, 3.1, 2.9, 3.2]), by_seed([1.0, 1.2, 0.9, 1.1])
    direct = compare_values(column(better), first, second)
    assert direct.verdict == verdict
    assert all(pair.difference > 0 for pair in direct.pairs) == (better == "higher")
    assert (direct.d_z or 0.0) * (1 if better == "higher" else -1) > 0
    turned = compare_values(column(better), second, first)
    assert turned.gain.mean == pytest.approx(-direct.gain.mean) and turned.p == pytest.approx(direct.p)


def test_small_numbers_have_digits_and_equal_means_and_rows_are_called_so() -> None:
    tiny = compare_values(column("lower"), by_seed(3e-9 + 1e-11 * k for k in range(4)), by_seed([5e-9] * 4))
    assert "by 0.000000001985 (" in sentence(corrected([tiny])[0], NAMES)
    mixed = compare_values(column(), by_seed([1.0, 2.0, 3.0]), by_seed([2.0, 1.0, 3.0]))
    said = sentence(corrected([mixed])[0], NAMES)
    assert said.startswith("Ours and Theirs have the same mean (95 % interval")
    values = by_seed([0.8, 0.7, 0.9])
    same = corrected([compare_values(column(), values, values)])[0]
    assert (same.verdict, same.p, same.p_wilcoxon, same.d_z, same.more) == ("equal", 1.0, 1.0, 0.0, None)
    assert sentence(same, NAMES) == "Ours and Theirs are equal in every one of 3 pairs of runs."


def test_columns_are_corrected_for_each_other_and_directions_those_of_all_tables() -> None:
    first, second = random_rows(10, 0.1, seed=10)
    alone = compare_values(column(), first, second)
    assert alone.p is not None and alone.p == pytest.approx(0.0185, abs=1e-4)
    assert alone.verdict != "cannot be told apart"
    others = [compare_values(column(key=str(k)), *random_rows(10, 0.0, seed=k)) for k in (4, 5)]
    assert corrected([alone, *others])[0].p_adjusted == pytest.approx(3 * alone.p)
    assert corrected([alone])[0].p_adjusted == alone.p
    words = [dataclasses.replace(alone, p_adjusted=p).verdict for p in (0.049, 0.051, None)]
    assert words == ["first better", "cannot be told apart", "too few pairs"]
    for ident in table_ids(kind="runs"):
        for table_column in load_table(CONF / "table" / f"{ident}.yaml").columns:
            assert pairs.direction(table_column.metric) == table_column.better, (ident, table_column.metric)


@pytest.mark.parametrize("seed", range(10))
def test_what_is_not_decided_always_needs_more_pairs(seed: int) -> None:
    columns = [compare_values(column(key=str(k)), *random_rows(6, 0.8, 10 * seed + k)) for k in range(4)]
    for comparison in corrected(columns):
        if comparison.verdict == "cannot be told apart":
            assert comparison.more is not None and comparison.more > 0
            powers = [
                pairs.power_of(6 + comparison.more - k, comparison.d_z or 0.0, 0.05 / 4) for k in (0, 1)
            ]
            assert comparison.more > pairs.MOST or powers[0] >= 0.8 > powers[1], "at 5 % over all four"
        else:
            assert comparison.more is None


def test_more_pairs_are_hopeless_only_beyond_a_thousand_further_ones() -> None:
    even = by_seed([1.0, -1.0] * 5)
    (alike,) = corrected([compare_values(column(), even, dict.fromkeys(even, 0.0))])
    assert alike.more == pairs.MOST + 1


def test_verdicts_new_splits_and_the_other_test_have_their_sentences() -> None:
    def said(shift: float, n: int = 10, columns: int = 1, **changes: Any) -> str:
        comparison = compare_values(column(**changes), *random_rows(n, shift, seed=1))
        return sentence(corrected([comparison])[0], NAMES, columns=columns)

    ahead = said(3.0, unit="%", scale=100)
    assert re.match(r"Ours is better than Theirs by .* points \(95 % interval \[\+", ahead)
    assert re.match(r"Theirs is better than Ours by .*interval \[\+", said(-3.0))
    alike = said(0.1, columns=2)
    assert alike.startswith("Ours and Theirs cannot be told apart: ")
    assert "more pairs would find it at 5 % over all 2 columns with a power of 80 %." in alike
    assert said(1.0, n=2) == "no verdict from 2 pairs of runs; 3 are the fewest."
    rng = np.random.default_rng(0)
    first = {(split, 0): 1.0 + rng.normal() for split in range(10)}
    many = corrected([compare_values(column(), first, dict.fromkeys(first, 0.0), "splits", 0.4)])[0]
    assert "On new splits the same order" in sentence(many, NAMES) and "10 splits" in sentence(many, NAMES)
    other = dataclasses.replace(many, p=0.049, p_wilcoxon=0.06)
    assert sentence(other, NAMES).endswith("Wilcoxon's test disagrees with the t test: p = 0.06.")
    few = dataclasses.replace(other, gain=dataclasses.replace(many.gain, n=5))
    assert "Wilcoxon" not in sentence(few, NAMES)


def side(label: str, values: Values, **changes: Any) -> Side:
    selected = {"rule": "max valid/accuracy", "step": 1, "epoch": 1}
    usual = {"selected": selected, "data": {"sizes": {"train": 10, "test": 5}}, **changes}
    records: list[Any] = [
        finished(label, seed, split=split, test={"accuracy": x, "cross_entropy": 1 - x}) | usual
        for (split, seed), x in values.items()
    ]
    return Side(label, Runs.find(label, identity(label), records, list(values)))


def test_splits_count_where_either_row_has_several() -> None:
    several, single = (side("a", {(split, 0): 0.5 for split in splits}) for splits in ((0, 1), (0,)))
    assert [spread_of(single, single), spread_of(single, several)] == ["runs", "splits"]
    assert spread_of(several, single) == "splits"
    rows = ({(split, 0): x for split, x in enumerate(xs)} for xs in ([0.5, 0.6, 0.8], [0.4, 0.4, 0.4]))
    gain = compare_runs(column(), *map(side, NAMES, rows), "splits").gain  # type: ignore[union-attr, call-arg]
    half = stats.t.ppf(0.975, 2) * np.std([0.1, 0.2, 0.4], ddof=1) * math.sqrt(1 / 3 + 5 / 10)
    assert (gain.new_low, gain.new_high) == pytest.approx((gain.mean - half, gain.mean + half))


def document_of(n: int) -> Document:
    pair: Any = tuple(map(side, NAMES, random_rows(n, 0.3)))
    columns = [column(), column("lower", key="ce", metric="test/cross_entropy")]
    sides = {c.key: pair for c in columns}
    return document(compared("t-1", columns, sides, {}, spread_of(*pair), "Train more."))


def test_the_document_has_all_forms_and_fits_a_terminal_and_many_runs_are_summed_up() -> None:
    compared_rows = document_of(10)
    text = on_terminal(compared_rows)
    assert max(map(len, text.splitlines())) <= 80
    assert text.startswith("t-1: Ours (A) against Theirs (B)\nacc: Ours ") and "| split |" not in text
    assert "| split | seed | A | B | difference |" in FORMS["md"](compared_rows)
    lines = FORMS["csv"](compared_rows).splitlines()
    assert len(lines) == 1 + 2 * (1 + 10)
    assert sum(line.endswith(",pair") for line in lines) == 20
    sections = document_of(31).long
    assert [len(section.lines) for section in sections] == [1, 1]
    first, *others = (int(cell) for cell in sections[0].lines[0][:4])
    assert first == 31 == sum(others)
    assert len(document_of(30).long[0].lines) == 30


def test_columns_that_cannot_be_compared_say_why_and_none_at_all_is_an_error_with_what_to_do() -> None:
    values = by_seed([0.5, 0.6, 0.7])
    ours, substitute = side("Ours", values), {"data": {"kind": "substitute data"}}

    def against(theirs: Values, **changes: Any) -> Any:
        return compare_runs(column(), ours, side("Theirs", theirs, **changes), "runs")

    assert against({}) == "Theirs has no finished run with test/accuracy"
    assert against({(1, 0): 0.5, (1, 4): 0.5}) == (
        "they share no run of equal split and seed: Ours has split 0, seeds 0-2; Theirs has split 1, "
        "seeds 0, 4"
    )
    assert against(values, protocol="clean") == "Theirs has other protocol"
    assert against(values, data={"fingerprint": "differs by 0.1"}) == "Theirs has different data"
    assert against(values, **substitute) == "Theirs has substitute data"
    assert against(values, short="an hour").caveats == ("Theirs: short budget",)
    lost = {(0, 7): finished("t/theirs", 7, status="diverged", metrics=None)}
    runs = dataclasses.replace(side("Theirs", values).runs, ended=lost, places=(*values, (0, 7)))
    (caveat,) = compare_runs(column(), ours, Side("Theirs", runs), "runs").caveats  # type: ignore[union-attr]
    assert caveat == "Theirs: 1 of 4 runs diverged and are left out"
    ours = side("Ours", values, **substitute)
    assert len(against(values, **substitute).caveats) == 2
    pair = (side("Ours", by_seed([0.5])), side("Theirs", {(1, 0): 0.5}))
    says = r"Ours has split 0, seed 0; Theirs has split 1, seed 0\. Train more\."
    refuses(InputError, says, compared, "t-1", [column()], {"acc": pair}, {}, "runs", "Train more.")


def test_metrics_of_two_experiments() -> None:
    ours, theirs = side("Ours", by_seed([0.5, 0.6])), side("Theirs", by_seed([0.4, 0.6]))
    columns = [(c.metric, c.better) for c in columns_of(ours, theirs, None, None)]
    assert columns == [("test/accuracy", "higher"), ("test/cross_entropy", "lower")]
    best = {"best": {"test": {"gold": 0.5}}, "last": None}
    scores = {"accuracy": 0.5, "cross_entropy": None, "rmse": 1.0}
    parts = {"best": {"test": scores, "valid": {"error": 0.5}}, "last": None}
    other = side("Other", by_seed([0.5]), metrics=parts, protocol="clean", scoring={"accuracy": "paper"})
    for sides, protocol in (((other, ours), "paper"), ((ours, other), "official")):
        assert [(c.metric, c.protocol) for c in columns_of(*sides, None, None)] == [
            ("test/accuracy", protocol)
        ]
    same = [(c.metric, c.protocol) for c in columns_of(other, other, None, None)]
    assert same == [("test/accuracy", "paper"), ("test/rmse", "clean")], "of the test part, with a number"
    strange = side("Ours", by_seed([0.5]), metrics=best)
    near = r"no metric test/acuracy that both have\. Did you mean test/accuracy"
    for sides, metric, better, error, says in (
        ((ours, theirs), "test/acuracy", None, ConfigError, near),
        ((ours, theirs), None, "higher", ConfigError, "give --metric too"),
        ((ours, side("Theirs", {})), None, None, InputError, "Theirs has none"),
        ((strange, strange), "test/gold", None, ConfigError, "Add --better higher"),
        ((strange, strange), None, None, InputError, "share test/gold"),
    ):
        refuses(error, says, columns_of, *sides, metric, better)
    assert columns_of(strange, strange, "test/gold", "lower")[0].better == "lower"
    chosen = side("Ours", by_seed([0.5]), metrics=best, selected={"rule": "max valid/gold"})
    assert columns_of(chosen, strange, None, None)[0].better == "higher"
