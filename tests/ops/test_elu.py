"""ELU against float64, and its derivatives."""

import pytest
import torch

from physml.ops import elu as module
from physml.ops.elu import elu


@pytest.mark.parametrize(("dtype", "ulps"), [(torch.float32, 3), (torch.float64, 4)])
def test_elu_is_right_to_the_last_digits_everywhere(dtype: torch.dtype, ulps: int):
    size = torch.logspace(-30, 2.2, 4001, dtype=torch.float64).to(dtype)
    x = torch.cat([-size, size, torch.tensor([0.0, -0.0, -torch.inf, torch.inf]).to(dtype)])
    wanted = torch.where(x > 0, x.double(), torch.expm1(x.double()))
    torch.testing.assert_close(elu(x).double(), wanted, rtol=ulps * torch.finfo(dtype).eps, atol=0)
    assert elu(torch.tensor([torch.nan], dtype=dtype)).isnan().all()


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5), (2, 0), (4, 3, 2)])
def test_elu_of_any_shape_in_blocks(shape: tuple[int, ...], monkeypatch):
    x = torch.randn(shape, dtype=torch.double, generator=torch.Generator().manual_seed(0))
    whole = elu(x)
    monkeypatch.setattr(module, "BLOCK", 4)
    assert torch.equal(elu(x), whole) and whole.shape == shape
    torch.testing.assert_close(elu(x), torch.nn.functional.elu(x))


def test_elu_has_both_derivatives_and_takes_what_lies_apart():
    x = torch.randn(3, 4, dtype=torch.double, generator=torch.Generator().manual_seed(0)).T.requires_grad_()
    assert torch.autograd.gradcheck(elu, (x,)) and torch.autograd.gradgradcheck(elu, (x,))


def test_other_dtypes_are_torchs():
    x = torch.randn(8, generator=torch.Generator().manual_seed(0)).bfloat16()
    assert torch.equal(elu(x), torch.nn.functional.elu(x))
