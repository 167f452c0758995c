"""Families of tests, and the quick part of them: `make check` takes a sample of each slow family.

Helpers of tests/harness are imported by name, in child processes too.
"""

import sys
import zlib
from pathlib import Path

import pytest
import torch

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "harness"))

# Slow families, by where a test stands.
FAMILIES = {
    "matrix": ("conf/", "tasks/", "data/", "task/", "models/test_sequence_model.py"),
    "process": (
        "execution/",
        "training/",
        "repository/",
        "bench/",
        "cli/",
        "records/",
        "export/",
        "test_extras.py",
    ),
    "native": ("ops/", "simulate/", "models/", "reporting/test_figure.py", "test_library.py"),
}
SAMPLE = 25  # `--quick` takes one in so many of each slow family


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--grid", action="store_true", help="every model on every task, not one of each")
    parser.addoption("--integration", action="store_true", help="tests with real servers: make integration")
    parser.addoption("--quick", action="store_true", help=f"one in {SAMPLE} of the tests in slow families")


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Tests with real servers are made by `make integration` alone."""
    return True if collection_path == HERE / "integration" and not config.getoption("integration") else None


def family(item: pytest.Item) -> str | None:
    """The slow family of a test, or none."""
    place = item.path.relative_to(HERE).as_posix()
    for name, places in FAMILIES.items():
        if place.startswith(places):
            return name
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    kept, left = [], []
    for item in items:
        name = family(item)
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
    sampled = zlib.crc32(item.nodeid.encode()) % SAMPLE == 0
    return sampled or not (slow or item.get_closest_marker("slow"))


@pytest.fixture(autouse=True)
def seeded() -> None:
    """Draws of a test are those of no other test, in whatever order they run.

    One thread: at these sizes threads only wait for each other. Tests about threads set their own number.
    """
    torch.manual_seed(0)
    torch.set_num_threads(1)


@pytest.fixture
def small_data(monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes of fixtures are accepted under every way to verify."""
    from physml.data import verify

    monkeypatch.setattr(verify.FoundFiles, "small", True)
