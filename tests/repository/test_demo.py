"""`make demo`: which seed it takes, what it calls, how it goes on after a stop. Nothing is trained here."""

import importlib.util
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from physml.base.paths import ROOT
from physml.records import record

Physml = Callable[..., int]


@pytest.fixture
def demo(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("demo", ROOT / "scripts" / "demo.py")
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setenv("PHYSML_RESULTS", str(tmp_path / "results"))
    monkeypatch.setenv("PHYSML_RUNS", str(tmp_path / "runs"))
    monkeypatch.setattr(module, "results_roots", lambda: [tmp_path / "results", tmp_path / "checkout"])
    monkeypatch.setattr("sys.argv", ["demo.py"])
    return module


class Calls:
    """Stands in for the program: notes its arguments; `run` leaves a record and ends with `code`."""

    def __init__(self, results: Path, code: int = 0) -> None:
        self.results, self.code, self.made = results, code, list[tuple[str, ...]]()

    def __call__(self, *arguments: str) -> int:
        self.made.append(arguments)
        if arguments[0] == "run" and self.code == 0:
            seed = next(a.removeprefix("seed=") for a in arguments if a.startswith("seed="))
            content = {"schema": 2, "experiment": "a", "identity": "0" * 8, "split": 0, "seed": int(seed)}
            content |= {"status": "finished", "metrics": {"best": None, "last": None}, "config": {}}
            path = (
                self.results / "runs" / "adhoc" / "lem" / "fitzhugh_nagumo-lem" / f"a-split0-seed{seed}.json"
            )
            record.write(path, content | {"curve": "a.curve.csv.gz"})
        return self.code


def test_it_trains_a_fresh_seed_and_prints_the_table_with_it(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls = Calls(tmp_path / "results")
    monkeypatch.setattr(demo, "_physml", calls)
    assert demo.main() == 0
    path = tmp_path / "results" / "runs" / "adhoc" / "lem" / "fitzhugh_nagumo-lem" / "a-split0-seed100.json"
    assert calls.made == [
        ("run", "experiment=lem/fitzhugh_nagumo-lem", "seed=100", "--adhoc"),
        ("table", "lem-4", "--no-run", "--yours", str(path)),
    ]
    out = capsys.readouterr().out
    assert str(path) in out
    assert "a.curve.csv.gz" in out
    assert demo.main() == 0  # the next one takes the next seed
    assert calls.made[2][2] == "seed=101"


def test_seeds_of_the_repository_are_not_taken(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "checkout" / "runs" / "lem" / "fitzhugh_nagumo-lem"
    folder.mkdir(parents=True)
    for seed in (0, 100, 101, 103):
        (folder / f"b-split0-seed{seed}.json").touch()
    calls = Calls(tmp_path / "results")
    monkeypatch.setattr(demo, "_physml", calls)
    assert demo.main() == 0
    assert calls.made[0][2] == "seed=102"


def test_a_stopped_demo_goes_on_with_its_seed(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(demo, "_physml", Calls(tmp_path / "results", code=75))
    assert demo.main() == 75
    assert "goes on with seed 100" in capsys.readouterr().err
    calls = Calls(tmp_path / "results")
    monkeypatch.setattr(demo, "_physml", calls)
    monkeypatch.setattr(demo, "FIRST_SEED", 500)
    assert demo.main() == 0
    assert "Going on" in capsys.readouterr().out
    assert calls.made[0][2] == "seed=100"
    assert not (tmp_path / "runs" / "demo-seed").exists()


@pytest.mark.parametrize("code", [1, 2])
def test_a_failed_run_ends_the_demo_with_its_code(
    demo: ModuleType, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int
) -> None:
    calls = Calls(tmp_path / "results", code=code)
    monkeypatch.setattr(demo, "_physml", calls)
    assert demo.main() == code
    assert [call[0] for call in calls.made] == ["run"]


def test_the_program_shares_the_terminal_and_gives_its_code(demo: ModuleType) -> None:
    assert demo._physml("run", "model=nothing") == 2
