"""Large tensors from memory that is used again."""

import gc
import os
import signal
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import Tensor

from physml.ops.native import pool
from physml.ops.native.pool import HUGE_PAGE, SMALL, Pool

BIG = (3, SMALL // 4)  # float32: three times what counts as small


def idle_bytes(pool: Pool) -> int:
    with pool.lock:
        pool._collect()
        return sum(map(len, pool.idle))


@pytest.fixture
def fresh() -> Pool:
    return Pool(most_idle=64 * HUGE_PAGE)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64])
@pytest.mark.parametrize("shape", [(5,), (0, 3), BIG])
def test_a_tensor_like_any_other(shape: tuple[int, ...], dtype: torch.dtype, fresh: Pool) -> None:
    x = fresh.empty(shape, dtype)
    assert x.shape == shape and x.dtype == dtype and x.is_contiguous() and not x.requires_grad
    assert x.data_ptr() % 64 == 0 or x.numel() == 0
    x.fill_(3)
    assert (x == 3).all()


def test_memory_is_used_again(fresh: Pool) -> None:
    x = fresh.empty(BIG, torch.float32)
    where = x.data_ptr()
    del x
    assert idle_bytes(fresh) > 0
    y = fresh.empty((BIG[1] // 2, 3), torch.float64)  # other shape and dtype, as many bytes
    assert y.data_ptr() == where and idle_bytes(fresh) == 0
    where = (x := fresh.empty((100 * SMALL // 4,), torch.float32)).data_ptr()
    del x
    assert fresh.empty((99 * SMALL // 4,), torch.float32).data_ptr() == where  # slightly smaller


@pytest.mark.parametrize("keep", ["view", "detached", "storage", "numpy", "graph"])
def test_whoever_looks_keeps_it(keep: str, fresh: Pool) -> None:
    look = {
        "view": lambda x: x[1:, 3:].t(),
        "detached": torch.detach,
        "storage": Tensor.untyped_storage,
        "numpy": Tensor.numpy,
        "graph": lambda x: (torch.ones((), requires_grad=True) * x).grad_fn,
    }[keep]
    kept = look(fresh.empty(BIG, torch.float32).fill_(1))
    gc.collect(1)
    assert idle_bytes(fresh) == 0
    other = fresh.empty(BIG, torch.float32).fill_(2)
    if keep == "view":
        assert (kept == 1).all()
    del kept, other
    gc.collect(1)
    assert idle_bytes(fresh) > 0


def test_it_is_bounded_two_tensors_share_nothing_and_clear_leaves_living_ones_alone(fresh: Pool) -> None:
    kept = [fresh.empty((HUGE_PAGE,), torch.float32) for _ in range(20)]  # 4 huge pages each
    assert idle_bytes(fresh) == 0
    kept.clear()
    gc.collect(1)
    assert 0 < idle_bytes(fresh) <= 64 * HUGE_PAGE
    fresh.clear()
    assert idle_bytes(fresh) == 0
    x, y = fresh.empty(BIG, torch.float32).fill_(1), fresh.empty(BIG, torch.float32)
    fresh.clear()
    y.fill_(2)
    assert (x == 1).all()


def test_threads(fresh: Pool) -> None:
    def work(k: int) -> None:
        for turn in range(50):
            x = fresh.empty(BIG, torch.float32)
            x[0] = k
            y = fresh.empty((BIG[1] + turn,), torch.float32).fill_(-k)
            assert (x[0] == k).all() and (y == -k).all()

    with ThreadPoolExecutor(4) as threads:
        assert len(list(threads.map(work, range(1, 5)))) == 4


def test_a_tensor_that_dies_inside_the_lock(fresh: Pool) -> None:
    """As when the garbage collector runs there: no thread may wait for itself."""
    x = fresh.empty(BIG, torch.float32)
    with fresh.lock:
        del x
    assert idle_bytes(fresh) > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_child_has_a_pool_of_its_own() -> None:
    """A lock that some thread held when the process forked is not held in the child."""
    with pool._pool.lock:
        if (child := os.fork()) == 0:
            signal.alarm(30)  # ends the child where it waits for itself
            pool.empty((1 << 20,), torch.float32)[0] = 1
            os._exit(0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
