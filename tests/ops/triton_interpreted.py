"""The Triton backends in Triton's interpreter: kernels run in NumPy, step by step, on any machine.

Triton reads TRITON_INTERPRET when it is imported, so `test_triton.py` runs this file in a process of its own:
TRITON_INTERPRET=1 python -m pytest tests/ops/triton_interpreted.py
"""

import logging
import threading

import pytest
import torch
from refusals import refuses
from torch import Tensor
from torch.utils.checkpoint import checkpoint
from variants import variants

from physml.base.errors import InputError
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.ops.cornn import reference as cornn_reference
from physml.ops.cornn import triton as cornn_gpu
from physml.ops.lem import reference as lem_reference
from physml.ops.lem import triton as lem_gpu
from physml.ops.triton import cornn_steps, graph, launch, lem_steps
from physml.ops.unicornn import reference as unicornn_reference
from physml.ops.unicornn import triton as unicornn_gpu

GPU = {"lem": lem_gpu, "cornn": cornn_gpu, "unicornn": unicornn_gpu}
LOOP = {"lem": lem_reference.lem, "cornn": cornn_reference.cornn, "unicornn": unicornn_reference.unicornn}
WAYS = ("rows", "tiles", "steps")  # one kernel by rows, one by tiles of 16 rows, or kernels between products
CASES = {
    "lem": ("lem", {"dt": 0.7, "clip": None}, 4),
    "lem, clipped": ("lem", {"dt": 1.3, "clip": (0.5, 0.8)}, 4),
    "lem, one scale": ("lem", {"dt": 0.6, "clip": None}, 2),
    "cornn, explicit": ("cornn", {"dt": 0.1, "gamma": 2.0, "epsilon": 3.0, "damping": "explicit"}, 1),
    "cornn, implicit": ("cornn", {"dt": 0.1, "gamma": 2.0, "epsilon": 3.0, "damping": "implicit"}, 1),
    "unicornn": ("unicornn", {"alpha": 0.9}, 0),
}
SHAPES = {"small": (2, 3, 3, 5), "one": (1, 1, 1, 1), "wide": (3, 2, 1, 17)}  # B, T, D, H
EVERYWHERE = [(case, way) for case in CASES for way in WAYS if way == "rows" or CASES[case][2]]
PLAIN = ("lem", "cornn, explicit", "unicornn")
PLAIN_EVERYWHERE = [(case, way) for case, way in EVERYWHERE if case in PLAIN]


@pytest.fixture(autouse=True)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """The parameter `way` of a test decides how LEM and coRNN are computed."""
    choice = request.node.callspec.params.get("way") if hasattr(request.node, "callspec") else None
    if choice == "steps":
        use(monkeypatch, lambda *_: None)
    elif choice == "tiles":
        use(monkeypatch, tiles)


def use(monkeypatch: pytest.MonkeyPatch, plan) -> None:
    monkeypatch.setattr(lem_gpu, "plan", plan)
    monkeypatch.setattr(cornn_gpu, "plan", plan)


def tiles(n_batch: int, n_hidden: int, n_matrices: int, weight: Tensor) -> launch.Plan:
    return launch.Plan(True, "ieee", n_matrices, 16, launch.power_of_two(n_hidden, 16), 4)


def draw(
    case: str, shape: str | tuple[int, int, int, int], dtype: torch.dtype = torch.float32
) -> list[Tensor]:
    """All tensors of a recurrence, in the order of its arguments."""
    _, _, gates = CASES[case]
    B, T, D, H = SHAPES[shape] if isinstance(shape, str) else shape
    rng = torch.Generator().manual_seed(0)

    def normal(*size: int, scale: float = 1.0) -> Tensor:
        return (scale * torch.randn(*size, generator=rng)).to(dtype)

    if not gates:
        return [normal(B, T, H), normal(B, H), normal(B, H), normal(H), normal(H, scale=0.1).abs()]
    first = max(gates - 1, 1) * H
    weights = [normal(first, H, scale=H**-0.5), normal(H, H, scale=H**-0.5)]
    return [normal(B, T, D), normal(B, H), normal(B, H), *weights, normal(gates * H, D), normal(gates * H)]


