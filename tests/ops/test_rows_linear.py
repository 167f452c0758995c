"""Linear maps of features that are mostly zeros: all backends against dense ones."""

import numpy as np
import pytest
import torch
from edge_lists import draw
from torch import Tensor
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.graph.rows import Rows
from physml.ops.rows_linear import rows_linear

BACKENDS = ("reference", "torch", "native")


def some(n: int, d: int) -> Tensor:
    """A third of the entries; the first row and the last column are empty."""
    x = draw(n, d) * (draw(n, d, seed=2) > 0.4)
    x[0], x[:, -1] = 0.0, 0.0
    return x


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_the_map_against_a_loop_and_its_slopes(name: str):
    x, weight = some(5, 7), draw(3, 7, seed=3)
    rows, columns = x.tolist(), weight.tolist()
    mapped = [[sum(a * b for a, b in zip(row, w, strict=True)) for w in columns] for row in rows]
    np.testing.assert_allclose(rows_linear(weight, Rows(x), backend=name), mapped, atol=1e-14)
    weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda w: rows_linear(w, Rows(x), backend=name), weight)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("n, d, h", [(4, 3, 1), (20, 33, 64), (40, 100, 200)])
@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-5), (torch.float64, 1e-13)])
def test_c_against_the_dense_map(dtype, close: float, n: int, d: int, h: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    x, grad, runs = some(n, d).to(dtype), draw(n, h, seed=4).to(dtype), []
    for rows in (Rows(x), None):
        weight = draw(h, d, seed=3).to(dtype).requires_grad_()
        out = x @ weight.T if rows is None else rows_linear(weight, rows, backend="native")
        out.backward(grad)
        runs.append((out.detach(), weight.grad))
    torch.testing.assert_close(*runs, rtol=close, atol=close)
    assert runs[0][1].is_contiguous()


@pytest.mark.usefixtures("compiler")
def test_what_overflows_in_one_channel_or_column_stays_there():
    x, weight = some(6, 20), draw(70, 20)
    weight[3], weight[:, 4] = torch.inf, torch.nan
    out = rows_linear(weight, Rows(x), backend="native")
    assert torch.isfinite(out[x[:, 4] == 0][:, [c for c in range(70) if c != 3]]).all()
    grad = torch.zeros(6, 70, dtype=torch.double)
    grad[2], grad[:, 65] = torch.nan, torch.inf
    weight = draw(70, 20).requires_grad_()
    rows_linear(weight, Rows(x), backend="native").backward(grad)
    assert torch.isfinite(weight.grad[:65, x[2] == 0]).all()


@pytest.mark.parametrize("name", [*BACKENDS[:2], "auto"])
def test_features_without_any_entry_give_zeros_and_no_warning(name: str, caplog: pytest.LogCaptureFixture):
    weight = draw(3, 7).requires_grad_()
    out = rows_linear(weight, Rows(torch.zeros(5, 7, dtype=torch.double)), backend=name)
    out.sum().backward()
    assert out.shape == (5, 3) and not out.any() and not weight.grad.any() and caplog.text == ""


def test_weights_of_another_width_are_refused():
    with pytest.raises(InputError, match=r"features \(5, 7\) need a weight \(H, 7\); got \(3, 6\)"):
        rows_linear(draw(3, 6), Rows(some(5, 7)))
