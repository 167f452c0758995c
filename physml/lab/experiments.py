"""Gradients by step of the untrained network of an experiment. Arrays are float64; k = 1..n, lag n - k.

The network and its first weights are those with which a run of that seed begins.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache, partial

import numpy as np
import torch
from torch import Tensor, nn

from physml.base.errors import ConfigError
from physml.base.seeding import derive
from physml.config import build
from physml.config.compose import compose
from physml.config.schema import checked
from physml.data.store import Store
from physml.lab import bounds
from physml.lab.gradients import gradient_by_step, jacobian_products, squared_error
from physml.lab.measures import READOUT, first_valid, loss_of
from physml.task.batch import Batch

Arrays = dict[str, np.ndarray]
TARGET = 1.0  # of every unit in the loss of the papers' propositions


@contextmanager
def one_thread() -> Iterator[None]:
    """Several threads wait for each other at the size of one step."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def start_of(
    experiment: str, *, seed: int, sequences: int, length: int | None = None
) -> tuple[nn.Module, Batch, partial[Tensor]]:
    """The network of an experiment at the start, in double precision and eval mode; data; the loss at the
    last step.

    Args:
        experiment: a row of a study, such as gradients/adding-lem.
        seed: of the weights.
        sequences: how many of the validation part.
        length: of the sequences, where the task has one to set; None: the experiment's.
    Errors: ConfigError for a network that is no `SequenceModel` of one layer, or what `compose` refuses.
    """
    overrides = [] if length is None else [f"task.length={length}"]
    config, parts = checked(
        compose([f"experiment={experiment}", "tracker=none", *overrides]).config, run=True
    )
    assert parts
    task = build.build_task(config)
    task.load(Store.from_env(), config["split"])
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        net = build.build_net(parts, task).double().eval()
    if len(getattr(net, "layers", ())) != 1 or getattr(net, "encoder", None) is not None:
        raise ConfigError(
            f"{experiment}: gradients by step are drawn of one recurrent layer without encoder."
        )
    batch = first_valid(task, sequences)
    return net, batch, partial(loss_of, task, batch)


def _only_layer(net: nn.Module) -> nn.Module:
    """The recurrent layer of a network that `start_of` made."""
    layers = net.layers
    assert isinstance(layers, nn.ModuleList)
    return layers[0]


@lru_cache(maxsize=64)
def by_lag(experiment: str, *, seed: int, sequences: int, length: int | None = None) -> Arrays:
    r"""Norms of gradients by how long ago they arise; each (n,), by lag 0 to n - 1.

    gradient: :math:`\|\partial E_n^{(k)}/\partial\theta\|_2` for the task's loss, without the read-out.
    inputs,
    states: :math:`\|\partial E_n/\partial u_k\|_2, \|\partial E_n/\partial X_{k-1}\|_2`.
    """
    net, batch, loss = start_of(experiment, seed=seed, sequences=sequences, length=length)
    with one_thread():
        by_step = gradient_by_step(net, batch.input.double(), loss)
    return {
        "gradient": by_step.whole(without=READOUT).flip(0).numpy(),
        "inputs": by_step.inputs.flip(0).numpy(),
        "states": by_step.states.flip(0).numpy(),
    }


@lru_cache(maxsize=64)
def beside_bound(experiment: str, *, seed: int, sequences: int, length: int | None = None) -> Arrays:
    r"""The loss of the papers, :math:`\tfrac12\|y_n - 1\|^2`, and their bounds, by lag 0 to n - 1.

    entry: the greatest entry of :math:`\partial E_n^{(k)}/\partial\theta`, (n,); bound: what is printed for
    it, (n,); long_term: what is printed for small k, (n,), NaN where nothing is. total, total_bound: entry
    and bound for :math:`\partial E_n/\partial\theta`, (1,). holds: (1,), 1 where what the bound assumes
    holds, else 0.

    Errors: ConfigError for a layer of which no paper has a bound.
    """
    net, batch, _ = start_of(experiment, seed=seed, sequences=sequences, length=length)
    u, layer = batch.input.double(), _only_layer(net)
    n, width = u.shape[1], layer.d_out
    assert isinstance(width, int)
    target = u.new_full((len(u), width), TARGET)
    total = bounds.total(layer, TARGET, n)
    if total is None:
        raise ConfigError(f"{experiment}: no paper has a bound for {type(layer).__name__} as it is set.")
    with one_thread():
        own = gradient_by_step(layer, u, squared_error(target))
    return {
        "entry": own.greatest.flip(0).numpy(),
        "bound": np.array([bounds.one_step(layer, TARGET, k, n) for k in range(n, 0, -1)], float),
        "long_term": np.array([bounds.long_term(layer, TARGET, k, n) for k in range(n, 0, -1)], float),
        "total": np.array([max(float(g.abs().max()) for g in own.total.values())]),
        "total_bound": np.array([total]),
        "holds": np.array([float(bool(bounds.holds(layer, n)))]),
    }


@lru_cache(maxsize=64)
def jacobians(experiment: str, *, seed: int, length: int | None = None) -> np.ndarray:
    r"""The greatest singular value of :math:`\partial X_n/\partial X_k` by lag, of one sequence; (n,)."""
    net, batch, _ = start_of(experiment, seed=seed, sequences=1, length=length)
    with one_thread():
        products = jacobian_products(_only_layer(net), batch.input.double())
        return np.array([torch.linalg.svdvals(product).numpy()[0] for _, product in products])
