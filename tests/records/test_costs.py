"""Costs: core-hours of records, measured ones, and the same on another core."""

import os

import pytest
from refusals import refuses

from physml.base import paths
from physml.base.errors import RecordError
from physml.records import costs
from physml.records.costs import Core

COST = {
    "train_s": 50.0, "cpu_s": 30.0, "eval_s": 9.0, "eval_cpu_s": 6.0, "ms_per_step": 500.0,
    "peak_memory_mib": 300.0, "sgemm_gflops": 60.0,
}  # fmt: skip
RECORD = {"status": "finished", "machine": {"device": "cpu"}, "n_steps": 100, "cost": COST}
OLD = RECORD | {"cost": {k: COST[k] for k in ("train_s", "eval_s", "ms_per_step", "peak_memory_mib")}}


@pytest.fixture(autouse=True)
def results(tmp_path, monkeypatch):
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path))


def test_core_hours_are_cpu_time_or_of_old_records_the_clock_and_scaled_to_the_core_at_hand():
    assert costs.core_hours(RECORD) == pytest.approx(36 / 3600)
    assert costs.core_hours(OLD) == pytest.approx(59 / 3600)
    gpu, both = (RECORD | {"machine": {"device": name}} for name in ("NVIDIA H100", "NVIDIA H100 + cpu"))
    assert costs.core_hours(gpu) == costs.core_hours(both) == pytest.approx(59 / 3600)
    assert [costs.seconds(record) for record in (RECORD, OLD, gpu, both)] == [30.0, 50.0, 50.0, 50.0]
    assert costs.core_hours(RECORD | {"cost": None}) == 0
    cost = costs.of_record(RECORD)
    assert (cost.ms_per_step, cost.memory_mib, cost.gpu_mib) == (300.0, 300.0, None)
    twice = Core(120.0)
    assert cost.on(twice).hours == pytest.approx(cost.hours / 2) and cost.on(twice).ms_per_step == 150.0
    assert cost.on(Core()) is cost and costs.of_record(OLD).on(twice) == costs.of_record(OLD)
    # Generations say more than products of large matrices, where both are known.
    zen_4 = costs.of_record(RECORD | {"machine": RECORD["machine"] | {"microarchitecture": "Zen 4"}})
    assert zen_4.on(Core(60.0, "Zen 5")).ms_per_step == pytest.approx(300.0 / 2.2)
    assert zen_4.on(Core(120.0, "of 2040")).ms_per_step == 150.0
    assert costs.of_record(RECORD | {"status": "diverged"}) is None
    assert costs.of_record(gpu) is costs.of_record(RECORD, cpu=False) is None
    assert costs.of_record(gpu, cpu=False).gpu_mib == 300.0
    assert costs.of_record(both) is costs.of_record(both, cpu=False) is None


def test_measured_costs_are_kept_in_lines_and_a_damaged_one_is_named(tmp_path):
    line = {"key": "12345678-cpu-auto", "experiment": "lem/x", "hours": 2.5, "n_steps": 7}
    costs.write(tmp_path, {line["key"]: line})
    assert costs.of_line(costs.measured()[line["key"]]).hours == 2.5
    with (tmp_path / costs.NAME).open("a", encoding="utf-8") as file:
        file.write("[1, 2]\n")
    refuses(RecordError, r"costs.jsonl, line 2: a measured cost was expected; got '\[1, 2\]'", costs.measured)
    (tmp_path / costs.NAME).unlink()
    os.mkfifo(tmp_path / costs.NAME)
    refuses(RecordError, r"costs.jsonl cannot be read: a FIFO, expected a file", costs.measured)


def test_hours_of_settings_are_those_of_cpus_on_the_reference_core(tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "OWN_RESULTS", tmp_path)
    kinds = {"a-cpu-auto": 2.0, "b-cuda-auto": 3.0, "c-cpu-torch": None, "d-cpu-auto": 4.0}
    lines = {key: {"key": key, "experiment": "x", "hours": hours} for key, hours in kinds.items()}
    lines["a-cpu-auto"]["sgemm_gflops"] = 2 * costs.REFERENCE.sgemm_gflops
    costs.write(tmp_path, lines)
    assert costs.hours_of_settings() == {"a": 4.0, "d": 4.0}


@pytest.mark.parametrize("wrong", ["9", -1.0, True, None, [2.0], float("nan"), float("inf"), 10**400])
def test_what_is_no_measurement_counts_as_unknown(wrong):
    cost = costs.of_line(dict.fromkeys(("hours", "sgemm_gflops", "memory_mib"), wrong) | {"gpu_mib": 2})
    assert cost == costs.Cost(gpu_mib=2) and cost.on(Core(50.0)) == cost


@pytest.mark.parametrize("wrong", ["[" * 100_000, '{"key": ["x"], "experiment": "e"}', '{"key": "x"}', "7"])
def test_a_line_of_others_is_one_with_a_key_and_an_experiment(wrong, tmp_path):
    (tmp_path / costs.NAME).write_text(wrong + "\n")
    refuses(RecordError, r"costs.jsonl, line 1: a measured cost was expected", costs.measured)
