"""The bench of what users wait for beside recurrences, at tiny sizes. No time is asserted."""

import json
from pathlib import Path
from typing import Any

import pytest

from scripts.bench import clusters, waits


@pytest.fixture(autouse=True)
def small(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waits, "STACKS", {"S5": waits.S5})
    monkeypatch.setattr(waits, "LEM", lambda d, h, dt: waits.nn.LSTM(d, h, batch_first=True))
    sizes: dict[str, list[Any]] = {"state-spaces": [(1, 5)], "last-step": [(2, 3)], "edges": [20]}
    parts = {name: (make, sizes[name]) for name, (make, _) in waits.PARTS.items()}
    monkeypatch.setattr(waits, "PARTS", parts)


@pytest.mark.filterwarnings("ignore:`torch.jit.script` is deprecated:FutureWarning")  # of PyG
def test_every_way_is_timed_or_says_why_not(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = [f"--part={name}" for name in waits.PARTS]
    assert waits.main([*words, "--rounds", "1", "--budget", "0"]) == 0
    (path,) = results.glob("waits-*.json")
    cases = json.loads(path.read_text())["cases"]
    assert len(cases) == 6 and all("ms" in ways["auto"] for name, ways in cases.items() if "LEM" not in name)
    ways = [way for case in cases.values() for way in case.values()]
    assert all(("ms" in way) != ("not_run" in way) for way in ways)
    printed = capsys.readouterr().out
    assert "| GCN, 20 edges" in printed and "| LEM H128, B2 T3" in printed


def test_a_command_is_counted_with_its_children_and_clusters_and_the_whole_graph_train(tmp_path) -> None:
    assert 0.01 < waits.processes(["--version"], str(tmp_path)) < 60
    with pytest.raises(waits.RunFailed, match="physml run no=thing: "):
        waits.processes(["run", "no=thing"], str(tmp_path))
    for sample, steps in ((clusters.WAYS["whole graph"], 1), (clusters.SAMPLE, 20)):
        summary = clusters.train(sample, 1, 600, 4000)
        assert summary["steps"] == steps and 0 <= summary["accuracy"][0] <= 100
