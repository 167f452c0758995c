"""Laws of every op that has a backward of its own, in each of its backends.

Results and gradients are held against the plain loop. Blocks, and what is of one op: beside the op's tests.
"""

import functools
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import combinations, product

import pytest
import torch
from all_ops import LARGE, OPS, SMALL, Op, draw, everything, gradients, same, weighed
from c_compiler import needs_compiler
from each import Laws, run_all
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from vectors import WIDTHS

from physml.base.errors import InputError

LAWS = law = Laws()
# B, T, D, H: alone, whole vectors and more, blocks of steps and of rows.
RECURRENCES = ((1, 1, 1, 1), (2, 2, 3, 5), (7, 63, 1, 16), (9, 65, 3, 33), (2, 300, 3, 17), (43, 20, 20, 40))
THRESHOLDS = ("PARALLEL", "MIN_WORK", "WORTH_A_THREAD")  # below which an op keeps to one thread


CASES = [(op, backend) for op in OPS for backend in op.backends]


@pytest.mark.parametrize(("op", "backend"), CASES, ids=[f"{op.name}-{backend}" for op, backend in CASES])
def test_an_op_keeps_the_laws(op: Op, backend: str) -> None:
    needs_compiler()
    run_all((rule.__name__, functools.partial(rule, op, backend)) for rule in LAWS)


@pytest.mark.parametrize("op", [op for op in OPS if op.dtype == torch.float64], ids=lambda op: op.name)
def test_the_plain_loop_has_the_second_derivatives_of_differences(op: Op) -> None:
    x = op.arguments(SMALL)
    assert torch.autograd.gradgradcheck(lambda *x: op.results(list(x), "reference")[0], x)


def frozen(x: list[Tensor], but: set[int] = frozenset()) -> list[Tensor]:
    return [leaf.detach().clone().requires_grad_(k in but) for k, leaf in enumerate(x)]


# ---------------------------------------------------------------------------------------------- gradients
@law
def results_and_gradients_are_those_of_the_plain_loop(op: Op, backend: str) -> None:
    for sizes in (SMALL, LARGE):
        x = op.arguments(sizes)
        same(everything(op, backend, x), everything(op, "reference", x))


@law
def every_vector_width_computes_the_plain_loop(op: Op, backend: str) -> None:
    """In C, in double and single precision, at sizes below, at and beyond whole vectors and blocks."""
    if backend != "native" or op.name == "dropout":
        return
    for sizes in sizes_of(op):
        single = [x.detach().float().requires_grad_() for x in op.arguments(sizes)]
        double = [x.detach().double().requires_grad_() for x in single]
        exact = everything(op, "reference", double)
        for flags in WIDTHS:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("PHYSML_NATIVE_FLAGS", flags)
                if op.dtype == torch.float64:
                    same(everything(op, backend, double), exact)
                same([x.double() for x in everything(op, backend, single)], exact, 1e-4)


def sizes_of(op: Op) -> list[dict[str, int]]:
    axes = set("".join(op.shapes))
    if "T" in axes:
        return [dict(zip("BTDH", size, strict=True)) for size in RECURRENCES]
    if "C" in axes:
        return [LARGE | {"C": C} for C in (1, 7, 32, 64, 65, 200)]
    return [{"B": B, "H": H} for B, H in ((1, 1), (7, 33), (65, 64), (513, 200))]


@law
def gradients_are_those_of_differences(op: Op, backend: str) -> None:
    if op.dtype == torch.float64:
        x = op.arguments(SMALL)
        assert torch.autograd.gradcheck(lambda *x: op.results(list(x), backend), x)


@law
def any_part_may_be_frozen(op: Op, backend: str) -> None:
    for n in (1, 2):
        for trained in map(set, combinations(range(len(op.shapes)), n)):
            x = frozen(op.arguments(SMALL), trained)
            same(gradients(op, backend, x), gradients(op, "reference", x))
            weighed(op.results(x, backend)).backward()
            assert {k for k, leaf in enumerate(x) if leaf.grad is not None} == trained


