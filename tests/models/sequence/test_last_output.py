"""The read-out of the last step takes it from the state, where a layer has it there, with the same bits."""

from typing import Any

import pytest
import torch
from drawn_layers import leaves
from torch import Tensor, nn

from physml.base.paths import CONF
from physml.config import build
from physml.config.build import passes_messages
from physml.config.compose import compose, names
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.config.schema import checked
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.unicornn import UnICORNN

D, H, T = 2, 8, 40


def reads_sequences(model: str) -> bool:
    of_model = CONF / "model" / f"{model}.yaml"
    return model != "own" and not passes_messages(resolve(read_yaml(of_model)["_target_"]))


def net_of(model: str) -> SequenceModel:
    config, parts = checked(compose([f"model={model}", "task=adding", "profile=smoke"]).config)
    torch.manual_seed(0)
    net = build.build_net(parts, build.build_task(config))
    assert isinstance(net, SequenceModel)
    return net


def output_and_gradients(net: SequenceModel, u: Tensor) -> list[Tensor | None]:
    net.zero_grad()
    torch.manual_seed(1)  # of layers that draw noise
    output, _ = net(u)
    output.pow(2).sum().backward()
    return [output, *(None if p.grad is None else p.grad.clone() for p in net.parameters())]


@pytest.mark.matrix
@pytest.mark.parametrize("model", sorted(filter(reads_sequences, names("model"))))
def test_last_output_and_gradients_keep_their_bits(model: str, monkeypatch: pytest.MonkeyPatch):
    net = net_of(model)
    u = torch.randn(4, T, D)
    outputs, state = net.layers[-1](u)
    in_state = any(torch.equal(x, outputs[:, -1]) for x in leaves(state))
    in_state = in_state and model != "wave_rnn"  # outputs batch first: the read-out would round otherwise
    assert (getattr(net.layers[-1], "output_in_state", None) is not None) == in_state
    fast = output_and_gradients(net, u)
    monkeypatch.setattr("physml.models.sequence.layer_contract._output_in_state", lambda layer: None)
    for quick, plain in zip(fast, output_and_gradients(net, u), strict=True):
        assert (quick is None) == (plain is None) and (quick is None or torch.equal(quick, plain))


def test_dropout_reaches_the_last_output_and_a_forward_of_its_own_is_read_from_its_outputs() -> None:
    net = SequenceModel(lambda d_in: UnICORNN(d_in, H, dropout=0.5), D, 1, "last", tokens=False)
    net.readout = nn.Identity()
    last, _ = net(torch.randn(64, T, D))
    assert 0.3 < (last == 0).double().mean() < 0.7
    net = SequenceModel(lambda d_in: Doubled(d_in, H), D, 1, "last", tokens=False)
    net.readout = nn.Identity()
    u = torch.randn(4, T, D)
    torch.testing.assert_close(net(u)[0], net.layers[0](u)[0][:, -1])


class Doubled(CoRNN):
    """A user's subclass, whose output is not in the state of its parent."""

    def forward(self, u: Tensor, state: Any = None) -> Any:
        y, state = super().forward(u, state)
        return 2 * y, state
