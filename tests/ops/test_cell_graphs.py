"""Compiled cells in graphs of torch. Axes: B batch, T time, D features, H hidden units."""

import itertools
import logging
from collections.abc import Callable
from typing import Any

import cells
import pytest
import torch
from c_compiler import needs_compiler
from drawn_layers import leaves
from refusals import refuses
from torch import Tensor, nn
from torch.export import Dim
from torch.nn import functional as F
from variants import variants

from physml import recurrent
from physml.base.errors import InputError
from physml.models.sequence.antisymmetric import AntisymmetricRNN
from physml.models.sequence.bilstm import BiLSTM
from physml.models.sequence.fastrnn import FastGRNN, FastRNN
from physml.models.sequence.gated import GRU, LSTM, TanhRNN
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.noisy import NoisyRNN
from physml.models.sequence.orthogonal import ExpRNN
from physml.models.sequence.truncated import TruncatedLSTM
from physml.ops import backend as backends
from physml.ops.cell import OPERATOR, recurrence

pytestmark = [
    pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf"),  # dynamo looks
    pytest.mark.filterwarnings("ignore:While compiling, we found certain side effects"),  # strict export
]

B, T, D, H = 3, 6, 2, 5


@recurrent("h", "c")
class Own(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.d_in, self.d_out, self.dt = D, H, 0.3
        self.W = nn.Linear(D + H, 2 * H)
        self.a = nn.Parameter(torch.rand(H))

    def step(self, u: Tensor, state: tuple[Tensor, Tensor]) -> tuple[Tensor, tuple[Tensor, Tensor]]:
        h, c = state
        a, b = self.W(torch.cat([u, h], -1)).chunk(2, -1)
        c = (1 - self.dt) * c + self.dt * torch.where(a > 0, torch.tanh(b), self.a * F.softplus(a))
        return h + c, (torch.sigmoid(c) * a, c)


LAYERS: dict[str, Callable[[], nn.Module]] = {
    "own": Own,
    "LSTM": lambda: LSTM(D, H),
    "LSTM with time steps": lambda: LSTM(D, H, dt=0.3, dt_version=2),
    "LSTM with dropout": lambda: LSTM(D, H, state_dropout=0.3),
    "GRU": lambda: GRU(D, H),
    "TanhRNN": lambda: TanhRNN(D, H),
    "BiLSTM": lambda: BiLSTM(D, H),
    "TruncatedLSTM": lambda: TruncatedLSTM(D, H, last=5),
    "LipschitzRNN": lambda: LipschitzRNN(D, H, dt=0.1, method="rk2"),
    "NoisyRNN": lambda: NoisyRNN(D, H, dt=0.1, mult_noise=0.1, add_noise=0.1),
    "AntisymmetricRNN": lambda: AntisymmetricRNN(D, H, epsilon=0.1, gamma=0.1),
    "gated AntisymmetricRNN": lambda: AntisymmetricRNN(D, H, epsilon=0.1, gamma=0.1, gated=True),
    "IndRNN": lambda: IndRNN(D, H, n_layers=2, bound=1.1),
    "FastRNN": lambda: FastRNN(D, H),
    "FastGRNN": lambda: FastGRNN(D, H),
    "ExpRNN": lambda: ExpRNN(D, H),
}


@pytest.fixture(autouse=True)
def fresh():
    needs_compiler()
    torch._dynamo.reset()
    with backends.running("auto"):
        yield


def made(name: str) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[name]()


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def results(call: Callable[[Tensor], Any], layer: nn.Module, u: Tensor) -> list[Tensor]:
    """Outputs, last states, and gradients of the input and all parameters; random numbers from one seed."""
    torch.manual_seed(1)
    u = u.clone().requires_grad_()
    outputs = list(leaves(call(u)))
    wrt = [u, *(p for _, p in sorted(layer.named_parameters()))]
    return [*outputs, *torch.autograd.grad(sum(x.square().sum() for x in outputs), wrt)]


@pytest.mark.parametrize("name", variants(["own", "NoisyRNN"], LAYERS))
def test_one_graph_of_a_layer_equals_eager(name: str) -> None:
    layer = made(name)
    whole = torch.compile(layer, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((B, 2 * T, D), (7, 30, D)):
        with backends.running("auto"):
            compiled = results(whole, layer, draw(*shape))
            assert backends.ran() == ("native",)
        torch.testing.assert_close(compiled, results(layer, layer, draw(*shape)), rtol=1e-4, atol=1e-5)
    with torch.no_grad():
        layer.eval()
        torch.testing.assert_close(whole(draw(1, 9, D)), layer(draw(1, 9, D)))


FEW = ("own", "LSTM", "NoisyRNN", "TruncatedLSTM")


@pytest.mark.parametrize(
    ("name", "strict"), variants([(name, False) for name in FEW], itertools.product(LAYERS, (False, True)))
)
def test_an_exported_layer_takes_any_size_and_can_be_trained(name: str, strict: bool) -> None:
    layer = made(name).eval()
    any_size = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    program = torch.export.export(layer, (draw(B, 2 * T, D),), dynamic_shapes=(any_size,), strict=strict)
    assert "physml.cell.default" in {str(node.target) for node in program.graph.nodes}
    loaded = program.module()
    for shape in ((B, 2 * T, D), (7, 30, D)):
        want = results(layer, layer, draw(*shape))
        torch.testing.assert_close(results(loaded, loaded, draw(*shape)), want, rtol=1e-4, atol=1e-5)


def arguments(dtype: torch.dtype, backend: str) -> tuple[Any, ...]:
    """Those of an operator for a leaky tanh layer."""
    outline = "2 input 0;5 linear 0 0;5 state 0;5 linear 2 1;5 add 1 3;5 tanh 4;5 number 0;5 mul 5 6|7 7|0 0"
    shapes = [(B, T, D), (B, H), (H, D), (H, H)]
    return outline, [draw(*shape).to(dtype).requires_grad_() for shape in shapes], [True], [0.9], backend


# bfloat16 isn't computed in C, but by torch
@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_operators_keep_what_their_schemas_promise(dtype: torch.dtype) -> None:
    operands = arguments(dtype, "auto")
    torch.library.opcheck(OPERATOR.whole, operands)
    static = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(OPERATOR.kept, operands, test_utils=static)
    outline, tensors, *rest = operands
    detached = outline, [x.detach() for x in tensors], *rest
    path, h, *kept = OPERATOR.kept(*detached)
    for incoming, needs in (([path, h], [True] * 4), ([path, None], [False, False, False, True])):
        backward = (incoming, kept, needs, *detached)
        torch.library.opcheck(OPERATOR.back, backward, test_utils=("test_schema", "test_faketensor"))


def test_an_operator_equals_a_loop_in_double_precision() -> None:
    _, (u, h, V, W), *_ = operands = arguments(torch.float64, "native")
    outputs = OPERATOR.whole(*operands)
    path = []
    for t in range(T):
        h = 0.9 * torch.tanh(u[:, t] @ V.T + h @ W.T)
        path.append(h)
    torch.testing.assert_close(outputs, [torch.stack(path), h])
    slopes = [
        torch.autograd.grad(path.square().sum() + last.sum(), operands[1])
        for path, last in (outputs, (torch.stack(path), h))
    ]
    torch.testing.assert_close(*slopes)


def test_an_operator_asked_for_what_cannot_be_says_why() -> None:
    with pytest.raises(InputError, match=r"a cell with backend='native': .*bfloat16.* Use backend='auto'"):
        OPERATOR.whole(*arguments(torch.bfloat16, "native"))
    operands = arguments(torch.float64, "auto")
    out, says = OPERATOR.whole(*operands)[0].sum(), "create_graph=True needs second derivatives"
    refuses(InputError, says, torch.autograd.grad, out, operands[1], create_graph=True)


def test_a_step_that_draws_numbers_stays_outside(caplog: pytest.LogCaptureFixture) -> None:
    def drawing(u: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, tuple[Tensor]]:
        h = torch.tanh(u + state[0]) + torch.rand(B, H)
        return h, (h,)

    def call(u: Tensor) -> Tensor:
        return recurrence(drawing, u, (torch.zeros(B, H),))[0]

    u = draw(B, T, H)
    with caplog.at_level(logging.WARNING):
        torch.manual_seed(0)
        output = torch.compile(call, backend="aot_eager")(u)
    assert "it draws random numbers" in caplog.text
    torch.manual_seed(0)
    torch.testing.assert_close(output, call(u))
    torch._dynamo.reset()
    with pytest.raises(torch._dynamo.exc.Unsupported, match="For fullgraph=True set backend='reference'"):
        torch.compile(call, backend="aot_eager", fullgraph=True)(u)


@pytest.mark.parametrize("name", ["normed_lstm", "unitary"])
def test_sums_and_choices_of_units_in_a_whole_graph(name: str):
    cell = cells.made(name, 2, 6)
    u, state = cells.given(cell, 3, 9, 2)
    compiled = torch.compile(lambda u, s: recurrence(cell.step, u, s), fullgraph=True, backend="aot_eager")
    (y, _), (expected, _) = compiled(u, state), recurrence(cell.step, u, state, backend="reference")
    assert cells.distance(expected, y) < 1e-12
    for x in zip(*(torch.autograd.grad(z.sum(), cell.parameters) for z in (expected, y)), strict=True):
        assert cells.distance(*x) < 1e-12
