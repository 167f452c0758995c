"""Measures on graphs against loops, and what is refused."""

import gc
import re
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext

import numpy as np
import pytest
import torch
from edge_lists import draw
from refusals import refuses
from torch import Tensor

from physml.base.errors import InputError
from physml.base.paths import ROOT
from physml.graph import cache
from physml.graph.cache import cached
from physml.graph.checks import check_graph
from physml.graph.edges import sorted_edges
from physml.graph.measures import dirichlet_energy, edge_homophily, grid, mean_average_distance
from physml.models.graph.graph_layers import GraphAttention
from physml.ops.gradient_sum import gradient_sum

TRIANGLE = torch.tensor([[0, 1, 1, 2, 2, 0], [1, 0, 2, 1, 0, 2]])


@pytest.mark.parametrize("form", ["chen", "sum"])
def test_mean_average_distance_against_a_loop(form: str):
    x, edge_index = draw(6, 4), torch.tensor([[0, 0, 1, 2, 3, 5], [1, 2, 0, 2, 4, 5]])
    X, distances = x.numpy(), {i: [] for i in range(6)}
    for i, j in edge_index.T.tolist():
        distances[i].append(1 - X[i] @ X[j] / np.linalg.norm(X[i]) / np.linalg.norm(X[j]))
    if form == "sum":
        expected = sum(map(sum, distances.values())) / 6
    else:  # a loop has distance 0 and does not count
        kept = {i: [d for d in row if d > 1e-12] for i, row in distances.items()}
        expected = np.mean([np.mean(row) for row in kept.values() if row])
    assert mean_average_distance(x, edge_index, form=form).item() == pytest.approx(expected, rel=1e-10)


def test_mean_average_distance_sees_directions_only():
    x = draw(3, 4)
    scaled = x * torch.tensor([[2.0], [0.5], [7.0]], dtype=torch.double)
    assert mean_average_distance(x, TRIANGLE) == pytest.approx(mean_average_distance(scaled, TRIANGLE).item())
    assert mean_average_distance(torch.ones(3, 2), TRIANGLE) == 0
    assert mean_average_distance(torch.zeros(3, 2), TRIANGLE) == 0
    assert mean_average_distance(torch.eye(3), TRIANGLE) == pytest.approx(1)
    near = torch.tensor([[1.0, 0.0], [1.0, 1e-7]], dtype=torch.double)  # nearly parallel
    assert mean_average_distance(near, torch.tensor([[0, 1], [1, 0]])).item() == pytest.approx(
        5e-15, rel=1e-6
    )


@pytest.mark.parametrize(
    ("size", "dtype"),
    [(1e-44, torch.float32), (1e38, torch.float32), (1e-300, torch.float64), (1e300, torch.float64)],
)
def test_mean_average_distance_of_vectors_whose_squares_are_no_numbers(size: float, dtype: torch.dtype):
    x = torch.tensor([[size, 0.0], [0.0, size]], dtype=dtype)
    assert mean_average_distance(x, torch.tensor([[0, 1], [1, 0]])) == 1


def test_energy_is_equation_6_2_homophily_counts_equal_labels_and_the_grid_has_180_edges() -> None:
    x, edge_index = draw(5, 3), torch.tensor([[0, 1, 1, 3, 4, 4], [1, 0, 2, 3, 0, 0]])
    total = sum(((x[i] - x[j]) ** 2).sum().item() for i, j in edge_index.T.tolist())
    assert dirichlet_energy(x, edge_index).item() == pytest.approx(total / 5, rel=1e-12)
    assert dirichlet_energy(torch.full((3, 2), 7.0), TRIANGLE) == 0
    assert dirichlet_energy(draw(3, 2), torch.zeros(2, 0, dtype=torch.long)) == 0
    edge_index = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 3]])
    assert edge_homophily(edge_index, torch.tensor([0, 0, 1, 1])) == 0.75
    refuses(InputError, "has none", edge_homophily, torch.zeros(2, 0, dtype=torch.long), torch.tensor([0, 1]))
    refuses(InputError, r"y must have shape \(N,\)", edge_homophily, edge_index, torch.zeros(4, 2))
    edge_index = grid(10, 10)
    assert edge_index.shape == (2, 2 * 180)
    assert len({tuple(e) for e in edge_index.T.tolist()}) == 360
    degree = torch.bincount(edge_index[0], minlength=100).view(10, 10)
    assert (degree[1:-1, 1:-1] == 4).all() and degree[0, 0] == 2 and degree[0, 5] == 3
    refuses(InputError, "at least one row", grid, 0, 3)