@law
def parts_of_the_result_may_go_unused(op: Op, backend: str) -> None:
    x = op.arguments(LARGE)
    count = len(op.results(x, "reference"))
    for n in range(1, count):
        for use in combinations(range(count), n):
            same(gradients(op, backend, x, use), gradients(op, "reference", x, use))


@law
def without_gradients_nothing_is_kept_not_even_the_path_by_the_last_state(op: Op, backend: str) -> None:
    x = op.arguments(LARGE)
    expected = op.results(x, backend)
    with torch.no_grad():
        plain = op.results(x, backend)
    for results in (plain, op.results(frozen(x), backend)):
        assert not any(r.requires_grad for r in results)
        same(results, expected)
    for state in results[len(results) - op.last :]:
        assert state.untyped_storage().nbytes() == state.numel() * state.element_size()


@law
def two_halves_with_carried_state_equal_one_pass(op: Op, backend: str) -> None:
    if op.last:
        u, *rest = frozen(op.arguments(LARGE))
        whole = op.results([u, *rest], backend)
        early, *state = op.results([u[:, :9], *rest], backend)
        late, *end = op.results([u[:, 9:], *state, *rest[op.last :]], backend)
        same([torch.cat([early, late], 1), *end], whole)


@law
def backward_runs_twice_and_another_in_between(op: Op, backend: str) -> None:
    x, other = op.arguments(LARGE), op.arguments(LARGE, seed=20)
    first, second = (weighed(op.results(each, backend)) for each in (x, other))
    once = torch.autograd.grad(first, x, retain_graph=True)
    between = torch.autograd.grad(second, other)
    assert all(map(torch.equal, once, torch.autograd.grad(first, x)))
    same(between, gradients(op, "reference", other))


@law
def second_derivatives_are_right_or_refused(op: Op, backend: str) -> None:
    def second(name: str) -> tuple[Tensor, ...]:
        x = op.arguments(SMALL)
        first = torch.autograd.grad(weighed(op.results(x, name)), x, create_graph=True)
        loss = torch.stack([g.square().sum() + 0 * leaf.sum() for g, leaf in zip(first, x, strict=True)])
        return torch.autograd.grad(loss.sum(), x)

    try:
        derivatives = second(backend)
    except InputError as error:
        assert "second derivatives" in str(error) and "reference" in str(error)
    else:
        same(derivatives, second("reference"))


@law
def checkpoints_change_no_gradient(op: Op, backend: str) -> None:
    expected = gradients(op, backend, op.arguments(LARGE))
    for reentrant in (False, True):
        x = op.arguments(LARGE)
        weighed(checkpoint(lambda *x: op.results(list(x), backend), *x, use_reentrant=reentrant)).backward()
        assert all(torch.equal(leaf.grad, g) for leaf, g in zip(x, expected, strict=True))


@law
def what_is_saved_goes_through_autograd(op: Op, backend: str) -> None:
    """So that hooks of torch can move it elsewhere; no op keeps a tensor by itself."""
    x, packed = op.arguments(LARGE), [0]

    def pack(saved: Tensor) -> Tensor:
        packed.append(saved.numel())
        return saved.clone()

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda saved: saved):
        total = weighed(op.results(x, backend))
    assert max(packed) >= (LARGE["B"] * LARGE["T"] * LARGE["H"] if op.last else 1)
    assert all(map(torch.equal, torch.autograd.grad(total, x), gradients(op, backend, x)))


@law
def what_changes_in_place_is_an_error_not_a_wrong_gradient(op: Op, backend: str) -> None:
    """Each result, and each argument."""
    expected = gradients(op, backend, op.arguments(SMALL))
    for k in range(len(op.shapes)):
        x = op.arguments(SMALL)
        copies = [leaf.clone() for leaf in x]
        total = weighed(op.results(copies, backend))
        copies[k].detach().mul_(2)
        right_or_refused(lambda total=total, x=x: torch.autograd.grad(total, x), expected)
    x = op.arguments(SMALL)
    right_or_refused(
        lambda: torch.autograd.grad(weighed(tuple(r.mul_(2) for r in op.results(x, backend))), x),
        [2 * g for g in expected],
    )


