"""Families of tests, and the quick part of them: `make check` takes a sample of each slow family.

The other modules of these families are not even imported then.

Helpers of tests/harness are imported by name, in child processes too.
"""

import os
import sys
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "harness"))

import variants  # noqa: E402

# Slow families, by where a test stands.
FAMILIES = {
    "matrix": ("contracts/", "conf/", "tasks/", "data/", "task/", "models/sequence/test_rnn.py"),
    "process": (
        "run/",
        "queue/",
        "search/",
        "listing/",
        "training/",
        "repository/",
        "bench/",
        "cli/",
        "records/",
        "export/",
        "test_extras.py",
    ),
    "native": ("ops/", "lab/simulate/", "models/", "estimators/", "report/figure/", "test_library.py"),
}
# Modules that import large packages: wandb, sktime, torch_geometric. `--quick` leaves them out.
LARGE = (
    *("estimators/", "run/test_sweeps.py", "run/test_track", "bench/test_bench_graph.py"),
    *("models/graph/",),
)
SAMPLE = 5  # `--quick` takes one in so many modules of each slow family, and one in so many of their tests


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--grid", action="store_true", help="every model on every task, not one of each")
    parser.addoption("--integration", action="store_true", help="what make integration runs")
    parser.addoption("--quick", action="store_true", help=f"one in {SAMPLE**2} of the tests in slow families")


def pytest_configure(config: pytest.Config) -> None:
    variants.GRID = config.getoption("grid")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests with real servers, and of the wheel in use, are made by `make integration` alone.

    pytest does not ask about modules that are named on the command line.
    """
    if collection_path == HERE / "integration" and not config.getoption("integration"):
        return True
    if not (config.getoption("quick") and collection_path.name.startswith("test_")):
        return None
    place = _place(collection_path)
    left = family(collection_path) and (place.startswith(LARGE) or not _in_sample(place))
    return True if left else None


def family(path: Path) -> str | None:
    """The slow family of a test module, or none."""
    for name, places in FAMILIES.items():
        if _place(path).startswith(places):
            return name
    return None


def _place(path: Path) -> str:
    return path.relative_to(HERE).as_posix()


def _in_sample(name: str, one_in: int = SAMPLE) -> bool:
    return zlib.crc32(name.encode()) % one_in == 0


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left = [], []
    for item in items:
        name = family(item.path)
        if name:
            item.add_marker(name)
        (kept if _is_wanted(item, name is not None, config) else left).append(item)
    config.hook.pytest_deselected(items=left)
    items[:] = kept


def _is_wanted(item: pytest.Item, slow: bool, config: pytest.Config) -> bool:
    if item.get_closest_marker("grid") and not config.getoption("grid"):
        return False
    if not config.getoption("quick"):
        return True
    if slow:
        return _in_sample(item.nodeid)
    return not item.get_closest_marker("slow") or _in_sample(item.nodeid, SAMPLE**2)


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draws of a test are those of no other test, in whatever order they run.

    One thread: at these sizes threads only wait for each other. Tests about threads set their own number.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def prints(capsys: pytest.CaptureFixture[str]) -> Callable[..., Any]:
    """The output of a command in this process, `.out` and `.err`, once it has ended with this exit code."""
    from physml.cli import main

    def call(code: int, *arguments: str) -> Any:
        assert main.main([*arguments]) == code
        return capsys.readouterr()

    return call


@pytest.fixture
def no_compiler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither a C compiler nor a library that one has left."""
    monkeypatch.setenv("CC", "/nonexistent")
    monkeypatch.setenv("PHYSML_CACHE", str(tmp_path / "no libraries"))


@pytest.fixture(scope="module")
def nothing_is_compiled() -> Iterator[None]:
    """Layers run as their plain loops."""
    from physml.ops.backend import running

    with running("reference"):
        yield


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory):
    """Tiny sets stand in for all data."""
    from physml.data.store import Store

    return Store(None, tmp_path_factory.mktemp("cache"), fixtures=True)


@pytest.fixture(scope="module")
def real(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory):
    """The published files below PHYSML_DATA; skips where the module's NEEDED is not there."""
    from physml.data.store import Store

    root, needed = os.environ.get("PHYSML_DATA"), request.module.NEEDED
    if not root or not (Path(root) / needed).exists():
        pytest.skip(f"set PHYSML_DATA to a folder that holds {needed}")
    verify = getattr(request.module, "VERIFY", "bytes")
    return Store(Path(root), tmp_path_factory.mktemp("cache"), verify=verify)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes and statistics of fixtures are accepted under every way to verify."""
    from physml.data import statistics, verify

    monkeypatch.setattr(verify.FoundFiles, "small", True)
    monkeypatch.setattr(statistics, "check", lambda *_: None)
