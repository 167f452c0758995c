"""The systems of two scales beside which built LEMs are drawn, and what the figure shows of them."""

import numpy as np
import pytest

from physml.lab.simulate import multiscale


def test_the_limit_cycle_of_the_slow_variable_is_approached_by_the_method_and_by_euler() -> None:
    # For tau to 0, p' = (1 - |p|^2) p + 2 (-p_2, p_1): a circle of radius 1, reached from (1/2, 0).
    t = np.array([0.5, 1.0, 3.0])
    p = multiscale.exact(1e-6, 3.0)(t) + multiscale.START
    radius = 1 / np.sqrt(1 + 3 * np.exp(-2 * t))
    np.testing.assert_allclose(np.hypot(*p.T), radius, atol=1e-4)
    np.testing.assert_allclose(np.arctan2(p[:, 1], p[:, 0]), np.angle(np.exp(2j * t)), atol=1e-3)
    for tau, of in ((1e-6, "multiscale_method"), (0.05, "euler")):
        fixed = {"of": of, "t_end": 1.0, "width": 60, "micro": 0.5, "micro_steps": 10}
        coarse, fine = (multiscale.by_tau(tau=np.array([tau]), step=s, **fixed)["y"][0] for s in (0.02, 0.01))
        assert coarse / fine == pytest.approx(2, rel=0.15)


def test_5_98_is_k_micro_steps_at_once() -> None:
    sizes = {"macro": 0.1, "n_steps": 6}
    many = multiscale.multiscale_method(micro=0.3, micro_steps=4, **sizes)
    once = multiscale.multiscale_method(micro=1 - 0.7**4, micro_steps=1, **sizes)
    np.testing.assert_allclose(many["phi"], once["phi"], rtol=1e-12)
    np.testing.assert_allclose(many["psi"], once["psi"], rtol=1e-12)


def test_by_width_the_error_falls_to_the_method_and_by_scale_it_has_its_order() -> None:
    settings = {"widths": np.array([20, 80]), "step": 0.1, "t_end": 1.0, "micro": 0.5, "micro_steps": 5}
    for of in ("psi", "phi", "epsilon"):
        y = multiscale.by_width(of=of, seed=0, **settings)["y"]
        assert y[1] < 0.1 * y[0]
    settings = {"tau": np.array([1e-4, 1e-2]), "n_steps": 20, "width": 60, "seed": 0}
    curves = {of: multiscale.by_scale(of=of, **settings)["y"] for of in multiscale.OF_SCALE}
    assert curves["two_scale"][1] / curves["two_scale"][0] == pytest.approx(100, rel=0.2)
    np.testing.assert_allclose(curves["two_scale_relative"], curves["two_scale_relative"][0], rtol=0.2)
    assert curves["weight_two_scale"][0] == pytest.approx(100 * curves["weight_two_scale"][1], rel=0.05)
    assert curves["weight_slow"][0] == curves["weight_slow"][1]