def run(
    case: str,
    tensors: list[Tensor],
    *,
    loop: bool = False,
    use: str = "outputs y z",
    needs: set[int] | None = None,
) -> tuple[list[Tensor], list[Tensor]]:
    """Results, and the gradients of all tensors or those of `needs`, from results named in `use`."""
    name, constants, _ = CASES[case]
    leaves = [x.detach().clone().requires_grad_(needs is None or k in needs) for k, x in enumerate(tensors)]
    results = (LOOP[name] if loop else getattr(GPU[name], name))(*leaves, **constants)
    rng = torch.Generator().manual_seed(5)
    total = torch.zeros((), dtype=torch.double)
    for label, x in zip(("outputs", "y", "z"), results, strict=True):
        weight = torch.randn(x.shape, generator=rng)
        if label in use.split():
            total = total + (x.double() * weight).sum()
    wrt = [x for x in leaves if x.requires_grad]
    return [x.detach() for x in results], list(torch.autograd.grad(total, wrt, materialize_grads=True))


def near(values: list[Tensor], exact: list[Tensor], tolerance: float = 1e-5) -> None:
    """By their norms; 1e-7 for what cancels to nearly nothing."""
    for x, y in zip(values, exact, strict=True):
        assert torch.linalg.norm(x.double() - y) <= tolerance * torch.linalg.norm(y) + 1e-7


def flat(results: tuple[list[Tensor], list[Tensor]]) -> list[Tensor]:
    return [*results[0], *results[1]]


def twice(tensors: list[Tensor]) -> list[Tensor]:
    return [x.double() for x in tensors]


@pytest.mark.parametrize("shape", variants(["wide"], SHAPES))
@pytest.mark.parametrize(("case", "way"), EVERYWHERE)
def test_outputs_and_gradients_are_those_of_the_loop(case: str, way: str, shape: str) -> None:
    tensors = draw(case, shape)
    assert GPU[CASES[case][0]].refusal(*tensors) is None
    for values, exact in zip(run(case, tensors), run(case, twice(tensors), loop=True), strict=True):
        near(values, exact)


@pytest.mark.parametrize("use", variants(["y"], ["outputs", "z"]))
@pytest.mark.parametrize(("case", "way"), [e for e in EVERYWHERE if e[1] != "tiles"])
def test_parts_of_the_result_may_go_unused(case: str, way: str, use: str) -> None:
    tensors = draw(case, (1, 2, 2, 3))
    near(run(case, tensors, use=use)[1], run(case, twice(tensors), loop=True, use=use)[1])


@pytest.mark.parametrize(("case", "way"), PLAIN_EVERYWHERE)
def test_each_gradient_can_be_had_alone(case: str, way: str) -> None:
    tensors = draw(case, (1, 2, 2, 3))
    _, all_gradients = run(case, tensors)
    for k, gradient in enumerate(all_gradients):
        (alone,) = run(case, tensors, needs={k})[1]
        assert torch.equal(alone, gradient)


@pytest.mark.parametrize(("case", "way"), [e for e in EVERYWHERE if e[1] != "tiles"])
def test_without_gradients_the_outputs_are_the_same(case: str, way: str) -> None:
    name, constants, _ = CASES[case]
    tensors = draw(case, "small")
    with torch.no_grad():
        plain = getattr(GPU[name], name)(*tensors, **constants)
    for x, y in zip(plain, run(case, tensors)[0], strict=True):
        assert not x.requires_grad
        assert torch.equal(x, y)


@pytest.mark.parametrize("case", PLAIN)
def test_last_states_do_not_keep_the_path_alive(case: str) -> None:
    for x in run(case, draw(case, "small"))[0][1:]:
        assert x.untyped_storage().nbytes() == x.numel() * x.element_size()


@pytest.mark.parametrize("case", PLAIN)
def test_backward_runs_twice_and_through_checkpoints_and_not_for_second_derivatives(case: str) -> None:
    name, constants, _ = CASES[case]
    leaves = [x.requires_grad_() for x in draw(case, (1, 2, 2, 3))]

    def loss(*x: Tensor) -> Tensor:
        outputs, y, z = getattr(GPU[name], name)(*x, **constants)
        return outputs.square().sum() + (y * z).sum()

    total = loss(*leaves)
    first = torch.autograd.grad(total, leaves, retain_graph=True)
    again = torch.autograd.grad(total, leaves)
    recomputed = torch.autograd.grad(checkpoint(loss, *leaves, use_reentrant=False), leaves)
    for x, y, z in zip(first, again, recomputed, strict=True):
        assert torch.equal(x, y)
        assert torch.equal(x, z)
    refuses(InputError, "second derivatives", torch.autograd.grad, loss(*leaves), leaves, create_graph=True)


