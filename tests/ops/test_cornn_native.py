"""coRNN in C against the plain loop in float64, on every vector width of this processor."""

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
from physml.models.sequence.cornn import CoRNN
from physml.ops.cornn import native, reference

CONSTANTS = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6}
NAMES = ("u", "y", "z", "W", "Wcal", "V", "b")
LENGTHS, UNITS = (1, 2, 63, 65, 300), (1, 5, 16, 17, 33, 40)
OTHERS = itertools.cycle(itertools.product((1, 3), (1, 2, 7, 9), ("explicit", "implicit")))
SIZES = [(T, H, *next(OTHERS)) for T, H in itertools.product(LENGTHS, UNITS)]
# Flags that take instructions away: 64, 32 and 16 bytes in a vector, where the processor has them.


@pytest.fixture(autouse=True)
def compiler() -> None:
    needs_compiler()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def leaves(B: int, T: int, D: int, H: int, dtype: torch.dtype = torch.double) -> list[Tensor]:
    shapes = (B, T, D), (B, H), (B, H), (H, H), (H, H), (H, D), (H,)
    made = [draw(*shape, seed=k) for k, shape in enumerate(shapes)]
    for weight in made[3:6]:
        weight *= weight.shape[1] ** -0.5
    return [x.to(dtype).requires_grad_() for x in made]


def run(op, x: list[Tensor], damping: str = "explicit") -> tuple[Tensor, Tensor, Tensor]:
    return op(*x, **CONSTANTS, damping=damping)


def weighed(results: tuple[Tensor, ...], use: str = "outputs y z") -> Tensor:
    parts = [
        (x * draw(*x.shape, seed=7 + k).to(x.dtype)).sum()
        for k, (name, x) in enumerate(zip(("outputs", "y", "z"), results, strict=True))
        if name in use
    ]
    return torch.stack(parts).sum()


def gradients(op, x: list[Tensor], damping: str = "explicit", use: str = "outputs y z") -> list[Tensor]:
    wanted = [leaf for leaf in x if leaf.requires_grad]
    return list(torch.autograd.grad(weighed(run(op, x, damping), use), wanted, materialize_grads=True))


