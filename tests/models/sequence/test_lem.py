"""LEM against equation 5.3, and its hand-written backward against autograd's."""

import itertools
import math

import numpy as np
import pytest
import torch
from each import each
from torch import Tensor

from physml.base.errors import InputError
from physml.models.sequence.lem import LEM
from physml.ops.lem import autograd, lem

VARIANTS = {
    "dt 1": {"dt": 1.0},
    "dt 1.7": {"dt": 1.7},
    "clipped": {"dt": 1.3, "clip": (0.5, 0.8)},
    "one scale": {"dt": 0.6, "multiscale": False},
}


def build(d_in: int, d_hidden: int, seed: int = 0, **options) -> LEM:
    torch.manual_seed(seed)
    return LEM(d_in, d_hidden, **options).double()


def draw(*shape: int, seed: int = 1) -> Tensor:
    return torch.randn(*shape, dtype=torch.double, generator=torch.Generator().manual_seed(seed))


def by_hand(layer: LEM, u: Tensor, y0: Tensor, z0: Tensor) -> dict[str, np.ndarray]:
    """Equation 5.3, one number after the other."""
    s = {name: value.detach().numpy() for name, value in layer.symbols().items()}
    (B, T, D), H = u.shape, y0.shape[1]
    result = {name: np.zeros((B, T, H)) for name in ("y", "z", "dt", "dtbar")}

    def line(kind: str, i: int, state: list[float], inputs: list[float]) -> float:
        total = s["b" + kind][i]
        for j in range(H):
            total += s["W" + kind][i, j] * state[j]
        for j in range(D):
            total += s["V" + kind][i, j] * inputs[j]
        return total

    def step(kind: str, i: int, state: list[float], inputs: list[float]) -> float:
        if not layer.multiscale:
            return layer.dt
        size = layer.dt / (1 + math.exp(-line(kind, i, state, inputs)))
        return size if layer.clip is None else min(max(size, layer.clip[0]), layer.clip[1])

    for row in range(B):
        y, z = y0[row].tolist(), z0[row].tolist()
        for n in range(T):
            x = u[row, n].tolist()
            dt = [step("1", i, y, x) for i in range(H)]
            dtbar = [step("2", i, y, x) for i in range(H)]
            z = [(1 - dt[i]) * z[i] + dt[i] * math.tanh(line("z", i, y, x)) for i in range(H)]
            y = [(1 - dtbar[i]) * y[i] + dtbar[i] * math.tanh(line("y", i, z, x)) for i in range(H)]
            for name, value in (("y", y), ("z", z), ("dt", dt), ("dtbar", dtbar)):
                result[name][row, n] = value
    return result


def gradients(layer: LEM, u: Tensor, state: tuple[Tensor, Tensor], use: str) -> list[Tensor]:
    inputs = [x.clone().requires_grad_() for x in (u, *state)]
    outputs, (y, z) = layer(inputs[0], (inputs[1], inputs[2]))
    total = torch.zeros((), dtype=torch.double)
    for k, (name, x) in enumerate((("outputs", outputs), ("y", y), ("z", z))):
        if name in use:
            total = total + (x * draw(*x.shape, seed=7 + k)).sum()
    leaves = [*inputs, *layer.parameters()]
    return list(torch.autograd.grad(total, leaves, materialize_grads=True))


