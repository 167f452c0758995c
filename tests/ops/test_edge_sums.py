"""Sums over the edges of a graph: of powers, of norms, with trained weights. All backends, float64 loops."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from all_ops import many_without_loops
from edge_lists import ODD, N, draw, edges, many
from refusals import refuses
from torch import Tensor
from variants import variants
from vectors import WIDTHS

from physml.base.errors import InputError
from physml.graph.edges import Edges
from physml.ops import backend
from physml.ops.gate import gate
from physml.ops.gradient_sum import autograd, gradient_sum
from physml.ops.norm_sum import norm_sum
from physml.ops.weighted_sum import autograd as weighted
from physml.ops.weighted_sum import weighted_sum

Op = Callable[..., Tensor]
HALVES = [1 + k / 2 for k in range(15)]  # computed in C
FEW = [1.0, 1.5, 2.0, 2.5, 8.0, 2.3]
POWERS = {
    gradient_sum: variants([*FEW, 0.0, 0.5], [*HALVES, 0.3, 9.0]),
    norm_sum: variants([*FEW, 9.0], HALVES),
}
OPS_AND_POWERS = [(op, p) for op, powers in POWERS.items() for p in powers]
BACKENDS = ("reference", "torch", "native")
NO_LOOPS = edges(ODD[:, ODD[0] != ODD[1]])  # at a loop |d|^p and a norm have a kink


def by_loop(op: Op, q: Tensor, of: Edges, p: float) -> np.ndarray:
    x, total = q.detach().double().numpy(), np.zeros(tuple(q.shape) if op is gradient_sum else (len(q), 1))
    for i, j in zip(of.sender.tolist(), of.receiver.tolist(), strict=True):
        powers = np.abs(x[j] - x[i]) ** p
        total[i] += powers if op is gradient_sum else powers.sum() ** (1 / p)
    return total


def weighted_by_loop(x: Tensor, weight: Tensor, of: Edges) -> np.ndarray:
    features, w, total = x.double().numpy(), weight.double().numpy(), np.zeros(tuple(x.shape))
    for e, (j, i) in enumerate(zip(of.sender.tolist(), of.receiver.tolist(), strict=True)):
        total[i] += w[e][:, None] * features[j]
    return total


def with_gradient(call: Callable[..., Tensor], *x: Tensor) -> tuple[Tensor, ...]:
    leaves = [each.detach().clone().requires_grad_() for each in x]
    total = call(*leaves)
    return total.detach(), *torch.autograd.grad((total * draw(*total.shape, seed=2).to(total)).sum(), leaves)


@pytest.mark.parametrize(("op", "p"), OPS_AND_POWERS)
def test_sums_against_a_loop_and_their_slopes(op: Op, p: float) -> None:
    q = draw(N, 3)
    np.testing.assert_allclose(op(q, edges(ODD), p), by_loop(op, q, edges(ODD), p), atol=1e-12)
    assert torch.autograd.gradcheck(lambda q: op(q, NO_LOOPS, p), (q.requires_grad_(),))


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", BACKENDS)
def test_weighted_sums_against_a_loop_and_their_slopes(name: str) -> None:
    x, weight, of = draw(N, 2, 3), draw(8, 2, seed=2), edges(ODD)
    sums = weighted_sum(x, weight, of, backend=name)
    np.testing.assert_allclose(sums, weighted_by_loop(x, weight, of), atol=1e-12)
    torch.testing.assert_close(weighted_sum(x[:, 0], weight[:, 0], of, backend=name), sums[:, 0])
    leaves = x.requires_grad_(), weight.requires_grad_()
    assert torch.autograd.gradcheck(lambda x, w: weighted_sum(x, w, of, backend=name), leaves)


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("flags", WIDTHS)
@pytest.mark.parametrize("op", POWERS)
def test_every_power_in_c_against_torch_and_the_plain_sum(op: Op, flags: str, monkeypatch: Any) -> None:
    monkeypatch.setenv("PHYSML_NATIVE_FLAGS", flags)
    of = many_without_loops()
    q = torch.relu(draw(40, 65)) if op is gradient_sum else draw(40, 65)  # with features that agree
    for p in HALVES:
        sums = {
            name: with_gradient(lambda q, name=name, p=p: op(q, of, p, backend=name), q) for name in BACKENDS
        }
        for other in ("torch", "reference"):
            torch.testing.assert_close(sums["native"], sums[other], rtol=1e-10, atol=1e-10)


@pytest.mark.usefixtures("compiler")
def test_float32_in_c_is_as_close_as_in_torch() -> None:
    x, weight, q = draw(40, 2, 70).float(), draw(300, 2, seed=2).float(), draw(40, 9).float()
    exact = {p: torch.from_numpy(by_loop(gradient_sum, q, many(), p)) for p in (1.0, 4.0)}
    for name in ("torch", "native"):
        total = weighted_sum(x, weight, many(), backend=name)
        expected = torch.from_numpy(weighted_by_loop(x, weight, many()))
        torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-5)
        for p, expected in exact.items():
            total = gradient_sum(q, many(), p, backend=name)
            torch.testing.assert_close(total.double(), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(("op", "p"), OPS_AND_POWERS)
def test_slopes_are_finite_where_features_agree_or_nearly(op: Op, p: float, dtype: torch.dtype) -> None:
    for spread in (0.0, 1e-310, 1e-40, 1e-30, 1e-12) if op is norm_sum else (0.0, 1e-30, 1e-12):
        q = (torch.ones(N, 3, dtype=dtype) * spread * torch.arange(N)[:, None]).requires_grad_()
        for name in ("auto", "reference") if op is gradient_sum and not 0 < spread < 1e-12 else ("auto",):
            total = op(q, edges(ODD), p, backend=name)
            (slope,) = torch.autograd.grad(total.sum(), q)
            assert torch.isfinite(total).all() and torch.isfinite(slope).all()
            assert spread or (slope == 0).all()


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", ["torch", "native"])
def test_powers_of_small_and_large_differences_stay_in_range(name: str) -> None:
    q, of = torch.tensor([[0.0, 0, 0], [1, 1, 1]]), Edges(torch.tensor([0]), torch.tensor([1]), 2)
    for size in (1e-25, 1e25):
        assert norm_sum(q * size, of, 4.0, backend=name)[0].item() == pytest.approx(size * 3**0.25, rel=1e-5)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("p", [1.5, 2.5, 3.5])
def test_half_powers_are_exact_to_the_last_bit_at_zeros_and_beside_them(p: float, dtype: torch.dtype) -> None:
    d = torch.cat([torch.zeros(2), torch.logspace(-45, 30, 60)]).to(dtype)
    assert torch.equal(autograd.powers(d.clone(), p), d.sqrt() * {1.5: d, 2.5: d * d, 3.5: d * d * d}[p])


@pytest.mark.usefixtures("compiler")
def test_what_overflows_at_one_node_stays_with_its_neighbours_and_no_edges_give_zeros() -> None:
    x = draw(N, 1, 70)
    x[0, 0, :64] = torch.inf  # the block before the last, in room that the last uses again
    weight = torch.ones(8, 1, dtype=torch.double).requires_grad_()
    total = weighted_sum(x, weight, edges(ODD), backend="native")
    assert torch.isfinite(total[[0, 2, 4, 5]]).all() and torch.isfinite(total[:, :, 64:]).all()
    grad = torch.zeros(N, 1, 70, dtype=torch.double)
    grad[0, 0, :64] = torch.inf
    weighted_sum(draw(N, 1, 70), weight, edges(ODD), backend="native").backward(grad)
    assert torch.isfinite(weight.grad[ODD[1] != 0]).all()
    none = torch.zeros(2, 0, dtype=torch.long)
    with backend.running("auto"):
        assert (weighted_sum(draw(N, 1, 3), draw(0, 1), edges(none)) == 0).all()
        assert backend.ran() == ("torch",)
    x, weight = draw(0, 2, 3).requires_grad_(), draw(0, 2).requires_grad_()
    weighted_sum(x, weight, edges(none, 0)).sum().backward()
    assert x.grad.shape == x.shape and weight.grad.shape == weight.shape


CALLS: dict[str, Callable[..., Any]] = {
    "gradient_sum": lambda p, **how: gradient_sum(draw(N, 3), edges(ODD), p, **how),
    "norm_sum": lambda p, **how: norm_sum(draw(N, 3), edges(ODD), p, **how),
    "gate": lambda p, **how: gate(draw(N, 3), draw(N, 3), draw(N, 3), edges(ODD), p, **how),
}


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("name", CALLS)
def test_c_is_taken_where_p_is_a_half_of_a_whole_number_and_torch_elsewhere(name: str, caplog: Any) -> None:
    for preferred, p, chosen in (("auto", 2.5, "native"), ("auto", 2.3, "torch"), ("native", 2.3, "torch")):
        with backend.running(preferred):
            CALLS[name](p)
            assert backend.ran() == (chosen,)
    assert not caplog.records
    with pytest.raises(InputError, match=rf"{name} with backend='native' needs p = 1, 1.5, ..., 8; got 2.3"):
        CALLS[name](2.3, backend="native")


@pytest.mark.parametrize("name", ["gradient_sum", "norm_sum", "weighted_sum"])
def test_many_blocks_of_edges_sum_to_what_one_gives(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    of, q, weight, by_chunk = many(50, 1000), draw(50, 1, 3), draw(1000, 1, seed=4), []
    call, x = {
        "gradient_sum": (lambda q: gradient_sum(q, of, 2.5, backend="torch"), (q[:, 0],)),
        "norm_sum": (lambda q: norm_sum(q, of, 2.5, backend="torch"), (q[:, 0],)),
        "weighted_sum": (lambda q, w: weighted_sum(q, w, of, backend="torch"), (q, weight)),
    }[name]
    for chunk in (2**19, 3 * 7):
        for module in (autograd, weighted):
            monkeypatch.setattr(module, "CHUNK", chunk)
        by_chunk.append(with_gradient(call, *x))
    torch.testing.assert_close(*by_chunk, rtol=1e-10, atol=1e-10)


def test_features_and_weights_of_another_graph_are_refused() -> None:
    for op in POWERS:
        refuses(InputError, "each of the 6 nodes of the edges; got 5", op, draw(5, 3), edges(ODD), 2.5)
    for x, w in (((5, 2, 3), (8, 2)), ((N, 2, 3), (7, 2)), ((N, 2, 3), (8, 1))):
        with pytest.raises(InputError, match=r"x \(6, A, C\) and weight \(8, A\)"):
            weighted_sum(draw(*x), draw(*w), edges(ODD))


def test_a_graph_without_edges_has_sums_of_zero_and_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    none, x, weight = edges(ODD[:, :0]), draw(N, 3).requires_grad_(), draw(1)[:0].requires_grad_()
    with backend.running("native"):
        total = weighted_sum(x, weight, none)
    total.sum().backward()
    assert not total.any() and not x.grad.any() and weight.grad.shape == (0,)
    assert caplog.text == ""
