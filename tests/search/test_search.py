"""A search: the best go on, bounds are widened twice at most, and a stop changes nothing."""

import dataclasses
import functools
import json
import math
import re
import shutil
import statistics
import types
from typing import Any

import optuna
import pytest
import yaml
from each import each
from refusals import refuses
from search_conf import TINY, write_study
from variants import variants

from physml.base.errors import ConfigError, RunFailed
from physml.base.lock import held
from physml.base.paths import CONF
from physml.cli import main
from physml.config import compose, studies
from physml.queue import pilot, scheduler
from physml.records import record
from physml.records import searches as search_results
from physml.records.record import checked
from physml.records.searches import state_text
from physml.report.figure import spec as figure_spec
from physml.report.stats.verdict import settings_of
from physml.search import plan as search_plan
from physml.search import report
from physml.search import space as search_space
from physml.search import spec as search
from physml.search import staged as staged_search
from physml.search import trials as search_trials
from physml.search.points import designed
from physml.search.report import lines
from physml.search.space import Bound, Range, bounds, widened

LSTM, GRU = "lem/fitzhugh_nagumo-lstm", "lem/fitzhugh_nagumo-gru"
ID = "lem-fitzhugh_nagumo-lstm"
TASK = {"task": "fitzhugh_nagumo", "provenance": {"kind": "own", "source": "a paper"}}
STAGED = TINY | {"trials": 4, "stages": [{"keep": 2, "set": {"trainer.epochs": 1}}, {"seeds": [1000, 1001]}]}


def write(conf, **changes):
    """A study of two rows that are searched alike."""
    rows = {name: {"model": name, "search": "tiny"} for name in ("lstm", "gru")}
    return write_study(conf, STAGED | changes, rows)


def results(name=ID):
    return json.loads(search_results.results_path(name).read_text())


def searched():
    return yaml.safe_load(searched_file().read_text())


def searched_file():
    return studies.searched_file("lem/fitzhugh_nagumo")


class Simulated:
    """Runs without training: the value of each is a function of its setting, and records of it are kept."""

    def __init__(self, monkeypatch, value):
        self.value, self.records, self.most = value, {}, None
        for module in (staged_search, search_trials):
            monkeypatch.setattr(module, "existing", lambda spec: self.records.get(spec.label))
        made_here = types.SimpleNamespace(carry_out=self.carry_out, maker=lambda: None)
        monkeypatch.setattr(staged_search, "scheduler", made_here)
        self.planning = types.SimpleNamespace(plan=lambda specs, **_: specs, refuse_long=lambda _: None)
        monkeypatch.setattr(staged_search, "planning", self.planning)
        monkeypatch.setattr(staged_search.TrialStore, "update", lambda *_: None)

    def carry_out(self, specs, *, ended=lambda _: None, **_):
        for spec in specs:
            if self.most is not None and len(self.records) >= self.most:
                raise SystemExit("killed")
            value = self.value(spec.config)
            best = None if value is None else {"valid": {"rmse": value}, "test": {"rmse": value}}
            kept: Any = {"status": "diverged" if value is None else "finished", "metrics": {"best": best}}
            kept |= {"cost": {"train_s": 3.6, "cpu_s": 7.2, "eval_s": 1.0}, "path": "nowhere", "curve": None}
            self.records[spec.label] = kept
            ended(spec)
        return scheduler.Outcome()


def by_rate(config):
    """Best at a rate of 1e-2; noisier in short runs and with the seed."""
    rate, seed = config["optim"]["lr"], config["seed"]
    return abs(rate - 1e-2) + 1e-4 * (seed - 1000)


def carried_out(name=LSTM, **options):
    return staged_search.carry_out(name, jobs=1, **options)


@pytest.fixture
def simulate(conf, monkeypatch):
    """Carries out a search whose runs have these values: its runs and its results."""

    def carry_out(value, **changes):
        write(conf, **changes)
        runs = Simulated(monkeypatch, value)
        assert carried_out() == 0
        return runs, results()

    return carry_out


def test_a_search_in_stages_to_its_end_and_again(conf, tmp_path, forked, capsys):
    write(conf)
    assert carried_out() == 0
    assert len(forked) == 4 + 2 * 2
    result = results()
    assert result["search"]["experiment"] == LSTM and result["search"]["stages"][0]["keep"] == 2
    rows = result["trials"]
    assert [row["status"] for row in rows].count("finished") == 2
    first = sorted(rows, key=lambda row: row["means"][0])
    assert {row["trial"] for row in rows if row["status"] == "finished"} == {r["trial"] for r in first[:2]}
    assert all(row["value"] is None for row in rows if row["status"] == "pruned")
    best = min((row for row in rows if row["value"] is not None), key=lambda row: row["value"])
    assert result["best"]["trial"] == best["trial"]
    assert result["best"]["value"] == pytest.approx(sum(result["best"]["values"]) / 2)
    settings = searched()["lstm"]
    assert settings["set"] == best["point"]
    assert (settings["drawn"], settings["trials"], settings["seeds"]) == (4, 4, 2)
    provenance = compose.compose([f"experiment={LSTM}"]).config["provenance"]
    assert provenance["kind"] == "searched-here" and provenance["search"] == settings["search"]
    assert str(settings_of(provenance)) == "searched: 4 trials, the best on 2 seeds"
    assert not search_results.unfinished_path(ID).exists()
    trials = optuna.load_study(study_name=ID, storage=f"sqlite:///{tmp_path / 'runs' / 'search' / ID}.db")
    assert trials.best_trial.number == best["trial"]
    assert [t.state.name for t in trials.trials].count("PRUNED") == 2
    assert "CPU hours" in capsys.readouterr().out
    assert carried_out() == 0 and len(forked) == 8 and results() == result


