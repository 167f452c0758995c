"""Networks of one hidden layer: the identity, affine maps, fitted functions."""

import numpy as np

from physml.lab.shallow import Shallow, affine, box, fitted, identity

LOW, HIGH = np.array([-2.0, 0.0]), np.array([1.0, 3.0])


def test_it_is_a_matrix_after_an_activation_after_an_affine_map_and_the_identity_off_by_a_cube() -> None:
    network = Shallow(np.array([[1.0, 2.0]]), np.array([0.5]), np.array([[3.0], [-1.0]]))
    output = network(np.array([[0.1, 0.2]]))
    np.testing.assert_allclose(output, [[3 * np.tanh(1.0), -np.tanh(1.0)]])
    x = box(LOW, HIGH, 200, 0)
    for s in (0.5, 0.1):
        assert (np.abs(identity(2, s)(x) - x) <= s**2 * np.abs(x) ** 3 / 3).all()
    M, c = np.array([[1.0, -2.0], [0.5, 0.0], [0.0, 1.0]]), np.array([1.0, 0.0, -3.0])
    np.testing.assert_allclose(affine(M, c, 1e-4)(x), x @ M.T + c, atol=1e-5)


def test_a_fit_gets_better_with_width() -> None:
    def function(x: np.ndarray) -> np.ndarray:
        return np.stack([np.sin(x[:, 0]) * x[:, 1], np.exp(-x[:, 1])], 1)

    fresh = box(LOW, HIGH, 2000, 9)
    errors = [fitted(function, LOW, HIGH, width=width).error(function, fresh) for width in (5, 20, 80)]
    assert errors[0] > 5 * errors[1] > 50 * errors[2]
    assert errors[2] < 1e-3


def test_an_input_that_never_changes_gets_no_weight_and_a_large_penalty_keeps_weights_small() -> None:
    assert not fitted(lambda x: x[:, :1], np.array([-1.0, 0.0]), np.array([1.0, 0.0]), width=10).W[:, 1].any()
    free, held = (
        fitted(lambda x: np.sin(3 * x[:, :1]), LOW, HIGH, width=40, ridge=r).A for r in (1e-16, 1e-4)
    )
    assert np.abs(held).max() < 0.1 * np.abs(free).max()
