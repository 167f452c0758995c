"""What a person sees of the runs of `physml run -m`: the plan, the screen while they run, and the end."""

import os
import pty
import signal
import subprocess
import sys
import time
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import run_harness as h

from physml.base import doing
from physml.base.paths import ROOT
from physml.cli.run import Sweep, show_outcomes
from physml.data.cache import Cache
from physml.run import progress
from physml.run.live import Live, Remaining, summary
from physml.training.interrupt import SIGNALS, handled

TYPED = [["model=lem", f"optim.lr={rate}", f"seed={seed}"] for rate in (0.1, 0.2, 0.3) for seed in (0, 1)]
LABELS = [f"run {k}" for k in range(6)]


# ---------------------------------------------------------------------------- before and after


def test_runs_are_named_by_the_settings_that_differ_and_say_how_far_they_are() -> None:
    sweep = Sweep(LABELS, TYPED)
    assert sweep.names["run 3"] == "optim.lr=0.2 seed=1"
    assert sweep.setting("run 3") == "optim.lr=0.2"
    assert Sweep(["one"], [["model=lem"]]).names == {"one": "one"}
    assert Live().text == "starting"
    assert Live(doing="making the data of x (once)").text == "making the data of x (once)"
    assert Live(0, 6).text == "step 0 of 6"
    live = Live(step=30, steps=100, first=20, began=50.0, at=51.0, loss=0.12345)
    assert live.text == "step 30 of 100, loss 0.123, 100 ms/step, eta 0:00:07"
    assert Live.of({"step": "x", "at": True, "loss": float("nan"), "host": 3}) == Live()
    assert Live.of({"step": 1, "steps": 1e308, "at": 1e300, "loss": float("inf")}) == Live(1)
    assert Live.of({"step": 1, "steps": 9e9, "at": 9e9}).text.endswith("eta 115740 days, 17:46:40")


def test_the_end_is_a_table_of_settings_best_first_and_failures_with_reasons(monkeypatch, capsys) -> None:
    scores = {"run 0": 0.3, "run 1": 0.5, "run 2": 0.1, "run 3": 0.2}

    def existing(spec: Any) -> dict[str, Any]:
        if (score := scores.get(spec.label)) is None:
            return {"metrics": None, "status": "diverged", "reason": "the loss is not finite"}
        best = {"valid": {"mse": score}, "test": {"mse": score + 1}}
        return {"metrics": {"best": best}, "reason": None}

    monkeypatch.setattr("physml.run.perform.existing", existing)
    monkeypatch.setattr("physml.run.state.state_of", lambda spec: "missing")
    task = SimpleNamespace(make=lambda: SimpleNamespace(metric="mse", better={"mse": "lower"}))
    specs = [SimpleNamespace(label=label, parts=SimpleNamespace(task=task)) for label in LABELS]
    planned: Any = [SimpleNamespace(spec=spec, state="missing") for spec in specs]
    outcome: Any = SimpleNamespace(codes={**dict.fromkeys(scores, 0), "run 4": 1}, left=["run 5"])
    show_outcomes(planned, outcome, Sweep(LABELS, TYPED))
    assert capsys.readouterr().out.splitlines() == [
        "setting       runs  valid mse     test mse",
        "optim.lr=0.2  2     0.15 ± 0.071  1.15 ± 0.071",
        "optim.lr=0.1  2     0.4 ± 0.14    1.4 ± 0.14",
        "optim.lr=0.3 seed=0: diverged: the loss is not finite",
        "optim.lr=0.3 seed=1: not started",
        "4 of 6 runs have a score",
    ]


def test_tasks_of_different_metrics_have_a_table_each(monkeypatch, capsys) -> None:
    def existing(spec: Any) -> dict[str, Any]:
        best = {"valid": {spec.metric: 0.5}, "test": {spec.metric: 0.25}}
        return {"metrics": {"best": best}, "reason": None}

    def planned(label: str, metric: str) -> Any:
        task = SimpleNamespace(make=lambda: SimpleNamespace(metric=metric, better={metric: "lower"}))
        spec = SimpleNamespace(label=label, metric=metric, parts=SimpleNamespace(task=task))
        return SimpleNamespace(spec=spec, state="missing")

    monkeypatch.setattr("physml.run.perform.existing", existing)
    runs = [planned("a", "mse"), planned("b", "rmse")]
    outcome: Any = SimpleNamespace(codes={"a": 0, "b": 0}, left=[])
    show_outcomes(runs, outcome, Sweep(["a", "b"], [["task=adding"], ["task=lorenz96"]]))
    assert capsys.readouterr().out.splitlines() == [
        "setting      runs  valid mse  test mse",
        "task=adding  1     0.5        0.25",
        "setting        runs  valid rmse  test rmse",
        "task=lorenz96  1     0.5         0.25",
        "2 of 2 runs have a score",
    ]


