"""The compiler of cells against the plain loop."""

import logging
import operator
from functools import partial
from itertools import product

import cells
import pytest
import torch
from cells import CELLS, FUNCTIONS, compare, given, made, near, of_each_function, pair, results
from refusals import refuses
from torch import nn
from torch.nn import functional as F
from variants import variants

from physml.base.errors import InputError
from physml.models.sequence.fastrnn import FastRNN
from physml.models.sequence.rnn import SequenceModel
from physml.ops import backend as backends
from physml.ops.cell import native, recurrence, recurrent
from physml.ops.cell.rows import NotExpressible
from physml.ops.cell.words import trace

SIZES = [(1, 1, 1, 1), (3, 5, 2, 4), (37, 9, 3, 17), (5, 70, 1, 16), (33, 4, 20, 33)]  # B, T, D, H
CELLS_AND_SIZES = variants(
    [
        *((name, SIZES[i % len(SIZES)]) for i, name in enumerate(CELLS)),
        *(("lstm", size) for size in SIZES),
        ("lem", (3, 3000, 1, 8)),  # over many blocks
    ],
    product(CELLS, SIZES),
)


pytestmark = pytest.mark.usefixtures("fresh")


@pytest.mark.parametrize(("name", "size"), CELLS_AND_SIZES)
def test_outputs_and_gradients_are_those_of_the_loop(name, size):
    """Without gradients outputs have the same bits."""
    B, T, D, H = size
    cell = made(name, D, H)
    u, state = given(cell, B, T, D)
    kept = compare(cell, cell, u, state, "native", 1e-11)
    with torch.no_grad():
        path, last = recurrence(cell.step, u, state, backend="native")
    assert all(map(torch.equal, (path, *last), kept))


@pytest.mark.parametrize("name", variants(["lstm", "lem", "midpoint", "two_sizes"], CELLS))
def test_float32_is_near_float64(name):
    single, exact = pair(name, 2, 20)
    compare(single, exact, *given(single, 6, 30, 2, torch.float32), "native", 2e-5)


