"""Rows of own-sequence and own-images have equally many parameters, as their notes say."""

import torch
from each import each
from variants import variants

from physml.base.paths import CONF
from physml.config.build import build_net, build_task, parts_of
from physml.config.compose import compose
from physml.report.table.spec import experiments_of, load_table
from physml.run.record import count_parameters

PARAMETERS, WITHIN = 5000, 0.05
# Dimensions and classes of UEA sets, which are else known from their files.
SIZES = {"japanese_vowels": (12, 9), "osu_leaf": (1, 6)}
TABLES = [load_table(CONF / "table" / f"{name}.yaml") for name in ("own-sequence", "own-images")]
EXPERIMENTS = [name for table in TABLES for name in experiments_of(table)]


@each("name", variants([name for name in EXPERIMENTS if name.startswith("sequence/recall-")], EXPERIMENTS))
def test_every_network_has_five_thousand_parameters(name: str) -> None:
    config = compose([f"experiment={name}"]).config
    task = build_task(config)
    column = name.removeprefix("sequence/").rpartition("-")[0]
    if column in SIZES:
        task.d_in, task.d_out = SIZES[column]
    torch.manual_seed(0)
    n = count_parameters(build_net(parts_of(config), task))
    assert abs(n - PARAMETERS) <= WITHIN * PARAMETERS


def test_every_model_of_the_table_is_in_every_column() -> None:
    assert len(EXPERIMENTS) == 11 * len({name.rpartition("-")[2] for name in EXPERIMENTS}) >= 200
