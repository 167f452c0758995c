"""Port-Hamiltonian networks: against loops in float64, the gradient of their energy, and what they keep."""

from typing import Any

import numpy as np
import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from small_graphs import ODD, N, adjacency, close, far_from_start, looped, relu, weights
from torch import Tensor

from physml.base.errors import InputError
from physml.models.graph.phdgn import PHDGN
from physml.run.record import count_parameters

RING = torch.tensor([[0, 1, 1, 2, 2, 3, 3, 0], [1, 0, 2, 1, 3, 2, 0, 3]])
H = 3


def made(n_layers: int, **settings: Any) -> PHDGN:
    torch.manual_seed(0)
    return far_from_start(PHDGN(H, n_layers, **settings))


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"aggregate_p": "gcn", "damping": "channels", "alpha": 0.7, "state": "p"},
        {"aggregate_q": "gcn", "damping": "graph", "force": "graph", "beta": -0.6, "state": "q"},
    ],
    ids=["conservative", "damped", "driven"],
)
def test_steps_against_a_loop_over_nodes(settings: dict[str, Any]) -> None:
    net, x, e = made(3, epsilon=0.2, **settings), numbers(N, H), 0.2
    w = weights(net)
    A = adjacency(ODD)
    S = {half: looped(ODD) if settings.get(f"aggregate_{half}") == "gcn" else A for half in ("p", "q")}

    def slope(z: np.ndarray, half: str) -> np.ndarray:
        W, V, b = (w[f"{name}_{half}"] for name in "WVb")
        inner = [np.tanh(W @ z[i] + V @ sum(S[half][i, j] * z[j] for j in range(N)) + b) for i in range(N)]
        transposed = [sum(S[half][j, i] * inner[j] for j in range(N)) for i in range(N)]
        return np.stack([W.T @ inner[i] + V.T @ transposed[i] for i in range(N)])

    p = q = x.numpy()
    for n in range(3):
        speed = slope(p, "p")
        q = q + e * speed
        push = -slope(q, "q")
        if "damping" in settings:
            D = relu(w["d"]) if settings["damping"] == "channels" else relu(A @ q @ w["C"].T)
            push = push - settings.get("alpha", 1.0) * D * speed
        if "force" in settings:
            timed = np.concatenate([q, np.full((N, 1), n * e)], 1)
            push = push + settings["beta"] * np.tanh(A @ timed @ w["U"].T)
        p = p + e * push
    final = {"p": p, "q": q, "pq": np.concatenate([p, q], 1)}[settings.get("state", "pq")]
    assert net.d_out == final.shape[1]
    close(net(x, ODD), final)


@pytest.mark.parametrize("aggregate", ["sum", "gcn"])
def test_the_gradient_is_that_of_the_energy_and_a_step_is_symplectic_unless_damped(aggregate: str) -> None:
    net, x = made(1, aggregate_q=aggregate), numbers(N, H).requires_grad_()
    (gradient,) = torch.autograd.grad(net.energy_q(x, ODD), x)
    torch.testing.assert_close(net.energy_q.gradient(x, ODD), gradient)
    assert 0 < net.energy_q(1e3 * x.detach(), ODD) < torch.inf
    # M^T J M = J for the derivative M of a step: J = [[0, I], [-I, 0]], and so its norm is at least 1.
    n = 4 * H
    J = torch.zeros(2 * n, 2 * n).double()
    J[:n, n:], J[n:, :n] = torch.eye(n), -torch.eye(n)
    z = numbers(2 * n)

    def derivative(**settings: Any) -> Tensor:
        net = made(6, aggregate_p=aggregate, aggregate_q=aggregate, epsilon=0.3, **settings)

        def flow(z: Tensor) -> Tensor:
            *_, last = net.steps(z[:n].view(4, H), RING, z[n:].view(4, H))
            return torch.cat([part.reshape(-1) for part in last])

        return torch.autograd.functional.jacobian(flow, z)

    M = derivative()
    torch.testing.assert_close(M.T @ J @ M, J)
    assert torch.linalg.matrix_norm(M, 2) >= 1
    damped = derivative(damping="graph")
    assert (damped.T @ J @ damped - J).abs().max() > 1e-2


def test_without_damping_and_force_the_energy_stays_and_transforms_work() -> None:
    # A step half as long has half the drift; with damping the energy falls.
    x, q = numbers(4, H), numbers(4, H, seed=2)

    def drift(n: int, **settings: Any) -> float:
        net = made(n, epsilon=2 / n, **settings).requires_grad_(False)
        before = net.energy(x, q, RING)
        *_, (p, positions) = net.steps(x, RING, q)
        return float((net.energy(p, positions, RING) - before) / before)

    coarse, fine = drift(100), drift(200)
    assert abs(coarse) < 0.05 and coarse / fine == pytest.approx(2, rel=0.2)
    assert drift(200, damping="channels", alpha=1.0) < -0.1
    net, x = made(2), numbers(N, H)
    jacobian = torch.func.jacrev(lambda x: net(x, ODD))(x)
    torch.testing.assert_close(jacobian, torch.autograd.functional.jacobian(lambda x: net(x, ODD), x))


def test_a_far_node_is_felt_after_as_many_steps_as_there_are_edges_and_still_after_many() -> None:
    n = 8
    line = torch.stack([torch.arange(n - 1), torch.arange(1, n)])
    line = torch.cat([line, line.flip(0)], 1)

    def felt(n_layers: int) -> float:
        x = numbers(n, H).requires_grad_()
        (grad,) = torch.autograd.grad(made(n_layers, epsilon=0.3)(x, line)[-1].sum(), x)
        return float(grad[0].norm())

    assert felt(1) == 0 < felt(2) and felt(60) > 1e-2  # a step reaches four edges: twice two


def test_parameters_are_two_energies_and_what_damps_and_drives_by_known_words() -> None:
    plain, full = PHDGN(H, 5), PHDGN(H, 5, damping="graph", force="graph")
    assert count_parameters(plain) == 2 * (2 * H * H + H)
    assert count_parameters(full) == 2 * (2 * H * H + H) + H * H + H * (H + 1)
    refuses(InputError, "damping", PHDGN, H, 2, damping="much")
