"""Products of numbers rounded to bfloat16, in C, against float64; recurrences against loops that round."""

import ctypes
import logging
import platform
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from drawn_layers import leaves
from refusals import refuses
from torch import Tensor
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import TanhRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN
from physml.ops import backend
from physml.ops.cell import recurrence
from physml.ops.native.library import load

SOURCE = Path(__file__).with_name("gemm_check.c")
X86 = platform.machine() in ("x86_64", "AMD64")
WITHOUT = "-O1 -mno-avx512bf16" if X86 else ""  # as on a processor that has no such instruction
NARROW = ["-O1 -mno-avx512f", "-O1 -mno-avx"] if X86 else []
SIZES = [
    *((1, 1, 1), (3, 5, 2), (9, 33, 40), (17, 64, 7)),
    *((31, 70, 33), (12, 130, 64), (40, 16, 8300), (270, 20, 300)),
]


pytestmark = pytest.mark.usefixtures("compiler")


@pytest.fixture
def in_bf16() -> Iterator[None]:
    with backend.running("auto", "bf16-products"):
        yield


def rounded(x: Tensor) -> Tensor:
    return x.float().bfloat16().to(x.dtype)


def draw(*shape: int, seed: int = 0) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def product(library: ctypes.CDLL, a: Tensor, w: Tensor) -> Tensor:
    """1 + a w."""
    (m, k), n = a.shape, w.shape[1]
    c = torch.ones(m, -(-n // 16) * 16)
    sizes = (m, n, k, a.data_ptr(), a.stride(0), w.data_ptr(), *w.stride(), c.data_ptr(), c.shape[1], 1)
    library.check_gemm.argtypes = [*[ctypes.c_int] * 3, ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p,
                                   *[ctypes.c_int] * 2, ctypes.c_void_p, *[ctypes.c_int] * 2]  # fmt: skip
    assert library.check_gemm(*sizes) == 0
    return c[:, :n]


def product_tn(library: ctypes.CDLL, a: Tensor, b: Tensor) -> Tensor:
    """1 + a^T b; the rows of b have room for whole vectors."""
    (k, m), n = a.shape, b.shape[1]
    c, wide = torch.ones(m, -(-n // 16) * 16), F.pad(b, (0, -n % 16))
    library.check_gemm_tn.argtypes = [*[ctypes.c_int] * 3, *[ctypes.c_void_p, ctypes.c_int] * 3]
    library.check_gemm_tn(m, n, k, a.data_ptr(), m, wide.data_ptr(), wide.shape[1], c.data_ptr(), c.shape[1])
    return c[:, :n]


def test_products_are_those_of_rounded_numbers_summed_in_float32() -> None:
    library = load(SOURCE, torch.float32, bf16=True)
    for m, n, k in SIZES:
        a, b = draw(m, k), draw(k, n, seed=1)
        exact = 1 + rounded(a).double() @ rounded(b).double()
        for output in (product(library, a, b), product_tn(library, a.T.contiguous(), b)):
            assert (output - exact).abs().max() < 4e-6 * k**0.5 * max(1.0, k / 500)
            assert k < 5 or (output - 1 - a.double() @ b.double()).abs().max() > 1e-3


@pytest.mark.parametrize("flags", [WITHOUT, *[pytest.param(f, marks=pytest.mark.grid) for f in NARROW]])
def test_without_the_instruction_the_same_bits(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    first = load(SOURCE, torch.float32, bf16=True)
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    second = load(SOURCE, torch.float32, bf16=True)
    assert not second.bf16_instructions()
    for m, n, k in SIZES:
        a, w = draw(m, k), draw(n, k, seed=1).T
        assert torch.equal(product(first, a, w), product(second, a, w))
        a, b = draw(k, m), draw(k, n, seed=1)
        assert torch.equal(product_tn(first, a, b), product_tn(second, a, b))


@pytest.mark.parametrize("flags", ["", WITHOUT])
def test_ties_go_to_even_and_nan_stays(flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    library = load(SOURCE, torch.float32, bf16=True)
    ties = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, 1 + 2.0**-8 + 2.0**-20, -1 - 2.0**-8, 3e38, -0.0])
    numbers = torch.cat([ties, draw(26)])
    each = product(library, numbers[:, None].contiguous(), torch.ones(1, 1))[:, 0] - 1
    assert torch.equal(each, (1 + numbers.bfloat16().float()) - 1)
    a = draw(4, 9)
    a[1, 8], a[2, 3] = torch.nan, torch.inf
    output = product(library, a, torch.ones(9, 2))
    assert output[1].isnan().all() and output[2].isposinf().all() and output[[0, 3]].isfinite().all()


class _Rounded(torch.autograd.Function):
    """x W^T of rounded operands; its gradients are products of rounded operands too."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, w: Tensor) -> Tensor:
        ctx.save_for_backward(x, w)
        return rounded(x) @ rounded(w).T

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
        x, w = map(rounded, ctx.saved_tensors)
        return rounded(grad) @ w, rounded(grad).T @ x


Product = Callable[[Tensor, Tensor], Tensor]


def exact(x: Tensor, w: Tensor) -> Tensor:
    return x @ w.T


def lem_loop(layer: LEM, u: Tensor, times: Product) -> Tensor:
    H, ones, path = layer.d_out, u.new_ones(len(u), 1), []
    y = z = u.new_zeros(len(u), H)
    V, b = layer.V, layer.b[:, None]
    for x in u.unbind(1):
        z_new, one_, two = (times(y, layer.W) + times(x, V[: 3 * H]) + times(ones, b[: 3 * H])).split(H, 1)
        z = z + layer.dt * torch.sigmoid(one_) * (torch.tanh(z_new) - z)
        force = torch.tanh(times(z, layer.Wy) + times(x, V[3 * H :]) + times(ones, b[3 * H :]))
        y = y + layer.dt * torch.sigmoid(two) * (force - y)
        path.append(y)
    return torch.stack(path, 1)


def cornn_loop(layer: CoRNN, u: Tensor, times: Product) -> Tensor:
    ones, path = u.new_ones(len(u), 1), []
    y = z = u.new_zeros(len(u), layer.d_out)
    for x in u.unbind(1):
        force = times(y, layer.W) + times(z, layer.Wcal) + times(x, layer.V) + times(ones, layer.b[:, None])
        z = z + layer.dt * (torch.tanh(force) - layer.gamma * y - layer.epsilon * z)
        y = y + layer.dt * z
        path.append(y)
    return torch.stack(path, 1)


def unicornn_loop(layer: UnICORNN, u: Tensor, times: Product) -> Tensor:
    for stage in layer.layers:
        y = z = u.new_zeros(len(u), layer.d_out)
        b = stage.b if times is exact else stage.b + (rounded(stage.b) - stage.b).detach()
        path = []
        for x in u.unbind(1):
            z = z - stage.step() * (torch.tanh(stage.w * y + times(x, stage.V) + b) + layer.alpha * y)
            y = y + stage.step() * z
            path.append(y)
        u = torch.stack(path, 1)
    return u


def tanh_loop(layer: TanhRNN, u: Tensor, times: Product) -> Tensor:
    (W, V, b), path = layer.symbols().values(), []
    h = u.new_zeros(len(u), layer.d_out)
    for x in u.unbind(1):
        h = torch.tanh(times(h, W) + times(x, V) + times(u.new_ones(len(u), 1), b[:, None]))
        path.append(h)
    return torch.stack(path, 1)


CASES: dict[str, tuple[Callable[[], Any], Callable[..., Tensor]]] = {
    "lem": (lambda: LEM(3, 20, dt=0.7), lem_loop),
    "cornn": (lambda: CoRNN(3, 20, dt=0.3, gamma=1.7, epsilon=0.6), cornn_loop),
    "unicornn": (lambda: UnICORNN(3, 20, n_layers=2, dt=0.3, alpha=1.0), unicornn_loop),
    "tanh_rnn": (lambda: TanhRNN(3, 20), tanh_loop),  # a compiled cell
}


def of(layer: Any, compute: Callable[[Tensor], Tensor], n_steps: int) -> dict[str, Tensor]:
    """Outputs, and the gradients of their product with fixed numbers, in float64."""
    dtype = next(layer.parameters()).dtype
    u = draw(5, n_steps, 3, seed=2).to(dtype).requires_grad_()
    path = compute(u)
    grads = torch.autograd.grad((path * draw(*path.shape, seed=3).to(dtype)).sum(), [u, *layer.parameters()])
    names = ["u", *[name for name, _ in layer.named_parameters()]]
    return {"path": path.detach().double()} | {n: g.double() for n, g in zip(names, grads, strict=True)}


def furthest(actual: dict[str, Tensor], expected: dict[str, Tensor]) -> float:
    """The largest distance, relative to the largest number of each tensor."""
    return max(
        float((actual[n] - x).abs().max() / x.abs().max()) for n, x in expected.items() if x.abs().max() > 0
    )


def made_of(name: str) -> tuple[Any, Callable[..., Tensor]]:
    torch.manual_seed(1)
    make, loop = CASES[name]
    return make(), loop


@pytest.mark.parametrize("name", CASES)
def test_one_step_is_that_of_a_rounding_loop_and_many_stay_near_float64(name: str, in_bf16: None) -> None:
    # After one step: after more, a state next to a tie may be rounded the other way.
    layer, loop = made_of(name)
    tensors = of(layer, lambda u: layer(u)[0], 1)
    assert furthest(tensors, of(layer, lambda u: loop(layer, u, _Rounded.apply), 1)) < 1e-5
    assert furthest(tensors, of(layer, lambda u: loop(layer, u, exact), 1)) > 5e-4
    tensors = of(layer, lambda u: layer(u)[0], 25)
    assert furthest(tensors, of(layer, lambda u: loop(layer, u, _Rounded.apply), 25)) < 3e-3
    assert 5e-4 < furthest(tensors, of(layer.double(), lambda u: loop(layer, u, exact), 25)) < 3e-2


@pytest.mark.parametrize("name", ["lem", "cornn", "unicornn"])
def test_a_step_without_gradients_rounds_too(name: str, in_bf16: None) -> None:
    """A step takes the weights as they lie; all steps of a batch that is trained take them packed."""
    layer, _ = made_of(name)
    u = 3 * draw(2, 3)

    def step() -> Tensor:
        with torch.no_grad():
            output, state = layer.step(u)
        return torch.cat([output, *leaves(state)])

    path, state = layer(u[:, None])
    here = step()
    torch.testing.assert_close(here, torch.cat([path[:, 0], *leaves(state)]).detach(), rtol=0, atol=1e-6)
    with backend.running("auto"):
        assert (step() - here).abs().max() > 1e-5


def test_it_ends_with_the_run_and_steps_count_in_every_run() -> None:
    layer, _ = made_of("lem")
    u = draw(2, 9, 3)
    before = layer(u)[0]
    with backend.running("auto", "bf16-products"):
        assert backend.no_bf16_products()
        assert not torch.equal(layer(u)[0], before)
        assert not backend.no_bf16_products() and backend.ran() == ("native",)
    assert torch.equal(layer(u)[0], before)
    for _ in range(2):  # the second run finds the function in a cache
        with backend.running("auto", "bf16-products"), torch.no_grad():
            layer.step(draw(2, 3))
            assert not backend.no_bf16_products()


def test_a_processor_without_the_instruction_is_told_once(monkeypatch, caplog, in_bf16: None) -> None:
    layer, _ = made_of("cornn")
    u = draw(3, 9, 3)
    here = layer(u)[0]
    caplog.clear()
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", WITHOUT)
    backend._run.warned.clear()
    with caplog.at_level(logging.WARNING, "physml"):
        fallback = [layer(u)[0] for _ in range(2)]
    assert [r.getMessage().count("has no AVX512-BF16") for r in caplog.records] == [1]
    torch.testing.assert_close(fallback[0], here, rtol=1e-5, atol=1e-6)


def test_what_c_cannot_compute_is_refused(in_bf16: None) -> None:
    u = draw(2, 9, 3)
    cases: list[tuple[Callable[[], Any], str]] = [
        (lambda: LEM(3, 4, backend="reference")(u), "lem with .*: backend reference is asked for"),
        (lambda: LEM(3, 4, state_dropout=0.5)(u), "lem with .*: only backend reference has a mask"),
        (lambda: LEM(3, 4).double()(u.double()), "lem with .*summed in float32; got torch.float64"),
        (lambda: UnICORNN(3, 4, backend="reference")(u), "unicornn with .*not computed in C here"),
        (lambda: UnICORNN(3, 4).double()(u.double()), "unicornn with .*not computed in C here"),
        (lambda: recurrence(lambda x, s: (x.sort()[0], s), u, (u[:, 0],)), "cell with .*sort"),
        (lambda: recurrence(lambda x, s: (x.roll(1, 1), s), u, (u[:, 0],)), "cell with .*rounds to bfloat16"),
    ]
    for make, says in cases:
        refuses(InputError, says + r"[\s\S]*or else precision=fp32", make)


def test_a_preferred_backend_without_such_products_is_refused() -> None:
    with backend.running("torch", "bf16-products"), pytest.raises(InputError, match="backend torch is asked"):
        LEM(3, 4)(draw(2, 9, 3))
