"""Graphs with a loop over time: the same numbers as the network, at lengths other than the exported one."""

from types import SimpleNamespace
from typing import Any

import pytest
import torch
from refusals import refuses
from torch import Tensor, nn
from variants import variants

from physml import LEM, ExpRNN, IndRNN, UnICORNN
from physml.base.errors import InputError
from physml.config import build
from physml.config.compose import compose
from physml.config.resolve import resolve
from physml.export import formats, program
from physml.export.program import Inputs, example, greatest_difference, traced
from physml.listing import inventory
from physml.models.sequence.rnn import SequenceModel
from physml.run.weights import About

ROUNDING = 2e-6  # of float32, over 17 steps of networks whose outputs are about 1

ABOUT = About(config={}, identity="0a1b2c3d", sizes={}, vectors=None, n_numbers=0)


def network(model: str, *overrides: str, **sizes: Any) -> nn.Module:
    """As a run builds it, in evaluation mode."""
    torch.manual_seed(0)
    parts = build.parts_of(compose([f"model={model}", "profile=smoke", "task=adding", *overrides]).config)
    task = {"d_in": 2, "d_out": 3, "readout": "last", "tokens": False, "vectors": None} | sizes
    return build.build_net(parts, SimpleNamespace(**task)).eval()


# These read a sequence as a whole, or none.
WHOLE = ("bilstm", "ncde", "nrde", "continuous_depth", "koopman")


def recurrent() -> list[str]:
    """The models of conf/ that carry a state from step to step."""
    layers = {entry.name: resolve(entry.target) for entry in inventory.models() if entry.target}
    return sorted(
        name for name, cls in layers.items() if not build.passes_messages(cls) and name not in WHOLE
    )


COMMON = ("lem", "unicornn", "gru")  # the others with --grid
OF_EACH_KIND = (*COMMON, "lstm", "exprnn", "linoss", "s4d", "skip_lstm", "full_urnn", "slstm", "nais")


@pytest.mark.parametrize("model", variants(OF_EACH_KIND, recurrent()))
def test_a_program_has_the_same_numbers_at_other_lengths(model: str) -> None:
    assert run(network(model)) < ROUNDING


@pytest.mark.parametrize("model", variants(COMMON, recurrent()))
def test_an_onnx_graph_is_a_scan_of_the_same_numbers(model: str, tmp_path: Any) -> None:
    packages = ("onnx", "onnxruntime", "onnxscript")
    onnx, *_ = (pytest.importorskip(package, reason="needs the extra onnx") for package in packages)
    net, path = network(model), tmp_path / "it.onnx"
    assert formats.write_onnx(net, ABOUT, path, lengths=False) < ROUNDING
    graph = onnx.load(path).graph
    assert [node.op_type for node in graph.node].count("Scan") >= 1
    assert [d.dim_param for d in graph.input[0].type.tensor_type.shape.dim] == ["batch", "time", ""]
    assert longer(net, path) < ROUNDING
    content = path.read_bytes()
    assert b"physml/export" not in content and str(tmp_path).encode() not in content, "of this machine"


