"""Layers of UnICORNN and the projections between them. Axes: B batch, T time, D inputs, H hidden units."""

import all_ops
import pytest
import torch
from all_ops import OPS, weighed
from c_compiler import needs_compiler
from edge_lists import draw
from torch import Tensor
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.models.sequence.unicornn import UnICORNN
from physml.ops.unicornn import autograd, native, project, projection, unicornn

FAST = ("torch", "native")
UNICORNN = next(op for op in OPS if op.name == "unicornn")


@pytest.fixture(autouse=True)
def compiler(request: pytest.FixtureRequest) -> None:
    if "backend" in request.fixturenames and request.getfixturevalue("backend") != "native":
        return
    needs_compiler()


def plain(x: Tensor, V: Tensor, b: Tensor | None, mask: Tensor | None) -> Tensor:
    return F.linear(x if mask is None else x * mask.unsqueeze(1), V, b)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize(
    ("B", "T", "D", "H"), [(1, 1, 1, 1), (3, 70, 1, 16), (2, 129, 6, 33), (3, 300, 16, 5), (5, 40, 33, 32)]
)
def test_projection(B: int, T: int, D: int, H: int, masked: bool, backend: str, monkeypatch) -> None:
    monkeypatch.setattr(projection, "WORTH_A_THREAD", 1)
    monkeypatch.setattr(projection, "BLOCK", 500)
    x = [draw(*shape, seed=k).requires_grad_() for k, shape in enumerate([(B, T, D), (H, D), (H,)], 1)]
    mask = draw(B, D, seed=4) if masked else None
    slope = draw(B, T, H, seed=5)

    def run(op) -> list[Tensor]:
        out, bare = op(*x, mask), op(x[0], x[1], None, mask)
        return [out, bare, *torch.autograd.grad([out, bare], x, [slope, slope])]

    expected = run(plain)
    for n in (1, 3):
        torch.set_num_threads(n)
        all_ops.same(run(lambda *x: project(*x, backend=backend)), expected, 1e-11)


@pytest.mark.parametrize("backend", FAST)
@pytest.mark.parametrize("masked", [False, True])
def test_projection_has_all_derivatives(backend: str, masked: bool) -> None:
    x = [draw(*shape, seed=k).requires_grad_() for k, shape in enumerate([(2, 3, 3), (4, 3), (4,)])]
    mask = draw(2, 3, seed=4) if masked else None
    assert torch.autograd.gradcheck(lambda *x: project(*x, mask, backend=backend), x)
    assert torch.autograd.gradgradcheck(lambda *x: project(*x, mask, backend=backend), x)


def stack(backend: str, **options) -> UnICORNN:
    torch.manual_seed(0)
    layer = UnICORNN(3, 9, **{"n_layers": 4, "dt": 0.4, "alpha": 1.5, "backend": backend, **options})
    with torch.no_grad():  # a bias of 0 and a small V would hide errors
        for part in layer.layers:
            part.b.uniform_(-1, 1)
            part.V.uniform_(-1, 1)
    return layer.double()


def of_stack(layer: UnICORNN, u: Tensor) -> list[Tensor]:
    torch.manual_seed(5)  # of dropout
    u = u.detach().clone().requires_grad_()
    outputs, states = layer(u)
    total = weighed((outputs, *states[0])) + weighed((outputs, *states[-1]))
    return [outputs, *torch.autograd.grad(total, [u, *layer.parameters()])]


@pytest.mark.parametrize("backend", [*FAST, "auto"])
@pytest.mark.parametrize("options", [{}, {"dropout": 0.4}, {"residual_skip": 2, "dropout": 0.4}])
def test_layers_equal_plain_layers(options: dict, backend: str) -> None:
    u = draw(3, 70, 3)
    all_ops.same(of_stack(stack(backend, **options), u), of_stack(stack("reference", **options), u), 1e-10)


def test_plain_layers_have_second_derivatives() -> None:
    layer, u = stack("reference", n_layers=2, dropout=0.2), draw(2, 3, 3).requires_grad_()
    gradient = torch.autograd.grad(layer(u)[0].square().sum(), u, create_graph=True)[0]
    gradient.square().sum().backward()
    assert all(p.grad is not None for p in layer.parameters())


def test_what_native_refuses_and_an_unknown_backend() -> None:
    x = UNICORNN.arguments({"B": 2, "T": 3, "H": 4})
    with pytest.raises(InputError, match=r"float32 or float64; got torch\.bfloat16"):
        unicornn(*(v.bfloat16() for v in x), alpha=1.0, backend="native")
    assert native.refusal(x[0].to("meta")) == "backend native runs on a CPU; got a tensor on meta"
    with pytest.raises(InputError, match=r"got 'nativ'\. Did you mean native\?"):
        UnICORNN(2, 3, n_layers=2, dt=0.1, alpha=1.0, backend="nativ")


def test_torch_keeps_less_than_the_loop() -> None:
    """Of (T, B, H): the input and the path, and little else."""
    x = UNICORNN.arguments({"B": 4, "T": 256, "H": 32})
    sizes: list[int] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda v: sizes.append(v.numel()) or v, lambda v: v):
        autograd.unicornn(*x, alpha=1.0)
    assert sum(sizes) < 2.2 * x[0].numel()
