"""Recurrences in graphs of torch: torch.compile, torch.export, and what wraps networks in torch.

Axes: B batch, T time, D features, H hidden units.
"""

import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from all_ops import OPS
from c_compiler import needs_compiler
from torch import Tensor, distributed, nn
from torch.export import Dim, ExportedProgram
from torch.utils.checkpoint import checkpoint
from variants import variants

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import GRU
from physml.models.sequence.lem import LEM
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN
from physml.ops import backend as backends
from physml.ops.cornn import OP as CORNN
from physml.ops.lem import OP as LEM_OP
from physml.ops.unicornn import OP as UNICORNN

# dynamo looks there
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")

B, T, D, H = 3, 6, 2, 5
ROOT = Path(__file__).parents[2]
LAYERS: dict[str, Callable[..., nn.Module]] = {
    "LEM": lambda d, **options: LEM(d, H, **options),
    "CoRNN": lambda d, **options: CoRNN(d, H, **options),
    "UnICORNN": lambda d, **options: UnICORNN(d, H, n_layers=2, **options),
    "GRU": lambda d, **options: GRU(d, H, **options),  # a compiled cell
}
OURS = ("LEM", "CoRNN", "UnICORNN")
ARGUMENTS: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "lem": (LEM_OP, (0.5, [0.1, 0.3])),
    "cornn": (CORNN, (0.1, 1.0, 1.0, "implicit")),
    "unicornn": (UNICORNN, (0.3,)),
}


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    with backends.running("auto"):
        yield


def net(name: str, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(lambda d: LAYERS[name](d, **options), d_in=D, d_out=3, readout="every", tokens=False)


def draw(*shape: int) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(sum(shape)))


def outputs_and_gradients(call: Callable[[Tensor], Any], model: nn.Module, u: Tensor) -> list[Tensor]:
    """The outputs, and the gradients of the input and all parameters."""
    u = u.clone().requires_grad_()
    y = call(u)[0]
    y.square().sum().backward()
    tensors = [y.detach(), u.grad, *[p.grad for _, p in sorted(model.named_parameters())]]
    model.zero_grad()
    return [x for x in tensors if x is not None]


def close(call: Callable[..., Any], model: nn.Module, of: nn.Module, u: Tensor) -> None:
    """What is called, whose parameters are those of the model, gives the numbers of the other."""
    expected = outputs_and_gradients(of, of, u)
    torch.testing.assert_close(outputs_and_gradients(call, model, u), expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "backend"),
    variants([("lem", "native")], [(name, backend) for name in ARGUMENTS for backend in ("native", "torch")]),
)
def test_operators_keep_what_their_schemas_promise(name: str, backend: str) -> None:
    needs_compiler()
    op, constants = ARGUMENTS[name]
    (laws,) = (op for op in OPS if op.name == name)
    tensors = laws.arguments({"B": B, "T": T, "D": D, "H": H})
    torch.library.opcheck(op.operator.whole, (*tensors, *constants, backend))
    # What is kept has places that nothing reads or writes, so two runs of it can't be compared.
    static = ("test_schema", "test_autograd_registration", "test_faketensor")
    torch.library.opcheck(op.operator.kept, (*tensors, *constants, backend), test_utils=static)
    tensors = [x.detach() for x in tensors]
    y, z, *kept = op.operator.kept(*tensors, *constants, backend)
    for incoming in ([draw(B, T, H).double(), None, y], [None, y, z]):
        for needs in ([True] * len(tensors), [k == 3 for k in range(len(tensors))]):
            operands = (incoming, tensors, kept, needs, *constants, backend)
            torch.library.opcheck(op.operator.back, operands, test_utils=("test_schema", "test_faketensor"))


@pytest.mark.parametrize(("masked", "needs_x"), variants([(True, True)], [(False, False)]))
def test_the_operator_of_projections_equals_torch(masked: bool, needs_x: bool) -> None:
    x, V, b = draw(T, B, D).double().requires_grad_(needs_x), draw(H, D).double(), draw(H).double()
    V, b, mask = V.requires_grad_(), b.requires_grad_(), draw(B, D).double() if masked else None
    torch.library.opcheck(torch.ops.physml.project.default, (x, V, b, mask))
    asked = [x, V, b] if needs_x else [V, b]
    projected = torch.ops.physml.project(x, V, b, mask)
    want = nn.functional.linear(x if mask is None else mask * x, V, b)
    torch.testing.assert_close(projected, want)
    gradients = (torch.autograd.grad(y.square().sum(), asked) for y in (projected, want))
    torch.testing.assert_close(next(gradients), next(gradients))


@pytest.mark.parametrize(
    ("name", "backend"),
    variants([("UnICORNN", "auto")], [("LEM", "auto"), ("CoRNN", "auto"), ("LEM", "torch")]),
)
def test_one_graph_of_a_network_equals_eager(name: str, backend: str) -> None:
    needs_compiler()
    model = net(name, backend=backend)
    whole = torch.compile(model, backend="aot_eager", fullgraph=True, dynamic=True)
    for shape in ((B, T, D), (50, 300, D), (1, 9, D)):
        u = draw(*shape)
        with backends.running("auto"):
            outputs_and_gradients(whole, model, u)
            assert backends.ran() == (("native",) if backend == "auto" else ("torch",))
        close(whole, model, model, u)
    with torch.no_grad():
        torch.testing.assert_close(whole(u)[0], model(u)[0])