@pytest.mark.parametrize("backend", ["reference", "torch"])
@pytest.mark.parametrize("biases", [1, 2])
@pytest.mark.parametrize("variant", VARIANTS)
def test_every_number_follows_the_equation(variant: str, biases: int, backend: str) -> None:
    layer = build(2, 5, biases=biases, backend=backend, **VARIANTS[variant])
    u, y0, z0 = draw(3, 11, 2), draw(3, 5, seed=2), draw(3, 5, seed=3)
    expected = by_hand(layer, u, y0, z0)
    outputs, (y, z) = layer(u, (y0, z0))
    np.testing.assert_allclose(outputs.detach(), expected["y"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(y.detach(), expected["y"][:, -1], rtol=0, atol=1e-13)
    np.testing.assert_allclose(z.detach(), expected["z"][:, -1], rtol=0, atol=1e-13)
    dt, dtbar = layer.time_scales(u, (y0, z0))
    np.testing.assert_allclose(dt.detach(), expected["dt"], rtol=0, atol=1e-13)
    np.testing.assert_allclose(dtbar.detach(), expected["dtbar"], rtol=0, atol=1e-13)


@each("variant", VARIANTS)
@each("T, H, B", list(itertools.product((1, 7, 63), (1, 3, 5), (1, 4))))
def test_every_gradient_equals_that_of_the_plain_loop(variant: str, T: int, H: int, B: int) -> None:
    plain = build(2, H, biases=2, backend="reference", **VARIANTS[variant])
    fast = build(2, H, biases=2, backend="torch", **VARIANTS[variant])
    u, state = draw(B, T, 2), (draw(B, H, seed=2), draw(B, H, seed=3))
    for a, b in zip(
        gradients(plain, u, state, "outputs y z"), gradients(fast, u, state, "outputs y z"), strict=True
    ):
        torch.testing.assert_close(b, a, rtol=1e-10, atol=1e-11)


@pytest.mark.parametrize(("limit", "value"), [("STEPS", 1), ("STEPS", 5), ("STEPS", 22), ("BLOCK", 100)])
@pytest.mark.parametrize("variant", VARIANTS)
def test_blocks_of_steps_join(variant: str, limit: str, value: int, monkeypatch: pytest.MonkeyPatch) -> None:
    layer = build(2, 3, **VARIANTS[variant])
    u, state = draw(4, 23, 2), (draw(4, 3, seed=2), draw(4, 3, seed=3))
    whole = [gradients(layer, u, state, use) for use in ("outputs y z", "y z")]
    with torch.no_grad():
        outputs, _ = layer(u, state)
    monkeypatch.setattr(autograd, limit, value)
    with torch.no_grad():
        torch.testing.assert_close(layer(u, state)[0], outputs, rtol=0, atol=1e-14)
    parts = [gradients(layer, u, state, use) for use in ("outputs y z", "y z")]
    torch.testing.assert_close(parts, whole, rtol=1e-12, atol=1e-13)


def test_second_derivatives() -> None:
    leaves = [draw(2, 3, 1), draw(2, 2), draw(2, 2), *build(1, 2, dt=1.0).parameters()]
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    assert torch.autograd.gradgradcheck(lambda *x: lem(*x, dt=1.0, backend="reference")[0], leaves)
    for weight in (torch.ones(2, 3, 2).double(), torch.ones(2, 3, 2).double().requires_grad_()):
        outputs = lem(*leaves, dt=1.0, backend="torch")[0]
        with pytest.raises(InputError, match="backend='reference'"):
            torch.autograd.grad(outputs, leaves, weight, create_graph=True)


@pytest.mark.parametrize("biases", [1, 2])
@torch.no_grad()
def test_chrono_initialisation(biases: int) -> None:
    layer = build(1, 2000, dt=0.5, chrono=200, biases=biases)
    s = layer.symbols()
    drawn = torch.exp(-s["b1"])  # uniform on [1, 200 / 2 - 1]
    assert drawn.min() >= 1 and drawn.max() <= 99
    assert drawn.mean() == pytest.approx(50, abs=3)
    assert drawn.var() == pytest.approx(98**2 / 12, rel=0.1)
    for name in ("b2", "bz", "by"):
        assert not s[name].any()
    assert layer.V.std() == pytest.approx(2000**-0.5 / 3**0.5, rel=0.05)


@pytest.mark.parametrize(("init", "bound"), [("official", 400**-0.5), ("fan_in", 425**-0.5)])
@torch.no_grad()
def test_weights_and_biases_are_uniform(init: str, bound: float) -> None:
    layer = build(25, 400, dt=1.0, biases=2, init=init)
    for p in layer.parameters():
        assert p.abs().max() <= bound
        assert p.abs().max() == pytest.approx(bound, rel=0.02)
        assert p.std() == pytest.approx(bound / 3**0.5, rel=0.1)


def test_symbols_are_the_weights_themselves() -> None:
    layer = build(2, 3, dt=1.0)
    u = draw(2, 5, 2)
    before = layer(u)[0]
    assert sorted(layer.symbols()) == sorted(
        ["W1", "W2", "Wz", "Wy", "V1", "V2", "Vz", "Vy", "b1", "b2", "bz", "by"]
    )
    with torch.no_grad():
        for name, value in layer.symbols().items():
            value.mul_(2)
            assert not torch.equal(layer(u)[0], before), name
            value.div_(2)
    torch.testing.assert_close(layer(u)[0], before)
    single = build(2, 3, dt=1.0, multiscale=False)
    assert sorted(single.symbols()) == ["Vy", "Vz", "Wy", "Wz", "by", "bz"]


def test_the_sum_of_two_biases_acts() -> None:
    two, one = build(2, 3, dt=1.0, biases=2), build(2, 3, dt=1.0, seed=9)
    one.load_state_dict({"W": two.W, "Wy": two.Wy, "V": two.V, "b": two.b + two.b_state})
    torch.testing.assert_close(two(draw(2, 5, 2))[0], one(draw(2, 5, 2))[0])


def test_clipped_steps_stay_in_their_range_and_pass_no_gradient_outside() -> None:
    layer = build(1, 4, dt=1.0, clip=(1.0, 1.0))
    assert torch.equal(layer.time_scales(draw(2, 6, 1))[0], torch.ones(2, 6, 4).double())
    layer(draw(2, 6, 1))[0].sum().backward()
    assert not layer.W.grad[4:].any() and layer.W.grad[:4].any()


def test_the_integrator_is_of_first_order() -> None:
    """Without weights z' = tanh(bz) - z: halving the step halves the error."""
    errors = []
    for n_steps in (40, 80, 160):
        layer = build(1, 1, dt=2 / n_steps, multiscale=False)
        with torch.no_grad():
            for p in layer.parameters():
                p.zero_()
            layer.b.fill_(0.7)
            _, (y, _) = layer(torch.zeros(1, n_steps, 1).double())
        errors.append(abs(y.item() - math.tanh(0.7) * (1 - math.exp(-2))))
    assert errors[0] / errors[1] == pytest.approx(2, rel=0.05)
    assert errors[1] / errors[2] == pytest.approx(2, rel=0.05)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"dt": 0.0}, "dt must be positive"),
        ({"dt": 2.1}, r"dt must lie in \[0, 2\]; got 2.1"),
        ({"dt": 1.0, "biases": 3}, "biases must be 1 .* or 2"),
        ({"dt": 1.0, "clip": (0.5, 0.2)}, "low <= high"),
        ({"dt": 1.0, "clip": (0.5,)}, "pair"),
        ({"dt": 1.0, "multiscale": False, "clip": (0.1, 1.0)}, "multiscale=True"),
        ({"dt": 1.0, "multiscale": False, "chrono": 100}, "multiscale=True"),
        ({"dt": 0.01, "chrono": 100}, "chrono .* more than 2"),
        ({"dt": 1.0, "backend": "trch"}, "Did you mean torch"),
        ({"dt": 1.0, "init": "offical"}, "Did you mean official"),
    ],
)
def test_wrong_arguments(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        LEM(2, 3, **options)


# ---------------------------------------------------------------------------- state dropout, lamb's start


@pytest.mark.parametrize("variant", VARIANTS)
def test_state_dropout_masks_y_where_it_enters_w_and_nowhere_else(
    variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Against equation 5.3 in numbers, with y times the mask in front of W_z, W_1 and W_2."""
    layer = build(2, 5, state_dropout=0.4, **VARIANTS[variant]).train()
    mask = torch.tensor([[0, 1, 1, 0, 1], [1, 1, 0, 1, 0], [1, 0, 1, 1, 1]]) / 0.6
    monkeypatch.setattr(
        "physml.models.sequence.lem.F.dropout", lambda ones, p: mask * ones if p == 0.4 else None
    )
    u, y0, z0 = draw(3, 11, 2), draw(3, 5, seed=2), draw(3, 5, seed=3)
    outputs, (y, z) = layer(u, (y0, z0))
    s, rows = layer.symbols(), []
    want_y, want_z = y0, z0
    for x in u.unbind(1):
        heard = want_y * mask

        def line(kind: str, state: Tensor, x: Tensor = x) -> Tensor:
            return state @ s[f"W{kind}"].T + x @ s[f"V{kind}"].T + s[f"b{kind}"]

        steps = [torch.full_like(y0, layer.dt)] * 2
        if layer.multiscale:
            steps = [layer.dt * torch.sigmoid(line(kind, heard)) for kind in "12"]
            steps = steps if layer.clip is None else [step.clamp(*layer.clip) for step in steps]
        want_z = (1 - steps[0]) * want_z + steps[0] * torch.tanh(line("z", heard))
        want_y = (1 - steps[1]) * want_y + steps[1] * torch.tanh(line("y", want_z))
        rows.append(want_y)
    torch.testing.assert_close(outputs, torch.stack(rows, 1), rtol=0, atol=1e-13)
    torch.testing.assert_close((y, z), (want_y, want_z), rtol=0, atol=1e-13)


def test_state_dropout_draws_one_mask_per_sequence_and_call_and_none_in_evaluation() -> None:
    layer, plain = build(2, 50, dt=1.0, state_dropout=0.5), build(2, 50, dt=1.0)
    u, state = draw(2, 6, 2)[:1].expand(2, -1, -1), (draw(1, 50).expand(2, -1), draw(1, 50).expand(2, -1))
    once, again = layer.train()(u, state)[0], layer(u, state)[0]
    assert not torch.allclose(once, again) and not torch.allclose(once[0], once[1])
    assert torch.equal(layer.eval()(u, state)[0], plain(u, state)[0])
    nothing = build(2, 50, dt=1.0, state_dropout=0.0).train()
    assert torch.equal(nothing(u, state)[0], plain(u, state)[0])


def test_state_dropout_has_gradients() -> None:
    layer = build(2, 3, dt=1.0)
    mask = torch.tensor([[0.0, 2.0, 2.0], [2.0, 0.0, 2.0]], dtype=torch.double)
    leaves = [draw(2, 4, 2), draw(2, 3, seed=2), draw(2, 3, seed=3), layer.W, layer.Wy, layer.V, layer.b]
    leaves = [x.detach().clone().requires_grad_() for x in leaves]
    assert torch.autograd.gradcheck(lambda *x: lem(*x, dt=1.0, mask=mask), leaves)


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"state_dropout": 1.0}, r"state_dropout must lie in \[0, 1\)"),
        ({"init": "lamb", "multiscale": False}, "init='lamb'.*needs multiscale=True"),
    ],
)
def test_what_state_dropout_and_lambs_start_cannot_be(options: dict, says: str) -> None:
    with pytest.raises(InputError, match=says):
        LEM(2, 3, dt=1.0, **options)


def test_a_backend_without_the_mask_is_refused_in_training_only() -> None:
    layer = LEM(2, 3, dt=1.0, state_dropout=0.5, backend="torch")
    layer.eval()(torch.zeros(1, 4, 2))
    with pytest.raises(InputError, match="only backend reference has a mask"):
        layer.train()(torch.zeros(1, 4, 2))


def test_lambs_start() -> None:
    torch.manual_seed(0)
    layer = LEM(300, 200, dt=1.0, init="lamb")
    s = layer.symbols()
    for kind in "z12y":
        for name in (f"W{kind}", f"V{kind}"):
            assert abs(s[name].std() / 500**-0.5 - 1) < 0.02
            assert s[name].abs().max() <= 2 * 500**-0.5 / 0.8796
        assert abs(s[f"b{kind}"].mean() - float(kind == "1")) < 0.02
        assert abs(s[f"b{kind}"].std() / 200**-0.5 - 1) < 0.15


@pytest.mark.parametrize(
    ("d_in", "d_hidden", "weights", "biases"), [(256, 256, 524_288, 1_024), (200, 1024, 5_013_504, 4_096)]
)
def test_parameters_of_the_penn_treebank_cells(d_in: int, d_hidden: int, weights: int, biases: int) -> None:
    """Word: "524k" is printed, the weights alone. Character: "5M"."""
    layer = LEM(d_in, d_hidden, dt=1.0)
    assert layer.b.numel() == biases
    assert sum(p.numel() for p in layer.parameters()) == weights + biases
