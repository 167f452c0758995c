"""Recurrent layers against their authors' code, see `official` in tests/harness."""

import math
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from official import GOLDEN, GRADIENT, Make, check_law, check_layer, of_gradients
from torch import Tensor, nn

from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.diagonal_ssm import _MIMO, _SISO
from physml.models.sequence.fastrnn import FastGRNN, FastRNN
from physml.models.sequence.indrnn import IndRNN
from physml.models.sequence.koopman import KoopmanAutoencoder
from physml.models.sequence.lem import LEM
from physml.models.sequence.linoss import Oscillators
from physml.models.sequence.lipschitz import LipschitzRNN
from physml.models.sequence.lru import _Unit
from physml.models.sequence.min_gated import MinGRU, MinLSTM
from physml.models.sequence.momentum import MomentumLSTM
from physml.models.sequence.neural_ode import GeneralisedHeavyBallNODE, HeavyBallNODE
from physml.models.sequence.nnrnn import NonNormalRNN
from physml.models.sequence.noisy import NoisyRNN
from physml.models.sequence.nrde import NeuralRDE
from physml.models.sequence.orthogonal import ExpRNN
from physml.models.sequence.skip import SkipGRU, SkipLSTM
from physml.models.sequence.slstm import SLSTM
from physml.models.sequence.sru import SRU
from physml.models.sequence.tarnn import TARNN
from physml.models.sequence.unicornn import UnICORNN
from physml.models.sequence.unitary import FullCapacityURNN, UnitaryRNN
from physml.models.sequence.wave import WaveRNN

SHIFTS = {"gamma_a": 0.1, "gamma_w": 0.2}
# The damping at the start in the code of HBNODE; that of xi is log 2.
BALL = {"gamma": 1 / (1 + math.exp(3)), "trained": True, "method": "midpoint"}


def unitary(k: int) -> UnitaryRNN:
    layer = UnitaryRNN(2 * k, 4 * k)
    layer.permutation.copy_(torch.arange(4 * k).roll(1))
    return layer


def full_unitary(k: int) -> FullCapacityURNN:
    layer = FullCapacityURNN(2 * k, 4 * k)
    turned = torch.eye(4 * k).roll(1, 0)
    layer.W0.copy_(torch.stack([turned, torch.zeros_like(turned)]))
    return layer


LAYERS: dict[str, Make] = {
    "cornn": lambda k: CoRNN(2 * k, 3 * k, dt=0.3, gamma=2.0, epsilon=1.5),
    "unicornn": lambda k: UnICORNN(2 * k, 3 * k, n_layers=2, dt=0.3, alpha=1.5),
    "lem": lambda k: LEM(2 * k, 3 * k, dt=0.7),
    "linoss_im": lambda k: Oscillators(3 * k, 4 * k, "im", "official", 1.0, 0.9, 1.0),
    "linoss_imex": lambda k: Oscillators(3 * k, 4 * k, "imex", "official", 1.0, 0.9, 1.0),
    "linoss_damped": lambda k: Oscillators(3 * k, 4 * k, "damped", None, 1.0, 0.9, 1.0),
    "s5": lambda k: _MIMO(3 * k, 2 * k, "official", 0.001, 0.1),
    "s4d": lambda k: _SISO(3 * k, 2 * k, 0.001, 0.1),
    "lru": lambda k: _Unit(3 * k, 4 * k, 0.0, 0.99, 6.28),
    "ncde": lambda k: NeuralRDE(
        2 * k, 3 * k, depth=1, window=1, d_field=4 * k, n_layers=2, time=True, solver="torchcde"
    ),
    "nrde_field": lambda k: NeuralRDE(2 * k, 3 * k, depth=2, window=2, d_field=4 * k, n_layers=2),
    "slstm": lambda k: SLSTM(2 * k, 4 * k, n_heads=2),
    "sru": lambda k: SRU(3 * k, 3 * k, highway_bias=-1.0, init="official"),
    "lipschitz": lambda k: LipschitzRNN(2 * k, 3 * k, dt=0.3, beta_a=0.75, beta_w=0.75, **SHIFTS),
    "noisy": lambda k: NoisyRNN(2 * k, 3 * k, dt=0.3, mult_noise=0.1, add_noise=0.1, **SHIFTS),
    "indrnn": lambda k: IndRNN(2 * k, 3 * k, n_layers=1),
    "exprnn": lambda k: ExpRNN(2 * k, 4 * k),
    "exprnn_henaff": lambda k: ExpRNN(2 * k, 4 * k, init="henaff"),
    "nnrnn": lambda k: NonNormalRNN(2 * k, 4 * k),
    "min_gru": lambda k: MinGRU(2 * k, 3 * k, candidate="positive"),
    "min_lstm": lambda k: MinLSTM(2 * k, 3 * k, candidate="positive"),
    "skip_lstm": lambda k: SkipLSTM(2 * k, 3 * k),
    "skip_gru": lambda k: SkipGRU(2 * k, 3 * k),
    "momentum_lstm": lambda k: MomentumLSTM(2 * k, 3 * k, mu=0.6, s=0.7),
    "hbnode": lambda k: HeavyBallNODE(2 * k, 3 * k, width=4 * k, **BALL),
    "ghbnode": lambda k: GeneralisedHeavyBallNODE(2 * k, 3 * k, width=4 * k, xi=math.log(2), **BALL),
    "tarnn": lambda k: TARNN(2 * k, 3 * k, n_steps=2, activation="tanh"),
    "koopman": lambda k: KoopmanAutoencoder(4 * k, 3 * k, width=4 * k, steps=2, back_steps=2, eta=0.1),
    "urnn": unitary,
    "full_urnn": full_unitary,
    "wave": lambda k: WaveRNN(2 * k, 8 * k, channels=2),
    "fastrnn": lambda k: FastRNN(2 * k, 3 * k),
    "fastgrnn": lambda k: FastGRNN(2 * k, 3 * k),
}


