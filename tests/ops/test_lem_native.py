"""LEM in C against the plain loop in float64, on every vector width of this processor."""

import itertools
import threading

import pytest
import torch
from c_compiler import needs_compiler
from each import each
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.models.sequence.lem import LEM
from physml.ops.lem import native, reference

NAMES = ("u", "y", "z", "W", "Wy", "V", "b")
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


@pytest.mark.parametrize("kind", KINDS)
def test_gradcheck(kind: str) -> None:
    assert torch.autograd.gradcheck(lambda *x: run(native.lem, list(x), kind), leaves(2, 4, 2, 3, kind))


@each("kind", ["gated", "no gates"])
@each("wanted", [{name} for name in NAMES] + [{"W", "V"}, {"Wy", "b"}, {"u", "Wy"}, {"z", "b"}])
def test_any_part_may_be_frozen(wanted: set[str], kind: str) -> None:
    x = [
        leaf.detach().requires_grad_(name in wanted)
        for name, leaf in zip(NAMES, leaves(3, 11, 2, 5, kind), strict=True)
    ]
    assert_same(gradients(native.lem, x, kind), gradients(reference.lem, x, kind))
    weighed(run(native.lem, x, kind)).backward()
    assert {name for name, leaf in zip(NAMES, x, strict=True) if leaf.grad is not None} == wanted


@pytest.mark.parametrize("use", ["outputs", "y", "z", "y z"])
def test_parts_of_the_result_may_go_unused(use: str) -> None:
    x = leaves(2, 9, 1, 3)
    assert_same(gradients(native.lem, x, use=use), gradients(reference.lem, x, use=use))


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


def test_without_gradients_nothing_is_kept() -> None:
    x = leaves(2, 9, 1, 3)
    with torch.no_grad():
        results = run(native.lem, x)
    assert not any(r.requires_grad for r in results)
    assert_same(list(results), list(run(reference.lem, x)))
    assert not run(native.lem, [leaf.detach() for leaf in x])[0].requires_grad


def test_the_last_state_does_not_keep_the_path() -> None:
    _, y, z = run(native.lem, leaves(2, 100, 1, 3))
    assert y.untyped_storage().nbytes() == z.untyped_storage().nbytes() == 2 * 3 * 8


def test_backward_twice_and_interleaved() -> None:
    x, other = leaves(3, 12, 1, 4), leaves(2, 30, 1, 4)
    first, second = weighed(run(native.lem, x)), weighed(run(native.lem, other))
    once = torch.autograd.grad(first, x, retain_graph=True)
    between = torch.autograd.grad(second, other)
    twice = torch.autograd.grad(first, x)
    assert all(map(torch.equal, once, twice))
    assert_same(list(between), gradients(reference.lem, other))


