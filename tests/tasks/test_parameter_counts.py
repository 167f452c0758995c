"""Networks of experiments have the numbers of parameters that the authors' code has, or a figure shows."""

from types import SimpleNamespace

import pytest

from physml.base.paths import CONF
from physml.config.build import build_net
from physml.config.compose import compose
from physml.config.schema import checked
from physml.report.figure import spec as figure_spec
from physml.run.record import count_parameters

WEBKB, SUPERPIXELS = (1703, 5, "node"), (3, 10, "graph")
ATOMS, KINDS_OF_ATOMS = (1, 1, "graph"), (28, 1, "graph")
COUNTS = [  # an experiment; inputs, outputs and the read-out of its task; parameters
    ("graphcon/texas-graphcon_gcn", WEBKB, 569_093),
    ("graphcon/wisconsin-graphcon_gcn", WEBKB, 117_701),
    ("graphcon/cornell-graphcon_gcn", WEBKB, 569_093),
    ("g2/wisconsin-g2_sage", WEBKB, 568_837),
    # about 100,000; the first as the official code counts it
    ("graphcon/zinc-graphcon_gcn", ATOMS, 97_901),
    ("graphcon/zinc-graphcon_gcn-kinds", KINDS_OF_ATOMS, 99_301),
    ("graphcon/zinc-graphcon_gat", ATOMS, 98_891),
    ("graphcon/zinc-gcn", ATOMS, 97_186),
    ("graphcon/zinc-gat", ATOMS, 96_293),
    ("graphcon/zinc-gcn_shared-20", ATOMS, 99_222),
    # the first four as the official code counts them
    ("graphcon/superpixels-graphcon_gcn", SUPERPIXELS, 135_178),
    ("graphcon/superpixels-graphcon_gcn-official", SUPERPIXELS, 135_178),
    ("graphcon/superpixels-graphcon_gat", SUPERPIXELS, 531_978),
    ("graphcon/superpixels-graphcon_gat-official", SUPERPIXELS, 531_978),
    ("graphcon/superpixels-gcn_shared-32", SUPERPIXELS, 69_386),
]


def parameters(experiment: str, d_in: int, d_out: int, readout: str) -> int:
    _, parts = checked(compose([f"experiment={experiment}", "tracker=none"]).config)
    task = SimpleNamespace(d_in=d_in, d_out=d_out, readout=readout, tokens=None, vectors=None)
    return count_parameters(build_net(parts, task))


@pytest.mark.parametrize(("experiment", "task", "n"), COUNTS)
def test_experiments_have_the_parameters_of_the_code(experiment: str, task: tuple, n: int) -> None:
    assert parameters(experiment, *task) == n


def test_the_figure_of_sizes_shows_the_sizes_of_its_networks() -> None:
    (panel,) = figure_spec.load_figure(CONF / "figure" / "g2-fig-8.yaml").panels
    for series in panel.series:
        for point in series.points:
            assert parameters(point.experiment, *WEBKB) == point.x
