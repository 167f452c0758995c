"""`step` of LEM, coRNN and UnICORNN: the same map as `forward`, always with the weights as they are now."""

import copy
import itertools
import os
import pickle
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from c_compiler import needs_compiler
from drawn_layers import leaves
from refusals import refuses
from torch import Tensor, nn
from torch.nn.utils import parametrizations
from variants import variants
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN
from physml.ops import backend
from physml.ops.native import stepping

B, T = 3, 4
KINDS: dict[str, Callable[[int, int], nn.Module]] = {
    "lem": lambda D, H: LEM(D, H),
    "lem clipped": lambda D, H: LEM(D, H, dt=1.3, clip=(0.5, 0.8)),
    "lem without gates": lambda D, H: LEM(D, H, dt=0.6, multiscale=False),
    "lem with two biases": lambda D, H: LEM(D, H, biases=2),
    "cornn": lambda D, H: CoRNN(D, H),
    "cornn implicit": lambda D, H: CoRNN(D, H, damping="implicit"),
    "cornn trainable": lambda D, H: CoRNN(D, H, trainable=True),
    "unicornn": lambda D, H: UnICORNN(D, H, n_layers=2),
    "unicornn with a skip": lambda D, H: UnICORNN(D, H, n_layers=4, residual_skip=2),
}
# D, H, B: each alone, parts of vectors, whole ones and more, in every combination of two.
SIZES = [
    (D, H, (1, 2, 9)[(i + j) % 3]) for i, D in enumerate((1, 3, 17)) for j, H in enumerate((1, 5, 16, 33))
]
PLAIN = ("lem", "cornn", "unicornn")
# NEARBY: groups of few rows, rows with memory of their own.
WAYS = [*WIDTHS, "-DNEARBY=64"]
KINDS_AND_WIDTHS = variants(
    [*((kind, WAYS[0]) for kind in KINDS), *(("lem", flags) for flags in WAYS)],
    itertools.product(KINDS, WAYS),
)
every_kind = pytest.mark.parametrize("kind", KINDS)
every_layer = pytest.mark.parametrize("kind", PLAIN)


@pytest.fixture(autouse=True)
def compiler() -> Iterator[None]:
    needs_compiler()
    stepping.kept_function.cache_clear()
    yield
    stepping.kept_function.cache_clear()


def made(kind: str, D: int = 3, H: int = 21, dtype: torch.dtype = torch.double) -> nn.Module:
    torch.manual_seed(1)
    return KINDS[kind](D, H).to(dtype)


def inputs(*shape: int, dtype: torch.dtype = torch.double) -> Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(2), dtype=torch.double).to(dtype)


def by_steps(layer: nn.Module, u: Tensor) -> tuple[Tensor, object]:
    state, path = None, []
    for x in u.unbind(1):
        y, state = layer.step(x, state)
        path.append(y)
    return torch.stack(path, 1), state