def longer(net: nn.Module, path: Any) -> float:
    """The greatest difference at a length that no check of the export has."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    x = torch.randn(5, 41, 2)
    (output,) = session.run(None, {"input": x.numpy()})
    return greatest(torch.from_numpy(output), net(x)[0])


def greatest(outputs: Tensor, want: Tensor) -> float:
    return float((outputs - want).abs().max().detach())


def run(net: nn.Module, **options: bool) -> float:
    ran = traced(net, **options).module()
    return greatest_difference(net, lambda inputs: ran(*inputs), lengths=options.get("lengths", False))


def test_true_lengths_of_padded_sequences_are_an_input() -> None:
    net = network("lem")
    assert run(net, lengths=True) < ROUNDING
    ran = traced(net, lengths=True).module()
    x = torch.randn(2, 9, 2)
    short = ran(x, torch.tensor([4, 9]))
    assert torch.allclose(short[:1], net(x[:1, :4])[0], atol=1e-6)
    assert not torch.allclose(short[:1], net(x[:1])[0], atol=1e-3)


@pytest.mark.parametrize(
    ("overrides", "sizes"),
    [
        (["net.embedding=5", "net.n_layers=2", "net.encoder=3"], {"tokens": True, "d_in": 11}),
        (["net.encoder=3"], {"readout": "every"}),
    ],
    ids=["ids-and-two-layers", "an-answer-per-step"],
)
def test_networks_of_other_tasks(overrides: list[str], sizes: dict[str, Any]) -> None:
    assert run(network("cornn", *overrides, **sizes)) < ROUNDING


def test_what_has_no_loop_over_time_says_so_in_one_line() -> None:
    for model, name in {"bilstm": "BiLSTM", "nrde": "NeuralRDE"}.items():
        refuses(InputError, rf"{name} cannot go on from a state.*--to safetensors", traced, network(model))
    refuses(InputError, r"works on graphs, .* Export it with --to safetensors\.", traced, nn.Linear(2, 2))
    with pytest.raises(InputError, match="lengths are for a network that reads the last true step"):
        traced(network("lem", readout="every"), lengths=True)


class FromOne(nn.Module):
    """A layer that starts at 1, not at 0, where its state is None."""

    d_out = 2

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.tensor(0.5))

    def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor]]:
        path = [torch.ones(u.shape[0], 2) if state is None else state[0]]
        for x in u.unbind(1):
            path.append(self.w * path[-1] + x)
        return torch.stack(path[1:], 1), (path[-1],)


class Sideways(FromOne):
    """Its state is not batch first."""

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        path, (h,) = super().forward(u, None if state is None else (state[0][0],))
        return path, (h[None],)


@pytest.mark.parametrize(
    ("layer", "message"),
    [
        (FromOne, "the exported network answers"),
        (Sideways, r"the state of Sideways must be tensors \(B, H\)"),
    ],
)
def test_layers_of_ones_own_that_do_not_fit_are_refused(layer: type[nn.Module], message: str) -> None:
    refuses(InputError, message, run, SequenceModel(lambda d: layer(), 2, 3, "last", False).eval())


class Echo(FromOne):
    """Without parameters: adds up what it reads."""

    def __init__(self) -> None:
        nn.Module.__init__(self)
        self.w = 0.5  # type: ignore[assignment]

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        return super().forward(u, (torch.zeros(u.shape[0], 2),) if state is None else state)


def test_all_recurrent_models_are_found_and_a_layer_without_parameters_is_exported() -> None:
    assert {"lem", "cornn", "unicornn", "lstm", "gru", "exprnn", "lipschitz", "indrnn"} <= set(recurrent())
    assert len(recurrent()) == 42
    assert run(SequenceModel(lambda d: Echo(), 2, 3, "last", False).eval()) < ROUNDING


def test_matrices_are_made_once_and_units_stay_bounded() -> None:
    """matrix_exp is in no step, and the clamp of IndRNN, which looks at values, in no graph."""
    for layer in (ExpRNN(2, 4), IndRNN(2, 4, n_layers=2, bound=1.1)):
        net = SequenceModel(lambda d, layer=layer: layer, 2, 3, "last", False).eval()  # type: ignore[misc]
        exported = traced(net)
        assert "matrix_exp" not in str([module.graph for module in exported.graph_module.modules()])  # type: ignore
        ran = exported.module()
        # Units that grow by 1.1 a step end anywhere up to 20: it raises beyond the limit relative to them.
        greatest_difference(net, lambda inputs, ran=ran: ran(*inputs), lengths=False)  # type: ignore[misc]


def test_examples_are_inside_what_the_network_takes() -> None:
    net = network("lem", "net.embedding=5", tokens=True, d_in=4)
    ids, lengths = example(net, 3, 17, lengths=True)  # type: ignore[arg-type]
    assert ids.dtype == torch.long and 0 <= int(ids.min()) <= int(ids.max()) < 4
    assert 1 <= int(lengths.min()) <= int(lengths.max()) <= 17
    assert len({steps for _, steps in program.SHAPES}) == len(program.SHAPES) == 3  # other than of the export


def rows(layer: nn.Module) -> tuple[Tensor, Inputs]:
    torch.manual_seed(1)
    x = torch.randn(3, 6, 2)
    return layer(x)[0].detach(), (x,)


@pytest.mark.parametrize("layer", [LEM, UnICORNN, ExpRNN], ids=lambda layer: layer.__name__)
def test_torch_export_takes_a_layer_with_backend_auto(layer: type[nn.Module]) -> None:
    module = layer(2, 4).eval()
    want, inputs = rows(module)
    assert greatest(torch.export.export(module, inputs).module()(*inputs)[0], want) < ROUNDING


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # dynamo looks there
def test_torch_compile_takes_a_layer_whole_and_unrolls_a_cell_for_two_steps() -> None:
    for layer, steps in ((LEM(2, 4), 6), (LEM(2, 4, backend="reference"), 6), (ExpRNN(2, 4), 2)):
        torch._dynamo.reset()
        want, (x,) = rows(layer)
        outputs = torch.compile(layer, backend="eager", fullgraph=True)(x[:, :steps])[0]
        assert greatest(outputs, want[:, :steps]) < ROUNDING
        outputs.sum().backward()
        weight = next(layer.parameters())
        assert weight.grad is not None and torch.isfinite(weight.grad).all()


@pytest.mark.parametrize("backend", ["auto", "torch"])
def test_an_exported_file_needs_no_operator_of_physml(backend: str) -> None:
    names = [
        str(node.target)
        for m in traced(network("lem", f"model.backend={backend}")).graph_module.modules()
        for node in getattr(getattr(m, "graph", None), "nodes", ())
    ]
    assert any("scan" in name for name in names) and not any("physml" in name for name in names)
