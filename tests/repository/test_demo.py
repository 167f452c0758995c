"""`make demo`: which seed it takes, what it calls, how it goes on after a stop. Nothing is trained here."""

from pathlib import Path

import pytest

from physml.records import record
from scripts import demo

Captured = pytest.CaptureFixture[str]
EXPERIMENT = Path("lem") / "fitzhugh_nagumo-lem"


class Calls:
    """Stands in for the program: notes its arguments; `run` leaves a record and ends with `code`."""

    def __init__(self, results: Path) -> None:
        self.folder, self.code, self.made = results / "runs" / "adhoc" / EXPERIMENT, 0, []

    def __call__(self, *arguments: str) -> int:
        self.made.append(arguments)
        if arguments[0] == "run" and self.code == 0:
            seed = next(a.removeprefix("seed=") for a in arguments if a.startswith("seed="))
            content = {"schema": 2, "experiment": "a", "identity": "0" * 8, "split": 0, "seed": int(seed)}
            content |= {"status": "finished", "metrics": {"best": None, "last": None}, "config": {}}
            path = self.folder / f"a-split0-seed{seed}.json"
            record.write(path, content | {"curve": "a.curve.csv.gz"})
        return self.code


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Calls:
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(demo, "results_roots", lambda: [tmp_path / "results", tmp_path / "checkout"])
    monkeypatch.setattr("sys.argv", ["demo.py"])
    calls = Calls(tmp_path / "results")
    monkeypatch.setattr(demo, "_physml", calls)
    return calls


def test_it_trains_a_fresh_seed_and_prints_the_table_with_it(calls: Calls, capsys: Captured) -> None:
    assert demo.main() == 0
    path = str(calls.folder / "a-split0-seed100.json")
    assert calls.made == [
        ("run", "experiment=lem/fitzhugh_nagumo-lem", "seed=100", "--adhoc"),
        ("table", "lem-4", "--no-run", "--yours", path),
    ]
    out = capsys.readouterr().out
    assert path in out and "a.curve.csv.gz" in out
    assert demo.main() == 0  # the next one takes the next seed
    assert calls.made[2][2] == "seed=101"


def test_seeds_of_the_repository_are_not_taken(calls: Calls, tmp_path: Path) -> None:
    folder = tmp_path / "checkout" / "runs" / EXPERIMENT
    folder.mkdir(parents=True)
    for seed in (0, 100, 101, 103):
        (folder / f"b-split0-seed{seed}.json").touch()
    assert demo.main() == 0
    assert calls.made[0][2] == "seed=102"


def test_a_stopped_demo_goes_on_with_its_seed(calls: Calls, tmp_path: Path, monkeypatch, capsys) -> None:
    calls.code = 75
    assert demo.main() == 75
    assert "goes on with seed 100" in capsys.readouterr().err
    calls.code = 0
    monkeypatch.setattr(demo, "FIRST_SEED", 500)
    assert demo.main() == 0
    assert "Going on" in capsys.readouterr().out
    assert calls.made[1][2] == "seed=100"
    assert not (tmp_path / "runs" / "demo-seed").exists()


@pytest.mark.parametrize("code", [1, 2])
def test_a_failed_run_ends_the_demo_with_its_code(calls: Calls, code: int) -> None:
    calls.code = code
    assert demo.main() == code
    assert [call[0] for call in calls.made] == ["run"]


def test_the_program_shares_the_terminal_and_gives_its_code() -> None:
    assert demo._physml("run", "model=nothing") == 2
