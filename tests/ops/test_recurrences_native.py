"""What is of one recurrence in C, beside the laws of all ops: its blocks, its caches, what it refuses."""

from typing import Any

import pytest
import torch
from all_ops import OPS, everything, gradients, same
from refusals import refuses

from physml.base.errors import InputError
from physml.ops import unicornn as unicornn_ops
from physml.ops.cornn import native as cornn_in_c
from physml.ops.lem import native as lem_in_c
from physml.ops.unicornn import native as unicornn_in_c

BY_NAME = {op.name: op for op in OPS}
IN_C = {"cornn": cornn_in_c, "lem": lem_in_c}

pytestmark = pytest.mark.usefixtures("compiler")


def drawn(name: str, *sizes: int) -> list[torch.Tensor]:
    return BY_NAME[name].arguments(dict(zip("BTDH", sizes, strict=True)))


BLOCKS = [
    *(("cornn", {"TILE": tile, "BLOCK": n}) for tile, n in ((40, 1), (1, 5), (3, 20), (8, 64), (8, 10_000))),
    *(
        ("lem", {"ROWS": rows, "MANY_ROWS": rows, "NEAR": near, "BLOCK": n})
        for rows, near, n in ((1, 1 << 30, 1), (3, 1 << 30, 99), (8, 1 << 30, 5000), (5, 0, 800))
    ),
]


@pytest.mark.parametrize(("name", "blocks"), BLOCKS)
def test_groups_of_rows_and_blocks_of_steps_join(name: str, blocks: dict[str, int], monkeypatch) -> None:
    x = drawn(name, 19, 23, 2, 3)
    for key, value in blocks.items():
        monkeypatch.setattr(IN_C[name], key, value)
    same(everything(BY_NAME[name], "native", x), everything(BY_NAME[name], "reference", x))


@pytest.mark.parametrize(
    ("name", "size"),
    [
        *(("cornn", size) for size in ((3, 5, 2, 16), (9, 65, 3, 33), (43, 20, 1, 40))),
        *(("unicornn", (B, 50, 0, H)) for B, H in ((6, 4), (3, 24), (5, 33))),
    ],
)
def test_what_goes_past_the_caches(name: str, size: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """As results do that are large: bit for bit the same, wherever the rows of a thread begin."""
    monkeypatch.setattr(unicornn_in_c, "WORTH_A_THREAD", 1)
    torch.set_num_threads(4)
    x = drawn(name, *size)
    near = everything(BY_NAME[name], "native", x)
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", "-DLARGE=0")
    assert all(map(torch.equal, near, everything(BY_NAME[name], "native", x)))


def test_without_gradients_nothing_is_saved_and_threads_may_be_more_than_a_call_makes() -> None:
    x = [leaf.detach() for leaf in drawn("cornn", 2, 9, 1, 3)]
    assert cornn_in_c.forward(x, (0.1, 0.9, 0.1, 0.1), saved=False)[1] == ()
    # The shares of threads beyond the greatest number are the caller's.
    u = torch.randn(64, 100, 128)
    operands = torch.randn(192, 128), torch.randn(192)
    by_few = unicornn_ops.project(u, *operands, backend="native")
    torch.set_num_threads(600)
    torch.testing.assert_close(unicornn_ops.project(u, *operands, backend="native"), by_few)


@pytest.mark.parametrize("name", IN_C)
def test_refusals(name: str, request: pytest.FixtureRequest) -> None:
    x = [leaf.detach() for leaf in drawn(name, 2, 3, 1, 4)]
    refusal = IN_C[name].refusal
    assert refusal(*x) is None
    assert "got a tensor on meta" in str(refusal(x[0].to("meta"), *x[1:]))
    assert "one dtype" in str(refusal(x[0].float(), *x[1:]))
    assert "float32 or float64" in str(refusal(*(leaf.half() for leaf in x)))
    assert "empty" in str(refusal(x[0][:0], *x[1:]))
    request.getfixturevalue("no_compiler")
    assert "no C compiler" in str(refusal(*x))


@pytest.mark.parametrize("key", ["dt", "gamma", "epsilon"])
def test_trained_constants_are_refused(key: str) -> None:
    numbers = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6, key: torch.tensor(0.1)}
    with pytest.raises(InputError, match="must be numbers"):
        cornn_in_c.cornn(*drawn("cornn", 2, 3, 1, 4), **numbers, damping="explicit")


@pytest.mark.parametrize(
    ("which", "change", "message"),
    [
        (0, lambda x: x[:, :0], "neither may be empty"),
        (1, lambda x: x[:, :3], r"y must have shape \(2, 4\)"),
        (3, lambda x: x[:8], r"W must have shape \(12, 4\)"),
        (5, lambda x: x[:, :0], r"V must have shape \(16, 1\)"),
        (6, lambda x: x.float(), "b must be torch.float64"),
    ],
)
def test_what_does_not_fit_is_told(which: int, change: Any, message: str) -> None:
    x = [leaf.detach() for leaf in drawn("lem", 2, 3, 1, 4)]
    x[which] = change(x[which])
    refuses(InputError, message, lem_in_c.lem, *x, dt=1.0, clip=None)


def test_a_large_layer_takes_no_fresh_pages_at_each_batch() -> None:
    """Its weights, packed, and their gradients are several MiB, in memory that is used again."""
    resource = pytest.importorskip("resource")
    x = [leaf.detach().float().requires_grad_() for leaf in drawn("lem", 2, 3, 4, 400)]

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        gradients(BY_NAME["lem"], "native", x)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert min(faults() for _ in range(6)) < 100  # 2 MiB are 512 pages
