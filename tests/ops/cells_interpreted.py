"""Compiled cells in Triton's interpreter. `test_triton.py` runs this file in a process of its own:

TRITON_INTERPRET=1 python -m pytest tests/ops/cells_interpreted.py
"""

import linecache
from copy import deepcopy
from functools import partial
from itertools import product

import cells
import pytest
import torch
from cells import CELLS, DIAGONAL, compare, double, given, made, near, pair
from refusals import refuses
from torch import nn
from variants import variants

from physml.base.errors import InputError
from physml.models.sequence.diagonal_ssm import S5
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.linoss import LinOSS
from physml.models.sequence.lru import LRU
from physml.models.sequence.min_gated import MinGRU, MinLSTM
from physml.models.sequence.sru import SRU
from physml.ops import backend as backends
from physml.ops.cell import recurrence
from physml.ops.cell import triton as gpu
from physml.ops.triton import graph

# Lanes beyond the last number compute too, and NumPy warns of their 0 / 0.
pytestmark = pytest.mark.filterwarnings("ignore:invalid value|divide by zero|overflow:RuntimeWarning")

SIZES = [(1, 1, 1, 1), (3, 5, 2, 5)]  # B, T, D, H


def in_kernels(name, B, T, D, H):
    """Results of kernels, which are near the loop in float64."""
    single, exact = pair(name, D, H)
    return compare(single, exact, *given(single, B, T, D, torch.float32), "triton", 1e-5)


@pytest.mark.parametrize(
    ("name", "size"), variants(((name, SIZES[-1]) for name in CELLS), product(CELLS, SIZES))
)
def test_outputs_and_gradients_are_those_of_the_loop(name, size):
    in_kernels(name, *size)


@pytest.mark.parametrize("name", DIAGONAL)
def test_cells_without_a_product_between_steps_are_launched_once(name, monkeypatch):
    """As many kernels and products for five steps as for three; parts of two steps of the other kernels."""
    monkeypatch.setattr(gpu, "PART", 2)
    launched = []
    for module, function in ((gpu.TritonProgram, "launch"), (gpu, "_multiply")):
        call = getattr(module, function)
        monkeypatch.setattr(module, function, lambda *x, call=call, **k: (launched.append(1), call(*x, **k)))
    in_kernels(name, 3, 5, 2, 5)
    n = len(launched)
    in_kernels(name, 3, 3, 2, 5)
    assert n == len(launched) - n > 0


LAYERS = {
    "LRU": lambda: LRU(2, 5, d_state=3, n_layers=2),
    "S5": lambda: S5(2, 6, d_state=4, n_layers=1),
    **{
        f"LinOSS {x}": partial(LinOSS, 2, 5, d_state=3, n_layers=1, scheme=x)
        for x in ("im", "imex", "damped")
    },
    "minGRU": lambda: MinGRU(2, 5),
    "minLSTM": lambda: MinLSTM(2, 5),
    "SRU": lambda: SRU(2, 5),
    "IndRNN": lambda: IndRNN(2, 5, n_layers=2),
}


@pytest.mark.parametrize("name", variants(["LRU", "LinOSS damped", "minLSTM"], LAYERS))
def test_layers_without_a_product_between_steps(name):
    torch.manual_seed(0)
    layer = LAYERS[name]()
    exact, u = deepcopy(layer).double(), torch.randn(2, 6, 2)
    runs = []
    for model, x, backend in ((layer, u, "triton"), (exact, u.double(), "reference")):
        with backends.running(backend):
            output, state = model(x.requires_grad_())
            assert backends.ran() == (backend,)
        wrt = [x, *model.parameters()]
        total = output.square().sum() + sum(x.sum() for x in state)
        runs.append([output, *state, *torch.autograd.grad(total, wrt, materialize_grads=True)])
    near(*runs, 1e-5)


@pytest.mark.parametrize("name", ["lstm", "oscillator"])
def test_blocks_of_steps_and_their_graphs_join(name, monkeypatch):
    """5 steps in blocks of 2, 2 and 1; a graph's replay is played by the launches themselves."""
    whole = in_kernels(name, 2, 5, 2, 3)
    monkeypatch.setattr(gpu, "blocks", lambda n: [(0, 2), (2, 4), (4, 5)])
    parts = in_kernels(name, 2, 5, 2, 3)
    near(parts, whole, 1e-6)
    replays = []

    def capture(launches):
        launches()
        return lambda: (replays.append(1), launches())

    monkeypatch.setattr(graph, "possible", lambda x: True)
    monkeypatch.setattr(graph, "capture", capture)
    graph.clear()
    for _ in range(2):
        for x, y in zip(in_kernels(name, 2, 5, 2, 3), parts, strict=True):
            assert (x is None and y is None) or torch.equal(x, y)
    assert len(replays) == 2 * (3 + 3)
    assert len(graph._graphs) == 2 + 2
    graph.clear()


