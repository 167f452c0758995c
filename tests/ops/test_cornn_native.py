"""coRNN in C against the plain loop in float64, on every vector width of this processor."""

import itertools

import pytest
import torch
from c_compiler import needs_compiler
from each import each
from torch import Tensor
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.ops.cornn import native, reference

CONSTANTS = {"dt": 0.3, "gamma": 1.7, "epsilon": 0.6}
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


@pytest.mark.parametrize(("B", "T", "D", "H"), [(3, 5, 2, 16), (9, 65, 3, 33), (43, 20, 1, 40)])
def test_what_goes_past_the_caches(B: int, T: int, D: int, H: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """As results do that are large: bit for bit the same."""
    x = leaves(B, T, D, H)
    near = both(native.cornn, x)
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", "-DLARGE=0")
    assert all(map(torch.equal, near, both(native.cornn, x)))


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


def test_refusals(request: pytest.FixtureRequest) -> None:
    x = [leaf.detach() for leaf in leaves(2, 3, 1, 4)]
    assert native.refusal(*x) is None
    assert "got a tensor on meta" in native.refusal(x[0].to("meta"), *x[1:])
    assert "one dtype" in native.refusal(x[0].float(), *x[1:])
    assert "float32 or float64" in native.refusal(*(leaf.half() for leaf in x))
    assert "empty" in native.refusal(x[0][:0], *x[1:])
    request.getfixturevalue("no_compiler")
    assert "no C compiler" in native.refusal(*x)


@pytest.mark.parametrize("name", CONSTANTS)
def test_trained_constants_are_refused(name: str) -> None:
    numbers = {**CONSTANTS, name: torch.tensor(0.1)}
    with pytest.raises(InputError, match="must be numbers"):
        native.cornn(*leaves(2, 3, 1, 4), **numbers, damping="explicit")