@pytest.mark.parametrize("case", PLAIN)
def test_views_of_any_stride_are_read_right(case: str) -> None:
    name, constants, _ = CASES[case]
    tensors = draw(case, (2, 3, 3, 3))
    plain = run(case, tensors)
    wide = [torch.stack([x, -x], -1)[..., 0] for x in tensors]
    wide[0] = tensors[0].transpose(0, 1).contiguous().transpose(0, 1)
    leaves = [x.detach().requires_grad_() for x in wide]
    outputs, _, _ = getattr(GPU[name], name)(*leaves, **constants)
    assert torch.equal(outputs, plain[0][0])
    outputs.sum().backward()  # an incoming gradient with strides of 0
    exact = [x.double().requires_grad_() for x in tensors]
    LOOP[name](*exact, **constants)[0].sum().backward()
    near([x.grad for x in leaves[:1] + leaves[3:]], [x.grad for x in exact[:1] + exact[3:]])


@pytest.mark.parametrize(("case", "way"), PLAIN_EVERYWHERE)
def test_a_nan_stays_in_its_row(case: str, way: str) -> None:
    name, constants, _ = CASES[case]
    tensors = draw(case, (3, 2, 2, 3))
    clean, _, _ = getattr(GPU[name], name)(*tensors, **constants)
    tensors[0][1, 1] = float("nan")
    outputs, y, z = getattr(GPU[name], name)(*tensors, **constants)
    assert outputs[1, 1:].isnan().all()
    assert y[1].isnan().all()
    assert z[1].isnan().all()
    rest = [0, 2]
    assert torch.equal(outputs[rest], clean[rest])


@pytest.mark.parametrize("n_steps", [1, 4, 5, 13])
def test_segments_of_the_scan_join(n_steps: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unicornn_gpu, "SEGMENT", 4)
    tensors = draw("unicornn", (2, n_steps, 0, 5))
    for values, exact in zip(
        run("unicornn", tensors), run("unicornn", twice(tensors), loop=True), strict=True
    ):
        near(values, exact)


def test_a_long_scan_with_segments_as_they_are() -> None:
    tensors = draw("unicornn", (1, unicornn_gpu.SEGMENT + 3, 0, 3))
    for values, exact in zip(
        run("unicornn", tensors), run("unicornn", twice(tensors), loop=True), strict=True
    ):
        near(values, exact, 1e-4)


def test_the_scan_stores_one_state_per_segment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(unicornn_gpu, "SEGMENT", 4)
    push, y, z, w, step = draw("unicornn", (2, 2 * unicornn_gpu.SEGMENT + 1, 0, 3))
    kept: list[Tensor] = []
    with torch.autograd.graph.saved_tensors_hooks(lambda x: kept.append(x) or x, lambda x: x):
        outputs, _, _ = unicornn_gpu.unicornn(push.requires_grad_(), y, z, w, step, alpha=1.0)
    known = {push.untyped_storage().data_ptr(), outputs.untyped_storage().data_ptr()}
    others = [x for x in kept if x.untyped_storage().data_ptr() not in known]
    assert sum(x.numel() for x in others) == 3 * y.numel() + w.numel() + step.numel()


@pytest.mark.parametrize(
    ("case", "way", "dtype"),
    [
        *((case, way, torch.bfloat16) for case, way in PLAIN_EVERYWHERE),
        *((case, "rows", torch.float16) for case in PLAIN),
    ],
)
def test_half_precision_keeps_states_in_full(case: str, way: str, dtype: torch.dtype) -> None:
    tensors = draw(case, (2, 2, 3, 5), dtype)
    results, gradients = run(case, tensors)
    assert {x.dtype for x in (*results, *gradients)} == {dtype}
    exact = run(case, twice(tensors), loop=True)
    near(results, exact[0], 1e-2)
    near(gradients, exact[1], 3e-2)


@pytest.mark.parametrize("case", PLAIN)
def test_what_is_refused(case: str) -> None:
    refusal = GPU[CASES[case][0]].refusal
    tensors = draw(case, "small")
    assert "float64" in refusal(*twice(tensors))
    tensors[3] = tensors[3].bfloat16()
    assert "one dtype" in refusal(*tensors)


