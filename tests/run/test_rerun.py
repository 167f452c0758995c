"""`physml rerun`: equal here, within rounding on another backend, refused; recorded runs come out equal."""

from pathlib import Path
from typing import Any

import pytest
import run_harness as h

from physml.base.paths import OWN_RESULTS
from physml.cli import main
from physml.records import record
from physml.run import state as run_state

SMALL = (
    *("model=lem", "model.d_hidden=3", "task=adding", "task.length=12", "task.n_eval=16", "tracker=none"),
    *("profile=smoke", "trainer.max_steps=6", "trainer.batch_size=4", "runtime.backend=torch"),
)


@pytest.fixture
def again(capsys):
    """`physml rerun` in this process: exit code, output, errors."""

    def call(*arguments):
        capsys.readouterr()
        code = main.main(["rerun", *map(str, arguments)])
        printed = capsys.readouterr()
        return code, printed.out, printed.err

    return call


@pytest.fixture
def spec():
    """A run that has been made."""
    run = h.spec_of(list(SMALL))
    h.make(run)
    return run


def rewritten(path, **changes):
    """The record at a path with other fields of its own."""
    record.write(path, {**record.read(path), **changes})


def test_a_run_is_the_same_again_and_its_record_stays(again, roots):
    spec = h.spec_of([*SMALL, "seed=3"])
    h.make(spec)
    before = spec.record_path.read_bytes()
    code, out, _ = again(spec.record_path)
    assert code == 0 and "\nequal to the bit: all " in out
    assert spec.record_path.read_bytes() == before
    (new,) = (roots / "results/runs/adhoc/rerun-adding-lem").glob(record.RUNS)
    assert f"again:    {new}" in out
    assert h.numbers(record.read(new)) == h.numbers(record.read(spec.record_path))
    code, out, _ = again(new, "--plan")  # a rerun of a rerun lies beside it too
    assert code == 0 and "rerun-rerun-adding-lem" in out


def test_a_record_may_name_an_option_that_has_gone(again, spec):
    config = record.read(spec.record_path)["config"]
    rewritten(spec.record_path, config=config | {"runtime": config["runtime"] | {"energy": False}})
    code, out, _ = again(spec.record_path)
    assert code == 0 and "\nequal to the bit: all " in out


def test_another_backend_is_within_rounding(again, spec):
    code, out, _ = again("adding-lem", "--backend", "reference")
    assert code == 0 and "backend reference, was torch" in out


def test_other_numbers_are_different(again, spec):
    metrics: Any = record.read(spec.record_path)["metrics"]
    metrics["best"]["test"]["mse"] += 0.5
    rewritten(spec.record_path, metrics=metrics)
    code, out, _ = again(spec.record_path)
    assert code == 1
    assert "\ndifferent: test/mse is " in out and "1 recorded seed on this split" in out


def test_what_is_refused(again, spec, monkeypatch):
    path = spec.record_path
    lost = {"lem/adding-lme": "there is no run lem/adding-lme", "nothing.json": "nothing.json cannot be read"}
    for name, says in lost.items():
        code, out, err = again(name)
        assert (code, out) == (2, "") and says in err
    code, _, err = again("adding-lem", "--seed", "9")
    assert code == 2 and "adhoc/adding-lem has 1 records, none with split 0 and seed 9" in err
    code, _, err = again(path, "--plugin", "my_rnn.py")
    assert code == 2 and "the run used no file of your own; got my_rnn.py" in err
    monkeypatch.setattr(run_state, "blocked_by", lambda *_: "no data")
    rewritten(path, status="failed", reason="broken")
    code, _, err = again(path)
    assert code == 2 and "the run is failed, so there are no numbers to compare" in err


def test_a_setting_that_is_another_today_is_refused_with_what_differs(again, spec):
    changed = record.read(spec.record_path)
    changed["config"]["model"]["d_hidden"] = 4
    record.write(spec.record_path, changed)
    code, _, err = again(spec.record_path)
    assert code == 2 and "with this code, not " in err and "model.d_hidden 4, was 3" in err


def test_code_of_the_user_runs_only_where_the_user_names_it(again):
    spec = h.spec_of(h.odd())
    h.make(spec)
    code, _, err = again(spec.record_path)
    assert code == 2 and "the run used odd_tasks.py; got none." in err
    code, out, _ = again(spec.record_path, "--plugin", h.ODD)
    assert code == 0 and "equal to the bit" in out


def test_a_plan_trains_nothing_and_a_record_of_uncommitted_code_says_so(again, spec, roots):
    code, out, _ = again("adding-lem", "--plan")
    assert code == 0
    assert "trains again: " in out and "(6 steps of " in out
    assert not (roots / "results/runs/adhoc/rerun-adding-lem").exists()
    rewritten(spec.record_path, code=record.read(spec.record_path)["code"] | {"dirty": True})
    _, out, _ = again(spec.record_path, "--plan")
    assert "was made on uncommitted code: no commit holds what produced it." in out


# On generated data, one thread, fp32; they took 2 to 5 s when they were recorded.
RECORDS = (
    "sequence/recall-lem/89c0c1ad-split0-seed4",
    "talk/pendulum-euler/922f0382-split0-seed0",
    "long_range/eccentricity_small-gcnii/b713060d-split0-seed4",
)
MORE = (
    "sequence/recall-unicornn/2803e6bf-split0-seed1",
    "sequence/recall-cornn/99431028-split0-seed0",
    "sequence/recall-tanh_rnn/341a1aeb-split0-seed1",
    "sequence/recall-lstm/883a8a35-split0-seed0",
    "sequence/recall-lipschitz/1e0be3e6-split0-seed2",
    "sequence/recall-gru/db8f8207-split0-seed1",
    "sequence/recall-min_gru/f717193b-split0-seed0",
    "long_range/eccentricity_small-gcn/366d9106-split0-seed1",
    "long_range/distance_small-sage/8c93d6be-split0-seed2",
    "long_range/diameter_small-gin/0e9ce662-split0-seed1",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECORDS, *(pytest.param(name, marks=pytest.mark.grid) for name in MORE)])
def test_a_recorded_run_is_the_same_again(name: str, roots: Path, monkeypatch, capsys) -> None:
    """To the bit, or within what another processor explains: what the command does not call different."""
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    path = OWN_RESULTS / "runs" / f"{name}.json"
    before = record.read(path)
    code = main.main(["rerun", str(path)])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert "\nagain: " in printed.out and record.read(path) == before and not path.exists()
