"""Laws of every recurrent layer in conf/model: shapes, state, gradients, NaN, layouts, precision, refusals.

A new config is tried by itself; VARIANTS has further settings of a layer that take another way through its
code. What each layer computes is tested beside its module. Axes: B batch, T time, D features.
"""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_layers import leaves, like, made, numbers
from each import Laws, run_all
from gpu import agrees_on_a_gpu, needs_gpu
from refusals import refuses
from torch import Tensor, nn
from torch.autograd import forward_ad

from physml.base.errors import InputError
from physml.base.paths import CONF
from physml.config import build
from physml.config.compose import names
from physml.config.load import read_yaml
from physml.ops.backend import running

D = 3
Make = Callable[[], nn.Module]
LAWS = law = Laws()

BACKENDS = [{"backend": "reference"}, {"backend": "torch"}]
VARIANTS: dict[str, list[dict[str, Any]]] = {
    "antisymmetric": [{"gated": True}],
    "bilstm": [{"kernel": None, "order": "time"}],
    "cornn": [*BACKENDS, {"backend": "torch", "damping": "implicit"}, {"trainable": True}],
    "exprnn": [{"init": "henaff", "base": "start", "rebase_every": 2}],
    "lem": [*BACKENDS, {"backend": "torch", "clip": (0.5, 0.8)}, {"dt": 0.5, "multiscale": False}],
    "linoss": [{"scheme": "imex"}, {"scheme": "damped"}],
    "lipschitz": [{"method": "rk2", "dt": 0.3, "init_std": 3.0}],
    "lstm": [{"dt": 0.3, "dt_version": 1}, {"dt": 0.3, "dt_version": 2}],
    "nrde": [{"depth": 3, "time": True}],
    "soft_orthogonal": [{"margin": 0.2, "orthogonality": 0.0}],
    "unicornn": BACKENDS,
}
WHOLE = ("bilstm", "ncde", "nrde")  # read whole sequences: a state is refused
STATELESS = ("continuous_depth", "koopman")  # answer each input by itself
TRAINED_START = ("full_urnn", "urnn")  # the first state is a weight
OTHER_SLOPES = ("skip_gru", "skip_lstm", "truncated")  # gradients are by definition not those of the output


def settings_of(name: str) -> dict[str, Any]:
    config = read_yaml(CONF / "model" / f"{name}.yaml")
    return {**{key: value for key, value in config.items() if key != "smoke"}, **config.get("smoke", {})}


MODELS = [name for name in names("model") if ".models.sequence." in settings_of(name)["_target_"]]


def maker_of(name: str, changes: dict[str, Any]) -> Make:
    """Of a small layer in single precision, at its start."""
    node = build.check(settings_of(name) | changes, "model", (), ("d_in", "n_nodes"), build.LAYER)

    def make() -> nn.Module:
        torch.manual_seed(0)
        return node.make(d_in=D).eval()

    return make


@pytest.mark.parametrize("name", MODELS)
def test_a_layer_keeps_the_laws(name: str) -> None:
    with running("native"):
        run_all(
            (f"{rule.__name__}, {changes}", functools.partial(rule, make))
            for changes in ({}, *VARIANTS.get(name, []))
            for make in (maker_of(name, changes),)
            for rule in LAWS
            if name not in EXCEPTIONS.get(rule.__name__, ())
        )


@needs_gpu
@pytest.mark.parametrize("name", MODELS)
def test_a_layer_computes_the_same_on_a_gpu(name: str) -> None:
    cases = [{}, *(changes for changes in VARIANTS.get(name, []) if "backend" not in changes)]
    for changes, backend in [(changes, "auto") for changes in cases] + [({}, "torch")]:
        with running(backend):
            agrees_on_a_gpu(double(maker_of(name, changes)), lambda layer, u: layer(u), numbers(5, 19, D))


def double(make: Make) -> nn.Module:
    """In double precision, with weights away from zeros and identities."""
    return made(make, spread=0.1)


def close(a: Any, b: Any, atol: float = 1e-12, rtol: float = 0.0) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        torch.testing.assert_close(x, y, rtol=rtol, atol=atol)


# ------------------------------------------------------------------------------------------ shapes and state
@law
def outputs_and_states_have_the_declared_sizes_and_a_sequence_alone_is_as_in_a_batch(make: Make) -> None:
    layer = double(make)
    assert layer.d_in == D
    for B, T in ((1, 1), (1, 7), (4, 1), (3, 6)):
        outputs, state = layer(numbers(B, T, D))
        assert outputs.shape == (B, T, layer.d_out)
        assert all(len(x) == B and x.dim() == 2 for x in leaves(state))
    u = numbers(3, 6, D)
    close(layer(u[1:2])[0][0], layer(u)[0][1])


@law
def the_default_state_is_zero(make: Make) -> None:
    layer, u = double(make), numbers(3, 6, D)
    result = layer(u)
    close(layer(u, torch.utils._pytree.tree_map(torch.zeros_like, result[1])), result)


