"""Padding behind a shorter sequence reaches no answer and no gradient, in any layer, however long it is."""

import itertools
from typing import Any

import pytest
import torch
from each import each
from refusals import refuses
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.estimators.layers import names, network
from physml.models.sequence.bilstm import BiLSTM
from physml.models.sequence.nrde import NeuralRDE
from physml.models.sequence.rnn import SequenceModel
from physml.models.sequence.truncated import TruncatedLSTM
from physml.ops.backend import running

D = 3
LENGTHS = torch.tensor([1, 2, 5, 8])
LONGEST = 8
ROUNDING = {"rtol": 1e-4, "atol": 1e-5}


def padded(value: float = 0.0, n_steps: int = LONGEST) -> Tensor:
    u = torch.randn(len(LENGTHS), LONGEST, D, generator=torch.Generator().manual_seed(0))
    u = torch.cat([u, torch.zeros(len(LENGTHS), n_steps - LONGEST, D)], 1)
    return u.masked_fill((torch.arange(n_steps) >= LENGTHS[:, None])[..., None], value)


def unaffected(net: nn.Module) -> None:
    with torch.no_grad():
        batched = net(padded(), lengths=LENGTHS)[0]
        alone = torch.cat([net(padded()[i : i + 1, :n])[0] for i, n in enumerate(LENGTHS.tolist())])
        torch.testing.assert_close(batched, alone, **ROUNDING)
        torch.testing.assert_close(net(padded(7.0), lengths=LENGTHS)[0], batched, **ROUNDING)
        torch.testing.assert_close(net(padded(n_steps=19), lengths=LENGTHS)[0], batched, **ROUNDING)


@each("name", names)
def test_no_layer_lets_padding_reach_an_answer_or_a_gradient(name: str) -> None:
    # The faults of pytorch#1811, pytorch#517 and speechbrain#501: a layer that reads backwards starts in the
    # padding; of log-neural-cdes PR 39: a time that is measured by the padded length.
    unaffected(network(name, None, D, 2, "last").eval())
    net = network(name, {"last": 100} if name == "truncated" else None, D, 2, "last")
    net.train(name != "noisy")  # whose noise is drawn for all steps
    gradients = []
    for u in (padded().requires_grad_(), padded(7.0, 11).requires_grad_()):
        net.zero_grad()
        net(u, lengths=LENGTHS)[0].sum().backward()
        assert not u.grad.masked_select((torch.arange(u.shape[1]) >= LENGTHS[:, None])[..., None]).any()
        gradients.append([p.grad.clone() for p in net.parameters() if p.grad is not None])
    for first, second in zip(*gradients, strict=True):
        torch.testing.assert_close(first, second, rtol=1e-3, atol=1e-4)


OPTIONS = [
    *((BiLSTM, {"kernel": k, "order": order}) for k in (None, 3, 7) for order in ("read", "time")),
    *(
        (NeuralRDE, {"d_field": 6, "depth": depth, "window": window, "time": time})
        for depth, window, time in itertools.product((1, 2), (1, 3, 4, 50), (False, True))
    ),
    (NeuralRDE, {"d_field": 6, "depth": 1, "window": 1, "time": True, "solver": "torchcde"}),
]


@pytest.mark.parametrize("backend", ["torch", "auto"])
@each("layer, options", OPTIONS)
def test_options_and_stacks_of_layers_that_look_ahead(layer: type, options: Any, backend: str) -> None:
    with running(backend):
        net = SequenceModel(lambda d: layer(d, 4, **options), D, 2, "last", False, n_layers=2, encoder=5)
        unaffected(net.eval())


def test_outputs_at_every_step_are_those_of_the_sequence_alone_and_equal_lengths_change_no_bit() -> None:
    for order in ("read", "time"):
        layer = BiLSTM(D, 4, order=order)
        outputs = layer(padded(7.0), lengths=LENGTHS)[0]
        for i, n in enumerate(LENGTHS.tolist()):
            torch.testing.assert_close(outputs[i, :n], layer(padded()[i : i + 1, :n])[0][0], **ROUNDING)
    for name in ("bilstm", "nrde", "ncde"):
        net, u = network(name, None, D, 2, "last").eval(), torch.randn(4, 9, D)
        assert torch.equal(net(u, lengths=torch.full((4,), 9))[0], net(u)[0])


class Backwards(nn.Module):
    """Starts at the padded end."""

    def __init__(self, d_in: int) -> None:
        super().__init__()
        self.d_out, self.cell, self.norm = 4, nn.GRU(d_in, 4, batch_first=True), nn.Dropout(0.5)

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        y, state = self.cell(u.flip(1))
        return self.norm(y.flip(1)), state


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("layer", [Backwards, lambda d: nn.LSTM(d, 4, batch_first=True, bidirectional=True)])
def test_a_layer_of_others_that_reads_padding_is_refused(layer, training: bool) -> None:
    net = SequenceModel(layer, D, 2, "last", tokens=False).train(training)
    with pytest.raises(InputError, match=r"a sequence of 1 steps the same answer .* take `lengths`"):
        net(padded(), lengths=LENGTHS)
    assert all(module.training == training for module in net.modules())
    net(padded())
    net(padded(), lengths=torch.full((4,), LONGEST))
    read = SequenceModel(layer, D, 2, "last", tokens=False, lengths=False).eval()
    torch.testing.assert_close(read(padded(), lengths=LENGTHS)[0], read(padded())[0])


def test_layers_that_read_forwards_are_taken_and_learning_from_last_steps_needs_equal_lengths() -> None:
    net = SequenceModel(lambda d: nn.LSTM(d, 4, batch_first=True), D, 2, "last", tokens=False)
    before = torch.get_rng_state()
    unaffected(net)
    assert torch.equal(torch.get_rng_state(), before) and net.layers[0].training
    net = SequenceModel(lambda d: TruncatedLSTM(d, 4, last=5), D, 2, "last", tokens=False)
    refuses(InputError, r"equally long, without padding, .* got 1 to 8 steps", net, padded(), lengths=LENGTHS)
    unaffected(net.eval())