@pytest.mark.parametrize("name", ["lem", "midpoint", "oscillator"])
def test_without_gradients_the_numbers_are_the_same(name, monkeypatch):
    monkeypatch.setattr(gpu, "blocks", lambda n: [(0, 2), (2, 3)])
    cell = made(name, 2, 4, torch.float32)
    u, state = given(cell, 2, 3, 2, torch.float32)
    kept, last = recurrence(cell.step, u, state, backend="triton")
    with torch.no_grad():
        plain, plain_last = recurrence(cell.step, u, state, backend="triton")
    assert torch.equal(kept, plain)
    assert all(torch.equal(x, y) for x, y in zip(last, plain_last, strict=True))
    assert all(x.untyped_storage().nbytes() == x.numel() * x.element_size() for x in last)


def test_several_inputs_parts_of_an_input_and_masks():
    leaves = cells.masks(torch.float32, 2, 3)
    near(cells.with_masks("triton", *leaves), cells.with_masks("reference", *double(*leaves)), 1e-5)


def test_functions_of_one_number(monkeypatch):
    monkeypatch.setattr(gpu, "scan_block", lambda *_: (256, 8))  # one program instead of eight
    for positive in (False, True):
        for name, error in cells.errors_of_functions(positive, 256, torch.float32, "triton").items():
            assert error < 4e-6, name


def test_only_the_last_state_is_used_and_strides_are_any():
    cell, exact = pair("lstm", 3, 5)
    u = torch.randn(3, 4, 2).permute(2, 1, 0)  # (2, 4, 3)
    state = tuple(torch.randn(5, 2).t() for _ in range(2))

    def gradients(cell, u, state, backend):
        output, last = recurrence(cell.step, u, state, backend=backend)
        wrt = [u, *state, *cell.parameters]
        return [
            *torch.autograd.grad(last[1].sum(), wrt, retain_graph=True),
            *torch.autograd.grad(output.transpose(1, 2)[:, ::2].sum(), wrt),
        ]

    u64, *state64 = double(u, *state)
    slopes = gradients(cell, u.requires_grad_(), tuple(x.requires_grad_() for x in state), "triton")
    near(slopes, gradients(exact, u64, tuple(state64), "reference"), 1e-5)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_half_precision_is_computed_in_full(dtype):
    half, exact = pair("gru", 2, 5, dtype)
    assert {x.dtype for x in compare(half, exact, *given(half, 2, 4, 2, dtype), "triton", 1e-2)} == {dtype}


def test_backward_runs_twice_and_refuses_a_graph_of_itself():
    cell = made("gru", 2, 4, torch.float32)
    u, state = given(cell, 2, 3, 2, torch.float32)
    output, _ = recurrence(cell.step, u, state, backend="triton")
    first, second = (torch.autograd.grad(output.sum(), [u], retain_graph=True)[0] for _ in range(2))
    assert torch.equal(first, second)
    refuses(InputError, "second derivatives", torch.autograd.grad, output.sum(), [u], create_graph=True)


def test_a_nan_stays_in_its_row():
    cell = made("two_sizes", 2, 3, torch.float32)
    u, state = given(cell, 3, 3, 2, torch.float32)
    clean, _ = recurrence(cell.step, u, state, backend="triton")
    u = u.detach().clone()
    u[1, 1] = float("nan")
    output, last = recurrence(cell.step, u, state, backend="triton")
    assert output[1, 1:].isnan().all()
    assert last[0][1].isnan().all()
    assert torch.equal(output[[0, 2]], clean[[0, 2]])


def test_a_run_may_prefer_it_and_float64_is_refused():
    cell = made("tanh", 2, 3)
    u, state = given(cell, 2, 3, 2)
    refuses(InputError, "computes in float32", recurrence, cell.step, u, state, backend="triton")
    layer = nn.Linear(2, 2)

    def step(u, state):
        h = torch.tanh(layer(u) + state[0])
        return h, (h,)

    with backends.running("triton"):
        recurrence(step, torch.randn(2, 3, 2), (torch.zeros(2, 2),))
        assert backends.ran() == ("triton",)


def test_the_source_of_kernels_is_the_text_that_was_generated():
    cell = made("tanh", 2, 3, torch.float32)
    u, state = given(cell, 2, 3, 2, torch.float32)
    compiled, _ = gpu.compiled(cell.step, [u], state)
    text = compiled.program.code.text
    assert text in ["".join(linecache.getlines(name)) for name in linecache.cache if "physml cell" in name]
