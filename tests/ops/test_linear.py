"""Linear maps in C against torch's."""

import pytest
import torch
from edge_lists import draw
from refusals import refuses
from torch import Tensor
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.ops import backend
from physml.ops import linear as ops
from physml.ops.linear import linear


def given(n: int, d: int, h: int, bias: str) -> list[Tensor]:
    shapes = {"none": [], "one": [(h,)], "of each row": [(n, h)]}[bias]
    return [draw(n, d), draw(h, d, seed=2), *(draw(*shape, seed=3) for shape in shapes)]


BIASES = ["none", "one", "of each row"]


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("bias", BIASES)
@pytest.mark.parametrize("name", ["reference", "torch", "native"])
def test_the_map_and_its_slopes(name: str, bias: str):
    x, weight, *rest = given(3, 16, 32, bias)
    expected = (x[:, None] * weight).sum(2) + (rest[0] if rest else 0)
    torch.testing.assert_close(linear(x, weight, *rest, backend=name), expected)
    tensors = [t.requires_grad_() for t in given(2, 16, 16, bias)]
    assert torch.autograd.gradcheck(lambda *t: linear(*t, backend=name), tensors)
    assert torch.autograd.gradgradcheck(lambda *t: linear(*t, backend=name), tensors)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("n, d, h", [(1, 16, 16), (7, 48, 16), (65, 64, 80), (513, 112, 256)])
@pytest.mark.parametrize("dtype, close", [(torch.float32, 1e-4), (torch.float64, 1e-12)])
def test_c_against_torch(dtype, close: float, n: int, d: int, h: int, flags: str, monkeypatch):
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    for bias in BIASES:
        runs = []
        for name in ("torch", "native"):
            tensors = [t.to(dtype).requires_grad_() for t in given(n, d, h, bias)]
            out = linear(*tensors, backend=name)
            out.backward(draw(n, h, seed=4).to(dtype))
            runs.append((out.detach(), *(t.grad for t in tensors)))
        torch.testing.assert_close(*runs, rtol=close, atol=close)
        assert runs[1][2].is_contiguous()  # as its weight is


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("slow", [False, True])
def test_c_is_chosen_for_large_float32_where_torch_is_slow(slow: bool, monkeypatch):
    monkeypatch.setattr(ops, "slow_products", lambda: slow)
    large, odd, small = given(300, 64, 64, "one"), given(300, 65, 64, "one"), given(3, 16, 16, "one")
    for tensors, dtype, chosen in (
        (large, torch.float32, ("native",) if slow else ()),
        (large, torch.float64, ()),
        (odd, torch.float32, ()),
        (small, torch.float32, ()),
    ):
        with backend.running("auto"):
            linear(*(t.to(dtype) for t in tensors))
            assert backend.ran() == chosen


@pytest.mark.usefixtures("compiler")
def test_a_run_that_wishes_for_c_has_it_where_sizes_suit_and_hears_nothing_where_not(monkeypatch, caplog):
    monkeypatch.setattr(ops, "slow_products", lambda: False)
    with backend.running("native"):
        linear(*(t.float() for t in given(3, 5, 7, "one")))
        assert backend.ran() == () and caplog.text == ""
        linear(*(t.float() for t in given(300, 64, 64, "one")))
        assert backend.ran() == ("native",)


@pytest.mark.usefixtures("no_compiler")
def test_without_a_compiler_torch_computes_it(monkeypatch, caplog):
    monkeypatch.setattr(ops, "slow_products", lambda: True)
    tensors = [t.float() for t in given(300, 64, 64, "one")]
    with backend.running("auto"):
        assert torch.equal(linear(*tensors), linear(*tensors, backend="torch"))
        assert backend.ran() == ("torch",) and "Backend torch computes it" in caplog.text


@pytest.mark.usefixtures("compiler")
def test_what_c_cannot_do_is_said_by_name():
    for tensors, said in (
        (given(3, 15, 16, "none"), r"D and H in 16s; got weight \(16, 15\)"),
        ([draw(3, 16), draw(16, 32)], r"x \(N, D\) and weight \(H, D\); got \(3, 16\) and \(16, 32\)"),
        ([draw(3, 16), draw(16, 16), draw(4, 16)], r"a bias \(H,\) or \(N, H\); got \(4, 16\)"),
    ):
        refuses(InputError, said, linear, *tensors, backend="native")
