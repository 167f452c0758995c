"""Laws of every layer on graphs, called as layer(x, edge_index). Axes: N nodes, D features."""

import functools
from collections.abc import Callable

import torch
from drawn_layers import numbers
from each import Laws, run_all
from refusals import refuses
from small_graphs import ODD, N
from torch import nn

from physml.base.errors import InputError

NONE = torch.zeros(2, 0, dtype=torch.long)
BOTH = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 4, 2, 5], [1, 0, 2, 1, 3, 2, 4, 3, 5, 2]])  # a tree, both ways
LAWS = law = Laws()
# What a layer cannot keep that has a place for all nodes, and one that has weights for each of them.
OF_PLACES = ("graphs_side_by_side_are_as_each_alone",)
OF_NODES = (*OF_PLACES, "renaming_the_nodes_renames_the_outputs")


@law
def gradients_by_features_are_those_of_differences(layer: nn.Module, d_in: int) -> None:
    """In evaluation: moments of few nodes are ill-conditioned."""
    x = numbers(N, d_in).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: layer(x, ODD), (x,), fast_mode=True)


@law
def gradients_by_weights_are_those_of_differences(layer: nn.Module, d_in: int) -> None:
    x, weights = numbers(N, d_in), [p for p in layer.parameters() if p.requires_grad]
    if weights:
        assert torch.autograd.gradcheck(lambda *_: layer(x, ODD), weights, fast_mode=True)


@law
def renaming_the_nodes_renames_the_outputs(layer: nn.Module, d_in: int) -> None:
    x, order = numbers(N, d_in), torch.tensor([3, 5, 0, 4, 1, 2])
    renamed = torch.empty_like(x)
    renamed[order] = x
    outputs = layer(renamed, order[BOTH])[order]
    torch.testing.assert_close(outputs, layer(x, BOTH), rtol=1e-6, atol=1e-6)  # eigenvectors are less exact
    shuffled = BOTH[:, torch.tensor([7, 2, 9, 5, 0, 8, 3, 6, 1, 4])]
    torch.testing.assert_close(layer(x, shuffled), layer(x, BOTH), rtol=1e-6, atol=1e-6)


@law
def graphs_side_by_side_are_as_each_alone(layer: nn.Module, d_in: int) -> None:
    """And a NaN in one of them stays there."""
    x, other = numbers(N, d_in), numbers(N, d_in, seed=2)
    both = torch.cat([BOTH, BOTH + N], 1)
    together = layer(torch.cat([x, other]), both)
    torch.testing.assert_close(
        together, torch.cat([layer(x, BOTH), layer(other, BOTH)]), rtol=1e-9, atol=1e-10
    )
    other[2] = torch.nan
    torch.testing.assert_close(layer(torch.cat([x, other]), both)[:N], together[:N], rtol=1e-9, atol=1e-10)


@law
def without_edges_there_is_an_answer_and_the_impossible_is_refused(layer: nn.Module, d_in: int) -> None:
    out = layer(numbers(N, d_in), NONE)
    assert torch.isfinite(out).all() and out.shape == (N, layer.d_out)
    refuses(InputError, r"\[0, 6\); got 0 to 6", layer, numbers(N, d_in), torch.tensor([[0], [6]]))
    refuses(InputError, rf"x must have shape \(N, {d_in}\)", layer, numbers(N, d_in + 1), ODD)


@law
def inputs_are_left_alone_and_nothing_changes_without_gradients(layer: nn.Module, d_in: int) -> None:
    x, edge_index = numbers(d_in, N).T, ODD.clone()
    kept = x.clone()
    with torch.no_grad():
        plain = layer(x, edge_index)
    assert not plain.requires_grad
    torch.testing.assert_close(layer(x, edge_index), plain, rtol=1e-12, atol=1e-13)
    assert torch.equal(x, kept) and torch.equal(edge_index, ODD)


@law
def a_saved_layer_gives_the_same_numbers(layer: nn.Module, d_in: int) -> None:
    x = numbers(N, d_in)
    expected = layer(x, ODD)
    kept = {name: value.clone() for name, value in layer.state_dict().items()}
    with torch.no_grad():
        for p in layer.parameters():
            p.add_(0.1)
    layer.load_state_dict(kept)
    assert torch.equal(layer(x, ODD), expected)


def laws_of(make: Callable[[], nn.Module], d_in: int, but: tuple[str, ...] = ()) -> None:
    """Try all laws but some on a layer that is made anew for each."""
    kept = [rule for rule in LAWS if rule.__name__ not in but]
    run_all((rule.__name__, functools.partial(lambda rule: rule(make().eval(), d_in), rule)) for rule in kept)
