"""Costs: core-hours of records, measured ones, and the same on another core."""

import pytest

from physml.base import paths
from physml.base.errors import RecordError
from physml.records import costs

RECORD = {
    "status": "finished",
    "machine": {"device": "cpu"},
    "n_steps": 100,
    "cost": {
        "train_s": 50.0,
        "cpu_s": 30.0,
        "eval_s": 9.0,
        "eval_cpu_s": 6.0,
        "ms_per_step": 500.0,
        "peak_memory_mib": 300.0,
        "sgemm_gflops": 60.0,
    },
}
OLD = RECORD | {
    "cost": {k: RECORD["cost"][k] for k in ("train_s", "eval_s", "ms_per_step", "peak_memory_mib")}
}


def test_core_hours_are_cpu_time_and_of_old_records_the_clock():
    assert costs.core_hours(RECORD) == pytest.approx(36 / 3600)
    assert costs.core_hours(OLD) == pytest.approx(59 / 3600)
    assert costs.core_hours(RECORD | {"machine": {"device": "NVIDIA H100"}}) == pytest.approx(59 / 3600)
    assert costs.core_hours(RECORD | {"cost": None}) == 0


def test_a_cost_is_scaled_to_the_core_at_hand():
    cost = costs.of_record(RECORD)
    assert (cost.ms_per_step, cost.memory_mib, cost.gpu_mib) == (300.0, 300.0, None)
    assert cost.on(120.0).hours == pytest.approx(cost.hours / 2) and cost.on(120.0).ms_per_step == 150.0
    assert cost.on(None) is cost and costs.of_record(OLD).on(120.0) == costs.of_record(OLD)
    assert costs.of_record(RECORD | {"status": "diverged"}) is None


def test_measured_costs_are_kept_in_lines_and_a_damaged_one_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))
    root = paths.results_root()
    line = {"key": "12345678-cpu-auto", "experiment": "lem/x", "hours": 2.5, "n_steps": 7}
    costs.write(root, {line["key"]: line})
    assert costs.of_line(costs.measured()[line["key"]]).hours == 2.5
    with (root / costs.NAME).open("a", encoding="utf-8") as file:
        file.write("[1, 2]\n")
    with pytest.raises(
        RecordError, match=r"costs.jsonl, line 2: a measured cost was expected; got '\[1, 2\]'"
    ):
        costs.measured()