@pytest.mark.parametrize(
    ("x", "edge_index", "edge_weight", "message"),
    [
        (torch.ones(3, 2), torch.tensor([[0, 3], [1, 2]]), None, r"\[0, 3\); got 0 to 3"),
        (torch.ones(3, 2), torch.tensor([[0, -1], [1, 2]]), None, "got -1 to 2"),
        (torch.ones(0, 2), torch.zeros(2, 0, dtype=torch.long), None, "at least one node"),
        (torch.ones(3), TRIANGLE, None, r"x must have shape \(N, H\)"),
        (torch.ones(3, 2), TRIANGLE.T, None, r"edge_index must have shape \(2, E\)"),
        (torch.ones(3, 2), TRIANGLE.float(), None, "int64"),
        (torch.ones(3, 2), TRIANGLE, torch.ones(5), r"edge_weight must have shape \(6,\)"),
    ],
)
def test_a_graph_that_cannot_be_is_refused(x, edge_index, edge_weight, message):
    refuses(InputError, message, check_graph, x, edge_index, edge_weight)


def test_what_is_kept_per_graph_is_made_anew_when_the_tensor_changes_and_goes_with_it():
    calls: list[int] = []

    def make() -> int:
        calls.append(1)
        return len(calls)

    edge_index = TRIANGLE.clone()
    assert [cached("test", edge_index, (), make) for _ in range(3)] == [1, 1, 1]
    assert cached("test", edge_index, (4,), make) == 2
    assert cached("test", TRIANGLE.clone(), (), make) == 3
    edge_index[0, 0] = 2
    assert cached("test", edge_index, (), make) == 4
    before = len(cache._CACHE)
    del edge_index
    gc.collect()
    assert len(cache._CACHE) <= before - 2


def test_threads_may_share_graphs():
    """More keys than are kept, so that each thread throws out those of the others."""
    graphs = [torch.zeros(2, 3, dtype=torch.long) for _ in range(cache._CACHE_SIZE + 30)]

    def look_up(first: int) -> list[Tensor]:
        order = [*graphs[first:], *graphs[:first]] * 40
        return [cached("threads", graph, (), lambda graph=graph: graph + torch.ones(2, 3)) for graph in order]

    with ThreadPoolExecutor(8) as pool:
        assert all((x == 1).all() for values in pool.map(look_up, range(0, 80, 10)) for x in values)
    assert (look_up(0)[-1] == 1).all() and len(cache._CACHE) <= cache._CACHE_SIZE


def test_a_layer_trains_on_edges_that_were_first_seen_without_gradients():
    layer, x, edge_index = GraphAttention(4, 4), torch.randn(3, 4), TRIANGLE.clone()
    with torch.inference_mode():
        layer(x, edge_index)
    layer(x, edge_index).sum().backward()


@pytest.mark.parametrize("mode", [nullcontext, torch.inference_mode])
def test_the_range_check_sees_a_change_in_place_even_where_changes_are_not_counted(mode):
    with mode():
        edge_index = TRIANGLE.clone()
        check_graph(torch.ones(3, 2), edge_index)
        edge_index[1, 0] = 9
        refuses(InputError, "got 0 to 9", check_graph, torch.ones(3, 2), edge_index)


def test_after_a_change_through_numpy_sums_belong_to_the_old_edges_and_a_clone_has_the_new_ones():
    edge_index, q = TRIANGLE.clone(), draw(3, 2)

    def sums(edge_index: Tensor) -> Tensor:
        return gradient_sum(q, sorted_edges(edge_index, 3), 2.0, backend="torch")

    before = sums(edge_index)
    edge_index.numpy()[0, :2] = [1, 0]
    assert torch.equal(sums(edge_index), before)
    torch.testing.assert_close(sums(edge_index.clone()), sums(torch.tensor(edge_index.tolist())))
    assert not torch.equal(sums(edge_index.clone()), before)
    edge_index[0, 0] = 2  # a change that torch counts
    torch.testing.assert_close(sums(edge_index), sums(edge_index.clone()))


def test_no_two_functions_keep_different_things_under_one_name() -> None:
    """Two layers on the same edges would get each other's sums."""
    code = "".join(path.read_text(encoding="utf-8") for path in (ROOT / "physml").rglob("*.py"))
    names = Counter(re.findall(r'cached\("([^"]+)"', code))
    assert len(names) > 5 and [name for name, n in names.items() if n > 1] == []
