"""NoisyRNN: a loop from the equations, what the noise is and when it acts, the parameter count."""

import pytest
import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.models.count import count_parameters
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.noisy import NoisyRNN
from physml.models.sequence.rnn import SequenceModel

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


def noise(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64, generator=torch.Generator().manual_seed(1))


def loop(layer: NoisyRNN, u: Tensor, h0: Tensor, m: Tensor, a: Tensor) -> Tensor:
    """Each sequence and each step by itself, with given noise m and a, (T, B, H)."""
    s = layer.symbols()
    eye = torch.eye(H, dtype=torch.float64)
    A = (1 - BETA_A) * (s["MA"] + s["MA"].T) + BETA_A * (s["MA"] - s["MA"].T) - GAMMA_A * eye
    W = (1 - BETA_W) * (s["MW"] + s["MW"].T) + BETA_W * (s["MW"] - s["MW"].T) - GAMMA_W * eye
    rows = []
    for row in range(len(u)):
        h, path = h0[row], []
        for n, x in enumerate(u[row]):
            f = A @ h + torch.tanh(W @ h + s["U"] @ x + s["b"])
            h = h + s["d"] * m[n, row] * f + a[n, row]
            path.append(h)
        rows.append(torch.stack(path))
    return torch.stack(rows)


def with_gradients(run, layer: NoisyRNN, *inputs: Tensor) -> tuple[Tensor, ...]:
    path = run()
    wanted = [*inputs, *layer.parameters()]
    return (path, *torch.autograd.grad((path * noise(*path.shape)).sum(), wanted))


def agree(found: tuple[Tensor, ...], wanted: tuple[Tensor, ...]) -> None:
    for got, want in zip(found, wanted, strict=True):
        assert want.abs().sum() > 0
        torch.testing.assert_close(got, want, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("n_steps", [1, 9])
def test_evaluation_equals_a_loop_from_the_equations_without_noise(n_steps: int):
    layer = make().eval()
    u, h = 2 * noise(2, n_steps, D).requires_grad_(), (0.5 * noise(2, H)).requires_grad_()
    one, zero = torch.ones(n_steps, 2, H).double(), torch.zeros(n_steps, 2, H).double()
    found = with_gradients(lambda: layer(u, (h,))[0], layer, h)
    agree(found, with_gradients(lambda: loop(layer, u, h, one, zero), layer, h))


@pytest.mark.parametrize(("mult", "add"), [(0.4, 0.3), (0.4, 0.0), (0.0, 0.3), (0.0, 0.0)])
def test_training_equals_the_loop_with_the_same_noise(mult: float, add: float):
    """The noise that the layer draws is drawn again here: first all factors, then all terms."""
    layer = make(mult, add).train()
    u, h = 2 * noise(2, 9, D).requires_grad_(), (0.5 * noise(2, H)).requires_grad_()
    like = torch.empty(9, 2, H, dtype=torch.float64)
    torch.manual_seed(5)
    found = with_gradients(lambda: layer(u, (h,))[0], layer, u, h)
    torch.manual_seed(5)
    m = 1 - mult * torch.rand_like(like) if mult else torch.ones_like(like)
    a = add * torch.randn_like(like) if add else torch.zeros_like(like)
    agree(found, with_gradients(lambda: loop(layer, u, h, m, a), layer, u, h))


def test_evaluation_is_deterministic_and_training_is_not():
    layer, u = make().eval(), noise(2, 6, D)
    torch.testing.assert_close(layer(u)[0], layer(u)[0], rtol=0, atol=0)
    layer.train()
    assert not torch.allclose(layer(u)[0], layer(u)[0])


def test_without_noise_and_with_one_step_size_it_is_the_lipschitz_network():
    layer, u = make(0.0, 0.0), noise(2, 7, D)
    twin = LipschitzRNN(D, H, dt=0.3, beta_a=BETA_A, beta_w=BETA_W, gamma_a=GAMMA_A, gamma_w=GAMMA_W).double()
    with torch.no_grad():
        layer.d.fill_(0.3)
    twin.load_state_dict({name: p for name, p in layer.state_dict().items() if name != "d"})
    torch.testing.assert_close(layer(u)[0], twin(u)[0])


def silent(mult: float, add: float) -> NoisyRNN:
    """A = W = 0 and d = 1, so that each step adds m tanh(b) + a."""
    layer = make(mult, add, d_in=1, d_hidden=40)
    layer.gamma_a = layer.gamma_w = 0.0
    with torch.no_grad():
        for p in (layer.MA, layer.MW, layer.U):
            p.zero_()
        layer.b.fill_(20.0)  # tanh is 1
        layer.d.fill_(1.0)
    return layer.train()


def increments(layer: NoisyRNN) -> Tensor:
    """(T, B, H), one number per draw: 200 steps of 50 sequences in 40 units."""
    torch.manual_seed(2)
    with torch.no_grad():
        path = layer(torch.zeros(50, 200, 1, dtype=torch.float64))[0].transpose(0, 1)
    return torch.diff(path, dim=0, prepend=torch.zeros_like(path[:1]))


def correlation(x: Tensor, y: Tensor) -> float:
    return float(torch.corrcoef(torch.stack([x.flatten(), y.flatten()]))[0, 1])


def test_the_factors_are_uniform_and_independent():
    m = increments(silent(0.3, 0.0))
    assert 0.7 <= m.min() < 0.701 and 0.999 < m.max() <= 1.0 + 1e-12
    assert float(m.mean()) == pytest.approx(0.85, abs=1e-3)
    assert float(m.std()) == pytest.approx(0.3 / 12**0.5, rel=1e-2)
    for x, y in ((m[1:], m[:-1]), (m[:, 1:], m[:, :-1]), (m[..., 1:], m[..., :-1])):
        assert abs(correlation(x, y)) < 0.01


def test_the_terms_are_normal_and_independent():
    a = increments(silent(0.0, 0.25)) - 1.0
    assert float(a.mean()) == pytest.approx(0.0, abs=2e-3)
    assert float(a.std()) == pytest.approx(0.25, rel=1e-2)  # per step, not times the root of the step
    assert float((a / 0.25).pow(4).mean()) == pytest.approx(3.0, rel=0.03)
    for x, y in ((a[1:], a[:-1]), (a[:, 1:], a[:, :-1]), (a[..., 1:], a[..., :-1])):
        assert abs(correlation(x, y)) < 0.01


def test_the_parameter_count_of_the_published_network():
    """34,314 of the Lipschitz network of 128 units, and the vector d."""
    net = SequenceModel(
        lambda d: NoisyRNN(d, 128, dt=0.01, mult_noise=0.02, add_noise=0.05), 1, 10, "last", False
    )
    assert count_parameters(net) == 34_442


@pytest.mark.parametrize(("mult", "add"), [(1.5, 0.1), (-0.1, 0.1), (0.1, -1.0)])
def test_noise_out_of_range_is_refused(mult: float, add: float):
    with pytest.raises(InputError, match="noise"):
        make(mult, add)
