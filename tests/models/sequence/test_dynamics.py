"""Continuous-in-depth nets and dynamic autoencoders: against loops from their equations."""

import numpy as np
import pytest
import torch
from drawn_layers import made, numbers
from refusals import refuses

from physml.base.errors import InputError
from physml.models.sequence.continuous_depth import ContinuousDepth
from physml.models.sequence.koopman import KoopmanAutoencoder
from physml.models.sequence.rnn import SequenceModel
from physml.run.record import count_parameters

D, H = 3, 4


def array(x: torch.Tensor) -> np.ndarray:
    return x.detach().numpy()


@pytest.mark.parametrize("scheme", ["euler", "midpoint", "rk4"])
def test_a_net_takes_steps_of_its_scheme(scheme: str) -> None:
    layer = made(lambda: ContinuousDepth(D, H, scheme=scheme, dt=0.6, n_steps=2))
    u = numbers(2, 5, D)
    y, state = layer(u)
    parts = [(array(lin.weight), array(lin.bias)) for lin in (layer.first, layer.second, layer.third)]

    def R(x: np.ndarray) -> np.ndarray:
        (A1, a1), (A2, a2), (A3, a3) = parts
        return A3 @ np.tanh(A2 @ np.tanh(A1 @ x + a1) + a2) + a3

    x, dt = array(u[1, 3]), 0.3
    for _ in range(2):
        k1 = R(x)
        k2 = R(x + dt / 2 * k1)
        k3 = R(x + dt / 2 * k2)
        k4 = R(x + dt * k3)
        slopes = {"euler": k1, "midpoint": k2, "rk4": (k1 + 2 * k2 + 2 * k3 + k4) / 6}
        x = x + dt * slopes[scheme]
    assert np.allclose(array(y[1, 3]), x, rtol=1e-12)
    assert state == ()
    assert torch.autograd.gradcheck(lambda *_: layer(u[:1, :2])[0], list(layer.parameters()), fast_mode=True)


PREDICTED = {"width": 5, "steps": 3, "back_steps": 2, "eta": 0.1}


def autoencoder(**changes) -> KoopmanAutoencoder:
    return made(lambda: KoopmanAutoencoder(D, H, **PREDICTED | changes))


def test_predictions_of_an_autoencoder_in_their_order() -> None:
    layer, u = autoencoder(), numbers(2, 2, D)
    y = array(layer(u)[0][1, 0].reshape(6, D))

    def mlp(parts, x: np.ndarray, last: bool) -> np.ndarray:
        for i, part in enumerate(parts):
            x = array(part.weight) @ x + array(part.bias)
            x = np.tanh(x) if i < 2 or last else x
        return x

    q = mlp(layer.encoder, array(u[1, 0]), last=False)
    omega, backward = array(layer.Omega), array(layer.Back)
    for k, predicted in zip(range(-2, 4), y, strict=True):
        moved = np.linalg.matrix_power(omega if k > 0 else backward, abs(k)) @ q
        assert np.allclose(predicted, mlp(layer.decoder, moved, last=True), rtol=1e-12)
    assert np.allclose(array(layer.predict(u[:, 0], 3)[1]), y[3:])
    assert torch.autograd.gradcheck(lambda *_: layer(u[:1])[0], list(layer.parameters()), fast_mode=True)


def test_the_consistency_of_equation_24_by_hand_and_of_maps_that_undo_each_other_alone() -> None:
    layer = autoencoder()
    A, B, total = array(layer.Omega), array(layer.Back), 0.0
    for k in range(1, H + 1):
        for first, second in ((A, B), (B, A)):
            total += ((first[:k] @ second[:, :k] - np.eye(k)) ** 2).sum() / (2 * k)
    assert float(layer.consistency().detach()) == pytest.approx(total, rel=1e-12)
    assert float(layer.penalty().detach()) == pytest.approx(0.1 * total, rel=1e-12)
    assert autoencoder(eta=0.0).penalty() is None
    # At the start Omega' is the inverse of Omega; a small turn of it is not.
    layer = KoopmanAutoencoder(D, H, **PREDICTED).double()
    assert float(layer.consistency().detach()) < 1e-12
    assert torch.allclose(torch.linalg.svdvals(layer.Omega), torch.full((H,), 0.99, dtype=torch.float64))
    with torch.no_grad():
        layer.Back.add_(0.1 * numbers(H, H))
    assert float(layer.consistency().detach()) > 0.01


def test_an_autoencoder_without_a_way_back() -> None:
    layer = autoencoder(back_steps=0, eta=0.0)
    assert layer.Back is None and layer(numbers(2, 1, D))[0].shape == (2, 1, 4 * D)
    refuses(InputError, "there is no backward map", layer.consistency)
    with pytest.raises(InputError, match="eta is for an autoencoder with a backward map"):
        KoopmanAutoencoder(D, H, **PREDICTED | {"back_steps": 0})


def test_a_bare_net_answers_with_its_layer() -> None:
    def layer(d_in: int) -> ContinuousDepth:
        return ContinuousDepth(d_in, H, scheme="rk4", dt=0.1)

    def bare(d_out: int, **options) -> SequenceModel:
        return SequenceModel(layer, D, d_out, "every", tokens=False, bare=True, **options)

    net, x = bare(D), torch.randn(2, 4, D)
    assert torch.equal(net(x)[0], net.layers[0](x)[0])
    assert count_parameters(net) == count_parameters(net.layers)
    refuses(InputError, r"it must be 5 wide, as the task has it; got 3\. Set bare to null", bare, 5)
    refuses(InputError, "bare=true has no read-out to start or to tie", bare, D, readout_init="fan_in")