@pytest.mark.grid
def test_inductor_compiles_a_network_and_transforms_in_a_graph_take_the_loop() -> None:
    model = net("LEM")
    close(torch.compile(model, fullgraph=True), model, model, draw(B, T, D))

    def loss(u: Tensor) -> Tensor:
        return model(u)[0].pow(2).sum()

    u = draw(B, T, D)
    gradient = torch.compile(torch.func.grad(loss), backend="aot_eager", fullgraph=True)(u)
    torch.testing.assert_close(gradient, torch.func.grad(loss)(u))


def exported(model: nn.Module, strict: bool = False) -> ExportedProgram:
    any_size = {0: Dim.DYNAMIC, 1: Dim.DYNAMIC}
    return torch.export.export(model, (draw(B, T, D),), dynamic_shapes=(any_size,), strict=strict)


@pytest.mark.parametrize("strict", [False, pytest.param(True, marks=pytest.mark.grid)])
@pytest.mark.parametrize("name", OURS)
def test_an_exported_network_takes_any_size_and_can_be_trained(name: str, strict: bool) -> None:
    model = net(name)
    program = exported(model, strict)
    names = [str(node.target) for node in program.graph.nodes]
    assert sum(n == f"physml.{name.lower()}.default" for n in names) == (2 if name == "UnICORNN" else 1)
    loaded = program.module()
    for shape in ((B, T, D), (7, 40, D)):
        close(loaded, loaded, model, draw(*shape))


SAVED = ("LEM", "UnICORNN", "GRU")
LOAD = """
import sys, torch
from pathlib import Path
from physml import CoRNN, LEM, UnICORNN, recurrent
folder = Path(sys.argv[1])
for name in sys.argv[2:]:
    program = torch.export.load(folder / f"{name}.pt2").module()
    u, want = torch.load(folder / f"{name}.pt")
    torch.testing.assert_close(program(u)[0], want)
print("all agree")
"""


def test_a_saved_program_runs_in_another_process(tmp_path: Path) -> None:
    for name in SAVED:
        model = net(name)
        torch.export.save(exported(model), tmp_path / f"{name}.pt2")
        u = draw(4, 17, D)
        torch.save((u, model(u)[0].detach()), tmp_path / f"{name}.pt")
    command = [sys.executable, "-c", LOAD, str(tmp_path), *SAVED]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout == "all agree\n", done.stderr


def test_an_operator_refuses_what_it_has_no_derivative_for() -> None:
    program, u = exported(net("LEM")).module(), draw(B, T, D)
    with pytest.raises(InputError, match="as an operator of torch: forward-mode derivatives"):
        torch.func.jvp(lambda u: program(u)[0], (u,), (u,))
    u.requires_grad_()
    with pytest.raises(InputError, match="create_graph=True needs second derivatives"):
        torch.autograd.grad(program(u)[0].sum(), u, create_graph=True)


def test_the_backward_knows_how_many_threads_the_forward_had() -> None:
    needs_compiler()
    torch.manual_seed(0)
    model, u = LEM(8, 64), draw(96, 300, 8)
    want = outputs_and_gradients(model, model, u)
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    torch.set_num_threads(3)
    y = whole(u)[0].square().sum()
    torch.set_num_threads(1)
    gradients = torch.autograd.grad(y, [p for _, p in sorted(model.named_parameters())])
    torch.testing.assert_close(list(gradients), want[2:], rtol=1e-3, atol=1e-2)


@pytest.mark.parametrize("name", variants(["LEM"], OURS))
def test_checkpoints_in_a_graph_change_no_gradient(name: str) -> None:
    """torch.compile takes those with use_reentrant=False only."""
    model = net(name)
    checkpointed = torch.compile(
        lambda u: checkpoint(model, u, use_reentrant=False), backend="aot_eager", fullgraph=True
    )
    close(checkpointed, model, model, draw(B, T, D))


@pytest.mark.parametrize("name", variants(["UnICORNN"], OURS))
def test_under_autocast_a_graph_computes_steps_in_full_precision_too(name: str) -> None:
    model = net(name)
    whole = torch.compile(model, backend="aot_eager", fullgraph=True)
    with torch.autocast("cpu", torch.bfloat16):
        compiled, want = (outputs_and_gradients(call, model, draw(B, T, D)) for call in (whole, model))
        assert model.layers[0](draw(B, T, D))[0].dtype == torch.float32
    assert compiled[0].dtype == want[0].dtype == torch.bfloat16
    torch.testing.assert_close(compiled, want, rtol=2e-2, atol=2e-2)


@pytest.mark.skipif(not distributed.is_gloo_available(), reason="torch has no gloo here")
def test_two_processes_have_the_gradients_of_one(tmp_path: Path) -> None:
    """Data parallel, and with sharded parameters (fully_shard)."""
    script = Path(__file__).with_name("two_processes.py")
    commands = [[sys.executable, str(script), str(rank), str(tmp_path / "meet")] for rank in range(2)]
    with ThreadPoolExecutor(2) as both:
        run = partial(subprocess.run, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120)
        for done in both.map(run, commands):
            assert done.stdout == "DDP agrees\nFSDP2 agrees\n", done.stderr