@pytest.mark.parametrize("name", ["lstm", "midpoint"])
def test_threads_change_nothing_but_rounding(name, monkeypatch):
    monkeypatch.setattr(native, "MIN_WORK", 0)
    cell = made(name, 2, 12)
    u, state = given(cell, 50, 20, 2)
    wrt = [*cell.parameters, *state, u]
    serial = results(cell.step, u, state, wrt, "native")
    torch.set_num_threads(3)
    near(results(cell.step, u, state, wrt, "native"), serial, 1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("positive", [False, True])
def test_functions_of_one_number(dtype, positive):
    """Without the kinks at whole numbers. torch's own hardsigmoid has 1/6 in float32."""
    for name, error in cells.errors_of_functions(positive, 4000, dtype, "native").items():
        assert error < (4e-6 if dtype == torch.float32 else 1e-7 if name == "hardsigmoid" else 1e-12), name


def test_series_are_exact_to_the_last_digits():
    """Also far out, where the ways to compute them change, and at what is no number."""
    x = torch.cat([torch.linspace(-100, 100, 20001), torch.logspace(-37, 37, 1001), torch.tensor([0, 1e5])])
    x = torch.cat([x, torch.tensor([float("inf"), float("-inf"), float("nan")])])[None]
    for name, y in of_each_function(x, ["log", "exp", "softplus", "sin", "cos"]).items():
        exact = FUNCTIONS[name](x.double()).float()
        normal = exact.isfinite() & (exact.abs() > 1e-37)
        error = (y - exact).abs()[normal] / (exact.abs()[normal] + (1e-6 if name in ("sin", "cos") else 0))
        assert error.max() < 1e-6, name
        assert torch.equal(y.isnan(), exact.isnan()), name
        assert torch.equal(y[~exact.isfinite()].nan_to_num(), exact[~exact.isfinite()].nan_to_num()), name


NAN = float("nan")
ODD = {
    "clamp to no number": lambda x: x.clamp(-1, NAN),
    "maximum": lambda x: torch.maximum(torch.zeros(4), x),
    "minimum": lambda x: torch.minimum(x, torch.tensor([NAN, 1.0, 1.0, NAN])),
    "division by -0.0": lambda x: x / -0.0,
    "division by 0": lambda x: x / 0,
    "comparisons": lambda x: torch.where(x >= 0, 1.0, 0.0 * x) + torch.where(x <= 0, 2.0, 1.0),
}


@pytest.mark.parametrize("name", ODD)
def test_no_number_and_negative_zero_are_those_of_the_loop(name):
    u = torch.tensor([[[NAN, 1.0, -0.0, 0.0]]])
    by_loop, in_c = (
        recurrence(lambda x, state: (ODD[name](x), state), u, (torch.zeros(1, 4),), backend=backend)[0]
        for backend in ("reference", "native")
    )
    torch.testing.assert_close(in_c, by_loop, equal_nan=True, rtol=0, atol=0)


KINKS = {
    "clamp": lambda x: x.clamp(-1, 1),
    "clamp to a tensor": lambda x: x.clamp(torch.zeros(7).double(), torch.ones(7).double()),
    "clamp_min": lambda x: x.clamp_min(0),
    "clamp_max": lambda x: torch.clamp_max(x, 0),
    "elu": F.elu,
    "hardtanh": F.hardtanh,
    "hardsigmoid": F.hardsigmoid,
    "leaky_relu": F.leaky_relu,
    "relu": F.relu,
    "|x|^1.5": lambda x: x.abs() ** 1.5,
    "relu(x)^2.5": lambda x: F.relu(x) ** 2.5,
    **{f"x^{p}": lambda x, p=p: x**p for p in (0, 1, 2, 3, 9, 10.0, 64, -1, -9)},
}


@pytest.mark.parametrize("name", KINKS)
def test_values_and_slopes_on_kinks_and_bounds_are_those_of_torch(name):
    x = torch.tensor([[[-3.0, -1.0, -0.5, -0.0, 0.0, 1.0, 3.0]]], dtype=torch.float64)
    if "-" in name:
        x = x.where(x != 0, 2)

    def slope(backend):
        u = x.clone().requires_grad_()
        y, _ = recurrence(
            lambda u, state: (KINKS[name](u), state), u, (torch.zeros(1, 1).double(),), backend=backend
        )
        return y, *torch.autograd.grad(y.nan_to_num().sum(), u)

    torch.testing.assert_close(slope("native"), slope("reference"), equal_nan=True, rtol=1e-7, atol=0)


def test_a_constant_row_is_another_for_each_width():
    """As operand of a product, as a part of rows that are joined, and as a new state."""
    V, W = nn.Parameter(torch.randn(4, 16).double()), nn.Parameter(torch.randn(4, 8).double())

    def step(u, state):
        h, g, reset = state
        h = torch.maximum(h, torch.zeros_like(h)) * (torch.ones_like(h) - 0.3) + u
        g = torch.tanh(F.linear(torch.cat([g, torch.ones_like(g)], 1), V) @ W + torch.ones_like(reset)[:, :1])
        return F.linear(torch.ones_like(g), W) + h, (h, g, torch.zeros_like(reset))

    u = torch.randn(3, 12, 4, dtype=torch.float64, requires_grad=True)
    state = tuple(torch.randn(3, n).double() for n in (4, 8, 2))
    near(*(results(step, u, state, [u, V, W], backend) for backend in ("native", "reference")), 1e-12)


def test_mistakes_in_a_step_show_at_their_place_and_parts_of_a_whole_are_refused_as_by_torch() -> None:
    def step(u, state):
        return torch.cat(u.split([2, 2], 1), 1), state

    refuses(RuntimeError, "split", recurrence, step, torch.randn(2, 50, 6), (torch.zeros(2, 1),))

    def wrong(u, state):
        return undefined_name(u), state  # noqa: F821

    refuses(NameError, "undefined_name", recurrence, wrong, torch.randn(2, 5, 2), (torch.zeros(2, 2),))


def test_several_inputs_masks_and_more_operands_than_orders_that_are_tried() -> None:
    leaves = cells.masks(torch.float64)
    near(cells.with_masks("native", *leaves), cells.with_masks("reference", *leaves), 1e-12)
    n = 8
    W = [nn.Parameter(torch.randn(2, 2).double()) for _ in range(n)]

    def step(u, state):
        pairs = [torch.tanh(state[k] @ W[k] + state[(k + 3) % n] @ W[k]) for k in range(n)]
        return sum(pairs[1:], pairs[0]) + u, tuple(pairs)

    u = torch.randn(3, 5, 2).double()
    state = tuple(torch.randn(3, 2).double() for _ in range(n))
    near(*(results(step, u, state, W, backend) for backend in ("native", "reference")), 1e-12)


def test_what_lies_beyond_a_row_does_not_spoil_it():
    """1 / h is infinite where a row of 3 units is filled up with zeros."""
    W = nn.Parameter(torch.eye(3).double())

    def step(u, state):
        h = 1 / (state[0] @ W + u)
        return h, (1 / h,)

    u, state = torch.rand(2, 4, 3).double() + 1, (torch.ones(2, 3).double(),)
    values = results(step, u, state, [W], "native")
    assert all(x.isfinite().all() for x in values)
    near(values, results(step, u, state, [W], "reference"), 1e-12)


def test_one_source_serves_all_sizes_and_numbers():
    def source(H, dt):
        W = nn.Parameter(torch.randn(H, H))

        def step(u, state):
            h = state[0] + dt * torch.tanh(F.linear(state[0], W) + u)
            return h, (h,)

        compiled, _ = native.compiled(step, [torch.randn(2, 3, H)], [torch.zeros(2, H)])
        return compiled.program.code.text

    assert source(4, 0.1) == source(19, 0.25)


# Steps h -> f(u, h) that the compiler cannot take, and what it says of them.
REFUSED = {
    "sorts": (lambda u, h: torch.sort(u + h)[0], "it uses sort"),
    "draws": (lambda u, h: u + torch.randn(()), "random numbers"),
    "adds_in_place": (lambda u, h: operator.iadd(torch.tanh(u), h), "in place"),
    "calls_in_place": (lambda u, h: torch.tanh(u).mul_(2), "in place"),
    "activates_in_place": (lambda u, h: F.relu(u, inplace=True) + h, "in place"),
    "writes_elsewhere": (lambda u, h: torch.tanh(u, out=torch.empty(4, 4)) + h, "tanh in a way"),
    "bends_softplus": (lambda u, h: F.softplus(u, threshold=1) + h, "threshold 1"),
    "branches": (lambda u, h: u if u.sum() > 0 else h, "it uses sum with dim=None, keepdim=False"),
    "sums_without_the_axis": (
        lambda u, h: u + h.sum(1)[:, None],
        "dim=1, keepdim=False; the compiler knows dim=1, keepdim=True",
    ),
    "adds_an_axis": (lambda u, h: (u[:, None] + h[:, None])[:, 0], "adds an axis to rows"),
    "takes_units_by_a_mask": (
        lambda u, h: torch.tanh(u)[:, [True, False, True, False]] + h[:, :2],
        "takes a part of a row other than by",
    ),
    "counts_deviations_of_the_batch": (lambda u, h: u - u.mean(0, True) + h, "it uses mean with dim=0"),
    "norms_wide_rows": (
        lambda u, h: F.layer_norm(F.linear(u, torch.ones(300, 4)), (300,))[:, :4] + h,
        "norms 300 units; beyond 256 the loop is faster",
    ),
    "multiplies_rows": (lambda u, h: u @ h.t(), "it uses t,"),
    "compares_for_equality": (lambda u, h: torch.tanh(u) * (u != 0) + h, "it uses ne,"),
    "turns_gradients_off": (torch.no_grad()(lambda u, h: torch.tanh(u + h)), "turns gradients off"),
}


def step_of(name):
    def step(u, state):
        h = REFUSED[name][0](u, state[0])
        return h, ((h,) if h.shape == state[0].shape else state)

    step.__qualname__ = name
    return step


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_compiled_is_said_once_and_runs_as_a_loop(name, caplog):
    step, (_, reason) = step_of(name), REFUSED[name]
    u, state = torch.randn(4, 5, 4), (torch.zeros(4, 4),)
    torch.manual_seed(0)
    with caplog.at_level(logging.WARNING, "physml"):
        output = recurrence(step, u, state)[0]
        recurrence(step, u, state)
    assert [reason in r.getMessage() for r in caplog.records] == [True]
    assert name in caplog.text
    torch.manual_seed(0)
    assert torch.equal(output, recurrence(step, u, state, backend="reference")[0])
    refuses(InputError, reason, recurrence, step, u, state, backend="native")


def test_a_weight_of_another_dtype_and_a_number_beyond_64_bits_are_refused() -> None:
    def scales(u, state):
        return u * 10**40, state

    u, state = torch.randn(4, 5, 4), (torch.zeros(4, 4),)
    with pytest.raises(OverflowError):
        recurrence(scales, u, state)
    refuses(InputError, "a whole number of more than 64 bits", recurrence, scales, u, state, backend="native")
    W = nn.Parameter(torch.randn(3, 3))

    def step(u, state):
        h = F.linear(state[0], W) + u
        return h, (h,)

    with pytest.raises(InputError, match="mixes torch"):
        recurrence(step, torch.zeros(2, 5, 3).double(), (torch.zeros(2, 3).double(),), backend="native")


def test_random_numbers_are_seen_on_any_device():
    before = torch.get_rng_state()
    with pytest.raises(NotExpressible, match="random numbers"):
        trace(step_of("draws"), 2, torch.empty(0, device="meta"), [3], [3])
    assert torch.equal(before, torch.get_rng_state())


@pytest.mark.parametrize(
    ("u", "state", "words"),
    [((2, 5), (2, 3), r"\(B, T, D\)"), ((2, 5, 3), (1, 3), "B = 2"), ((2, 5, 3), (2, 5, 3), r"\(B, H\)")],
)
def test_wrong_shapes(u, state, words):
    with pytest.raises(InputError, match=words):
        recurrence(step_of("adds_in_place"), torch.zeros(u), (torch.zeros(state),), backend="native")


@pytest.mark.parametrize(
    ("step", "what"),
    [(lambda u, state: u, "got a tensor"), (lambda u, state: (u, (u, u)), "a tuple of 1; got 2 states")],
)
def test_a_step_that_returns_something_else(step, what):
    for backend in ("auto", "reference"):
        with pytest.raises(InputError, match=what):
            recurrence(step, torch.zeros(2, 50, 3), (torch.zeros(2, 3),), backend=backend)


@recurrent("y", memory="d_memory")
class Own(nn.Module):
    def __init__(self, d_in, d_hidden, d_memory):
        super().__init__()
        self.d_in, self.d_out, self.d_memory = d_in, d_hidden, d_memory
        self.V, self.W = nn.Linear(d_in, d_hidden), nn.Linear(d_memory, d_hidden)
        self.M = nn.Linear(d_hidden, d_memory)

    def step(self, u, state):
        y, memory = state
        y = torch.tanh(self.V(u) + self.W(memory))
        memory = 0.9 * memory + 0.1 * self.M(y)
        return y, (y, memory)


def test_a_layer_and_a_network_of_one_step():
    layer = Own(2, 6, 3)
    u = torch.randn(4, 10, 2)
    output, state = layer(u)
    assert output.shape == (4, 10, 6)
    assert [x.shape for x in state] == [(4, 6), (4, 3)]
    assert backends.ran() == ("native",)
    begin, between = layer(u[:, :4])
    assert torch.allclose(torch.cat([begin, layer(u[:, 4:], between)[0]], 1), output, atol=1e-6)
    before = None
    for n in range(10):
        y, before = layer.step(u[:, n], before)
        assert torch.allclose(y, output[:, n], atol=1e-6)
    assert all(torch.allclose(x, z, atol=1e-6) for x, z in zip(before, state, strict=True))
    refuses(InputError, "u must have shape", layer.step, u[:, 0, :1])
    with torch.no_grad():
        layer.V.weight.mul_(2)
    changed = layer(u)[0]  # weights are read anew
    assert not torch.equal(changed, output)
    layer.backend = "reference"
    assert torch.allclose(layer(u)[0], changed, atol=1e-6)
    refuses(InputError, r"tuple \(y, memory\) of shapes \(B, 6\), \(B, 3\)", layer, u, (between[0],))
    u = torch.randn(4, 3, 2)
    net = SequenceModel(partial(FastRNN, d_hidden=4), d_in=2, d_out=3, readout="every", tokens=False).eval()
    assert torch.allclose(net.step(u[:, 0])[0], net(u)[0][:, 0], atol=1e-6)


def test_a_layer_without_a_step_or_without_names():
    refuses(InputError, "names of the states", recurrent)
    refuses(InputError, r'@recurrent\("y"\), not @recurrent', recurrent, nn.Linear)
    nameless = recurrent("y")(type("Nameless", (nn.Module,), {"step": lambda self, u, state: (u, state)}))()
    refuses(InputError, "Nameless needs an integer attribute d_in; got None", nameless, torch.zeros(1, 2, 3))
    refuses(InputError, "u must be a tensor; got ndarray", FastRNN(3, 4), torch.zeros(1, 2, 3).numpy())
    refuses(InputError, "needs a method step", recurrent("y"), nn.Linear)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize(
    ("new", "says"),
    [
        (lambda y: (y[:, :2],), "state 0 had 4 units and has 2"),
        (lambda y: (torch.cat([y, y], 1),), "state 0 had 4 units and has 8"),
        (lambda y: (y.sum(1, keepdim=True),), "state 0 had 4 units and has 1"),
        (lambda y: y, "the state a tuple of 1; got a state that is a tensor"),
        (lambda y: (y, y), "the state a tuple of 1; got 2 states"),
        (lambda y: None, "got a state that is NoneType"),
    ],
)
def test_a_step_that_returns_other_states_than_it_got_is_refused(new, says, backend: str) -> None:
    def step(u, state):
        y = torch.tanh(u + state[0])
        return y, new(y)

    refuses(InputError, says, recurrence, step, torch.zeros(8, 40, 4), (torch.zeros(8, 4),), backend=backend)


def test_kernels_for_a_gpu_are_refused_here_and_a_run_that_prefers_them_gets_c(caplog):
    cell = made("tanh", 2, 4, torch.float32)
    u, state = given(cell, 2, 5, 2, torch.float32)
    with pytest.raises(InputError, match="runs on a GPU; got a tensor on cpu"):
        recurrence(cell.step, u, state, backend="triton")
    with backends.running("triton"), caplog.at_level(logging.WARNING, "physml"):
        recurrence(cell.step, u, state)
        assert backends.ran() == ("native",)
    assert ["runs on a GPU" in r.getMessage() for r in caplog.records] == [True]
    assert "GPU" not in str(native.refusal(u))
    assert native.refusal(u.to("meta")) == "native code runs on a CPU; got a tensor on meta"


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_the_loop_runs(caplog):
    W = torch.randn(3, 3, requires_grad=True)

    def step(u, state):
        h = torch.tanh(state[0] @ W + u - 0.123)
        return h, (h,)

    with caplog.at_level(logging.WARNING, "physml"):
        recurrence(step, torch.randn(2, 5, 3), (torch.zeros(2, 3),))
    assert backends.ran() == ("reference",)
    assert "no C compiler: CC=/nonexistent" in caplog.text