# ---------------------------------------------------------------------------- meanwhile


def test_the_time_left_of_a_batch_comes_from_the_speed_of_its_runs() -> None:
    remaining = Remaining(6)
    assert remaining.seconds({"a": Live(0, 100)}, 0) is None
    half = Live(step=50, steps=100, began=1.0, at=51.0)  # a second a step: 50 s left of 100
    assert remaining.seconds({"a": half, "b": Live(0, 100)}, 0) == pytest.approx((50 + 100 + 4 * 100) / 2)
    assert remaining.seconds({"c": half}, 5) == pytest.approx(50)
    text = summary({"c": half}, 5, remaining)
    assert text.startswith("5 of 6 runs done, eta 0:00:50, 1 running: c step 50")


def test_lines_off_a_terminal_are_one_a_minute(monkeypatch: pytest.MonkeyPatch, capsys) -> None:
    now = [0.0]
    monkeypatch.setattr(progress.time, "monotonic", lambda: now[0])
    view = progress.ManyLines(8, {"label 1": "optim.lr=0.1"})
    data = Live(doing="making the data of adding (once)")
    for second in range(600):
        now[0] = float(second)
        view.show({"label 1": Live(second, 900) if second > 5 else data, "label 2": data}, 1)
    lines = capsys.readouterr().err.splitlines()
    assert lines[0] == "making the data of adding (once)" and len(lines) <= 1 + 10
    assert "1 of 8 runs done, 2 running: optim.lr=0.1 step" in lines[1]
    assert sum(map(len, lines)) < 4000


def test_bars_never_say_none_and_texts_do_not_come_in_quick_succession(monkeypatch, capsys, tmp_path) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    view = progress.ManyBars(6)
    view.show({"x seed 0": Live(doing="making the data of x (once)"), "b": Live(3, 9)}, 0)
    view.close()
    shown = capsys.readouterr().err
    assert "0 of 6 runs done" in shown and "step 3 of 9" in shown and "None" not in shown
    assert "making the data of x (once)" in shown
    said: list[str] = []
    cache = Cache(None, tmp_path)
    with doing.shown_by(said.append):
        for _ in range(2):
            cache.generated("adding", {}, 1, lambda: {"x": np.zeros(2)})
    assert said == ["making the data of adding (once)"]
    show = progress.now_and_then(every_s=60.0)
    for word in ("first", "second"):
        show(word)
    assert capsys.readouterr().err == "first\n"


# ---------------------------------------------------------------------------- a closed terminal


@pytest.mark.parametrize("ignored", [False, True])
def test_a_closed_terminal_leaves_nothing_running_and_checkpoints(ignored: bool) -> None:
    """Where SIGHUP is ignored, as of a job that the shell disowned, the sweep goes on to its end."""
    overrides = h.odd("seed=0,1", "runtime.checkpoint_every_s=0", step_s=0.1 if ignored else 0.3)
    specs = h.specs_of(overrides)
    ours, theirs = pty.openpty()
    command = ["setsid", "--ctty", "--wait", "env", f"--{'ignore' if ignored else 'default'}-signal=HUP"]
    command += [sys.executable, "-m", "physml", "run", "-m", *overrides, "--jobs", "2"]
    environment = os.environ | {"PYTHONPATH": str(ROOT)}
    process = subprocess.Popen(command, stdin=theirs, stdout=theirs, stderr=theirs, env=environment)
    os.close(theirs)
    os.set_blocking(ours, False)

    def begun() -> bool:
        try:
            os.read(ours, 1 << 16)  # a full terminal would hold the command up
        except BlockingIOError:
            time.sleep(0.05)
        return all(map(h.begun, specs))

    h.until(begun)
    os.close(ours)  # the kernel sends SIGHUP
    code, state = process.wait(timeout=120), "done" if ignored else "stopped"
    assert code in ([0] if ignored else [75, 128 + signal.SIGHUP])
    h.until(lambda: not any(h.is_held(spec) for spec in specs))
    assert h.states(specs) == [state, state]


@pytest.mark.parametrize("ignored", [True, False])
def test_nohup_keeps_a_hangup_away(ignored: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    came: list[int] = []
    monkeypatch.setattr("physml.training.interrupt.close_terminal", lambda: None)
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN if ignored else signal.SIG_DFL)
    try:
        with handled([n for n in SIGNALS if n == signal.SIGHUP], lambda number, frame: came.append(number)):
            os.kill(os.getpid(), signal.SIGHUP)
        assert came == ([] if ignored else [signal.SIGHUP])
    finally:
        signal.signal(signal.SIGHUP, before)
