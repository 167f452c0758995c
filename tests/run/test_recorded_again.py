"""Records of the repository are made again, and `physml rerun` finds them equal."""

from pathlib import Path

import pytest

from physml.base.paths import OWN_RESULTS
from physml.cli import main
from physml.records import record

# On generated data, one thread, fp32; they took 2 to 5 s when they were recorded.
RECORDS = (
    "sequence/recall-lem/89c0c1ad-split0-seed4",
    "talk/pendulum-euler/922f0382-split0-seed0",
    "long_range/eccentricity_small-gcnii/b713060d-split0-seed4",
)
MORE = (
    *("sequence/recall-unicornn/2803e6bf-split0-seed1", "sequence/recall-cornn/99431028-split0-seed0"),
    *("sequence/recall-tanh_rnn/341a1aeb-split0-seed1", "sequence/recall-lstm/883a8a35-split0-seed0"),
    *("sequence/recall-lipschitz/1e0be3e6-split0-seed2", "sequence/recall-gru/db8f8207-split0-seed1"),
    *("sequence/recall-min_gru/f717193b-split0-seed0", "long_range/distance_small-gcn/52bf994f-split0-seed1"),
    "long_range/distance_small-sage/8c93d6be-split0-seed2",
    "long_range/diameter_small-gin/0e9ce662-split0-seed1",
)


@pytest.mark.slow
@pytest.mark.parametrize("name", [*RECORDS, *(pytest.param(name, marks=pytest.mark.grid) for name in MORE)])
def test_a_recorded_run_is_the_same_again(
    name: str, roots: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """To the bit, or within what another processor explains: what the command does not call different."""
    monkeypatch.delenv("PHYSML_DATA", raising=False)
    path = OWN_RESULTS / "runs" / f"{name}.json"
    before = record.read(path)
    code = main.main(["rerun", str(path)])
    printed = capsys.readouterr()
    assert code == 0, printed.out + printed.err
    assert "\nagain: " in printed.out and record.read(path) == before and not path.exists()
