"""ELU against float64, and its derivatives."""

import pytest
import torch
from c_compiler import needs_compiler
from refusals import refuses
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.ops import backend
from physml.ops.elu import _elu, autograd, elu, native


@pytest.fixture(params=["reference", "torch", "native"])
def name(request) -> str:
    if request.param == "native":
        needs_compiler()
    return request.param


def draw(*shape: int) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(0))


def test_elu_is_right_to_the_last_digits_everywhere(name: str):
    size = torch.logspace(-30, 2.2, 4001, dtype=torch.float64).float()
    x = torch.cat([-size, size, torch.tensor([0.0, -0.0, -torch.inf, torch.inf])])
    exact = torch.where(x > 0, x.double(), torch.expm1(x.double()))
    torch.testing.assert_close(
        elu(x, backend=name).double(), exact, rtol=4 * torch.finfo(x.dtype).eps, atol=0
    )
    assert elu(torch.tensor([torch.nan]), backend=name).isnan().all()


@pytest.mark.parametrize("shape", [(), (0, 3), (7,), (3, 5), (2, 0), (4, 3, 2), (257,)])
def test_elu_of_any_shape_in_blocks_and_shares(shape: tuple[int, ...], name: str, monkeypatch):
    x = draw(*shape)
    whole = elu(x, backend=name)
    monkeypatch.setattr(autograd, "BLOCK", 4)
    monkeypatch.setattr(native.call, "threads", lambda *_: 3)
    assert torch.equal(elu(x, backend=name), whole) and whole.shape == shape
    torch.testing.assert_close(whole, F.elu(x))


def test_elu_has_both_derivatives_and_takes_what_lies_apart(name: str):
    derivatives = []
    for f in (lambda x: elu(x, backend=name), F.elu):
        x = draw(4, 3).T.requires_grad_()
        y = f(x)
        (first,) = torch.autograd.grad((y * draw(3, 4)).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.square().sum(), x)
        derivatives.append((y.detach(), first.detach(), second))
    torch.testing.assert_close(*derivatives)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_other_dtypes_are_torchs(dtype: torch.dtype):
    x = draw(8).to(dtype)
    with backend.running("native"):
        assert torch.equal(elu(x), F.elu(x))


def test_c_says_what_it_is_not_for():
    refuses(InputError, "in C it is computed in float32 alone", _elu, draw(8).double(), backend="native")
