"""What each baseline promises about its matrices, its start and its special forms."""

import math

import pytest
import torch
from drawn_layers import numbers, train
from refusals import refuses
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.antisymmetric import AntisymmetricRNN
from physml.models.sequence.gated import LSTM
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.lipschitz import bounded
from physml.models.sequence.orthogonal import ExpRNN, skew_blocks
from physml.ops.backend import running


def test_modrelu_lets_zero_be_zero_and_the_exponential_is_exact_in_single_precision() -> None:
    layer = ExpRNN(2, 3)
    torch.nn.init.constant_(layer.b, 0.5)  # would lift a unit off 0 if 0 had a sign
    for backend in ("native", "reference"):
        with running(backend):
            assert torch.equal(layer(torch.zeros(1, 5, 2))[0], torch.zeros(1, 5, 3))
    # torch.matrix_exp of single numbers is off by 5e-5 at this angle.
    layer, angle = ExpRNN(1, 2), torch.tensor(0.577)
    with torch.no_grad():
        layer.A.fill_(angle)
    cos, sin = angle.cos(), angle.sin()
    want = torch.stack([cos, -sin, sin, cos]).view(2, 2)
    torch.testing.assert_close(layer.matrix().detach(), want, rtol=0, atol=1e-7)


@pytest.mark.parametrize(("dt", "version"), [(0.5, None), (None, 1), (-0.5, 1), (0.5, 3), (1.5, 2)])
def test_lstm_options_that_cannot_be(dt: float | None, version: int | None):
    with pytest.raises(InputError):
        LSTM(3, 4, dt=dt, dt_version=version)
    with pytest.raises(InputError):
        LSTM(3, 4, chrono=2.0)


def orthogonality(B: Tensor) -> float:
    return (B @ B.T - torch.eye(len(B), dtype=B.dtype)).abs().max().item()


@pytest.mark.parametrize("size", [1, 7])
@pytest.mark.parametrize(
    "init, base, every", [("cayley", "identity", None), ("henaff", "start", None), ("cayley", "start", 2)]
)
def test_the_matrix_is_orthogonal_before_and_after_training(init: str, size: int, base: str, every):
    layer = ExpRNN(2, size, init=init, base=base, rebase_every=every).double()
    start = layer.symbols()["B"].detach().clone()
    train(layer, 3)
    B = layer.symbols()["B"].detach()
    assert max(orthogonality(start), orthogonality(B)) < 1e-6  # the base is made in single precision
    assert torch.linalg.det(B) > 0
    if size > 1:
        assert (B - start).abs().max() > 1e-3


@pytest.mark.parametrize("size", [6, 7])
def test_bases_start_at_the_same_matrix(size: int):
    layers = []
    for base in ("identity", "start"):
        torch.manual_seed(3)
        layers.append(ExpRNN(2, size, base=base).double())
    torch.testing.assert_close(*(layer.symbols()["B"] for layer in layers), rtol=0, atol=1e-6)
    A, zero = (layer.symbols()["A"] for layer in layers)
    assert A.count_nonzero() == 3 and not zero.any()


def test_the_base_moves_at_every_kth_training_pass_and_leaves_the_map() -> None:
    layer = ExpRNN(2, 6, base="start").double()
    train(layer, 3)
    u = numbers(2, 5, 2)
    before, A = layer(u)[0], layer.symbols()["A"].detach()
    assert A.abs().max() > 1e-3
    layer.rebase()
    assert not layer.symbols()["A"].any()
    assert orthogonality(layer.symbols()["B"]) < 1e-12
    torch.testing.assert_close(layer(u)[0], before, rtol=1e-6, atol=1e-6)
    layer, moved = ExpRNN(2, 6, base="start", rebase_every=3).double(), []
    for _ in range(8):
        base = layer.B0.clone()
        train(layer.train(), 1)
        moved.append(not torch.equal(layer.B0, base))
        layer.eval()(numbers(2, 5, 2))  # does not count
    assert moved == [False, False, False, True, False, False, True, False]


def test_cayley_and_henaff_angles_and_exprnn_options_that_cannot_be():
    n = 2000
    at = torch.arange(0, n, 2)
    cayley, henaff = skew_blocks(n, "cayley"), skew_blocks(n, "henaff")
    for skew in (cayley, henaff):
        assert torch.equal(skew, -skew.T)
        assert skew.count_nonzero() <= n
    # s = -tan(t / 2), t uniform on [0, pi / 2]
    t = -2 * torch.atan(cayley[at, at + 1])
    assert t.min() >= 0 and t.max() <= math.pi / 2 + 1e-6
    assert abs(t.mean() - math.pi / 4) < 0.05
    s = henaff[at, at + 1]
    assert s.abs().max() <= math.pi and s.abs().max() > 3.0 and abs(s.mean()) < 0.15
    refuses(InputError, "base='start'", ExpRNN, 2, 4, rebase_every=10)
    refuses(InputError, "rebase_every", ExpRNN, 2, 4, base="start", rebase_every=0)
    refuses(InputError, "base='start'", ExpRNN(2, 4).rebase)


@pytest.mark.parametrize("beta", [0.0, 0.5, 0.75, 1.0])
def test_real_parts_lie_between_the_eigenvalues_of_the_symmetric_part(beta: float):
    M, gamma = numbers(8, 8), 0.3
    A = bounded(M, beta, gamma)
    parts = torch.linalg.eigvals(A).real
    symmetric = torch.linalg.eigvalsh((1 - beta) * (M + M.T)) - gamma
    assert symmetric[0] - 1e-9 <= parts.min() and parts.max() <= symmetric[-1] + 1e-9
    torch.testing.assert_close(
        A + A.T, 2 * ((1 - beta) * (M + M.T) - gamma * torch.eye(8)), check_dtype=False
    )
    torch.testing.assert_close(A - A.T, 2 * beta * (M - M.T))
    if beta == 1.0:
        torch.testing.assert_close(parts, torch.full_like(parts, -gamma))


def test_chrono_and_antisymmetric_starts():
    T_max = 1000.0
    s = LSTM(3, 4000, chrono=T_max).symbols()
    memory = s["bf"].exp()
    assert 1.0 <= memory.min() < 1.0 + 0.01 * T_max
    assert 0.99 * T_max < memory.max() <= T_max - 1.0 + 1e-3 * T_max
    assert abs(memory.mean() / (T_max / 2) - 1) < 0.05  # uniform before the logarithm
    assert torch.equal(s["bi"], -s["bf"])
    assert not s["bg"].any() and not s["bo"].any()
    assert s["Wf"].std() > 0
    layer = AntisymmetricRNN(50, 200, epsilon=0.1, gamma=0.0, gated=True, sigma_w=4.0)
    assert abs(layer.W.std() * 200**0.5 / 4 - 1) < 0.02
    for V in (layer.V, layer.Vz):
        assert abs(V.std() * 50**0.5 - 1) < 0.02
    assert not layer.b.any() and not layer.bz.any()


def test_indrnn_brings_u_back_into_its_bounds():
    layer = IndRNN(2, 5, n_layers=2, bound=0.7)
    assert all(u.min() >= 0 and u.max() <= 0.7 for u in layer.u)
    with torch.no_grad():
        layer.u[0].copy_(torch.tensor([-3.0, 0.1, 0.7, 2.0, -0.2]))
    layer(torch.randn(1, 3, 2))
    torch.testing.assert_close(layer.u[0].detach(), torch.tensor([-0.7, 0.1, 0.7, 0.7, -0.2]), rtol=0, atol=0)