GUIDED = {"trials": 14, "tpe": {"first": 10, "batch": 3}}


@pytest.mark.parametrize("guided", [{}, GUIDED], ids=["sobol", "tpe"])
@pytest.mark.parametrize("after", variants([4, 12], range(14)))
def test_a_search_killed_in_any_stage_ends_with_the_same_winner(after, guided, conf, simulate, monkeypatch):
    """Both rounds, the first run and the last one of a stage or of a batch among them."""
    monkeypatch.setattr(search_space, "NEAR", 0.5)  # every value is on a bound
    widen = {"trials": 4, "times": 1}
    runs, whole = simulate(lambda config: by_rate(config) - 2 * config["optim"]["lr"], widen=widen, **guided)
    settings, total = searched(), len(runs.records)
    assert len(whole["rounds"]) == 2 and total > 13
    shutil.rmtree(search_results.results_path(ID).parent)
    searched_file().unlink()
    runs.records.clear()
    runs.most = after
    with pytest.raises(SystemExit):
        carried_out()
    assert not search_results.results_path(ID).exists()
    assert search_results.unfinished_path(ID).exists() == (after > 0)
    runs.most = None
    assert carried_out() == 0
    assert results() == whole and searched() == settings and len(runs.records) == total


def test_tpe_draws_where_the_first_stage_was_good(simulate):
    """Two settings with one optimum: later points come closer, and a diverged region is left."""
    space = {"optim.lr": {"low": 1.0e-4, "high": 1.0, "log": True}, "net.dropout": {"low": 0.0, "high": 0.5}}

    def value(config):
        rate, dropout = config["optim"]["lr"], config["net"]["dropout"]
        return None if rate > 0.3 else abs(math.log10(rate) + 2) + 4 * abs(dropout - 0.2)

    runs, result = simulate(value, trials=60, tpe={"first": 20, "batch": 5}, space=space)
    assert result["search"]["tpe"] == {"first": 20, "batch": 5} and len(result["trials"]) == 60
    means = [row["means"][0] for row in result["trials"]]
    first, later = means[:20], means[40:]
    assert statistics.median(filter(None, later)) < 0.7 * statistics.median(filter(None, first))
    assert later.count(None) < 2 <= first.count(None)
    assert all(1e-4 <= row["point"]["optim.lr"] <= 1 for row in result["trials"])
    total = len(runs.records)
    assert carried_out() == 0 and len(runs.records) == total


def test_a_stop_leaves_checkpoints_and_the_settings(conf, forked, capsys):
    write(conf)
    assert carried_out(max_hours=1e-9) == 75
    assert "4 of 4 runs lack a result (0 failed). The settings stay" in capsys.readouterr().err
    assert not searched_file().exists() and not search_results.results_path(ID).exists()


def test_a_pruned_trial_never_wins(simulate):
    """One that is best for its length but not promoted, and one that has diverged at full length."""

    def value(config):
        rate = config["optim"]["lr"]
        if config["trainer"]["epochs"] == 1:
            return rate  # the two lowest rates go on
        return None if config["seed"] == 1001 and rate < 2e-3 else 1.0 - rate

    space = {"optim.lr": [1.0e-3, 2.0e-3, 4.0e-3, 8.0e-3]}
    stages = [{"keep": 3, "set": {"trainer.epochs": 1}}, STAGED["stages"][1]]
    _, result = simulate(value, space=space, stages=stages)
    assert {row["status"] for row in result["trials"]} == {"finished", "pruned", "diverged"}
    finished = [row for row in result["trials"] if row["status"] == "finished"]
    assert result["best"]["value"] == min(row["value"] for row in finished)
    assert all(row["value"] is None for row in result["trials"] if row["status"] != "finished")
    assert result["best"]["point"]["optim.lr"] < 8.0e-3, "the highest rates are best, and were pruned"


def test_splits_decide_together_and_are_named(conf, simulate, capsys):
    _, result = simulate(by_rate, stages=[{"keep": 2, "set": {"trainer.epochs": 1}}, {"splits": [0, 1, 2]}])
    assert len(result["best"]["values"]) == 3 and searched()["lstm"]["seeds"] == 3
    assert "The validation data of splits 0, 1, 2 decided" in capsys.readouterr().out


