"""Gradients and constructions are those of the plain formulas."""

from collections.abc import Iterator

import pytest

from physml.ops.backend import running


@pytest.fixture(scope="module")
def nothing_is_compiled() -> Iterator[None]:
    with running("reference"):
        yield
