"""What coRNN, UnICORNN and LEM promise alike."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.unicornn import UnICORNN

LAYERS: dict[str, Callable[..., nn.Module]] = {
    "coRNN": lambda **o: CoRNN(2, 5, dt=0.3, gamma=1.5, epsilon=0.7, **o),
    "coRNN reference": lambda **o: CoRNN(2, 5, dt=0.3, gamma=1.5, epsilon=0.7, backend="reference", **o),
    "coRNN trainable": lambda **o: CoRNN(2, 5, dt=0.3, gamma=1.5, epsilon=0.7, trainable=True, **o),
    "UnICORNN": lambda **o: UnICORNN(2, 5, n_layers=2, dt=0.4, alpha=1.0, **o),
    "LEM": lambda **o: LEM(2, 5, dt=1.2, **o),
    "LEM one scale": lambda **o: LEM(2, 5, dt=0.5, multiscale=False, **o),
    "LEM reference": lambda **o: LEM(2, 5, dt=1.2, backend="reference", **o),
}


@pytest.fixture(params=LAYERS)
def layer(request: pytest.FixtureRequest) -> nn.Module:
    torch.manual_seed(0)
    return LAYERS[request.param]().double()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def leaves(state: Any) -> Iterator[Tensor]:
    if isinstance(state, Tensor):
        yield state
    else:
        for part in state:
            yield from leaves(part)


def close(a: Any, b: Any, atol: float = 1e-12) -> None:
    for x, y in zip(leaves(a), leaves(b), strict=True):
        torch.testing.assert_close(x, y, rtol=0, atol=atol)


def test_shapes(layer: nn.Module) -> None:
    assert layer.d_in == 2 and layer.d_out == 5
    for B, T in ((1, 1), (1, 7), (4, 1), (3, 6)):
        outputs, state = layer(draw(B, T, 2))
        assert outputs.shape == (B, T, 5)
        assert all(x.shape == (B, 5) for x in leaves(state))


def test_the_default_state_is_zero(layer: nn.Module) -> None:
    u = draw(3, 6, 2)
    outputs, state = layer(u)
    zero = layer(u)[1]
    for x in leaves(zero):
        x.data.zero_()
    close(layer(u, zero), (outputs, state))


def test_two_halves_with_carried_state_equal_one_pass(layer: nn.Module) -> None:
    u = draw(3, 13, 2)
    outputs, state = layer(u)
    first, middle = layer(u[:, :6])
    second, last = layer(u[:, 6:], middle)
    close((torch.cat([first, second], 1), last), (outputs, state))


def test_gradients_flow_through_a_carried_state(layer: nn.Module) -> None:
    u = draw(3, 13, 2)
    layer(u)[0].square().sum().backward()
    whole = [p.grad for p in layer.parameters()]
    layer.zero_grad()
    first, middle = layer(u[:, :6])
    (first.square().sum() + layer(u[:, 6:], middle)[0].square().sum()).backward()
    close([p.grad for p in layer.parameters()], whole, atol=1e-9)


def test_a_nan_stays_in_its_row(layer: nn.Module) -> None:
    u = draw(4, 9, 2)
    clean = layer(u)
    u[2, 3] = float("nan")
    outputs, state = layer(u)
    assert outputs[2, 3:].isnan().all() and not outputs[2, :3].isnan().any()
    others = [0, 1, 3]
    close([x[others] for x in (outputs, *leaves(state))], [x[others] for x in (clean[0], *leaves(clean[1]))])


def test_nothing_changes_without_gradients(layer: nn.Module) -> None:
    u = draw(3, 9, 2)
    with torch.no_grad():
        result = layer(u)
    assert not any(x.requires_grad for x in leaves(result))
    close(result, layer(u))
    with torch.inference_mode():
        close(layer(u), result)


def test_frozen_weights_still_pass_a_gradient_to_the_input(layer: nn.Module) -> None:
    u = draw(3, 9, 2).requires_grad_()
    expected = torch.autograd.grad(layer(u)[0].square().sum(), u)
    layer.requires_grad_(False)
    close(torch.autograd.grad(layer(u)[0].square().sum(), u), expected)


def test_input_of_any_layout(layer: nn.Module) -> None:
    u = draw(3, 9, 2)
    strided = u.permute(2, 1, 0).contiguous().permute(2, 1, 0)
    assert not strided.is_contiguous()
    close(layer(strided), layer(u))
    close(layer(u[:1].expand(3, -1, -1))[0][2], layer(u[:1])[0][0])


def test_inputs_are_left_alone(layer: nn.Module) -> None:
    u = draw(3, 9, 2)
    state = layer(u)[1]
    saved = u.clone(), [x.clone() for x in leaves(state)]
    layer(u, state)[0].sum().backward()
    close(u, saved[0], atol=0)
    close(state, saved[1], atol=0)


def test_single_precision(layer: nn.Module) -> None:
    u = draw(3, 40, 2)
    layer(u)[0].square().mean().backward()
    exact = [p.grad.clone() for p in layer.parameters()]
    layer.zero_grad()
    outputs, _ = layer.float()(u.float())
    assert outputs.dtype == torch.float32
    outputs.square().mean().backward()
    for p, g in zip(layer.parameters(), exact, strict=True):
        assert (p.grad - g).abs().max() <= 1e-4 * g.abs().max()


def test_autocast_leaves_the_steps_in_full_precision(layer: nn.Module) -> None:
    layer.float()
    u = draw(3, 9, 2).to(torch.bfloat16)
    expected = layer(u.float())
    with torch.autocast("cpu", torch.bfloat16):
        result = layer(u)
    assert all(x.dtype == torch.float32 for x in leaves(result))
    close(result, expected, atol=1e-6)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((0, 5, 2), r"u must have shape \(B, T, 2\); got \(0, 5, 2\).*empty"),
        ((3, 0, 2), r"got \(3, 0, 2\)"),
        ((3, 5, 4), r"u must have shape \(B, T, 2\); got \(3, 5, 4\)"),
        ((5, 2), r"got \(5, 2\)"),
    ],
)
def test_wrong_shapes(layer: nn.Module, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(InputError, match=message):
        layer(torch.zeros(shape).double())


def test_wrong_dtypes(layer: nn.Module) -> None:
    with pytest.raises(InputError, match=r"float64; got torch[.]float32"):
        layer(torch.zeros(3, 5, 2))


def test_wrong_states(layer: nn.Module) -> None:
    u = draw(3, 5, 2)
    state = layer(u)[1]
    with pytest.raises(InputError, match=r"shape \(2, 5\); got \(3, 5\)"):
        layer(u[:2], state)
    with pytest.raises(InputError, match="state must be a tuple"):
        layer(u, state[0] if isinstance(state[0], Tensor) else state[0][0])
    with pytest.raises(InputError, match=r"dtype of u, torch[.]float64; got torch[.]float32"):
        layer(u, torch.utils._pytree.tree_map(lambda x: x.float(), state))


def test_a_saved_layer_gives_the_same_numbers(layer: nn.Module) -> None:
    u = draw(3, 9, 2)
    expected = layer(u)
    kept = {name: x.clone() for name, x in layer.state_dict().items()}
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1)
    assert not torch.allclose(layer(u)[0], expected[0])
    layer.load_state_dict(kept)
    close(layer(u), expected, atol=0)