def test_a_bound_moves_by_a_third_and_the_ratio_of_a_spread_is_the_worse_over_the_better() -> None:
    assert Range(1.0, 4.0).beyond("high") == 5.0 and Range(1.0, 4.0).beyond("low") == 0.0
    assert Range(1.0, 8.0, log=True).beyond("high") == 16.0
    assert Range(1.0, 4.0, hard=(0.5, 4.5)).beyond("high") == 4.5
    assert Range(1000.4, 1001.0).beyond("high") > 1001.0 and Range(0.999, 0.9999).beyond("low") < 0.999
    assert [Range(0.0, 1.0).near(x) for x in (0.05, 0.06, 0.95)] == ["low", None, "high"]
    assert Range(1.0, 1.0).near(1.0) is None
    space = {"a": {"low": 0.0, "high": 1.0, "hard": [0.0, None]}, "b": [1, 2, 4], "c": [True, False]}
    on_bound = bounds(space, {"a": 0.01, "b": 4, "c": True})
    assert [(bound.key, bound.widened) for bound in on_bound] == [("a", None), ("b", None)]
    assert on_bound[0].reason == "the equation sets it" and on_bound[1].reason == "it is the end of a list"
    assert widened(space, on_bound) == space
    moved = bounds(space, {"a": 0.99, "b": 2, "c": True})
    assert widened(space, moved)["a"] == {"low": 0.0, "high": 1.33, "hard": [0.0, None]}
    space = {"a": {"low": 0.2, "high": 1.0, "hard": [0.0, None]}}
    (bound,) = bounds(space, {"a": 0.21})
    text = report._bounds({"rounds": [{"bounds": [dataclasses.asdict(bound)]}, {"bounds": []}]})
    assert text == "Widened: a 0.21 at the low bound 0.2, moved to 0. No best value is on a bound."
    lower = search_results.SearchSpread("rmse", "lower", (2.0, 3.0, 2.5))
    higher = search_results.SearchSpread("accuracy", "higher", (0.8, 0.4))
    assert (lower.best, lower.worst, lower.ratio, lower.sd) == (2.0, 3.0, 1.5, 0.5)
    assert (higher.best, higher.worst, higher.ratio) == (0.8, 0.4, 2.0)


def test_bounds_are_widened_twice_at_most(simulate, monkeypatch, capsys):
    space = {"optim.lr": {"low": 1.0e-3, "high": 2.0e-3, "log": True}}

    def drawn(space, earlier, number, seed):  # each round has a trial on the upper bound
        return [{"optim.lr": space["optim.lr"]["high"] * (1 - 0.002 * i)} for i in range(number)]

    monkeypatch.setattr(staged_search, "designed", drawn)
    widen = {"trials": 3, "times": 2}  # the higher, the better, for ever
    _, result = simulate(lambda config: 1.0 - config["optim"]["lr"], widen=widen, trials=12, space=space)
    assert [each_round["trials"] for each_round in result["rounds"]] == [12, 3, 3] and result["wants"] == 2
    highs = [each_round["space"]["optim.lr"]["high"] for each_round in result["rounds"]]
    assert highs == [2.0e-3, 2.52e-3, 3.43e-3]
    (last,) = result["rounds"][-1]["bounds"]
    assert last["widened"] is None and last["reason"] == "bounds are moved 2 times at most"
    text = capsys.readouterr().out
    assert "18 trials" in text and "Widened: optim.lr" in text and "which stays: bounds are moved 2" in text


@pytest.mark.parametrize(
    ("high", "hard", "reason"), [(0.5, 0.5, "the equation sets it"), (0.9, None, r"1\.17 is refused: ")]
)
def test_a_bound_of_the_equation_is_not_passed(high, hard, reason, simulate, monkeypatch):
    """Where `hard` says so, or the class itself refuses the value."""

    def drawn(space, earlier, number, seed):
        return [{"net.dropout": space["net.dropout"]["high"]}] * number

    monkeypatch.setattr(staged_search, "designed", drawn)
    space = {"net.dropout": {"low": 0.1, "high": high} | ({"hard": [None, hard]} if hard else {})}
    _, result = simulate(lambda c: 1.0 - c["net"]["dropout"], widen={"trials": 3}, trials=12, space=space)
    ((bound,),) = (each_round["bounds"] for each_round in result["rounds"])
    assert result["wants"] == 0 and bound["widened"] is None and re.match(reason, bound["reason"])


def test_extra_trials_are_granted_to_every_search_of_the_group(conf, monkeypatch, capsys):
    write(conf, widen={"trials": 3}, equal=[LSTM, GRU], trials=8)
    monkeypatch.setattr(search_space, "NEAR", 0.35)

    def value(config):  # lstm is best inside its range; gru the higher the rate, the better
        rate = config["optim"]["lr"]
        return 1 - rate if config["experiment"] == GRU else abs(rate - 5e-3)

    Simulated(monkeypatch, value)
    assert carried_out(LSTM) == 0
    assert len(results()["trials"]) == 8 and not search.load_search(LSTM).behind
    assert carried_out(GRU) == 0
    wants = results("lem-fitzhugh_nagumo-gru")["wants"]
    assert wants >= 1 and search.load_search(LSTM).behind
    out = capsys.readouterr().out
    assert f"that this search has: {LSTM}. Go on" in out and f"physml search {LSTM}" in out
    assert carried_out(LSTM) == 0
    counts = {len(results(f"lem-fitzhugh_nagumo-{row}")["trials"]) for row in ("lstm", "gru")}
    assert counts == {8 + 3 * wants} and not search.load_search(LSTM).behind
    assert searched()["lstm"]["trials"] == searched()["gru"]["trials"]
    out = capsys.readouterr().out
    assert "granted to every search of the group" in out and "equal trials: " in out