def output(name: str, layer: nn.Module, u: Tensor) -> Tensor:
    layer.eval()
    if name == "nrde_field":  # the slope of a state, the first step, by a log-signature, the second
        return layer._slope(u[:, 0], u[:, 1])  # type: ignore[operator]
    if hasattr(layer, "widths"):
        return layer(u, tuple(u.new_zeros(len(u), width) for width in layer.widths))[0]
    if name == "tarnn":  # the input before the first is the first, as in the code for torch
        return layer(u, (u.new_zeros(len(u), 3), u[:, 0]))[0]
    y = layer(u)[0]
    return y[:, -1] if name == "ncde" else y


@pytest.mark.parametrize("name", LAYERS)
def test_a_layer_computes_what_its_authors_code_computes_and_starts_by_its_law(name: str) -> None:
    if "law" in GOLDEN[name]:
        check_law(name, LAYERS[name])
    check_layer(name, LAYERS[name], output)


def test_the_numbers_say_where_they_are_from_and_depend_on_every_weight() -> None:
    needed = {"source", "version", "made", "numbers"}
    for name, record in GOLDEN.items():
        assert needed <= set(record) <= needed | {"date", "law", "deviation"}, name
        run_on = date.fromisoformat(record["made"])
        assert date.fromisoformat(record.get("date", record["made"])) <= run_on, f"{name}: run before written"
        assert of_gradients(record) <= set(record["numbers"]), name
        laws = {what for what in record.get("deviation", {}) if not what.startswith(GRADIENT)}
        assert laws <= set(record.get("law", {})), name
    # Not so where a ReLU is nowhere on: then they would be equal whatever stands in it.
    for name, record in GOLDEN.items():
        still = {what for what, values in record["numbers"].items() if np.abs(values).max() < 1e-9}
        assert still == UNFELT.get(name, set()), name


# Weights that a softmax over what is shifted alike takes out again, or a batch norm.
UNFELT = {
    "f2gat": {"layers.0.att_dst", "layers.1.att_dst"}
    | {"fusions.0.score.weight", "fusions.0.score.bias", "fusions.1.score.bias"},
    "grand": {"attention.K.bias"},
    "graphcon_citation": {"attention.Q.bias"},
    "graphcon_citation_late": {"attention.Q.bias"},
    "graph_transformer_batch": {f"blocks.{n}.{of}.bias" for n in (0, 1) for of in ("O", "W_2")},
    "gated_gcn": {"layers.0.U.bias", "layers.1.U.bias"},
}


def line_of(name: str, record: dict[str, Any]) -> str:
    """The line of one entry in the table of docs/official-code.md."""
    place, _, part = record["source"].partition(", ")
    deviation = record.get("deviation", {})
    others = {"gradients" if of.startswith(GRADIENT) else f"start of {of}" for of in deviation}
    link = f"[{place.removeprefix('github.com/')}](https://{place})" if "/" in place else place
    code = [link, record["version"][:10], record.get("date", ""), part]
    return f"| {' | '.join([f'`{name}`', *code, ', '.join(sorted(others))])} |"


def test_the_page_lists_what_is_compared() -> None:
    page = (Path(__file__).parents[3] / "docs" / "official-code.md").read_text(encoding="utf-8")
    table = page.partition("<!-- compared -->\n")[2].partition("<!-- end -->")[0].splitlines()
    lines = [line_of(name, GOLDEN[name]) for name in sorted(GOLDEN)]
    assert table[2:] == lines, "the table of docs/official-code.md must be\n" + "\n".join(lines)
