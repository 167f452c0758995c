"""LEM in C against the plain loop in float64, on every vector width of this processor."""

import itertools

import pytest
import torch
from c_compiler import needs_compiler
from each import each
from torch import Tensor
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.models.sequence.lem import LEM
from physml.ops.lem import native, reference

KINDS = {
    "gated": {"dt": 1.0, "clip": None},
    "dt 2": {"dt": 2.0, "clip": None},
    "clipped": {"dt": 1.3, "clip": (0.5, 0.8)},
    "no gates": {"dt": 0.6, "clip": None},
}
LENGTHS, UNITS = (1, 2, 63, 65, 300), (1, 5, 16, 17, 33, 40)
OTHERS = itertools.cycle(itertools.product((1, 3), (1, 2, 7, 9), KINDS))
SIZES = [(T, H, *next(OTHERS)) for T, H in itertools.product(LENGTHS, UNITS)]
# Flags that take instructions away: 64, 32 and 16 bytes in a vector, where the processor has them.


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def leaves(
    B: int, T: int, D: int, H: int, kind: str = "gated", dtype: torch.dtype = torch.double
) -> list[Tensor]:
    n = 1 if kind == "no gates" else 3
    shapes = (B, T, D), (B, H), (B, H), (n * H, H), (H, H), (n * H + H, D), (n * H + H,)
    made = [draw(*shape, seed=k) for k, shape in enumerate(shapes)]
    for weight in made[3:6]:
        weight *= weight.shape[1] ** -0.5
    return [x.to(dtype).requires_grad_() for x in made]


def run(op, x: list[Tensor], kind: str = "gated") -> tuple[Tensor, Tensor, Tensor]:
    return op(*x, **KINDS[kind])


def weighed(results: tuple[Tensor, ...], use: str = "outputs y z") -> Tensor:
    named = zip(("outputs", "y", "z"), results, strict=True)
    parts = [
        (x * draw(*x.shape, seed=7 + k).to(x.dtype)).sum()
        for k, (name, x) in enumerate(named)
        if name in use.split()
    ]
    return torch.stack(parts).sum()


def gradients(op, x: list[Tensor], kind: str = "gated", use: str = "outputs y z") -> list[Tensor]:
    wanted = [leaf for leaf in x if leaf.requires_grad]
    return list(torch.autograd.grad(weighed(run(op, x, kind), use), wanted, materialize_grads=True))


def both(op, x: list[Tensor], kind: str = "gated") -> list[Tensor]:
    return [*run(op, x, kind), *gradients(op, x, kind)]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-10) -> None:
    """Relative to the largest number of each tensor."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.shape == b.shape
        scale = b.abs().max().item() + 1e-300
        worst = (a - b).abs().max().item() / scale
        assert worst <= tolerance, f"tensor {k}: off by {worst:.1e} of {scale:.1e}"


@each("flags", WIDTHS)
@each("T, H, D, B, kind", SIZES)
def test_outputs_and_every_gradient_equal_the_plain_loop(
    T: int, H: int, D: int, B: int, kind: str, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = leaves(B, T, D, H, kind)
    assert_same(both(native.lem, x, kind), both(reference.lem, x, kind))


@each("flags", WIDTHS)
@each("kind", KINDS)
@each("T, H, D, B", [(1, 1, 1, 1), (65, 33, 3, 9), (20, 128, 20, 50)])
def test_single_precision(
    T: int, H: int, D: int, B: int, kind: str, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = leaves(B, T, D, H, kind, torch.float32)
    exact = both(reference.lem, [leaf.detach().double().requires_grad_() for leaf in x], kind)
    assert_same([r.double() for r in both(native.lem, x, kind)], exact, 1e-4)


@pytest.mark.parametrize(
    ("rows", "near", "block"), [(1, 1 << 30, 1), (3, 1 << 30, 99), (8, 1 << 30, 5000), (5, 0, 800)]
)
def test_groups_and_blocks_join(rows: int, near: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves(19, 23, 2, 3)
    monkeypatch.setattr(native, "ROWS", rows)
    monkeypatch.setattr(native, "MANY_ROWS", rows)
    monkeypatch.setattr(native, "NEAR", near)
    monkeypatch.setattr(native, "BLOCK", block)
    assert_same(both(native.lem, x), both(reference.lem, x))


def test_all_that_is_saved_goes_through_autograd() -> None:
    x = leaves(3, 70, 2, 4)
    packed = []

    def pack(saved: Tensor) -> Tensor:
        packed.append(saved.numel())
        return saved.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        total = weighed(run(native.lem, x))
    assert max(packed) >= 3 * 70 * 5 * 4
    assert_same(list(torch.autograd.grad(total, x)), gradients(reference.lem, x))


@pytest.mark.parametrize("n_threads", [2, 3, 8])
@pytest.mark.parametrize(("T", "H", "B"), [(65, 33, 7), (20, 16, 90), (3, 5, 2)])
def test_threads(T: int, H: int, B: int, n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves(B, T, 3, H)
    alone = both(native.lem, x)
    monkeypatch.setattr(native, "MIN_WORK", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    together = both(native.lem, x)
    assert_same(together, alone, 1e-12)
    assert all(map(torch.equal, together, both(native.lem, x)))


def test_layers_can_be_stacked() -> None:
    def stacked(backend: str) -> list[Tensor]:
        torch.manual_seed(0)
        layers = [LEM(d_in, 5, dt=1.0, backend=backend).double() for d_in in (2, 5)]
        u = draw(3, 12, 2).requires_grad_()
        hidden, _ = layers[0](u)
        outputs, (y, z) = layers[1](hidden)
        weights = [p for layer in layers for p in layer.parameters()]
        return list(torch.autograd.grad(weighed((outputs, y, z)), [u, *weights]))

    assert_same(stacked("native"), stacked("reference"))


def test_refusals(request: pytest.FixtureRequest) -> None:
    x = [leaf.detach() for leaf in leaves(2, 3, 1, 4)]
    assert native.refusal(*x) is None
    assert "got a tensor on meta" in str(native.refusal(x[0].to("meta"), *x[1:]))
    assert "float32 or float64" in str(native.refusal(*(leaf.half() for leaf in x)))
    request.getfixturevalue("no_compiler")
    assert "no C compiler" in str(native.refusal(*x))


@pytest.mark.parametrize(
    ("which", "change", "told"),
    [
        (0, lambda x: x[:, :0], "neither may be empty"),
        (1, lambda x: x[:, :3], r"y must have shape \(2, 4\)"),
        (3, lambda x: x[:8], r"W must have shape \(12, 4\)"),
        (5, lambda x: x[:, :0], r"V must have shape \(16, 1\)"),
        (6, lambda x: x.float(), "b must be torch.float64"),
    ],
)
def test_what_does_not_fit_is_told(which: int, change, told: str) -> None:
    x = [leaf.detach() for leaf in leaves(2, 3, 1, 4)]
    x[which] = change(x[which])
    with pytest.raises(InputError, match=told):
        run(native.lem, x)


def test_a_large_layer_takes_no_fresh_pages_at_each_batch() -> None:
    """Its weights, packed, and their gradients are several MiB, in memory that is used again."""
    resource = pytest.importorskip("resource")
    x = leaves(2, 3, 4, 400, dtype=torch.float)

    def faults() -> int:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        gradients(native.lem, x)
        return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

    assert min(faults() for _ in range(6)) < 100  # 2 MiB are 512 pages