def test_one_command_makes_a_group_with_equal_trials(conf, monkeypatch, capsys, prints):
    """The earlier search goes on once a later one has been granted extra trials."""
    write(conf, widen={"trials": 3, "times": 2}, equal=[LSTM, GRU])
    monkeypatch.setattr(search_space, "NEAR", 0.5)  # every value is on a bound
    Simulated(monkeypatch, by_rate)
    assert main.main(["search", LSTM, GRU, "--jobs", "1"]) == 0
    for row in ("lstm", "gru"):
        assert len(results(f"lem-fitzhugh_nagumo-{row}")["trials"]) == 4 + 2 * 3
    assert "without the extra trials" not in capsys.readouterr().out
    out = prints(0, "search", LSTM, "--plan").out.splitlines()
    assert out[0].split() == ["runs", "done", "hours", LSTM] and len(out) == 4
    assert out[1].split()[:2] == ["10", "10"] and out[-1].split()[:2] == ["14", "14"]


def test_runs_of_more_than_a_day_are_asked_for(conf, monkeypatch):
    def refuse(planned):
        raise ConfigError(f"{planned[0].label} takes about 95 core-hours on this machine.")

    write(conf)
    runs = Simulated(monkeypatch, by_rate)
    runs.planning.refuse_long = refuse
    refuses(ConfigError, "takes about 95 core-hours", carried_out)
    assert not runs.records
    assert carried_out(yes=True) == 0 and runs.records


def test_repeats_have_files_of_their_own_and_show_the_spread(conf, simulate, capsys):
    """The final test scores of their winners decide, and the settings of the row stay."""
    runs, own = simulate(by_rate)
    settings = searched()
    assert search_results.spread_of_search(ID) is None
    assert carried_out(repeats=3) == 0
    assert searched() == settings and results() == own and own["final"] is None
    repeats = [results(f"{ID}-repeat{i}") for i in (1, 2, 3)]
    points = [sorted(row["point"]["optim.lr"] for row in result["trials"]) for result in (own, *repeats)]
    assert all(points.count(rates) == 1 for rates in points) and all(len(rates) == 4 for rates in points)
    seeds = {seed for _, seed in search.final_runs(LSTM)}
    for repeat in repeats:
        optim = {"lr": repeat["best"]["point"]["optim.lr"]}
        values = [by_rate({"optim": optim, "seed": seed}) for seed in sorted(seeds)]
        assert repeat["final"]["values"] == values
    assert len([label for label in runs.records if "/final" in label]) == 3 * len(seeds)
    spread = search_results.spread_of_search(ID)
    means = [repeat["final"]["mean"] for repeat in repeats]
    assert [repeat["final"]["means"]["test/rmse"] for repeat in repeats] == means
    assert spread.values == tuple(means) and spread.best == min(means) and spread.worst == max(means)
    assert spread.sd == pytest.approx(statistics.stdev(means))
    assert str(spread) in capsys.readouterr().out
    total = len(runs.records)
    assert carried_out(repeats=3) == 0 and len(runs.records) == total
    runs.records.clear()  # as in a new clone, which has the results without the runs of the trials
    assert main.main(["search", LSTM, "--repeat", "3", "--missing"]) == 0 and not runs.records
    assert str(spread) in capsys.readouterr().out
    assert not search_plan.plan(LSTM, repeats=3, missing=True)
    for i, repeat in enumerate(repeats[:2], 1):  # columns of other metrics of the runs know the spread too
        repeat["final"]["means"]["test/accuracy"] = 0.5 + 0.1 * i
        search_results.results_path(f"{ID}-repeat{i}").write_text(json.dumps(checked(repeat)))
    another = search_results.spread_of_search(ID, "accuracy", "higher")
    assert another == search_results.SearchSpread("accuracy", "higher", (0.6, 0.7))
    assert search_results.spread_of_search(ID, "roc_auc", "higher") is None
    other = repeats[2] | {"search": repeats[2]["search"] | {"trials": 5}}
    search_results.results_path(f"{ID}-repeat3").write_text(json.dumps(checked(other)))
    assert search_results.spread_of_search(ID).values == tuple(means[:2])  # the third was another search
    assert carried_out(repeats=3, missing=True) == 0
    assert runs.records and all(f"{ID}-repeat3/" in label for label in runs.records)


def test_a_plan_has_stages_trials_and_hours(conf, monkeypatch):
    write(conf, widen={"trials": 2, "times": 2})
    runs = Simulated(monkeypatch, by_rate)
    half = types.SimpleNamespace(cost=types.SimpleNamespace(hours=0.5))  # an hour for each run of a plan
    monkeypatch.setattr(search_plan, "planning", types.SimpleNamespace(plan=lambda specs, **_: [half]))
    short, final, extra = search_plan.plan(LSTM)
    assert (short.runs, short.done, short.hours) == (4, 0, 2.0)
    assert (final.runs, final.done, final.hours) == (4, 0, 2.0)
    assert extra.text == "up to 2 times 2 extra trials" and extra.runs == 2 * (2 + 2 * 2)
    runs.most = 4
    with pytest.raises(SystemExit):
        carried_out()
    short, final, extra = search_plan.plan(LSTM)
    assert (short.runs, short.done, short.hours) == (4, 4, 0.0)
    assert short.hours_each == pytest.approx(4.6 / 3600) and final.done == 0
    repeated = search_plan.plan(LSTM, repeats=2)
    assert [stage.runs for stage in repeated] == 2 * [4, 4, extra.runs, len(search.final_runs(LSTM))]
    assert repeated[0].text == "repeat 1: 4 trials with trainer.epochs 1"
    write(conf, **GUIDED)  # whose later trials are not drawn yet
    runs.records.clear()
    search_results.unfinished_path(ID).unlink()
    assert [stage.runs for stage in search_plan.plan(LSTM)] == [14, 4]