def right_or_refused(call: Callable[[], tuple[Tensor, ...]], expected: Sequence[Tensor]) -> None:
    try:
        results = call()
    except RuntimeError as error:
        assert "in-place" in str(error) or "inplace" in str(error)
    else:
        same(results, expected)


# --------------------------------------------------------------------------------------------- rows, threads
@law
def a_nan_stays_in_its_row(op: Op, backend: str) -> None:
    """In results, and in the gradient of the first argument."""
    if not op.rows:
        return
    x = frozen(op.arguments(LARGE), {0})
    with torch.no_grad():
        dirty = x[0].clone()
        dirty[4] = torch.nan
    dirty.requires_grad_()
    others = [k for k in range(LARGE["B"]) if k != 4]
    results, expected = (op.results([u, *x[1:]], backend) for u in (dirty, x[0]))
    for a, b in zip(results, expected, strict=True):
        assert a[4].isnan().any() and torch.equal(a[others], b[others])
    (ours,), (theirs,) = (torch.autograd.grad(weighed(r), u) for r, u in ((results, dirty), (expected, x[0])))
    assert torch.equal(ours[others], theirs[others])


@law
def threads_change_rounding_alone_and_each_number_of_them_gives_the_same_bits(op: Op, backend: str) -> None:
    if backend != "native" or op.name == "dropout":
        return
    (threshold,) = [name for name in THRESHOLDS if hasattr(op.native, name)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(op.native, threshold, 0)
        for n, rows in ((2, 2), (3, 7), (8, 90), (64, 7)):
            x = op.arguments(LARGE | {"B": rows})
            patch.setattr(torch, "get_num_threads", lambda: 1)
            alone = everything(op, backend, x)
            patch.setattr(torch, "get_num_threads", lambda n=n: n)
            together = everything(op, backend, x)
            same(together, alone)
            assert all(map(torch.equal, together, everything(op, backend, x)))
            assert not op.exact or all(map(torch.equal, together, alone))
        patch.setattr(torch, "get_num_threads", lambda: 3)
        total = weighed(op.results(x, backend))
        patch.setattr(torch, "get_num_threads", lambda: 1)
        same(torch.autograd.grad(total, x), gradients(op, backend, x))


@law
def python_threads_do_not_disturb_each_other(op: Op, backend: str) -> None:
    if op.name == "dropout":  # all threads draw from one generator
        return
    x = [op.arguments(LARGE, seed=seed) for seed in (0, 20)]
    expected = [everything(op, backend, each) for each in x]
    begin = threading.Barrier(2)

    def work(arguments: list[Tensor]) -> list[list[Tensor]]:
        torch.set_num_threads(1)  # of this thread: the expected ones are of one too
        begin.wait()
        return [everything(op, backend, arguments) for _ in range(5)]

    with ThreadPoolExecutor(2) as pool:
        for results, alone in zip(pool.map(work, x), expected, strict=True):
            assert all(all(map(torch.equal, each, alone)) for each in results)


# ------------------------------------------------------------------------------------------------- layouts
def layouts(x: Tensor) -> list[Tensor]:
    """The shape of x with other strides: axes turned, every second number, one row or one number for all."""
    every_second = torch.stack([x, -x], -1).flatten(-2)[..., ::2]
    constant = x.flatten()[0].reshape([1] * x.dim()).expand(x.shape)
    turned = x.permute(*reversed(range(x.dim()))).contiguous().permute(*reversed(range(x.dim())))
    return [turned, every_second, x[:1].expand(x.shape), constant]


@law
def arguments_and_incoming_gradients_may_have_any_layout(op: Op, backend: str) -> None:
    for sizes, k in product((LARGE, LARGE | {"H": 16}), range(4)):
        plain = op.arguments(sizes)
        x = [layouts(leaf.detach())[k].requires_grad_() for leaf in plain]
        same(everything(op, backend, x), everything(op, "reference", x))
        by_backend = []
        for name in (backend, "reference"):
            results = op.results(plain, name)
            slopes = [layouts(draw(*r.shape, seed=30 + j).to(op.dtype))[k] for j, r in enumerate(results)]
            by_backend.append(torch.autograd.grad(results, plain, slopes))
        same(*by_backend)
