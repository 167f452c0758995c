"""Least squares for the trivial references."""

import pytest
import torch

from physml.task.trivial import least_squares, linear


def test_an_affine_map_is_found_and_keeps_leading_axes_and_type():
    x, a = torch.randn(50, 3, dtype=torch.float64), torch.randn(4, 2, dtype=torch.float64)
    assert torch.allclose(least_squares(x, linear(x, a)), a, atol=1e-12)
    x = torch.randn(2, 5, 3)
    out = linear(x, least_squares(x.reshape(-1, 3), torch.randn(10, 2)))
    assert out.shape == (2, 5, 2) and out.dtype == x.dtype


def test_the_residual_is_orthogonal_to_the_features_and_a_feature_twice_does_no_harm():
    x, y = torch.randn(200, 3), torch.randn(200, 1)
    residual = y - linear(x, least_squares(x, y))
    assert (x.T @ residual).abs().max() < 1e-3 and abs(residual.sum()) < 1e-3
    x = torch.randn(50, 1)
    a = least_squares(torch.cat([x, x, torch.ones_like(x)], 1), 3 * x + 1)
    assert torch.isfinite(a).all()
    assert [float(a[:2].sum()), float(a[2:].sum())] == pytest.approx([3, 1], rel=1e-6)