def test_a_plan_measures_more_than_the_first_trial(conf, monkeypatch):
    """It has the usual settings, which are small; of four trials the others take three times as long."""
    write(conf)
    monkeypatch.setattr(search_plan, "MEASURED", 2)
    measured = []

    def plan(specs, **_):
        measured.extend(spec.label for spec in specs)
        hours = (1.0 if "/000 " in spec.label else 3.0 for spec in specs)
        return [types.SimpleNamespace(cost=types.SimpleNamespace(hours=each)) for each in hours]

    monkeypatch.setattr(search_plan, "planning", types.SimpleNamespace(plan=plan))
    short, final = search_plan.plan(LSTM)
    assert short.hours_each == final.hours_each == (1 + 3 * 3) / 4
    assert {label.split("/")[-1][:3] for label in measured} == {"000", "002"}


def test_a_report_is_made_from_facts():
    bound = Bound("optim.lr", "high", 0.0976, 0.1, 0.464)
    stage = {"seeds": [1000], "splits": [0]}
    short = stage | {"set": {"trainer.epochs": 5}, "trials": 3, "runs": 3, "cpu_hours": 1.0}
    whole = stage | {"set": {}, "seeds": [1000, 1001], "trials": 1, "runs": 2, "cpu_hours": 2.5}
    won: dict[str, Any] = {"point": {"optim.lr": 0.02}, "value": 0.25}
    lost: Any = {"point": {}, "value": None}
    ends = [{"status": "pruned"} | lost, {"status": "finished"} | won, {"status": "diverged"} | lost]
    about: Any = {"experiment": LSTM, "metric": "rmse", "better": "lower", "trial": {}, "tpe": None}
    content = {
        "search": about | {"equal": [LSTM, GRU]},
        **{"sampler_seed": 1000, "scored": 2},
        "best": won | {"trial": 1, "sd": 0.05, "values": [0.2, 0.3]},
        "stages": [short, whole],
        "rounds": [
            {"trials": 2, "space": {}, "best": 0, "bounds": [vars(bound)]},
            {"trials": 1, "space": {}, "best": 1, "bounds": []},
        ],
        "trials": [{"trial": i} | end for i, end in enumerate(ends)],
        "final": None,
    }
    assert lines(content, written=["a.json"]) == [
        f"{LSTM}: 3 trials (1 finished, 1 pruned, 1 diverged), 3.50 CPU hours",
        "  stage 1: 3 trials with trainer.epochs 5: 3 runs, 1.00 CPU hours",
        "  stage 2: 1 trial at full length, seeds 1000, 1001: 2 runs, 2.50 CPU hours",
        "  1 extra trial: optim.lr 0.0976 at the high bound 0.1, moved to 0.464",
        "  trial   1  0.25  {'optim.lr': 0.02}",
        "best: trial 1, mean valid/rmse 0.25, sd 0.05 over 2 runs",
        "Widened: optim.lr 0.0976 at the high bound 0.1, moved to 0.464. No best value is on a bound.",
        "equal trials: 3 for each of 2 searches, as far as made",
        "written: a.json",
    ]


def rates(values):
    return {"space": {"optim.lr": values}}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"stages": []}, "every stage but the last needs keep"),
        ({"stages": [{"keep": 2}]}, "every stage but the last needs keep"),
        ({"stages": [{"keep": 9}, {}]}, "no stage may keep more trials than it has; got .9. of 4"),
        ({"stages": [{"keep": 0}, {}]}, "keep must be at least 1; got 0"),
        ({"stages": [{"kep": 2}, {}]}, "there is no key kep. Did you mean keep"),
        ({"stages": [{"keep": 2}, {"seeds": [1, 1]}]}, "seeds must be different numbers"),
        ({"metric": "rmsee"}, rf"search {ID}: no metric rmsee\. Did you mean rmse"),
        ({"better": "higher"}, f"search {ID}: lower rmse is better, says the task"),
        ({"better": "best"}, "better must be lower or higher; got 'best'"),
        ({"trials": 0, "stages": [{}]}, "a search needs at least one trial"),
        ({"space": {"optim.lrr": [1.0e-3]}}, "there is no config key optim.lrr. Did you mean lr"),
        (rates({"low": 1.0e-3}), "optim.lr: the key high is missing"),
        (rates({"low": 2, "high": 1}), "low must not be above high; got 2.0 and 1.0"),
        (rates({"low": 0, "high": 1, "log": True}), "low must be positive for a logarithmic range"),
        (rates([]), "optim.lr: an empty list"),
        (rates(3), "optim.lr must be a mapping; got 3"),
        ({"spaces": {}}, r"nagumo\.yaml: searches\.tiny: there is no key spaces\. Did you mean space"),
        ({"sampler": "cmaes"}, "there is no key sampler"),
        ({"tpe": {"first": 9, "batch": 3}}, "first must be at least 10 and batch at least 1; got 9 and 3"),
        ({"points": [{"optim.lr": 0.01, "net.dropout": 0.1}]}, "points must have the keys of space"),
        ({"points": [{"optim.lr": 0.01}] * 5}, "points must be at most trials, 4; got 5"),
        ({"widen": {"trials": 3, "times": 3}}, "times at most 2; got 3 and 3"),
        ({"stages": [{"keep": 2}, {"seeds": [3, 1001]}]}, r"seeds \[3\] are those of the final runs"),
        ({"equal": [GRU]}, f"`equal` must name {LSTM} itself"),
        (rates({"low": 1, "high": 3, "hard": [None, 2]}), "must lie within hard"),
    ],
)
def test_mistakes_are_refused_before_anything_is_trained(changes, says, conf):
    write(conf, **changes)
    refuses(ConfigError, says, carried_out)


