"""The residual tanh recurrence in C against its plain loop in float64."""

import itertools

import pytest
import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from vectors import WIDTHS

from physml.errors import InputError
from physml.models.antisymmetric import AntisymmetricRNN
from physml.models.fastrnn import FastRNN
from physml.models.lipschitz import LipschitzRNN
from physml.ops import backend
from physml.ops.native.library import Unavailable, load
from physml.ops.residual_tanh import native, reference, residual_tanh

KEEPS = ("matrix", "learned", "fixed")
SIZES = list(itertools.product((1, 2, 65, 300), (1, 5, 16, 33)))
OTHERS = itertools.cycle(itertools.product((1, 2, 9), KEEPS))


@pytest.fixture(autouse=True)
def compiler() -> None:
    try:
        load(native.SOURCE, torch.float64)
    except Unavailable as reason:
        pytest.skip(str(reason))


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def arguments(T: int, B: int, H: int, keep: str) -> list[Tensor | float]:
    K = {"matrix": 0.8 * torch.eye(H).double() + draw(H, H) / (9 * H), "learned": torch.tensor(0.9).double()}
    gain = 0.3 if keep == "fixed" else torch.tensor(0.3).double()
    made = [draw(T, B, H), draw(B, H, seed=2), draw(H, H, seed=3) * H**-0.5, K.get(keep, 0.9), gain]
    return [x.requires_grad_() if isinstance(x, Tensor) else x for x in made]


def both(op, x: list[Tensor | float]) -> list[Tensor]:
    path = op(*x)
    wanted = [leaf for leaf in x if isinstance(leaf, Tensor) and leaf.requires_grad]
    return [path, *torch.autograd.grad((path * draw(*path.shape, seed=9).to(path.dtype)).sum(), wanted)]


def assert_same(ours: list[Tensor], theirs: list[Tensor], tolerance: float = 1e-10) -> None:
    """Relative to the largest number of each tensor."""
    for k, (a, b) in enumerate(zip(ours, theirs, strict=True)):
        assert a.shape == b.shape
        scale = b.abs().max().item() + 1e-300
        worst = (a - b).abs().max().item() / scale
        assert worst <= tolerance, f"tensor {k}: off by {worst:.1e} of {scale:.1e}"


