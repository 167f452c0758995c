"""Gradients by step against one graph over all steps in which every step has parameters of its own."""

from functools import partial
from typing import Any

import pytest
import torch
from drawn_layers import leaves, like, numbers
from refusals import refuses
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn import functional as F

from physml import recurrent
from physml.base.errors import InputError
from physml.lab.gradients import gradient_by_step, jacobian_products, squared_error
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.gated import GRU, LSTM, TanhRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.orthogonal import ExpRNN
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN
from physml.models.sequence.unitary import FullCapacityURNN, UnitaryRNN

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")

D, H, T, B = 2, 3, 7, 2


@recurrent("y")
class Leaky(nn.Module):
    """A layer as a user writes it."""

    def __init__(self) -> None:
        super().__init__()
        self.d_in, self.d_out = D, H
        self.W, self.V = nn.Linear(H, H), nn.Linear(D, H)

    def step(self, u: Tensor, state: tuple[Tensor]) -> tuple[Tensor, tuple[Tensor]]:
        y = 0.9 * state[0] + 0.1 * torch.tanh(self.W(state[0]) + self.V(u))
        return y, (y,)


def layers() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    stack = partial(SequenceModel, readout="last", tokens=False, n_layers=2)
    nets: dict[str, nn.Module] = {
        "cornn": CoRNN(D, H, dt=0.3, gamma=1.2, epsilon=0.9),
        "cornn-implicit": CoRNN(D, H, dt=0.3, gamma=1, epsilon=1, damping="implicit"),
        "unicornn": UnICORNN(D, H, n_layers=3, dt=0.4, alpha=1.1, residual_skip=2),
        "lem": LEM(D, H, dt=0.7),
        "lstm": LSTM(D, H),
        "lstm-chrono": LSTM(D, H, chrono=T),
        "gru": GRU(D, H),
        "tanh_rnn": TanhRNN(D, H),
        "exprnn": ExpRNN(D, H),
        "lipschitz": LipschitzRNN(D, H, dt=0.2, method="rk2"),
        "urnn": UnitaryRNN(D, H),
        "full_urnn": FullCapacityURNN(D, H),
        "own": Leaky(),
        "stack": stack(lambda d: LEM(d, H), D, 1),
        "stack-urnn": stack(lambda d: UnitaryRNN(d, H), D, 1),
    }
    return {name: layer.double().eval() for name, layer in nets.items()}


NAMES = list(layers())


def unrolled(layer: nn.Module, u: Tensor, loss: Any) -> tuple[list[dict[str, Tensor]], Tensor]:
    """dE/d(theta of step k) for every k, and dE/du, from one graph."""
    copies = [{n: p.detach().clone().requires_grad_() for n, p in layer.named_parameters()} for _ in range(T)]
    u = u.clone().requires_grad_()
    state, output = None, u
    for k, own in enumerate(copies):
        output, state = functional_call(layer, own, (u[:, k : k + 1],), {"state": state})
    loss(output[:, -1] if output.dim() == 3 else output).backward()
    by_step = [
        {n: torch.zeros_like(p) if p.grad is None else p.grad for n, p in own.items()} for own in copies
    ]
    assert u.grad is not None
    return by_step, u.grad


@pytest.mark.parametrize("name", NAMES)
def test_every_step_is_that_of_a_network_with_parameters_of_its_own_at_each(name: str) -> None:
    layer, u = layers()[name], numbers(B, T, D)
    loss = squared_error(numbers(B, layer.d_out, seed=2))
    gradients = gradient_by_step(layer, u, loss)
    by_step, of_u = unrolled(layer, u, loss)
    for key in gradients.total:
        rows = torch.stack([step[key] for step in by_step]).flatten(1)
        torch.testing.assert_close(gradients.euclidean[key], rows.norm(dim=1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradients.largest[key], rows.abs().amax(1), rtol=1e-9, atol=1e-12)
        torch.testing.assert_close(gradients.total[key].flatten(), rows.sum(0), rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(gradients.inputs, of_u.transpose(0, 1).flatten(1).norm(dim=1))
    layer.zero_grad()
    output, _ = layer(u)
    loss(output[:, -1] if output.dim() == 3 else output).backward()  # all steps at once, as training does
    for key, p in layer.named_parameters():
        torch.testing.assert_close(gradients.total[key], torch.zeros_like(p) if p.grad is None else p.grad)


@pytest.mark.parametrize("name", ["cornn", "unicornn", "lem", "lstm", "exprnn"])
def test_products_of_jacobians_are_the_derivative_of_all_steps_at_once(name: str) -> None:
    layer, u = layers()[name], numbers(1, T, D)
    _, end = layer(u)
    sizes = [x.shape[1] for x in leaves(end)]

    def flow(x: Tensor) -> Tensor:
        _, after = layer(u, like(end, iter(x[None].split(sizes, 1))))
        return torch.cat([y[0] for y in leaves(after)])

    rest = torch.zeros(sum(sizes), dtype=torch.double)
    expected = torch.autograd.functional.jacobian(flow, rest)
    products = dict(jacobian_products(layer, u))
    assert list(products) == list(range(1, T + 1))
    torch.testing.assert_close(products[T], expected)


def test_the_gradient_by_the_first_state_is_the_cotangent_that_went_back() -> None:
    layer, u = layers()["lem"], numbers(1, T, D)
    y, z = (numbers(1, H, seed=s).mul(0).requires_grad_() for s in (3, 4))
    outputs, _ = layer(u, (y, z))
    loss = squared_error(numbers(1, H, seed=2))
    loss(outputs[:, -1]).backward()
    expected = torch.stack([y.grad.norm(), z.grad.norm()]).norm()
    torch.testing.assert_close(gradient_by_step(layer, u, loss).states[0], expected)


def test_ids_have_no_gradient() -> None:
    net = SequenceModel(
        lambda d: TanhRNN(d, H), d_in=5, d_out=5, readout="every", tokens=True, embedding=4
    ).double()
    ids = torch.tensor([[0, 4, 2]])
    gradients = gradient_by_step(net.eval(), ids, lambda o: F.cross_entropy(o, torch.tensor([1])))
    assert not gradients.inputs.any() and (gradients.euclidean["embedding.weight"] > 0).all()
    assert not gradients.euclidean["readout.weight"][:2].any()  # the read-out acts at the last step alone


def test_training_mode_empty_inputs_and_a_start_that_is_not_named_are_refused() -> None:
    layer, loss = layers()["lem"], squared_error(numbers(B, H))
    with pytest.raises(InputError, match=r"Call network.eval\(\) first"):
        gradient_by_step(layer.train(), numbers(B, T, D), loss)
    refuses(InputError, "at least one step", gradient_by_step, layer.eval(), numbers(B, 0, D), loss)
    refuses(InputError, "of one sequence", next, jacobian_products(layer, numbers(2, T, D)))

    class Elsewhere(Leaky):
        def forward(self, u: Tensor, state: tuple[Tensor] | None = None) -> tuple[Tensor, tuple[Tensor]]:
            return super().forward(u, (torch.ones(u.shape[0], H).to(u),) if state is None else state)

    with pytest.raises(InputError, match="does not start from zero"):
        gradient_by_step(Elsewhere().double().eval(), numbers(B, T, D), squared_error(numbers(B, H)))
