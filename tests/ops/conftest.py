"""Tests of ops share modules of this folder; pytest imports test modules by path."""

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from c_compiler import needs_compiler

from physml.ops import backend

sys.path.insert(0, str(Path(__file__).parent))


@pytest.fixture
def compiler() -> None:
    needs_compiler()


@pytest.fixture
def fresh() -> Iterator[None]:
    """A run of its own, that has warned of nothing."""
    with backend.running("auto"):
        yield