@pytest.mark.parametrize("case", ["lem", "cornn, implicit"])
def test_blocks_of_steps_and_their_graphs_join(case: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """5 steps in blocks of 2, 2 and 1; a graph's replay is played by the launches themselves."""
    use(monkeypatch, lambda *_: None)
    for module in (lem_steps, cornn_steps):
        monkeypatch.setattr(module, "blocks", lambda n: [(0, 2), (2, 4), (4, 5)])
    tensors = draw(case, (1, 5, 2, 3))
    eager = run(case, tensors)
    near(eager[1], run(case, twice(tensors), loop=True)[1])
    replays: list[int] = []

    def capture(launches):
        launches()
        return lambda: (replays.append(1), launches())

    monkeypatch.setattr(graph, "possible", lambda x: True)
    monkeypatch.setattr(graph, "capture", capture)
    monkeypatch.setattr(graph, "LIMIT", 3)
    graph.clear()
    for _ in range(2):
        for x, y in zip(flat(run(case, tensors)), flat(eager), strict=True):
            assert torch.equal(x, y)
    assert len(replays) == 2 * (3 + 3)
    assert len(graph._graphs) == 3
    graph.clear()


def test_a_capture_that_fails_is_told_once(monkeypatch, caplog: pytest.LogCaptureFixture) -> None:
    def capture(launches):
        raise RuntimeError("no graph today\nwith more lines")

    use(monkeypatch, lambda *_: None)
    tensors = draw("lem", (1, 2, 2, 3))
    eager = run("lem", tensors)
    monkeypatch.setattr(graph, "possible", lambda x: True)
    monkeypatch.setattr(graph, "capture", capture)
    graph.clear()
    with caplog.at_level(logging.WARNING, logger="physml"):
        for _ in range(2):
            for x, y in zip(run("lem", tensors)[1], eager[1], strict=True):
                assert torch.equal(x, y)
    assert [m for m in caplog.messages if "no graph today" in m and "more lines" not in m] == caplog.messages
    assert len(caplog.messages) == 2  # forward and backward
    graph.clear()


def test_layers_can_be_stacked_and_frozen() -> None:
    torch.manual_seed(3)
    stacks = {
        backend: [
            LEM(2, 5, dt=1.0, backend=backend),
            CoRNN(5, 4, dt=0.1, gamma=1.0, epsilon=1.0, backend=backend),
        ]
        for backend in ("reference", "triton")
    }
    u, gradients = torch.randn(2, 3, 2), []
    for mine, theirs in zip(stacks["triton"], stacks["reference"], strict=True):
        mine.load_state_dict(theirs.state_dict())
    for first, second in stacks.values():
        second.W.requires_grad_(False)
        x = u.clone().requires_grad_()
        second(first(x)[0])[0].square().sum().backward()
        assert second.W.grad is None
        gradients.append(
            [x.grad, *(p.grad for p in (*first.parameters(), *second.parameters()) if p.requires_grad)]
        )
    near(gradients[1], gradients[0])


def test_an_output_changed_in_place_is_an_error_not_a_wrong_gradient() -> None:
    for case in ("lem", "cornn, explicit", "unicornn"):
        name, constants, _ = CASES[case]
        outputs, _, _ = getattr(GPU[name], name)(
            *(x.requires_grad_() for x in draw(case, "small")), **constants
        )
        with pytest.raises(RuntimeError, match=r"in-?place"):
            outputs.mul_(2).sum().backward()


def test_threads_take_turns_with_the_buffers_of_a_graph(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without kernels, for the interpreter itself knows only one thread."""
    monkeypatch.setattr(graph, "possible", lambda x: True)
    monkeypatch.setattr(graph, "capture", lambda launches: launches)
    graph.clear()
    wrong: list[float] = []

    def work(number: float) -> None:
        x, total, result = torch.full((2000,), number), torch.zeros(2000), torch.empty(2000)
        for _ in range(200):
            total.zero_()
            graph.run(add_and_double, [x], [total], [result], ())
            if not (result == 2 * number).all():
                wrong.append(number)

    threads = [threading.Thread(target=work, args=(float(k),)) for k in (1, 2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(graph._graphs) == 1
    assert not wrong
    graph.clear()


def add_and_double(sources: list[Tensor], changed: list[Tensor], results: list[Tensor]) -> None:
    changed[0] += sources[0]
    torch.mul(changed[0], 2, out=results[0])


@pytest.mark.parametrize("n_steps", [1, 5, 64, 67, 150, 784, 1000, 17984])
def test_blocks_of_steps_cover_all(n_steps: int) -> None:
    spans = list(launch.blocks(n_steps))
    assert [n for begin, end in spans for n in range(begin, end)] == list(range(n_steps))
    assert len({end - begin for begin, end in spans}) <= 2
    assert all(end - begin <= 64 for begin, end in spans)