def assert_follows(layer: nn.Module, u: Tensor) -> None:
    """Steps, and calls with one step at a time, against the plain loop over the sequence."""
    tolerance = {torch.double: 1e-12, torch.float: 1e-5}[u.dtype]
    plain = copy.deepcopy(layer)
    plain.backend = "reference"
    path, end = plain(u)
    with torch.no_grad():
        got, state = by_steps(layer, u)
        parts, carried = [], None
        for x in u.split(1, 1):
            part, carried = layer(x, carried)
            parts.append(part)
    for run in ((got, state), (torch.cat(parts, 1), carried)):
        for a, b in zip(leaves(run), leaves((path, end)), strict=True):
            torch.testing.assert_close(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize(("kind", "flags"), KINDS_AND_WIDTHS)
def test_steps_equal_the_sequence(kind: str, flags: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    for dtype, (D, H, n_batch) in itertools.product((torch.double, torch.float), SIZES):
        assert_follows(made(kind, D, H, dtype), inputs(n_batch, T, D, dtype=dtype))


@every_kind
def test_the_native_backend_did_it_and_gradients_were_not_wanted(kind: str) -> None:
    layer, u = made(kind).requires_grad_(False), inputs(B, 3)
    backend.reset()
    output, state = layer.step(u)
    assert backend.ran() == (("reference",) if kind == "cornn trainable" else ("native",))
    assert not output.requires_grad
    output.add_(1)  # belongs to the caller, not to the state
    torch.testing.assert_close(list(leaves(state)), list(leaves(layer.step(u)[1])))


def change_in_place(layer: nn.Module) -> None:
    with torch.no_grad():
        for p in layer.parameters():
            p.mul_(0.9)


def nine_tenths(layer: nn.Module) -> dict[str, Tensor]:
    return {name: 0.9 * x for name, x in layer.state_dict().items()}


def train(layer: nn.Module) -> None:
    optimizer = torch.optim.Adam(layer.parameters(), lr=0.1)
    layer(inputs(B, T, 3))[0].square().sum().backward()
    optimizer.step()


CHANGES: dict[str, Callable[[nn.Module], object]] = {
    "in place": change_in_place,
    "raising no version": lambda layer: [p.data.mul_(0.9) for p in layer.parameters()],
    "one number": lambda layer: next(layer.parameters()).data.view(-1)[-1:].add_(1),
    "replaced": lambda layer: [setattr(p, "data", p.data * 0.9) for p in layer.parameters()],
    "loaded": lambda layer: layer.load_state_dict(nine_tenths(layer)),
    "assigned": lambda layer: layer.load_state_dict(nine_tenths(layer), assign=True),
    "trained": train,
}


@every_layer
@pytest.mark.parametrize("change", CHANGES)
def test_weights_that_change_between_steps(kind: str, change: str) -> None:
    layer, u = made(kind), inputs(B, T, 3)
    with torch.no_grad():
        before, _ = by_steps(layer, u)
    CHANGES[change](layer)
    assert_follows(layer, u)
    assert not torch.allclose(by_steps(layer, u)[0], before)


@every_layer
def test_weights_in_any_layout_other_dtypes_copies_and_parametrizations(kind: str) -> None:
    layer, u = made(kind), inputs(B, T, 3)
    for p in layer.parameters():
        if p.dim() == 2:
            p.data = p.data.t().contiguous().t()
    assert_follows(layer, u)
    assert_follows(layer, inputs(T, B, 3).transpose(0, 1))
    assert_follows(layer, inputs(3, B, T).permute(1, 2, 0))
    layer, u = made(kind), inputs(B, T, 3)
    assert_follows(layer, u)
    assert_follows(layer.float(), u.float())
    assert_follows(layer.double(), u)
    twin, thawed = copy.deepcopy(layer), pickle.loads(pickle.dumps(layer))
    change_in_place(layer)
    for variant in (layer, twin, thawed):
        assert_follows(variant, u)
    parametrizations.weight_norm(layer.layers[0] if kind == "unicornn" else layer, "V")
    assert_follows(layer, u)
    change_in_place(layer)
    assert_follows(layer, u)


@every_kind
def test_gradients_through_steps(kind: str) -> None:
    layer, u = made(kind), inputs(B, T, 3).requires_grad_()
    wrt = [u, *layer.parameters()]
    got = torch.autograd.grad(by_steps(layer, u)[0].square().sum(), wrt)
    layer.backend = "reference"
    torch.testing.assert_close(got, torch.autograd.grad(layer(u)[0].square().sum(), wrt))


@every_layer
@pytest.mark.parametrize("what", ["u", "state", "one weight"])
def test_any_gradient_that_is_wanted_keeps_the_graph(kind: str, what: str) -> None:
    layer, u = made(kind).requires_grad_(False), inputs(B, 3)
    _, state = layer.step(u)
    if what == "one weight":
        list(layer.parameters())[-1].requires_grad_()
    else:
        (u if what == "u" else list(leaves(state))[-1]).requires_grad_()
    assert layer.step(u, state)[0].requires_grad


@every_layer
def test_transforms_reach_the_plain_loop_and_a_backend_that_is_set_is_kept(kind: str) -> None:
    layer, u = made(kind).requires_grad_(False), inputs(B, 3)
    state = layer.step(u)[1]
    _, got = torch.func.jvp(lambda x: layer.step(x, state)[0], (u,), (torch.ones_like(u),))
    small = 1e-6
    nearby = (layer.step(u + small, state)[0] - layer.step(u - small, state)[0]) / (2 * small)
    torch.testing.assert_close(got, nearby, rtol=1e-6, atol=1e-8)
    for name in ("torch", "reference"):
        layer.backend = name
        backend.reset()
        layer.step(u)
        assert "native" not in backend.ran()


@every_layer
def test_what_does_not_fit_is_refused(kind: str) -> None:
    layer, u = made(kind), inputs(B, 3)
    with torch.no_grad():
        state = layer.step(u)[1]
        for x, before, words in (
            (inputs(B, 4), state, r"u must have shape \(B, 3\); got \(3, 4\)"),
            (inputs(B, 4, 3), state, r"u must have shape \(B, 3\); got \(3, 4, 3\)"),
            (u.float(), state, r"dtype of the weights, torch\.float64; got torch\.float32"),
            (u[:2], state, r"state y must have shape \(2, 21\); got \(3, 21\)"),
            (u, (*state, *state), r"state must be a tuple"),
            (inputs(0, 3), None, None),
        ):
            refuses(InputError, words, layer.step, x, before)
        if kind != "unicornn":
            layer.b = nn.Parameter(layer.b[:-1].clone())  # C would read beyond its end
            refuses(InputError, "b must have shape", layer.step, u, state)


def test_without_a_compiler_it_is_forward(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CC", "no-such-compiler")
    for kind in PLAIN:
        assert_follows(made(kind), inputs(B, T, 3))


@every_layer
def test_threads_share_a_layer(kind: str) -> None:
    layer = made(kind).requires_grad_(False)
    sequences = [inputs(1, 50, 3) * k for k in range(1, 5)]
    alone = [by_steps(layer, u)[0] for u in sequences]
    with ThreadPoolExecutor(len(sequences)) as workers:
        together = list(workers.map(lambda u: by_steps(layer, u)[0], sequences))
    assert all(map(torch.equal, together, alone))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_process_steps_too() -> None:
    layer, u = made("lem").requires_grad_(False), inputs(B, 3)
    before = layer.step(u)[0]
    if (child := os.fork()) == 0:
        os._exit(0 if torch.equal(layer.step(u)[0], before) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@every_layer
def test_dropout_in_training_takes_the_ordinary_way(kind: str) -> None:
    layer: nn.Module = {
        "lem": lambda: LEM(3, 200, state_dropout=0.5),
        "cornn": lambda: CoRNN(3, 200),
        "unicornn": lambda: UnICORNN(3, 200, dropout=0.5),
    }[kind]().requires_grad_(False)
    u, state = inputs(B, 3, dtype=torch.float), None
    for _ in range(3):
        _, state = layer.step(u, state)
    assert torch.equal(layer.step(u, state)[0], layer.step(u, state)[0]) == (kind == "cornn")
    layer.eval()
    assert torch.equal(layer.step(u, state)[0], layer.step(u, state)[0])


def network(kind: str, **settings: object) -> SequenceModel:
    torch.manual_seed(3)
    sizes = {"d_in": 3, "d_out": 2, "readout": "every", "tokens": False, **settings}
    return SequenceModel(lambda d: KINDS[kind](d, 9), n_layers=2, **sizes).double()  # type: ignore[arg-type]


@every_layer
def test_a_network_steps_as_its_layers_do(kind: str) -> None:
    model, u = network(kind, encoder=5).eval(), inputs(B, T, 3)
    got, state = by_steps(model, u)
    path, end = model(u)
    torch.testing.assert_close(got, path)
    torch.testing.assert_close(list(leaves(state)), list(leaves(end)))
    with torch.no_grad():
        torch.testing.assert_close(by_steps(model, u)[0], path)
    refuses(InputError, r"input must have shape \(B, 3\)", model.step, u)
    with pytest.raises(InputError, match="one entry per layer, 2; got 1"):
        model.step(u[:, 0], state[:1])  # type: ignore[index]


def test_a_network_of_words_steps_and_one_with_a_layer_that_cannot_says_so() -> None:
    model, ids = network("lem", tokens=True, embedding=4, d_in=7), torch.randint(7, (B, T))
    torch.testing.assert_close(by_steps(model, ids)[0], model(ids)[0])
    model = SequenceModel(lambda d: nn.LSTM(d, 4, batch_first=True), 3, 2, "every", False)
    refuses(InputError, "LSTM has no method step", model.step, torch.zeros(B, 3))
