"""results/README.md: what the runs took by processor, and tables without a printed number."""

import random

from made_records import finished, ids

from physml.listing.overview import HEADS, line, processors_text, text
from physml.report.outcome import NOT_RUN
from physml.report.table.collect import recorded
from physml.report.table.spec import Column, Row, TableSpec


def run(hours: float, device: str = "cpu", **machine: str) -> dict[str, object]:
    cost = {"train_s": 3000.0 * hours, "eval_s": 600.0 * hours}
    return finished("p/t-lem", cost=cost, machine={"device": device, **machine})


def test_hours_stand_by_processor_and_those_of_gpus_apart() -> None:
    runs = [
        *(run(0.1, cpu="AMD EPYC", microarchitecture="Zen 4") for _ in range(3)),
        run(1.25, cpu="AMD EPYC"),
        run(7.0),
        run(120.4, cpu="AMD EPYC", microarchitecture="Zen 5"),
        run(2.0, "NVIDIA H200", cpu="Intel"),
        run(1.0, "NVIDIA H200 + cpu", cpu="AMD EPYC"),
    ]
    said = processors_text(runs)
    assert said == (
        "What the runs took by processor, each counted once. Core-hours: 120 on AMD EPYC (Zen 5), 7 on a "
        "processor not recorded, 1.2 on AMD EPYC (generation not recorded), 0.3 on AMD EPYC (Zen 4). "
        "GPU-hours: 2 on NVIDIA H200. Hours: 1 on NVIDIA H200, then cpu."
    )
    for seed in range(5):
        assert processors_text(random.Random(seed).sample(runs, len(runs))) == said
    assert text([], runs) == f"{text([])}\n{said}\n"


def test_cells_of_a_table_without_printed_numbers_are_counted_as_not_run() -> None:
    column = Column(key="a", metric="test/rmse", better="lower", protocol="official")
    rows = (Row("ours", experiment="p/t-ours"), Row("other", experiment="p/t-other"))
    spec = TableSpec(id="t-1", title="T", source="S", seeds=(0,), columns=(column,), rows=rows)
    table = recorded(spec, ids("p/t-ours", "p/t-other"), [finished("p/t-ours", test={"rmse": 1.0})])
    cells = dict(zip(HEADS, line(table), strict=True))
    assert cells["trained (n ≥ 3)"] == "1 of 2 (0)"
    assert cells[f"{NOT_RUN.sign} {NOT_RUN.name}"] == "1"
