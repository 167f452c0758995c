"""Gradients of networks before training, for figures that need no run. Axes: n steps or layers.

Sources: thesis, Propositions 2.2.6, 2.2.10, 3.2.2, 5.2.2 and 7.2.8; `physml.lab` computes.
"""

import numpy as np
import torch

from physml.base.check import count, one_of, positive
from physml.base.errors import InputError
from physml.graph.measures import grid
from physml.lab import experiments
from physml.lab.bounds import Graphcon
from physml.models.graph.graph_layers import GraphConvolution
from physml.models.graph.graphcon import GraphCON

Arrays = dict[str, np.ndarray]


def _positive(y: np.ndarray) -> np.ndarray:
    """Zeros, which an axis of logarithms does not have, as gaps."""
    return np.where(y > 0, y, np.nan)


def by_lag(*, experiment: str, of: str, seed: int, sequences: int = 8, length: int | None = None) -> Arrays:
    """A measure of the gradient of E_n against the lag n - k; `physml.lab.experiments` has them.

    of: gradient, inputs, states, entry, bound or long_term.
    Shapes: x (n,) the lags from 0, of states from 1, as each is that before a step; y (n,).
    """
    one_of("of", of, ("gradient", "inputs", "states", "entry", "bound", "long_term"))
    measured = experiments.beside_bound if of in ("entry", "bound", "long_term") else experiments.by_lag
    y = measured(experiment, seed=seed, sequences=sequences, length=length)[of]
    return {"x": np.arange(float(len(y))) + (of == "states"), "y": _positive(y)}


def jacobians(*, experiment: str, seed: int, length: int | None = None) -> Arrays:
    r"""The greatest singular value of :math:`\partial X_n/\partial X_k` against n - k.

    Shapes: x (n,) the lags from 1, y (n,).
    """
    y = experiments.jacobians(experiment, seed=seed, length=length)
    return {"x": np.arange(1.0, len(y) + 1), "y": _positive(y)}


def by_length(*, experiment: str, of: str, lengths: np.ndarray, seed: int, sequences: int = 8) -> Arrays:
    """A measure of the gradient of E_n against n, with the same weights and constants for every n.

    of: gradient, the Euclidean norm of what all steps add, one by one; early, that of the first tenth of
    the steps over it; total, the greatest entry of the gradient for the loss of the papers; total_bound,
    what bounds it.
    Shapes: lengths (N,) -> x (N,), y (N,).
    """
    one_of("of", of, ("gradient", "early", "total", "total_bound"))
    arguments = {"seed": seed, "sequences": sequences}
    measured = experiments.beside_bound if of in ("total", "total_bound") else experiments.by_lag
    results = [measured(experiment, length=int(n), **arguments) for n in lengths]
    if of in ("total", "total_bound"):
        y = [float(result[of][0]) for result in results]
    else:
        by_step = [result["gradient"] for result in results]
        y = [float(np.linalg.norm(norms)) for norms in by_step]
        if of == "early":
            first = [float(np.linalg.norm(norms[-max(1, len(norms) // 10) :])) for norms in by_step]
            y = [a / b if b else 0.0 for a, b in zip(first, y, strict=True)]
    return {"x": np.array(lengths, float), "y": _positive(np.array(y))}


def by_depth(
    *, of: str, n_layers: int, rows: int, columns: int, scale: float, seed: int, dt: float | None = None
) -> Arrays:
    r"""The gradient by the weight of each layer of a network of N layers with one channel, on a grid.

    .. math:: \ell \mapsto |\partial J/\partial\omega^\ell|, \qquad
        J = \tfrac1{2v} \sum_i |X_i^N - \bar X_i|^2

    of: "graphcon", equation 7.31, with alpha = gamma = 1; "gcn", :math:`X^n = \tanh(\omega^n \hat A
    X^{n-1})`, the same with dt = 1; "bound", the printed bound (7.40) for "graphcon"; "times_v", it times
    the number of nodes. X^0 = Y^0 uniform on [-1, 1], targets of the sign of a normal number, omega = scale
    times a normal number.
    dt: None: 1 / N.
    Shapes: x (N,) layers from 1, y (N,).
    """
    one_of("of", of, ("graphcon", "gcn", "bound", "times_v"))
    positive("scale", scale)
    count("n_layers", n_layers)
    if dt is not None and of == "gcn":
        raise InputError(f"a GCN has no dt of its own; got dt={dt}.")
    step = 1.0 if of == "gcn" else 1 / n_layers if dt is None else dt
    edges, nodes = grid(rows, columns), rows * columns
    rng = torch.Generator().manual_seed(seed)
    x = 2 * torch.rand(nodes, 1, dtype=torch.float64, generator=rng) - 1
    target = torch.randn(nodes, 1, dtype=torch.float64, generator=rng).sign()
    omega = scale * torch.randn(n_layers, dtype=torch.float64, generator=rng)
    network = GraphCON(
        GraphConvolution(1, 1),
        n_layers,
        dt=step,
        gamma=1.0,
        alpha=1.0,
        activation="tanh",
        shared_weights=False,
    ).double()
    # omega of each layer is the only entry of the matrix of its convolution
    weights = [p for p in network.forces.parameters() if p.dim() == 2]
    with torch.no_grad():
        for p in network.parameters():
            p.zero_()
        for weight, value in zip(weights, omega, strict=True):
            weight.fill_(value)
    layers = np.arange(1.0, n_layers + 1)
    if of in ("bound", "times_v"):
        degrees = torch.bincount(edges[1], minlength=nodes) + 1  # with the loop
        limit = Graphcon.of(degrees, omega, step).total_7_40(x, x, target)
        return {"x": layers, "y": np.full(n_layers, limit * (nodes if of == "times_v" else 1))}
    J = 0.5 * (network(x, edges) - target).square().mean()
    gradients = torch.autograd.grad(J, weights)
    return {"x": layers, "y": _positive(np.array([abs(float(g)) for g in gradients]))}