def test_searches_of_a_group_have_equal_trials(conf):
    path = write(conf, equal=[LSTM, GRU])
    content = yaml.safe_load(path.read_text())
    content["searches"]["more"] = content["searches"]["tiny"] | {"trials": 5}
    content["rows"]["gru"]["search"] = "more"
    path.write_text(yaml.safe_dump(content, sort_keys=False))
    refuses(ConfigError, f"{GRU} has other trials, stages or extra trials", carried_out)


@functools.cache
def groups():
    """Experiments that are searched alike, by the first of them."""
    alike = {}
    for experiment in studies.searches().values():
        alike.setdefault(min(search.load_search(experiment).equal, default=experiment), []).append(experiment)
    return alike


@pytest.fixture
def tables_once(monkeypatch):
    """Each table is read once, not once for each of the searches that it may concern."""
    monkeypatch.setattr("physml.report.table.spec.load_table", functools.cache(search.tables.load_table))


@pytest.fixture(scope="module")
def figures():
    """Runs of all figures."""
    return [run for path in (CONF / "figure").glob("*.yaml") for run in figure_spec.load_figure(path).runs]


# The first of each study; all with --grid.
@each("name", lambda: variants({x.rpartition("-")[0]: x for x in reversed(groups())}.values(), groups()))
def test_searches_of_the_repository_share_no_seed_with_their_final_runs(name, figures, tables_once):
    group = groups()[name]
    spec = search.load_search(group[0])
    search.check(spec)
    assert set(group) == set(spec.equal or group)
    drawn = {seed for experiment, _, seed in figures if experiment in group}
    final = {seed for experiment in group for _, seed in search.final_runs(experiment)}
    assert search.seeds(spec) and not search.seeds(spec) & (drawn | final)
    first, *_ = [*spec.given, *designed(spec.space, [], 1, 0)]
    assert search.run_of(spec, first).config["runtime"]["score_test"] is False


def test_all_rows_of_the_heterophilic_graphs_are_searched_with_the_usual_settings():
    """They lie outside most ranges that a random draw covers well, and are what quoted baselines have."""
    for experiment in next(group for name, group in groups().items() if name.startswith("g2/texas")):
        spec = search.load_search(experiment)
        usual = spec.points[0]
        assert (usual["optim.lr"], usual["optim.weight_decay"]) == (0.01, 5e-4)
        assert 0.5 in (usual.get("net.dropout"), usual.get("model.dropout"))
        assert spec.given[: len(spec.points)] == spec.points
        run = search.run_of(spec, usual)
        assert run.config["trainer"]["epochs"] == 1000
        assert run.config["trainer"]["stop"]["_target_"].endswith("Patience")


def test_what_a_search_sets_goes_to_the_final_runs(conf, simulate):
    """Points come first and must be in the space; `set` is part of what was found."""
    stop = {"_target_": "physml.training.selection.Patience", "epochs": 3, "metric": "rmse"}
    own = {"set": {"trainer.stop": stop}, "points": [{"optim.lr": 2e-3}]}
    _, result = simulate(lambda config: config["optim"]["lr"], **own)
    assert result["trials"][0]["point"] == {"optim.lr": 2e-3}
    assert searched()["lstm"]["set"]["trainer.stop"] == stop
    assert compose.compose([f"experiment={LSTM}"]).config["trainer"]["stop"] == stop
    assert result["search"]["set"] == {"trainer.stop": stop}
    for wrong in (0.9, "fast"):
        write(conf, points=[{"optim.lr": wrong}])
        refuses(ConfigError, rf"points: optim.lr {wrong} is not in its range", carried_out)


