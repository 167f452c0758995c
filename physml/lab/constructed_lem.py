r"""LEMs that are built instead of trained, by the proofs of thesis, Propositions 5.2.8 and 5.2.10.

Functions f, g and o come as networks of one hidden layer, :math:`N(x) = A\,\tanh(W x + b)`, with A (q, m).
The proofs' :math:`W_2^f` or :math:`W_3^f` is A here, and W holds their weights of h, c and u side by side.
The identity, :math:`\bar W_2 \tanh(\bar W_1 x)`, is one as well. Blocks of different width are filled up with
units of weight zero. All gates are constant, :math:`W_{1,2} = V_{1,2} = 0`, and :math:`\Delta t = 1`.
Axes: T time, H units.
"""

from dataclasses import dataclass

import numpy as np
import torch
from scipy.special import logit

from physml.base.check import count
from physml.base.errors import InputError
from physml.lab.shallow import Shallow
from physml.models.sequence.lem import LEM

OPEN = 40.0  # b_infinity of (5.68): in double precision its sigmoid is 1


@dataclass(frozen=True)
class Built:
    """A LEM in double precision, and what is read from its states."""

    layer: LEM  # the LEM
    of_y: dict[str, np.ndarray]  # by name, a matrix (q, H) that gives an output of y
    of_z: dict[str, np.ndarray]  # the same of z

    @torch.no_grad()
    def run(self, u: np.ndarray) -> dict[str, np.ndarray]:
        """Outputs after each step from rest. u (T, D) -> by name (T, q)."""
        inputs = torch.as_tensor(u, dtype=torch.double)[None]
        state, ys, zs = None, [], []
        for n in range(inputs.shape[1]):
            _, state = self.layer(inputs[:, n : n + 1], state)
            ys.append(state[0][0].numpy())
            zs.append(state[1][0].numpy())
        y, z = np.stack(ys), np.stack(zs)
        return {name: y @ A.T for name, A in self.of_y.items()} | {
            name: z @ A.T for name, A in self.of_z.items()
        }


class Blocks:
    """The weights of a LEM of H units, all 0 and with open gates until they are set.

    `z` and `y` are the parts of the update of z and of y: W (H, H), V (H, D), b (H,); `z_step` and `y_step`
    (H,) the steps, in (0, 1].
    """

    def __init__(self, width: int, d_in: int) -> None:
        self.width, self.d_in = width, d_in
        self.Wz, self.Wy = np.zeros((width, width)), np.zeros((width, width))
        self.Vz, self.Vy = np.zeros((width, d_in)), np.zeros((width, d_in))
        self.bz, self.by = np.zeros(width), np.zeros(width)
        self.z_step, self.y_step = np.ones(width), np.ones(width)

    @torch.no_grad()
    def lem(self) -> LEM:
        layer = LEM(self.d_in, self.width, dt=1.0).double().eval()
        gates = [_gate(self.z_step), _gate(self.y_step)]
        for p in layer.parameters():
            p.zero_()
        weights = {"Wz": self.Wz, "Wy": self.Wy, "Vz": self.Vz, "Vy": self.Vy, "bz": self.bz, "by": self.by}
        for name, value in (weights | dict(zip(("b1", "b2"), gates, strict=True))).items():
            layer.symbols()[name].copy_(torch.as_tensor(value))
        return layer

    def output(self, A: np.ndarray, start: int = 0) -> np.ndarray:
        """A (q, m) on units start to start + m - 1, as a matrix (q, H)."""
        out = np.zeros((len(A), self.width))
        out[:, start : start + A.shape[1]] = A
        return out


def _gate(step: np.ndarray) -> np.ndarray:
    """The bias whose sigmoid is the step, (5.68) and (5.88)."""
    if not ((step > 0) & (step <= 1)).all():
        raise InputError(f"steps of a LEM with dt = 1 must lie in (0, 1]; got {step.min()} to {step.max()}.")
    return np.minimum(logit(step), OPEN)


def fits(name: str, network: Shallow, d_in: int, d_out: int | None = None) -> None:
    """InputError for a network of other inputs or outputs."""
    d_out = network.A.shape[0] if d_out is None else d_out
    if network.W.shape[1] != d_in or network.A.shape[0] != d_out:
        raise InputError(
            f"{name} must take {d_in} numbers and give {d_out}; it takes {network.W.shape[1]} and gives "
            f"{network.A.shape[0]}."
        )


def linear_part(network: Shallow, factor: np.ndarray, same: Shallow) -> Shallow:
    """N(h, c, u) + factor c as one network, of which the first inputs are h, then c, each as many as outputs.

    The sum of networks under (5.76); `same` is the identity.
    """
    d = network.A.shape[0]
    W = np.zeros((same.width, network.W.shape[1]))
    W[:, d : 2 * d] = same.W
    return Shallow(
        np.vstack([network.W, W]),
        np.concatenate([network.b, same.b]),
        np.hstack([network.A, factor[:, None] * same.A]),
    )


