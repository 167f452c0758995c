"""The matrix products of the native kernels against torch's, at sizes that leave parts of tiles over."""

import ctypes
from pathlib import Path

import pytest
import torch
from c_compiler import needs_compiler
from torch import Tensor
from vectors import WIDTHS

from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("gemm_check.c")
ROOM = 7  # numbers after each row that no product may touch
SIZES = [(1, 1, 1), (3, 5, 2), (8, 48, 19), (9, 33, 40), (17, 64, 7), (31, 65, 33), (12, 130, 64)]
SIZES += [(m, n, 5) for m in range(1, 9) for n in (1, 17, 33, 49)]


@pytest.fixture(params=[(f, dtype) for f in WIDTHS for dtype in (torch.float64, torch.float32)], ids=str)
def library(
    request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch
) -> tuple[ctypes.CDLL, torch.dtype]:
    flags, dtype = request.param
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    needs_compiler()
    return load(SOURCE, dtype), dtype


def matrix(rows: int, columns: int, dtype: torch.dtype, room: int = 0, seed: int = 0) -> Tensor:
    return torch.randn(rows, columns + room, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def pointer(x: Tensor) -> ctypes.c_void_p:
    return ctypes.c_void_p(x.data_ptr())


def assert_product(c: Tensor, expected: Tensor, before: Tensor, n: int, vector: int) -> None:
    tolerance = 1e-12 if c.dtype == torch.float64 else 1e-4
    torch.testing.assert_close(c[:, :n], expected, rtol=tolerance, atol=tolerance)
    written = -(-n // vector) * vector
    assert torch.equal(c[:, written:], before[:, written:])


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("accumulate", [False, True])
def test_gemm(library: tuple[ctypes.CDLL, torch.dtype], accumulate: bool, transposed: bool) -> None:
    lib, dtype = library
    vector = lib.vector_length()
    for m, n, k in SIZES:
        a = matrix(m, k, dtype, ROOM)
        w = matrix(n, k, dtype, seed=1).t() if transposed else matrix(k, n, dtype)
        c = matrix(m, -(-n // vector) * vector, dtype, ROOM, seed=2)
        before = c.clone()
        sizes = (m, n, k, pointer(a), a.shape[1], pointer(w), *w.stride(), pointer(c), c.shape[1])
        assert lib.check_gemm(*sizes, int(accumulate)) == 0
        assert_product(c, a[:, :k] @ w + (before[:, :n] if accumulate else 0), before, n, vector)


def test_gemm_tn(library: tuple[ctypes.CDLL, torch.dtype]) -> None:
    lib, dtype = library
    vector = lib.vector_length()
    for m, n, k in SIZES:
        room = -n % vector + ROOM
        a, b = matrix(k, m, dtype, ROOM), matrix(k, n, dtype, room, seed=1)
        c = matrix(m, n, dtype, room, seed=2)
        before = c.clone()
        leading = (pointer(a), a.shape[1], pointer(b), b.shape[1], pointer(c), c.shape[1])
        lib.check_gemm_tn(m, n, k, *leading)
        assert_product(c, before[:, :n] + a[:, :m].t() @ b[:, :n], before, n, vector)


def test_a_row_is_the_same_whatever_is_beside_it(library: tuple[ctypes.CDLL, torch.dtype]) -> None:
    lib, dtype = library
    n, k = 40, 33
    ldc = -(-n // lib.vector_length()) * lib.vector_length()
    a, w = matrix(9, k, dtype), matrix(k, n, dtype, seed=1)

    def product(rows: Tensor) -> Tensor:
        c = torch.zeros(len(rows), ldc, dtype=dtype)
        lib.check_gemm(len(rows), n, k, pointer(rows), k, pointer(w), n, 1, pointer(c), ldc, 0)
        return c[:, :n]

    whole = product(a)
    assert torch.equal(product(a[:1]), whole[:1]) and torch.equal(product(a[6:].clone()), whole[6:])
    a[4, 2] = torch.nan
    beside = product(a)
    assert (
        beside[4].isnan().all() and torch.equal(beside[:4], whole[:4]) and torch.equal(beside[5:], whole[5:])
    )