@law
def two_halves_with_carried_state_equal_one_pass(make: Make) -> None:
    """Outputs, the last state, and the gradients that flow through the state between."""
    layer, u = double(make), numbers(3, 7, D)
    outputs, state = layer(u)
    outputs.square().sum().backward()
    whole = [p.grad for p in layer.parameters() if p.grad is not None]
    layer.zero_grad()
    first, middle = layer(u[:, :3])
    second, last = layer(u[:, 3:], middle)
    close((torch.cat([first, second], 1), last), (outputs, state))
    (first.square().sum() + second.square().sum()).backward()
    close([p.grad for p in layer.parameters() if p.grad is not None], whole, atol=1e-9, rtol=1e-9)


@law
def a_sequence_that_comes_in_step_by_step_is_as_the_whole(make: Make) -> None:
    layer, u = double(make), numbers(2, 4, D)
    if hasattr(layer, "step"):
        whole, last = layer(u)
        _, state = layer(u[:, :1])
        for n in range(1, 4):
            y, state = layer.step(u[:, n], state)
            close(y, whole[:, n])
            kept = [x.detach().clone() for x in leaves(state)]
            y.detach().mul_(0)  # a user's own change of an output
            close(state, kept, atol=0)
        close(state, last)


@law
def a_nan_stays_in_its_row(make: Make) -> None:
    layer, u = double(make), numbers(4, 5, D)
    clean = layer(u)
    u[2, 3, 0] = torch.nan
    outputs, state = layer(u)
    assert outputs[2].isnan().any()
    others = [0, 1, 3]
    close([x[others] for x in (outputs, *leaves(state))], [x[others] for x in (clean[0], *leaves(clean[1]))])


@law
def a_nan_is_seen_from_its_step_on(make: Make) -> None:
    layer, u = double(make), numbers(2, 6, D)
    u[1, 2, 0] = torch.nan
    path = layer(u)[0][1]
    assert not path[:2].isnan().any() and path[2:].isnan().any(-1).all()


# ------------------------------------------------------------------------------------------------- gradients
@law
def gradients_are_those_of_differences(make: Make) -> None:
    layer, u = double(make), numbers(2, 5, D).requires_grad_()
    _, state = layer(u)
    start = [(0.2 * numbers(*x.shape, seed=k)).abs().requires_grad_() for k, x in enumerate(leaves(state))]
    if refuses_states(layer):
        start = []
    weights = {k: p.detach().clone().requires_grad_() for k, p in layer.named_parameters()}

    def run(u: Tensor, *rest: Tensor) -> tuple[Tensor, ...]:
        initial = like(state, iter(rest[: len(start)])) if start else None
        values = dict(zip(weights, rest[len(start) :], strict=True))
        outputs, last = torch.func.functional_call(layer, values, (u, initial))
        return outputs, *leaves(last)

    assert torch.autograd.gradcheck(run, (u, *start, *weights.values()), fast_mode=True)


def refuses_states(layer: nn.Module) -> bool:
    return type(layer).__name__ in ("BiLSTM", "NeuralRDE")


@law
def nothing_changes_without_gradients_and_frozen_weights_pass_one_to_the_input(make: Make) -> None:
    layer, u = double(make), numbers(3, 5, D)
    with torch.no_grad():
        result = layer(u)
    assert not any(x.requires_grad for x in leaves(result))
    close(result, layer(u))
    with torch.inference_mode():
        close(layer(u), result)
    u.requires_grad_()
    expected = torch.autograd.grad(layer(u)[0].square().sum(), u)
    layer.requires_grad_(False)
    close(torch.autograd.grad(layer(u)[0].square().sum(), u), expected)


@law
def with_frozen_weights_there_is_the_tangent_of_the_input_or_a_refusal(make: Make) -> None:
    layer, u = double(make).requires_grad_(False), numbers(2, 4, D)
    try:
        with forward_ad.dual_level():
            outputs, _ = layer(forward_ad.make_dual(u, torch.ones_like(u)))
            tangent = forward_ad.unpack_dual(outputs).tangent
    except InputError as error:
        assert "need backend reference" in str(error)
    else:
        close(tangent, (layer(u + 1e-6)[0] - layer(u - 1e-6)[0]) / 2e-6, atol=1e-6, rtol=1e-6)


@law
def every_weight_has_a_finite_gradient_from_one_step(make: Make) -> None:
    layer = make()
    outputs, state = layer(torch.randn(1, 1, D))
    assert outputs.dtype == torch.float32
    sum(x.sum() for x in leaves((outputs, state))).backward()
    assert all(p.grad is None or p.grad.isfinite().all() for p in layer.parameters())