def _fast_slow(f: Shallow, G: Shallow, same: Shallow, z_step: float, y_step: float) -> Built:
    r"""(5.86) and (5.110), of which both propositions about two scales are special cases.

    .. math::
        \phi_n &= (1 - s_z)\phi_{n-1} + s_z f(\phi_{n-1}, \psi_{n-1}, u_n) \\
        \psi_n &= (1 - s_y)\psi_{n-1} + s_y G(\phi_n, \psi_{n-1}, u_n)
    """
    d = f.A.shape[0]
    d_in = f.W.shape[1] - 2 * d
    count("the number of inputs u", d_in)
    for name, network in {"f": f, "g": G}.items():
        fits(name, network, 2 * d + d_in, d)
    fits("same", same, d, d)
    w = Blocks(max(f.width, G.width) + same.width, d_in)
    z, z_copy = slice(0, f.width), slice(f.width, f.width + same.width)
    y, y_copy = slice(0, G.width), slice(G.width, G.width + same.width)
    w.Wz[z, y], w.Wz[z, y_copy] = f.W[:, d : 2 * d] @ G.A, f.W[:, :d] @ same.A
    w.Vz[z], w.bz[z] = f.W[:, 2 * d :], f.b
    w.Wz[z_copy, y] = same.W @ G.A
    w.Wy[y, z], w.Wy[y, z_copy] = G.W[:, :d] @ f.A, G.W[:, d : 2 * d] @ same.A
    w.Vy[y], w.by[y] = G.W[:, 2 * d :], G.b
    w.Wy[y_copy, z] = same.W @ f.A
    w.z_step[z], w.y_step[y] = z_step, y_step
    return Built(w.lem(), {"psi": w.output(G.A)}, {"phi": w.output(f.A)})


def two_scale(f: Shallow, g: Shallow, same: Shallow, tau: float) -> Built:
    r"""Proposition 5.2.8, the weights (5.90) with (5.91), for the identity as output map.

    .. math:: \phi_n = f(\phi_{n-1}, \psi_{n-1}, u_n), \qquad \psi_n = \tau g(\phi_n, \psi_{n-1}, u_n)

    The number of units does not depend on tau; the weights do, by b2 and by the factor 1 - 1/tau of (5.74).
    The outputs are "psi", and "phi" of z.

    Args:
        f, g: (2d + D) -> d; their inputs are phi, psi and u.
        same: the identity of d numbers.
        tau: in (0, 1].
    """
    d = g.A.shape[0]
    return _fast_slow(f, linear_part(g, np.full(d, 1 - 1 / tau), same), same, 1.0, tau)


def slow_variable(f: Shallow, g: Shallow, same: Shallow, tau: float) -> Built:
    r"""The weights of `two_scale` for a psi that is slow, where that of (5.69) is small.

    .. math::
        \phi_n = f(\phi_{n-1}, \psi_{n-1}, u_n), \qquad
        \psi_n = \psi_{n-1} + \tau g(\phi_n, \psi_{n-1}, u_n)

    G of (5.74) is then g + c, so that tau is in b2 alone.
    """
    return _fast_slow(f, linear_part(g, np.ones(g.A.shape[0]), same), same, 1.0, tau)


def multiscale_method(
    f: Shallow, g: Shallow, same: Shallow, *, macro: float, micro: float, micro_steps: int
) -> Built:
    r"""Proposition 5.2.10: a LEM in the steps of the heterogeneous multiscale method, (5.95) and (5.98).

    .. math::
        \phi_n &= \overline{\delta t}\,\phi_{n-1} + (1 - \overline{\delta t}) f(\psi_{n-1}), \qquad
            \overline{\delta t} = (1 - \delta t)^K \\
        \psi_n &= \psi_{n-1} + \widetilde{\Delta t}\, g(\phi_n, \psi_{n-1})

    The weights are (5.115) with two corrections: the step of z is 1 - (1 - dt)^K, where (5.112) prints
    (1 - dt)^K; and the unit that (5.115) calls W_3^f is W_2^f. The input has no part in it; give zeros
    (T, 1). The outputs are "psi", and "phi" of z.

    Args:
        f: d -> d, of psi.
        g: 2d -> d, of phi and psi.
        same: the identity of d numbers.
        macro: the step of psi, in (0, 1].
        micro: the micro step over tau, in (0, 1].
        micro_steps: K.
    """
    count("micro_steps", micro_steps)
    d = f.A.shape[0]
    fits("f", f, d, d)
    fits("g", g, 2 * d, d)
    whole_f = Shallow(np.hstack([np.zeros((f.width, d)), f.W, np.zeros((f.width, 1))]), f.b, f.A)
    whole_g = Shallow(np.hstack([g.W, np.zeros((g.width, 1))]), g.b, g.A)
    G = linear_part(whole_g, np.ones(d), same)
    return _fast_slow(whole_f, G, same, 1 - (1 - micro) ** micro_steps, macro)
