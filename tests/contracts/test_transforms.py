"""Forward-mode derivatives and torch.func: correct by "auto", or refused, never a tangent lost in silence."""

from collections.abc import Callable
from functools import partial

import all_ops
import pytest
import torch
from c_compiler import needs_compiler
from edge_lists import ODD, N, draw, edges
from refusals import refuses
from torch import Tensor
from torch.autograd import forward_ad

from physml.base.errors import InputError
from physml.graph.rows import Rows
from physml.models.graph.graph_features import dropped
from physml.models.graph.graph_powers import power
from physml.models.graph.graph_propagation import gcn_spread, mean_spread
from physml.ops import backend as backends
from physml.ops.gate import gate
from physml.ops.gradient_sum import gradient_sum
from physml.ops.linear import linear
from physml.ops.unicornn import project

B, T, D, H = 3, 4, 2, 3
E = edges(ODD)
Op = Callable[..., Tensor | tuple[Tensor, ...]]
OPS: dict[str, tuple[Op, list[tuple[int, ...]]]] = {
    **{op.name: (op.call, op.sizes(all_ops.SMALL)) for op in all_ops.OPS},
    "gradient_sum, p not in halves": (partial(gradient_sum, edges=E, p=2.3), [(N, H)]),
    "gate, p not in halves": (partial(gate, edges=E, p=2.3), [(N, H)] * 3),
    "linear": (linear, [(4096, 16), (16, 16), (16,)]),
}
ALONE: dict[str, tuple[Op, list[tuple[int, ...]]]] = {  # without a choice of backends
    "project": (project, [(B, T, D), (H, D), (H,), (B, D)]),
    "gcn_spread": (lambda x: gcn_spread(x, ODD)(x), [(N, H)]),
    "gcn_spread with weights": (lambda x, w: gcn_spread(x, ODD, w.abs())(x), [(N, H), (ODD.shape[1],)]),
    "mean_spread": (lambda x: mean_spread(x, ODD)(x), [(N, H)]),
    "features mostly zeros": (lambda x: as_tensor(dropped(x * (x > 3), 0.0, False)), [(N, 300)]),
}


def as_tensor(x: Tensor | Rows) -> Tensor:
    return x if isinstance(x, Tensor) else x.matrix().to_dense()


def arguments(name: str, shapes: list[tuple[int, ...]]) -> list[Tensor]:
    dtype = torch.float32 if name in ("elu", "linear") else torch.float64  # of their fast backends
    return [draw(*(shape or (1,)), seed=k).reshape(shape).to(dtype) for k, shape in enumerate(shapes)]


def function(op: Op, inputs: list[Tensor], k: int) -> Callable[[Tensor], Tensor]:
    """The first result as a function of argument k."""

    def of_one(x: Tensor) -> Tensor:
        out = op(*inputs[:k], x, *inputs[k + 1 :])
        return out[0] if isinstance(out, tuple) else out

    return of_one


def tangent(f: Callable[[Tensor], Tensor], x: Tensor) -> Tensor | None:
    with forward_ad.dual_level():
        slope: Tensor | None = forward_ad.unpack_dual(f(forward_ad.make_dual(x, torch.ones_like(x)))).tangent
        return slope


def difference(f: Callable[[Tensor], Tensor], x: Tensor, step: float) -> Tensor:
    return (f(x + step) - f(x - step)) / (2 * step)


@pytest.mark.parametrize("preferred", ["auto", "native"])
@pytest.mark.parametrize("name", OPS)
def test_ops_have_tangents_of_all_arguments(name: str, preferred: str) -> None:
    needs_compiler()
    op, shapes = OPS[name]
    inputs = arguments(name, shapes)
    step, tolerance = (1e-6, 1e-6) if inputs[0].dtype == torch.float64 else (1e-2, 1e-2)
    for k, x in enumerate(inputs):
        f = function(partial(op, backend="auto"), inputs, k)
        plain = function(partial(op, backend="reference"), inputs, k)
        expected = difference(plain, x, step)
        with backends.running(preferred):
            torch.testing.assert_close(tangent(f, x), expected, atol=tolerance, rtol=tolerance)
            jvp = torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]
            torch.testing.assert_close(jvp, expected, atol=tolerance, rtol=tolerance)
            gradient = torch.func.grad(lambda x, f=f: f(x).sum())(x)
            if name != "dropout":  # vmap refuses random numbers
                both = torch.func.vmap(f)(torch.stack([x, x]))
                torch.testing.assert_close(both, torch.stack([plain(x)] * 2))
        leaf = x.clone().requires_grad_()
        plain(leaf).sum().backward()
        torch.testing.assert_close(gradient, leaf.grad)


@pytest.mark.parametrize("backend", ["torch", "native"])
@pytest.mark.parametrize(
    "name", [name for name in OPS if name not in ("linear", "dropout") and "p not" not in name]
)
def test_a_required_fast_backend_refuses_tangents_and_transforms(name: str, backend: str) -> None:
    needs_compiler()
    op, shapes = OPS[name]
    inputs = arguments(name, shapes)
    for k, x in enumerate(inputs):
        f = function(partial(op, backend=backend), inputs, k)
        refuses(InputError, rf"backend='{backend}': forward-mode .* need backend reference", tangent, f, x)
        with pytest.raises(InputError, match=r"transforms such as torch\.func need backend reference"):
            torch.func.vmap(f)(torch.stack([x, x]))


@pytest.mark.parametrize("name", ALONE)
def test_ops_without_a_choice_have_tangents_too(name: str) -> None:
    op, shapes = ALONE[name]
    inputs = arguments(name, shapes)
    for k, x in enumerate(inputs):
        f = function(op, inputs, k)
        expected = difference(f, x, 1e-6)
        torch.testing.assert_close(tangent(f, x), expected, atol=1e-6, rtol=1e-6)
        jvp = torch.func.jvp(f, (x,), (torch.ones_like(x),))[1]
        torch.testing.assert_close(jvp, expected, atol=1e-6, rtol=1e-6)


def test_powers_have_tangents_and_without_any_a_dual_level_leaves_the_choice_as_it_is() -> None:
    x = draw(3).abs()
    expected = difference(lambda x: power(x, 1.5), x, 1e-6)
    torch.testing.assert_close(tangent(lambda x: power(x, 1.5), x), expected, atol=1e-6, rtol=1e-6)
    needs_compiler()
    op, shapes = OPS["lem"]
    with backends.running("auto"), forward_ad.dual_level():
        op(*arguments("lem", shapes), backend="auto")
        assert backends.ran() == ("native",)