@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize(("T", "H", "B", "keep"), [(T, H, *next(OTHERS)) for T, H in SIZES])
def test_path_and_every_gradient_equal_the_plain_loop(
    T: int, H: int, B: int, keep: str, flags: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = arguments(T, B, H, keep)
    assert_same(both(native.residual_tanh, x), both(reference.residual_tanh, x))


@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("keep", KEEPS)
def test_single_precision(keep: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x = [
        leaf.detach().float().requires_grad_() if isinstance(leaf, Tensor) else leaf
        for leaf in arguments(40, 50, 70, keep)
    ]
    doubles = [leaf.detach().double().requires_grad_() if isinstance(leaf, Tensor) else leaf for leaf in x]
    exact = both(reference.residual_tanh, doubles)
    assert_same([r.double() for r in both(native.residual_tanh, x)], exact, 1e-4)


@pytest.mark.parametrize("keep", KEEPS)
def test_gradcheck(keep: str) -> None:
    x = arguments(4, 2, 3, keep)
    assert torch.autograd.gradcheck(native.residual_tanh, x)


@pytest.mark.parametrize(
    ("keep", "wanted"), [(keep, k) for keep in KEEPS for k in range(3 if keep == "fixed" else 5)]
)
def test_any_part_may_be_frozen(keep: str, wanted: int) -> None:
    x = arguments(11, 3, 5, keep)
    for k, leaf in enumerate(x):
        if isinstance(leaf, Tensor):
            leaf.requires_grad_(k == wanted)
    assert_same(both(native.residual_tanh, x), both(reference.residual_tanh, x))
    native.residual_tanh(*x).sum().backward()
    assert [k for k, leaf in enumerate(x) if isinstance(leaf, Tensor) and leaf.grad is not None] == [wanted]


@pytest.mark.parametrize(("tile", "block"), [(40, 1), (1, 5), (3, 20), (8, 10_000)])
@pytest.mark.parametrize("keep", KEEPS)
def test_tiles_and_blocks_join(keep: str, tile: int, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    x = arguments(23, 19, 3, keep)
    monkeypatch.setattr(native, "TILE", tile)
    monkeypatch.setattr(native, "BLOCK", block)
    assert_same(both(native.residual_tanh, x), both(reference.residual_tanh, x))


@pytest.mark.parametrize("keep", KEEPS)
def test_threads(keep: str, monkeypatch: pytest.MonkeyPatch) -> None:
    x = arguments(1000, 7, 33, keep)
    alone = both(native.residual_tanh, x)
    monkeypatch.setattr(native, "PARALLEL", 0)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 3)
    together = both(native.residual_tanh, x)
    assert_same(together, alone, 1e-12)
    assert all(map(torch.equal, together, both(native.residual_tanh, x)))


def test_memory_layouts() -> None:
    x = [
        draw(3, 12, 4).transpose(0, 1).requires_grad_(),
        draw(1, 4).expand(3, 4).requires_grad_(),
        draw(8, 8)[::2, ::2].requires_grad_(),
        (draw(4, 4) / 4).t().requires_grad_(),
        0.3,
    ]
    assert_same(both(native.residual_tanh, x), both(reference.residual_tanh, x))
    for part in (
        lambda path: path.sum(),
        lambda path: path.transpose(0, 1).contiguous().square()[:, 2:].sum(),
    ):
        ours, theirs = (
            list(torch.autograd.grad(part(op(*x)), x[:4]))
            for op in (native.residual_tanh, reference.residual_tanh)
        )
        assert_same(ours, theirs)


def test_a_nan_stays_in_its_row() -> None:
    drive, *rest = (x.detach() for x in arguments(30, 9, 5, "matrix"))
    dirty = drive.clone()
    dirty[:, 4] = torch.nan
    others = [k for k in range(9) if k != 4]
    results = []
    for x in (dirty, drive):
        x.requires_grad_()
        path = native.residual_tanh(x, *rest)
        results.append((path, *torch.autograd.grad(path.square().sum(), x)))
    for ours, theirs in zip(*results, strict=True):
        assert ours[:, 4].isnan().all() and torch.equal(ours[:, others], theirs[:, others])


def test_backward_twice_checkpointed_and_second_derivative() -> None:
    x = arguments(12, 3, 4, "matrix")
    total = native.residual_tanh(*x).square().sum()
    first = torch.autograd.grad(total, x, retain_graph=True)
    assert all(map(torch.equal, first, torch.autograd.grad(total, x, retain_graph=True)))
    again = checkpoint(native.residual_tanh, *x, use_reentrant=False).square().sum()
    assert all(map(torch.equal, first, torch.autograd.grad(again, x)))
    with pytest.raises(InputError, match="second derivative"):
        torch.autograd.grad(total, x, create_graph=True)


def test_without_gradients_nothing_is_saved() -> None:
    x = arguments(9, 2, 3, "learned")
    with torch.no_grad():
        path = native.residual_tanh(*x)
        assert native.forward(*x, saved=False)[1] is None
    assert not path.requires_grad
    assert_same([path], [reference.residual_tanh(*x)])


@pytest.mark.parametrize(
    "layer",
    [
        lambda: LipschitzRNN(2, 5, dt=0.1, beta_a=0.7, beta_w=0.6, gamma_a=0.01, gamma_w=0.02, init_std=0.5),
        lambda: AntisymmetricRNN(2, 5, epsilon=0.1, gamma=0.01, sigma_w=0.5),
        lambda: FastRNN(2, 5),
    ],
)
def test_layers_take_it(layer) -> None:
    torch.manual_seed(0)
    made = layer().double()
    u = draw(3, 20, 2)
    found = {}
    for wish in ("native", "reference"):
        with backend.running(wish):
            outputs, (last,) = made(u)
            total = outputs.square().sum() + last.sum()
            found[wish] = [outputs, last, *torch.autograd.grad(total, list(made.parameters()))]
            assert backend.ran() == (wish,)
    assert_same(found["native"], found["reference"])


def test_refusals(monkeypatch: pytest.MonkeyPatch) -> None:
    x = [leaf.detach() for leaf in arguments(3, 2, 4, "matrix")]
    with pytest.raises(InputError, match="one dtype"):
        residual_tanh(x[0].float(), *x[1:], backend="native")
    with pytest.raises(InputError, match="empty"):
        residual_tanh(x[0][:, :0], x[1][:0], *x[2:], backend="native")
    monkeypatch.setenv("CC", "/nonexistent")
    with pytest.raises(InputError, match="no C compiler"):
        residual_tanh(*x, backend="native")
    assert_same([residual_tanh(*x)], [reference.residual_tanh(*x)])