def test_second_derivatives_are_refused() -> None:
    x = leaves(2, 3, 1, 2)
    with pytest.raises(InputError, match="backend='reference'"):
        torch.autograd.grad(run(native.lem, x)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    x = leaves(3, 12, 2, 4)
    results = checkpoint(lambda *x: run(native.lem, list(x)), *x, use_reentrant=reentrant)
    weighed(results).backward()
    assert_same([leaf.grad for leaf in x], gradients(reference.lem, x))


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


def test_an_output_changed_in_place_is_an_error_not_a_wrong_gradient() -> None:
    x = leaves(3, 12, 1, 4)
    with pytest.raises(RuntimeError, match=r"in-?place"):
        run(native.lem, x)[0].mul_(2).sum().backward()


def test_a_changed_weight_is_an_error_not_a_wrong_gradient() -> None:
    x = leaves(3, 12, 1, 4)
    outputs = run(native.lem, x)[0]
    with torch.no_grad():
        x[3].mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


@pytest.mark.parametrize("kind", KINDS)
def test_a_nan_stays_in_its_row(kind: str) -> None:
    x = [leaf.detach() for leaf in leaves(9, 30, 2, 5, kind)]
    clean = x[0].clone().requires_grad_()
    dirty = x[0].clone().index_fill_(0, torch.tensor(4), torch.nan).requires_grad_()
    others = [k for k in range(9) if k != 4]
    results, expected = (run(native.lem, [u, *x[1:]], kind) for u in (dirty, clean))
    for a, b in zip(results, expected, strict=True):
        assert a[4].isnan().all() and torch.equal(a[others], b[others])
    (ours,), (theirs,) = (
        torch.autograd.grad(weighed(r), u) for r, u in ((results, dirty), (expected, clean))
    )
    assert ours[4].isnan().all() and torch.equal(ours[others], theirs[others])


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


def test_a_backward_pass_with_another_number_of_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves(11, 12, 3, 5)
    monkeypatch.setattr(native, "MIN_WORK", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    total = weighed(run(native.lem, x))
    monkeypatch.setattr(torch, "get_num_threads", lambda: 1)
    assert_same(list(torch.autograd.grad(total, x)), gradients(reference.lem, x))


def test_two_python_threads_at_once() -> None:
    x = [leaves(b, 200, 2, 20) for b in (3, 5)]
    expected = [both(native.lem, case) for case in x]
    found: dict[int, list[list[Tensor]]] = {0: [], 1: []}

    def work(k: int) -> None:
        for _ in range(5):
            found[k].append(both(native.lem, x[k]))

    workers = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for k in (0, 1):
        assert len(found[k]) == 5
        assert all(all(map(torch.equal, results, expected[k])) for results in found[k])


LAYOUTS = {
    "time first": lambda x: [draw(12, 3, 4).transpose(0, 1), *x[1:]],
    "features first": lambda x: [draw(4, 12, 3).transpose(0, 2), *x[1:]],
    "every other": lambda x: [
        draw(3, 24, 8)[:, ::2, ::2],
        *x[1:3],
        draw(24, 8)[::2, ::2],
        x[4].t(),
        draw(4, 16).t(),
        x[6],
    ],
    "expanded": lambda x: [
        draw(1, 1, 4).expand(3, 12, 4),
        draw(1, 4).expand(3, 4),
        draw(3, 1).expand(3, 4),
        *x[3:6],
        x[6][:1].expand(16),
    ],
    "one number": lambda x: [draw(1, 1, 1).expand(3, 12, 4), *x[1:]],
    "one feature of many": lambda x: [draw(3, 12, 5)[:, :, 2:3], *x[1:5], x[5][:, :1], x[6]],
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_memory_layouts(layout: str) -> None:
    x = LAYOUTS[layout]([leaf.detach() for leaf in leaves(3, 12, 4, 4)])
    for leaf in x:
        leaf.requires_grad_()
    assert_same(both(native.lem, x), both(reference.lem, x))


LOSSES = {
    "sum": lambda outputs: outputs.sum(),
    "every other unit": lambda outputs: outputs[..., ::2].square().sum(),
    "one step": lambda outputs: outputs[:, 5].square().sum(),
    "time first": lambda outputs: (
        outputs.transpose(0, 1).contiguous() * draw(12, 3, outputs.shape[2])
    ).sum(),
    "units first": lambda outputs: (
        outputs.permute(2, 1, 0).contiguous() * draw(outputs.shape[2], 12, 3)
    ).sum(),
}


@pytest.mark.parametrize("H", [5, 16])
@pytest.mark.parametrize("loss", LOSSES)
def test_layouts_of_the_incoming_gradient(loss: str, H: int) -> None:
    x = leaves(3, 12, 2, H)
    wanted = x[:2] + x[3:]
    assert_same(
        *(
            list(torch.autograd.grad(LOSSES[loss](run(op, x)[0]), wanted))
            for op in (native.lem, reference.lem)
        )
    )


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


def test_two_halves_with_carried_state_are_one_pass() -> None:
    u, *rest = (leaf.detach() for leaf in leaves(3, 21, 2, 5))
    outputs, y, z = run(native.lem, [u, *rest])
    early, y1, z1 = run(native.lem, [u[:, :9], *rest])
    late, y2, z2 = run(native.lem, [u[:, 9:], y1, z1, *rest[2:]])
    assert torch.equal(torch.cat([early, late], 1), outputs)
    assert torch.equal(y2, y) and torch.equal(z2, z)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [leaf.detach() for leaf in leaves(2, 3, 1, 4)]
    assert native.refusal(*x) is None
    assert "got a tensor on meta" in str(native.refusal(x[0].to("meta"), *x[1:]))
    assert "float32 or float64" in str(native.refusal(*(leaf.half() for leaf in x)))
    monkeypatch.setenv("CC", "/nonexistent")
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
