"""What the papers state of iRNN, TARNN, NAIS-Net and the Kronecker unit, each with a case that breaks it."""

import pytest
import torch
from drawn_layers import made, numbers
from torch import Tensor

from physml.models.sequence.incremental import IncrementalRNN
from physml.models.sequence.kronecker import KroneckerRNN
from physml.models.sequence.nais import SequentialNAISNet

D, H = 3, 5

pytestmark = pytest.mark.usefixtures("nothing_is_compiled")


def irnn(n_steps: int) -> IncrementalRNN:
    return made(lambda: IncrementalRNN(D, H, n_steps=n_steps, activation="tanh", eta=0.5), spread=0.0)


def state_slope(n_steps: int) -> tuple[Tensor, Tensor]:
    """dh_1 / dh_0 of one input, and how far h_1 is from the equilibrium."""
    layer = irnn(n_steps)
    u, h0 = numbers(1, 1, D), numbers(1, H, seed=2)
    slope = torch.autograd.functional.jacobian(lambda h: layer(u, (h,))[0][0, 0], h0)[:, 0]
    s, both = layer.symbols(), layer(u, (h0,))[0][0, 0] + h0[0]
    return slope, (torch.tanh(s["U"] @ both + s["W"] @ u[0, 0] + s["b"]) - both).abs().max()


def test_equilibria_have_a_slope_of_minus_one_and_keep_the_size_of_gradients() -> None:
    slope, distance = state_slope(60)
    assert distance < 1e-8
    torch.testing.assert_close(slope, -torch.eye(H, dtype=torch.float64), rtol=0, atol=1e-7)
    slope, distance = state_slope(1)
    assert distance > 1e-2
    assert (slope + torch.eye(H)).abs().max() > 0.1
    sizes = []
    for n_steps in (60, 1):
        h0, aim = numbers(1, H, seed=2).requires_grad_(), numbers(1, H, seed=3)
        _, (h,) = irnn(n_steps)(numbers(1, 30, D), (h0,))
        (slope,) = torch.autograd.grad((h * aim).sum(), h0)
        sizes.append((slope.norm() / aim.norm()).item())
    assert abs(sizes[0] - 1) < 1e-6
    assert sizes[1] < 1e-3


@pytest.mark.parametrize("spread", [0.01, 1.0, 30.0])
def test_eigenvalues_lie_between_minus_one_and_zero(spread: float):
    layer = SequentialNAISNet(D, H, epsilon=0.05).double()
    layer.R.data.copy_(spread * numbers(H, H))
    values = torch.linalg.eigvalsh(layer.matrix())
    assert values.min() >= -0.95 - 1e-9 and values.max() <= -0.05 + 1e-9
    free = -layer.R.T @ layer.R - 0.05 * torch.eye(H)  # without the scaling
    assert (torch.linalg.eigvalsh(free).min() < -2) == (spread >= 1)


def far_apart(A: Tensor, layer: SequentialNAISNet, steps: int) -> tuple[Tensor, Tensor]:
    """Two states after a constant input, from starts that lie far apart, and the equilibrium."""
    push = layer.B @ numbers(D, seed=4) + layer.b
    h = 4 * numbers(2, H, seed=5)
    for _ in range(steps):
        h = h + torch.tanh(h @ A.T + push)
    return h, torch.linalg.solve(A, -push)


def test_a_constant_input_draws_all_states_to_one_equilibrium():
    layer = made(lambda: SequentialNAISNet(D, H, epsilon=0.05))
    u, start = numbers(D, seed=4), 4 * numbers(2, H, seed=5)
    path, _ = layer(u.expand(2, 1500, D), (start,))
    ends, rest = far_apart(layer.matrix().detach(), layer, 1500)
    torch.testing.assert_close(path[:, -1], ends)
    torch.testing.assert_close(ends, rest.expand_as(ends))
    layer.R.data.mul_(3.0)
    ends, rest = far_apart((-layer.R.T @ layer.R - 0.05 * torch.eye(H)).detach(), layer, 1500)
    assert (ends[0] - rest).abs().max() > 0.1  # unscaled, it circles around


def test_unitary_factors_make_a_unitary_matrix_which_is_their_product_one_after_the_other():
    layer = KroneckerRNN(D, 16, unitarity=0.5).double()
    eye = torch.eye(16, dtype=torch.complex128)
    torch.testing.assert_close(layer.matrix() @ layer.matrix().mH, eye, rtol=0, atol=1e-6)
    assert layer.penalty() < 1e-10
    layer.factors.data.mul_(1.1)  # W_f^* W_f - I = 0.21 I for each of four
    W = layer.matrix()
    torch.testing.assert_close(W @ W.mH, 1.21**4 * eye, rtol=0, atol=1e-5)
    assert layer.penalty().item() == pytest.approx(0.5 * 4 * 2 * 0.21**2, rel=1e-5)
    assert KroneckerRNN(D, 4).penalty() is None
    # As the code of the paper does it: reshape, and turn one axis at a time.
    layer = made(lambda: KroneckerRNN(D, 8))
    h = torch.complex(numbers(8), numbers(8, seed=2))
    x = h.reshape(2, 2, 2)
    for axis, factor in enumerate(layer.complex_factors()):
        x = torch.tensordot(factor, x, dims=([1], [axis])).movedim(0, axis)
    torch.testing.assert_close(layer.matrix() @ h, x.flatten())


@pytest.mark.parametrize(("units", "numbers_of_w"), [(8, 24), (512, 72)])
def test_the_matrix_has_few_numbers(units: int, numbers_of_w: int):
    assert KroneckerRNN(1, units).factors.numel() == numbers_of_w