# ----------------------------------------------------------------------------------- layouts and precision
@law
def inputs_of_any_layout_are_read_and_left_alone(make: Make) -> None:
    layer, u = double(make), numbers(3, 5, D)
    strided = u.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strided.is_contiguous()
    result, saved = layer(u), u.clone()
    close(layer(strided), result)
    close(layer(u[:1].expand(3, -1, -1))[0][2], layer(u[:1])[0][0])
    if not refuses_states(layer):
        kept = [x.clone() for x in leaves(result[1])]
        layer(u, result[1])[0].sum().backward()
        close(result[1], kept, atol=0)
    assert torch.equal(u, saved)


@law
def single_precision_has_the_gradients_of_double(make: Make) -> None:
    layer, u = double(make), numbers(3, 20, D)
    layer(u)[0].square().mean().backward()
    exact = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    outputs, _ = layer.float()(u.float())
    assert outputs.dtype == torch.float32
    outputs.square().mean().backward()
    for p, g in zip(layer.parameters(), exact, strict=True):
        assert (p.grad is None) == (g is None)
        assert g is None or (p.grad - g).abs().max() <= 1e-3 * g.abs().max() + 1e-7


@law
def autocast_leaves_the_steps_in_full_precision(make: Make) -> None:
    layer, u = make(), numbers(3, 5, D).to(torch.bfloat16)
    expected = layer(u.float())
    with torch.autocast("cpu", torch.bfloat16):
        result = layer(u)
    assert all(x.dtype == torch.float32 for x in leaves(result))
    close(result, expected, atol=1e-6, rtol=1e-5)


@law
def a_layer_has_the_default_precision(make: Make) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert make()(numbers(2, 3, D))[0].dtype == torch.float64
    finally:
        torch.set_default_dtype(torch.float32)


@law
def a_reset_leaves_no_weight_as_it_was(make: Make) -> None:
    layer = make()
    if hasattr(layer, "reset_parameters"):
        with torch.no_grad():
            for p in layer.parameters():
                p.fill_(torch.nan)
        layer.reset_parameters()
        assert [name for name, p in layer.named_parameters() if p.isnan().any()] == []


@law
def a_saved_layer_gives_the_same_numbers(make: Make) -> None:
    layer, u = double(make), numbers(2, 5, D)
    expected = layer(u)
    kept = {name: x.clone() for name, x in layer.state_dict().items()}
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1)
    assert not torch.allclose(layer(u)[0], expected[0])
    layer.load_state_dict(kept)
    close(layer(u), expected, atol=0)


# -------------------------------------------------------------------------------------------------- refusals
@law
def wrong_shapes_and_dtypes_are_refused(make: Make) -> None:
    layer = double(make)
    for shape in ((0, 4, D), (2, 0, D), (2, 4, D + 1), (4, D)):
        refuses(InputError, rf"u must have shape \(B, T, {D}\); got", layer, numbers(*shape))
    refuses(InputError, "dtype", layer, torch.zeros(2, 3, D))
    for call in (layer, *([layer.step] if hasattr(layer, "step") else [])):
        refuses(InputError, "u must be a tensor; got ndarray", call, numbers(2, 1, D).numpy())


@law
def states_that_cannot_be_are_refused(make: Make) -> None:
    layer, u = double(make), numbers(3, 5, D)
    state = layer(u)[1]
    wrong = [(u[:2], state), (u, (*state, state[0])), (u, next(leaves(state))), (u[:, :1], [0] * len(state))]
    wrong += [(u, torch.utils._pytree.tree_map(lambda x: x.float(), state))]
    for arguments in wrong:
        refuses(InputError, "state", layer, *arguments)


# ------------------------------------------------------------------------------------------------ exceptions

EXCEPTIONS: dict[str, tuple[str, ...]] = {
    "the_default_state_is_zero": (*WHOLE, *TRAINED_START, *STATELESS),
    "two_halves_with_carried_state_equal_one_pass": (*WHOLE, *STATELESS, "truncated"),
    "states_that_cannot_be_are_refused": (*WHOLE, *STATELESS),
    "gradients_are_those_of_differences": OTHER_SLOPES,
    "with_frozen_weights_there_is_the_tangent_of_the_input_or_a_refusal": ("skip_gru", "skip_lstm"),
    # an upper oscillator moves a step later; products over a block of steps reach back within it
    "a_nan_is_seen_from_its_step_on": (*WHOLE, *STATELESS, "multilayer_oscillator", "s4d"),
}


def test_states_are_refused_where_sequences_are_whole_and_exceptions_name_laws_and_models() -> None:
    for name in WHOLE:
        layer, u = double(maker_of(name, {})), numbers(2, 5, D)
        refuses(InputError, r"state must be None|both ends", layer, u, layer(u)[1])
    assert EXCEPTIONS.keys() <= {rule.__name__ for rule in LAWS}
    assert {name for kept in EXCEPTIONS.values() for name in kept} | VARIANTS.keys() <= set(MODELS)
