"""torch's optimizers without its compiler: the same numbers, to the bit."""

import copy
import inspect
from typing import Any

import pytest
import torch
from torch import nn

from physml.config.build import WRAPPED, eager

OPTIMIZERS = [
    cls
    for cls in vars(torch.optim).values()
    if inspect.isclass(cls) and issubclass(cls, torch.optim.Optimizer) and cls is not torch.optim.Optimizer
]


def trained(cls: type, sparse: bool, **settings: Any) -> tuple[list[torch.Tensor], dict[str, Any]]:
    """The weights after some steps, with the state taken out and in again in between, and that state."""
    torch.manual_seed(0)
    net = nn.Embedding(7, 3, sparse=sparse)
    optimizer = cls(net.parameters(), lr=0.1, **settings)
    schedule = torch.optim.lr_scheduler.StepLR(optimizer, 2)

    def closure() -> torch.Tensor:
        optimizer.zero_grad()
        with torch.enable_grad():
            loss = net(torch.tensor([1, 2, 5])).square().sum()
            loss.backward()
        return loss

    for _ in range(5):
        closure()
        optimizer.step(closure)
        schedule.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return [p.detach() for p in net.parameters()], optimizer.state_dict()


@pytest.mark.parametrize("cls", OPTIMIZERS, ids=lambda cls: cls.__name__)
def test_an_eager_optimizer_computes_what_torch_computes(cls: type) -> None:
    sparse = cls is torch.optim.SparseAdam
    weights, state = trained(cls, sparse)
    again, state_again = trained(eager(cls), sparse)
    torch.testing.assert_close(again, weights, rtol=0, atol=0)
    torch.testing.assert_close(state_again, state, rtol=0, atol=0)
    if "fused" in inspect.signature(cls).parameters:
        pair = [trained(optimizer, sparse, fused=True) for optimizer in (cls, eager(cls))]
        torch.testing.assert_close(*pair, rtol=0, atol=0)


def test_an_eager_optimizer_has_the_name_of_torchs_and_calls_its_hooks_and_that_of_a_plugin_stays() -> None:
    cls = eager(torch.optim.Adam)
    assert eager(torch.optim.Adam) is cls
    assert issubclass(cls, torch.optim.Adam)
    assert (cls.__module__, cls.__name__) == (torch.optim.Adam.__module__, "Adam")
    assert not any(hasattr(vars(cls)[name], "__wrapped__") for name in WRAPPED)
    weight = nn.Parameter(torch.zeros(1))
    optimizer, called = cls([weight]), []
    optimizer.register_step_post_hook(lambda *_: called.append(1))
    weight.grad = torch.ones(1)
    optimizer.step()
    assert called == [1]

    class Mine(torch.optim.SGD):
        pass

    assert eager(Mine) is Mine