def test_a_study_makes_the_searches_of_another(conf, monkeypatch):
    """With its own group of equal trials, whose rows are named without the study, and searches of its own."""
    write(conf, equal=["lstm", "gru"])
    other = conf / "study" / "lem" / "copy.yaml"
    rows: dict[str, Any] = {"lstm": {"model": "lstm", "search": "tiny"}}
    content: Any = TASK | {"searches_of": "lem/fitzhugh_nagumo", "rows": rows}
    other.write_text(yaml.safe_dump(content | {"search": {"trials": 3}}))
    assert search.load_search(LSTM).equal == [LSTM, GRU]
    rate = {"optim.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
    own = {"search": {"trials": 5}, "searches": {"rate": STAGED | {"space": rate}}}
    rows["gru"] = {"model": "gru", "search": "rate"}
    other.write_text(yaml.safe_dump(content | own))
    assert search.load_search("lem/copy-gru").space == rate
    assert search.load_search("lem/copy-lstm").space == STAGED["space"]
    own["searches"]["tiny"] = own["searches"]["rate"]
    other.write_text(yaml.safe_dump(content | own))
    assert search.load_search("lem/copy-lstm").space == rate, "its own comes before the other's"


def test_searches_share_a_space(conf):
    """A study can add keys to the spaces of all its searches; points without them take the first choice."""
    rate = {"optim.lr": {"low": 1e-4, "high": 1e-2, "log": True}}
    path = write(conf).with_name("copy.yaml")
    content: Any = TASK | {"rows": {"lstm": {"model": "lstm", "search": "rate"}}}
    content["searches"] = {"rate": STAGED | {"space": rate, "points": [{"optim.lr": 1e-3}]}}
    pools, wrong = [None, "mean"], {"low": 1, "high": 2}
    path.write_text(yaml.safe_dump(content | {"search": {"space": {"net.pool": pools}}}))
    spec = search.load_search("lem/copy-lstm")
    assert spec.space == {"net.pool": pools} | rate
    assert spec.points == [{"net.pool": None, "optim.lr": 1e-3}]
    path.write_text(yaml.safe_dump(content | {"search": {"space": {"net.pool": wrong}}}))
    refuses(ConfigError, "points must have the keys of space", search.load_search, "lem/copy-lstm")


ONE = {"stages": [{}], "trials": 3, "trial": {"profile": "smoke", "trainer.epochs": 2}}


def test_a_search_of_one_stage_to_its_end_and_again(conf, tmp_path, forked, capsys, prints):
    """Its trials are runs whose test data are not scored, and the setting of the row is one of them."""
    study = write(conf, **ONE)
    before = study.read_bytes()
    assert main.main(["search", "lem/fitzhugh_nagumo-ls*", "--missing", "--jobs", "2"]) == 0
    result = results()
    assert len(forked) == 3 and {row["status"] for row in result["trials"]} == {"finished"}
    assert result["trials"][0]["point"] == {"optim.lr": 1e-3}
    for row in result["trials"]:
        folder = tmp_path / "results" / "runs" / "adhoc" / "search" / ID / f"{row['trial']:03d}"
        (path,) = folder.glob(record.RUNS)
        kept = record.read(path)
        assert (kept["seed"], kept["identity"], kept["wandb"]) == (1000, row["identity"], None)
        assert row["value"] == kept["metrics"]["best"]["valid"]["rmse"] == row["means"][0]
        assert kept["metrics"]["best"]["test"] == kept["metrics"]["last"]["test"] == {}
    best = min(result["trials"], key=lambda row: row["value"])
    assert study.read_bytes() == before and searched()["lstm"]["set"] == best["point"]
    config = compose.compose([f"experiment={LSTM}"]).config
    assert config["optim"]["lr"] == best["point"]["optim.lr"]
    assert config["provenance"]["kind"] == "searched-here"
    assert str(settings_of(config["provenance"])) == "searched: 3 trials"
    assert compose.compose([f"experiment={GRU}"]).config["provenance"] == {"kind": "own", "source": "a paper"}
    assert state_text(ID).startswith("done, trial ")
    capsys.readouterr()
    assert prints(0, "search", "lem/fitzhugh_nagumo-ls*", "--missing").out == "all searches are done\n"
    assert main.main(["search", LSTM, "--picture"]) == 0
    assert (tmp_path / "results" / "search" / f"{ID}.png").stat().st_size > 10_000
    assert carried_out() == 0 and len(forked) == 3 and results() == result
    assert main.main(["search", "lem/fitz?", "--missing"]) == 2
    assert "no search fits lem/fitz?. `physml list searches` shows all." in capsys.readouterr().err


def test_pilots_share_a_search(conf, forked, monkeypatch):
    """One leaves what another one holds, and the next to come goes on."""
    monkeypatch.setattr(pilot, "LOOK", 0.1)
    write(conf, **ONE)
    staged = staged_search.StagedSearch(search.load_search(LSTM))
    staged._draw(staged.spec.space, lambda *_: None)
    command = ["search", LSTM, "--on", "pilot", "--jobs", "1"]
    with held(staged.specs(0, 1)[0].work_folder):
        assert main.main([*command, "--no-wait"]) == 75
    assert len(forked) == 2 and state_text(ID).startswith("2 of 3 trials, trial ")
    assert main.main(command) == 0 and len(forked) == 3 and state_text(ID).startswith("done, trial ")


def test_a_search_whose_trials_all_diverge_chooses_none(conf, monkeypatch):
    write(conf, **ONE | {"space": {"optim.lr": [1.0e30]}})
    Simulated(monkeypatch, lambda config: None)
    refuses(RunFailed, f"no trial of {ID} gave a number", carried_out)


def test_where_all_that_go_on_diverge_the_next_best_take_their_place(conf, simulate, monkeypatch):
    _, before = simulate(by_rate)
    ranked = sorted(before["trials"], key=lambda row: row["means"][0])
    rates = [row["point"]["optim.lr"] for row in ranked]

    def diverging(n):
        return lambda config: (
            None if config["seed"] == 1001 and config["optim"]["lr"] in rates[:n] else by_rate(config)
        )

    _, after = simulate(diverging(2))  # both that go on, on their second seed
    assert after["best"]["trial"] == ranked[2]["trial"] and after["stages"][1]["trials"] == 4
    ends = {row["trial"]: row["status"] for row in after["trials"]}
    assert [ends[row["trial"]] for row in ranked] == ["diverged", "diverged", "finished", "finished"]
    _, after = simulate(diverging(1))
    assert after["best"]["trial"] == ranked[1]["trial"] and after["stages"][1]["trials"] == 2
    write(conf)
    Simulated(monkeypatch, diverging(4))
    refuses(RunFailed, "gave a number in every stage", carried_out)


def test_a_search_with_a_failed_run_writes_nothing_and_makes_it_next_time(conf, monkeypatch, capsys):
    write(conf, **ONE)
    runs = Simulated(monkeypatch, by_rate)

    def one_fails(specs, **options):
        runs.carry_out(specs)
        runs.records[specs[-1].label]["status"] = "failed"
        return scheduler.Outcome({specs[-1].label: 1})

    with monkeypatch.context() as patch:
        patch.setattr(staged_search.scheduler, "carry_out", one_fails)
        assert carried_out() == 1
    assert "1 of 3 runs lack a result (1 failed). The settings stay" in capsys.readouterr().err
    assert not search_results.results_path(ID).exists()
    assert carried_out() == 0 and len(results()["trials"]) == 3


def test_other_rows_of_the_searched_file_stay(conf):
    write(conf)
    path = searched_file()
    facts = {"drawn": 4, "trials": 4, "seeds": 1}
    gru = {"trial": 2, "search": "results/search/a.json", **facts, "set": {"optim.lr": 0.01}}
    path.write_text(yaml.safe_dump({"gru": gru}))
    spec = search.load_search(LSTM)
    search.write_found(spec, studies.Found(1, "results/search/b.json", {"optim.lr": 0.02}, **facts))
    lstm = {"trial": 1, "search": "results/search/b.json", **facts, "set": {"optim.lr": 0.02}}
    assert searched() == {"gru": gru, "lstm": lstm}
    assert path.read_text().startswith(f"{search.WRITTEN}\n\ngru: {{trial: 2, ")


@pytest.mark.slow
def test_a_study_of_ones_own_is_searched_where_it_lies(tmp_path, forked, monkeypatch, capsys):
    """An installed package refuses its own studies alone."""
    monkeypatch.setattr(search, "INSTALLED", True)
    monkeypatch.chdir(tmp_path)
    refuses(ConfigError, r"physml search \./study\.yaml:ROW", carried_out, "lem/fitzhugh_nagumo-lem-searched")
    rows = {"lstm": {"model": "lstm", "search": "tiny"}}
    content = TASK | {"searches": {"tiny": STAGED | ONE}, "rows": rows}
    (tmp_path / "mystudy.yaml").write_text(yaml.safe_dump(content))
    assert main.main(["search", "./mystudy.yaml:lstm", "--jobs", "2"]) == 0
    assert len(forked) == 3 and "written: mystudy.searched.yaml" in capsys.readouterr().out
    result = results("adhoc-mystudy-lstm")
    assert result["search"]["experiment"] == "./mystudy.yaml:lstm"
    config = compose.compose(["experiment=./mystudy.yaml:lstm"]).config
    assert config["optim"]["lr"] == result["best"]["point"]["optim.lr"]
    (tmp_path / "moved").mkdir()
    for path in tmp_path.glob("mystudy*.yaml"):
        path.rename(tmp_path / "moved" / path.name)
    assert main.main(["search", "./moved/mystudy.yaml:lstm", "--jobs", "2"]) == 0
    assert len(forked) == 3, "no trial is made again"


def test_a_search_has_the_name_of_its_results_and_rows_tasks_and_repeats_have_own_points() -> None:
    for name in ("fitzhugh_nagumo-lem", "lem/fitzhugh_nagumo-lem-searched"):
        spec = search.load_search(name)
        assert (spec.id, spec.experiment) == ("fitzhugh_nagumo-lem", "lem/fitzhugh_nagumo-lem-searched")
    for name in ("lem/fitzhugh_nagumo-lsmt", "lem-fitzhugh_nagumo-lsmt"):
        says = rf"there is no search {name}\. Did you mean lem.fitzhugh_nagumo-lstm"
        refuses(ConfigError, says, carried_out, name)
    # The same luck in all columns of a table would look like a difference between models.
    names = ("recall-lstm", "recall-gru", "parity-lstm", "japanese_vowels-lem", "osu_leaf-lem")
    specs = [search.load_search(f"sequence/{name}") for name in names]
    assert len({spec.sampler_seed(repeat) for spec in specs for repeat in range(5)}) == 25
    assert search.load_search("sequence/fitzhugh_nagumo-lem").sampler_seed(0) == 20410273, "as recorded"