def both(op, x: list[Tensor], damping: str = "explicit") -> list[Tensor]:
    return [*run(op, x, damping), *gradients(op, x, damping)]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-10) -> None:
    """Relative to the largest number of each tensor."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.shape == b.shape
        scale = b.abs().max().item() + 1e-300
        worst = (a - b).abs().max().item() / scale
        assert worst <= tolerance, f"tensor {k}: off by {worst:.1e} of {scale:.1e}"


@each("flags", WIDTHS)
@each("T, H, D, B, damping", SIZES)
def test_outputs_and_every_gradient_equal_the_plain_loop(
    T: int, H: int, D: int, B: int, damping: str, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = leaves(B, T, D, H)
    assert_same(both(native.cornn, x, damping), both(reference.cornn, x, damping))


@each("flags", WIDTHS)
@each("T, H, D, B", [(1, 1, 1, 1), (65, 33, 3, 9), (300, 40, 1, 43), (20, 128, 20, 50)])
def test_single_precision(
    T: int, H: int, D: int, B: int, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = leaves(B, T, D, H, torch.float32)
    exact = both(reference.cornn, [leaf.detach().double().requires_grad_() for leaf in x])
    assert_same([r.double() for r in both(native.cornn, x)], exact, 1e-4)


@pytest.mark.parametrize("damping", ["explicit", "implicit"])
def test_gradcheck(damping: str) -> None:
    assert torch.autograd.gradcheck(lambda *x: run(native.cornn, list(x), damping), leaves(2, 4, 2, 3))


@pytest.mark.parametrize(
    "wanted", [{name} for name in NAMES] + [{"W", "V"}, {"Wcal", "b"}, {"u", "Wcal"}, {"z", "b"}]
)
def test_any_part_may_be_frozen(wanted: set[str]) -> None:
    x = [
        leaf.detach().requires_grad_(name in wanted)
        for name, leaf in zip(NAMES, leaves(3, 11, 2, 5), strict=True)
    ]
    assert_same(gradients(native.cornn, x), gradients(reference.cornn, x))
    weighed(run(native.cornn, x)).backward()
    assert {name for name, leaf in zip(NAMES, x, strict=True) if leaf.grad is not None} == wanted


@pytest.mark.parametrize("use", ["outputs", "y", "z", "y z"])
def test_parts_of_the_result_may_go_unused(use: str) -> None:
    x = leaves(2, 9, 1, 3)
    assert_same(gradients(native.cornn, x, use=use), gradients(reference.cornn, x, use=use))


@pytest.mark.parametrize(("tile", "block"), [(40, 1), (1, 5), (3, 20), (8, 64), (8, 10_000)])
def test_tiles_and_blocks_join(tile: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves(19, 23, 2, 3)
    monkeypatch.setattr(native, "TILE", tile)
    monkeypatch.setattr(native, "BLOCK", block)
    assert_same(both(native.cornn, x), both(reference.cornn, x))


def test_without_gradients_nothing_is_saved() -> None:
    x = leaves(2, 9, 1, 3)
    with torch.no_grad():
        results = run(native.cornn, x)
    assert not any(r.requires_grad for r in results)
    assert_same(list(results), list(run(reference.cornn, x)))
    assert native.forward(x, (0.1, 0.9, 0.1, 0.1), saved=False)[1] == ()
    assert not run(native.cornn, [leaf.detach() for leaf in x])[0].requires_grad


def test_the_last_state_does_not_keep_the_path() -> None:
    _, y, z = run(native.cornn, leaves(2, 100, 1, 3))
    assert y.untyped_storage().nbytes() == z.untyped_storage().nbytes() == 2 * 3 * 8


def test_backward_twice_and_interleaved() -> None:
    x, other = leaves(3, 12, 1, 4), leaves(2, 30, 1, 4)
    first, second = weighed(run(native.cornn, x)), weighed(run(native.cornn, other))
    once = torch.autograd.grad(first, x, retain_graph=True)
    between = torch.autograd.grad(second, other)
    twice = torch.autograd.grad(first, x)
    assert all(map(torch.equal, once, twice))
    assert_same(list(between), gradients(reference.cornn, other))


def test_second_derivatives_are_refused() -> None:
    x = leaves(2, 3, 1, 2)
    with pytest.raises(InputError, match="backend='reference'"):
        torch.autograd.grad(run(native.cornn, x)[0].sum(), x, create_graph=True)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant: bool) -> None:
    x = leaves(3, 12, 2, 4)
    results = checkpoint(lambda *x: run(native.cornn, list(x)), *x, use_reentrant=reentrant)
    weighed(results).backward()
    assert_same([leaf.grad for leaf in x], gradients(reference.cornn, x))


def test_all_that_is_saved_goes_through_autograd() -> None:
    x = leaves(3, 70, 2, 4)
    packed = []

    def pack(saved: Tensor) -> Tensor:
        packed.append(saved.numel())
        return saved.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        total = weighed(run(native.cornn, x))
    assert max(packed) >= 3 * 70 * 4
    assert_same(list(torch.autograd.grad(total, x)), gradients(reference.cornn, x))


def test_an_output_changed_in_place_is_an_error_not_a_wrong_gradient() -> None:
    x = leaves(3, 12, 1, 4)
    with pytest.raises(RuntimeError, match=r"in-?place"):
        run(native.cornn, x)[0].mul_(2).sum().backward()


def test_a_changed_input_is_an_error_not_a_wrong_gradient() -> None:
    x = leaves(3, 12, 1, 4)
    u = x[0].clone()
    outputs = run(native.cornn, [u, *x[1:]])[0]
    u.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        outputs.sum().backward()


def test_a_nan_stays_in_its_row() -> None:
    x = [leaf.detach() for leaf in leaves(9, 30, 2, 5)]
    clean = x[0].clone().requires_grad_()
    dirty = x[0].clone().index_fill_(0, torch.tensor(4), torch.nan).requires_grad_()
    others = [k for k in range(9) if k != 4]
    results, expected = (run(native.cornn, [u, *x[1:]]) for u in (dirty, clean))
    for a, b in zip(results, expected, strict=True):
        assert a[4].isnan().all() and torch.equal(a[others], b[others])
    (ours,), (theirs,) = (
        torch.autograd.grad(weighed(r), u) for r, u in ((results, dirty), (expected, clean))
    )
    assert ours[4].isnan().all() and torch.equal(ours[others], theirs[others])


@pytest.mark.parametrize("n_threads", [2, 3, 8])
@pytest.mark.parametrize(("T", "H", "B"), [(1000, 33, 7), (20, 16, 90), (3, 5, 2)])
def test_threads(T: int, H: int, B: int, n_threads: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = leaves(B, T, 3, H)
    alone = both(native.cornn, x)
    monkeypatch.setattr(native, "PARALLEL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: n_threads)
    together = both(native.cornn, x)
    assert_same(together, alone, 1e-12)
    assert all(map(torch.equal, together, both(native.cornn, x)))


def test_two_python_threads_at_once() -> None:
    x = [leaves(b, 200, 2, 20) for b in (3, 5)]
    expected = [both(native.cornn, case) for case in x]
    found: dict[int, list[list[Tensor]]] = {0: [], 1: []}

    def work(k: int) -> None:
        for _ in range(5):
            found[k].append(both(native.cornn, x[k]))

    workers = [threading.Thread(target=work, args=(k,)) for k in (0, 1)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for k in (0, 1):
        assert len(found[k]) == 5
        assert all(all(map(torch.equal, results, expected[k])) for results in found[k])


def layouts(case: str) -> list[Tensor]:
    u, y, z, W, Wcal, V, b = (leaf.detach() for leaf in leaves(3, 12, 4, 4))
    if case == "time first":
        u = draw(12, 3, 4).transpose(0, 1)
    elif case == "features first":
        u = draw(4, 12, 3).transpose(0, 2)
    elif case == "every other":
        u, W, V = draw(3, 24, 8)[:, ::2, ::2], draw(8, 8)[::2, ::2], draw(4, 4).t()
    elif case == "expanded":
        u, y, z, b = (
            draw(1, 1, 4).expand(3, 12, 4),
            draw(1, 4).expand(3, 4),
            draw(3, 1).expand(3, 4),
            b[:1].expand(4),
        )
    elif case == "one number":
        u = draw(1, 1, 1).expand(3, 12, 4)
    elif case == "one feature of many":
        u, V = draw(3, 12, 5)[:, :, 2:3], V[:, :1]
    return [x.requires_grad_() for x in (u, y, z, W, Wcal, V, b)]


@pytest.mark.parametrize(
    "case", ["time first", "features first", "every other", "expanded", "one number", "one feature of many"]
)
def test_memory_layouts(case: str) -> None:
    x = layouts(case)
    assert_same(both(native.cornn, x), both(reference.cornn, x))


@pytest.mark.parametrize("case", ["sum", "half of the units", "one step", "time first"])
def test_layouts_of_the_incoming_gradient(case: str) -> None:
    def loss(op) -> Tensor:
        outputs = run(op, x)[0]
        return {
            "sum": lambda: outputs.sum(),
            "half of the units": lambda: outputs[..., ::2].square().sum(),
            "one step": lambda: outputs[:, 5].square().sum(),
            "time first": lambda: (outputs.transpose(0, 1).contiguous() * draw(12, 3, 5)).sum(),
        }[case]()

    x = leaves(3, 12, 2, 5)
    assert_same(
        *(list(torch.autograd.grad(loss(op), x[:1] + x[3:])) for op in (native.cornn, reference.cornn))
    )


def test_layers_can_be_stacked() -> None:
    def stacked(backend: str) -> list[Tensor]:
        torch.manual_seed(0)
        layers = [CoRNN(d_in, 5, **CONSTANTS, backend=backend).double() for d_in in (2, 5)]
        u = draw(3, 12, 2).requires_grad_()
        hidden, _ = layers[0](u)
        outputs, (y, z) = layers[1](hidden)
        weights = [p for layer in layers for p in layer.parameters()]
        return list(torch.autograd.grad(weighed((outputs, y, z)), [u, *weights]))

    assert_same(stacked("native"), stacked("reference"))


def test_two_halves_with_carried_state_are_one_pass() -> None:
    u, *rest = (leaf.detach() for leaf in leaves(3, 21, 2, 5))
    outputs, y, z = run(native.cornn, [u, *rest])
    early, y1, z1 = run(native.cornn, [u[:, :9], *rest])
    late, y2, z2 = run(native.cornn, [u[:, 9:], y1, z1, *rest[2:]])
    assert torch.equal(torch.cat([early, late], 1), outputs)
    assert torch.equal(y2, y) and torch.equal(z2, z)


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [leaf.detach() for leaf in leaves(2, 3, 1, 4)]
    assert native.refusal(*x) is None
    assert "got a tensor on meta" in native.refusal(x[0].to("meta"), *x[1:])
    assert "one dtype" in native.refusal(x[0].float(), *x[1:])
    assert "float32 or float64" in native.refusal(*(leaf.half() for leaf in x))
    assert "empty" in native.refusal(x[0][:0], *x[1:])
    monkeypatch.setenv("CC", "/nonexistent")
    assert "no C compiler" in native.refusal(*x)


@pytest.mark.parametrize("name", CONSTANTS)
def test_trained_constants_are_refused(name: str) -> None:
    numbers = {**CONSTANTS, name: torch.tensor(0.1)}
    with pytest.raises(InputError, match="must be numbers"):
        native.cornn(*leaves(2, 3, 1, 4), **numbers, damping="explicit")
