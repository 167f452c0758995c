"""NoisyRNN: a loop from the equations, what the noise is and when it acts, the parameter count."""

import functools

import pytest
import torch
from drawn_layers import numbers
from step_loops import follows, loop, same
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.noisy import NoisyRNN
from physml.models.sequence.rnn import SequenceModel
from physml.run.record import count_parameters

D, H = 3, 5
BETA_A, BETA_W, GAMMA_A, GAMMA_W = 0.8, 0.6, 0.05, 0.02


def make(mult_noise: float = 0.2, add_noise: float = 0.1, d_in: int = D, d_hidden: int = H) -> NoisyRNN:
    torch.manual_seed(0)
    layer = NoisyRNN(
        d_in,
        d_hidden,
        dt=0.3,
        mult_noise=mult_noise,
        add_noise=add_noise,
        beta_a=BETA_A,
        beta_w=BETA_W,
        gamma_a=GAMMA_A,
        gamma_w=GAMMA_W,
        init_std=3.0,  # far from linear
    ).double()
    with torch.no_grad():
        layer.d += torch.linspace(-0.1, 0.2, d_hidden)
    return layer


def equation(layer: NoisyRNN, x: Tensor, h: Tensor) -> tuple[Tensor, tuple[Tensor]]:
    """Behind the D inputs there may be the factors m and the terms a of the step."""
    s, eye = layer.symbols(), torch.eye(H, dtype=torch.float64)
    x, m, a = x.split([D, H, H]) if len(x) > D else (x, 1.0, 0.0)
    A = (1 - BETA_A) * (s["MA"] + s["MA"].T) + BETA_A * (s["MA"] - s["MA"].T) - GAMMA_A * eye
    W = (1 - BETA_W) * (s["MW"] + s["MW"].T) + BETA_W * (s["MW"] - s["MW"].T) - GAMMA_W * eye
    f = A @ h + torch.tanh(W @ h + s["U"] @ x + s["b"])
    h = h + s["d"] * m * f + a
    return h, (h,)


@pytest.mark.parametrize("n_steps", [1, 9])
def test_evaluation_equals_a_loop_from_the_equations_without_noise(n_steps: int):
    follows(make().eval(), equation, 2 * numbers(2, n_steps, D))


@pytest.mark.parametrize(("mult", "add"), [(0.4, 0.3), (0.4, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_training_equals_the_loop_with_the_same_noise(mult: float, add: float):
    """The noise that the layer draws is drawn again here: first all factors, then all terms."""
    layer = make(mult, add).train()
    u, h = (2 * numbers(2, 9, D)).requires_grad_(), (0.5 * numbers(2, H)).requires_grad_()
    torch.manual_seed(5)
    path, last = layer(u, (h,))
    torch.manual_seed(5)
    like = torch.empty(9, 2, H, dtype=torch.float64)
    m = 1 - mult * torch.rand_like(like) if mult else torch.ones_like(like)
    a = add * torch.randn_like(like) if add else torch.zeros_like(like)
    noisy = torch.cat([u, *(x.transpose(0, 1) for x in (m, a))], 2)
    expected = loop(functools.partial(equation, layer), noisy, (h,))
    same([path, *last], expected, [u, h, *layer.parameters()])


def test_the_parameter_count_of_the_published_network():
    """34,314 of the Lipschitz network of 128 units, and the vector d."""
    net = SequenceModel(
        lambda d: NoisyRNN(d, 128, dt=0.01, mult_noise=0.02, add_noise=0.05), 1, 10, "last", False
    )
    assert count_parameters(net) == 34_442


def test_noise_out_of_range_is_refused():
    with pytest.raises(InputError, match="noise"):
        make(1.5, 0.1)
