"""Embedding, encoder, stack, dropout and read-outs around any recurrent layer."""

import copy
from collections.abc import Callable
from typing import Any

import pytest
import torch
from drawn_layers import numbers
from refusals import refuses
from torch import Tensor, nn

from physml.base.errors import InputError
from physml.models.sequence.gated import GRU, LSTM
from physml.models.sequence.rnn import SequenceModel
from physml.run.record import count_parameters

D, H, N_OUT = 3, 6, 2


class Copy(nn.Module):
    """Hands its input on, so that what stands around a layer can be seen."""

    def __init__(self, d_in: int) -> None:
        super().__init__()
        self.d_out = d_in

    def forward(self, u: Tensor, state: Any = None) -> tuple[Tensor, tuple[Tensor]]:
        return u, (u[:, -1],)


def gru(d_in: int) -> nn.Module:
    return GRU(d_in, H)


def make(layer: Any = gru, readout: str = "last", tokens: bool = False, **options: Any) -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(layer, 20 if tokens else D, N_OUT, readout, tokens, **options).double()


def transparent(**options: Any) -> SequenceModel:
    """What comes before and behind a layer and can be seen, for the read-out is the identity too."""
    model = make(Copy, readout="every", **options)
    model.readout = nn.Identity()
    return model


def wide(d_in: int) -> nn.Module:
    return GRU(d_in, 400)


def test_reads_every_step_or_the_last():
    u = numbers(4, 7, D)
    every, states = make(readout="every")(u)
    last, _ = make()(u)
    assert every.shape == (4, 7, N_OUT) and last.shape == (4, N_OUT)
    torch.testing.assert_close(last, every[:, -1])
    model = make()
    torch.testing.assert_close(last, model.readout(model.layers[0](u)[0][:, -1]))
    assert len(states) == 1 and states[0][0].shape == (4, H)


def test_true_lengths_have_no_gradient_behind_them_and_the_padded_end_may_be_read():
    u, lengths = numbers(3, 7, D), torch.tensor([7, 1, 4])
    own, padded = make(), make(lengths=False)
    output, state = own(u, lengths)
    for i, n in enumerate(lengths):
        torch.testing.assert_close(output[i], own(u[i : i + 1, :n])[0][0])
    torch.testing.assert_close(padded(u, lengths)[0], padded(u)[0])
    torch.testing.assert_close(padded(u)[0], own(u)[0])
    torch.testing.assert_close(state[0][0], own(u)[1][0][0])  # of the padded end
    u = numbers(2, 5, D).requires_grad_()
    make()(u, torch.tensor([5, 2]))[0].sum().backward()
    assert u.grad is not None
    assert not u.grad[1, 2:].any() and u.grad[1, :2].any(-1).all() and u.grad[0].any(-1).all()


@pytest.mark.parametrize("lengths", [True, False])
def test_the_mean_over_the_true_steps_is_read_and_needs_whole_sequences(lengths: bool):
    net, u, n = make(pool="mean", lengths=lengths), numbers(3, 6, D), [6, 1, 4]
    torch.testing.assert_close(net(u)[0], net.readout(net.layers[0](u)[0].mean(1)))
    outputs = net(u, torch.tensor(n))[0]
    for i, k in enumerate(n if lengths else [6] * 3):
        torch.testing.assert_close(outputs[i : i + 1], net(u[i : i + 1, :k])[0])
    refuses(InputError, "pool=mean answers for whole sequences", net.step, numbers(3, D))


def test_readouts_and_truncated_normals_start_with_the_variance_they_name() -> None:
    options: dict[str, Any] = {"readout": "last", "tokens": False}
    kaiming = SequenceModel(wide, D, 300, **options, readout_init="kaiming_normal", readout_bias_init="zeros")
    default = SequenceModel(wide, D, 300, **options)
    assert abs(kaiming.readout.weight.std() / (2 / 400) ** 0.5 - 1) < 0.01
    assert kaiming.readout.weight.abs().max() > 0.2  # normal: no bound
    assert not kaiming.readout.bias.any()
    assert default.readout.weight.abs().max() <= 400**-0.5
    assert default.readout.bias.any() and default.readout.bias.abs().max() <= 400**-0.5
    # The one does not change the other.
    assert SequenceModel(wide, D, 300, **options, readout_init="kaiming_normal").readout.bias.any()
    options: dict[str, Any] = {"embedding": 100, "embedding_init": "fan_out", "readout_init": "fan_in"}
    model = SequenceModel(lambda d_in: GRU(d_in, 64), 3000, 3000, "every", True, **options)
    for weight, fan in ((model.embedding.weight, 100), (model.readout.weight, 64)):
        assert abs(weight.std() / fan**-0.5 - 1) < 0.01
        assert weight.abs().max() <= 2 * fan**-0.5 / 0.8796
    assert not of_ids(readout_bias_init="zeros").readout.bias.any()


LAYERS: dict[str, Callable[[int], nn.Module]] = {
    "ours": lambda d_in: LSTM(d_in, H),
    "torch LSTM": lambda d_in: nn.LSTM(d_in, H, batch_first=True),
    "torch GRU": lambda d_in: nn.GRU(d_in, H, batch_first=True),
    "torch RNN": lambda d_in: nn.RNN(d_in, H, batch_first=True),
    "torch LSTM, projected": lambda d_in: nn.LSTM(d_in, H, batch_first=True, proj_size=4),
}


@pytest.mark.parametrize("name", LAYERS)
def test_stack_carries_its_state(name: str):
    model, u = make(LAYERS[name], readout="every", n_layers=3), numbers(2, 9, D)
    whole, end = model(u)
    first, state = model(u[:, :4])
    second, last = model(u[:, 4:], state=state)
    torch.testing.assert_close(torch.cat([first, second], 1), whole)
    assert len(last) == 3
    torch.testing.assert_close(last, end)


def test_layers_of_a_stack_are_their_own_and_some_cannot_be_stacked() -> None:
    # And so are their states.
    model, u = make(n_layers=2), numbers(2, 5, D)
    first, second = model.layers
    assert (first.d_in, second.d_in) == (D, H)
    output, state = model(u)
    torch.testing.assert_close(output, model.readout(second(first(u)[0])[0][:, -1]))
    refuses(InputError, "one entry per layer, 1; got 2", make(), u, state=state)
    for layer, says in ((nn.LSTM, "batch_first"), (nn.Linear, "d_out")):
        refuses(InputError, says, make, lambda d_in, layer=layer: layer(d_in, H))


VARIATIONAL = {"dropout": 0.25, "dropout_kind": "variational"}


def dropped(**options: Any) -> Tensor:
    """What comes out of ones (40, 50, D)."""
    return transparent(**options)(torch.ones(40, 50, D, dtype=torch.float64))[0]


def test_dropout_is_of_each_step_and_layer_and_a_variational_one_is_the_same_at_all_steps():
    y, same, twice = (dropped(**o) for o in ({"dropout": 0.25}, VARIATIONAL, {"dropout": 0.5, "n_layers": 2}))
    assert set(y.unique().tolist()) == set(same.unique().tolist()) == {0.0, 1 / 0.75}
    assert abs((y == 0).double().mean() - 0.25) < 0.02
    assert not (y == y[:, :1]).all(1).any()
    assert torch.equal(same, same[:, :1].expand_as(same))
    assert 0.1 < (same[:, 0] == 0).double().mean() < 0.4
    assert not torch.equal(same[0], same[1]) or not torch.equal(same[0], same[2])
    assert set(twice.unique().tolist()) == {0.0, 4.0}
    assert abs((twice != 0).double().mean() - 0.25) < 0.02


@pytest.mark.parametrize("kind", ["step", "variational"])
def test_nothing_is_dropped_in_evaluation(kind: str):
    u = numbers(3, 5, D)
    still = make(dropout=0.9, input_dropout=0.9, dropout_kind=kind).eval()
    torch.testing.assert_close(still(u)[0], make()(u)[0], rtol=0, atol=0)


def test_ids_stand_for_vectors_and_their_dropout_removes_whole_words():
    model = transparent(tokens=True, embedding=5)
    ids = torch.tensor([[0, 3, 19], [3, 3, 1]])
    assert model.embedding.weight.shape == (20, 5)
    torch.testing.assert_close(model(ids)[0], model.embedding.weight[ids])
    model = transparent(tokens=True, embedding=5, embedding_dropout=0.4)
    ids = torch.arange(20).repeat(3, 2)
    y, _ = model(ids)
    assert torch.equal(y[0], y[2]) and torch.equal(y[:, :20], y[:, 20:])
    gone = (y[0, :20] == 0).all(1)
    assert 0 < gone.sum() < 20
    torch.testing.assert_close(y[0, :20][~gone], model.embedding.weight[~gone] / 0.6)
    torch.testing.assert_close(model.eval()(ids)[0], model.embedding.weight[ids])


def test_the_encoder_feeds_the_first_layer_and_input_dropout_comes_before_it() -> None:
    model, u = transparent(encoder=7), numbers(2, 5, D)
    torch.testing.assert_close(model(u)[0], u @ model.encoder.weight.T + model.encoder.bias)
    both = make(tokens=True, embedding=5, encoder=7)
    assert both.encoder.weight.shape == (7, 5)
    assert both(torch.zeros(2, 4, dtype=torch.long))[0].shape == (2, N_OUT)
    y = dropped(input_dropout=0.25)
    assert set(y.unique().tolist()) == {0.0, 1 / 0.75}
    model = transparent(input_dropout=0.5, encoder=4)
    nn.init.constant_(model.encoder.weight, 1.0)
    nn.init.constant_(model.encoder.bias, 10.0)
    y, _ = model(torch.ones(4, 50, D, dtype=torch.float64))
    assert set(y.unique().tolist()) == {10.0, 12.0, 14.0, 16.0}


@pytest.mark.parametrize(
    ("options", "word"),
    [
        *(({"tokens": True}, "net.embedding"), ({"embedding": 5}, "encoder"), ({"encoder": 0}, "encoder")),
        *(({"embedding_dropout": 0.1}, "encoder"), ({"tokens": True, "embedding": -2}, "embedding")),
        *(({"readout": "middle"}, "readout"), ({"dropout_kind": "words"}, "dropout_kind")),
        *(({"dropout": 1.5}, "dropout"), ({"n_layers": 0}, "n_layers")),
        *(({"readout_init": "zeros"}, "readout_init"), ({"readout_bias_init": "ones"}, "readout_bias_init")),
        *(({"tied": True}, "tied is for ids"), ({"padding": True}, "padding is for ids")),
        ({"embedding_init": "fan_out"}, "embedding_init is for ids"),
        ({"embedding_trained": True}, "embedding_trained is for ids"),
        ({"pool": "mean", "readout": "every"}, "pool=mean is for one answer per sequence"),
    ],
    ids=str,
)
def test_options_that_cannot_be(options: dict[str, Any], word: str):
    refuses(InputError, word, make, **options)


def test_wrong_shapes_lengths_and_ids_out_of_range_are_refused():
    for lengths in ([0, 3], [3, 6], [5]):
        refuses(InputError, "lengths", make(), numbers(2, 5, D), torch.tensor(lengths))
    for says, lengths in {"a tensor; got list": [3, 5], "int64": torch.tensor([3.0, 5.0])}.items():
        refuses(InputError, f"lengths must .*{says}", make(), numbers(2, 5, D), lengths)
    numbered, of_words = make(), make(tokens=True, embedding=5)
    wrong = [(numbered, numbers(*shape)) for shape in ((0, 5, D), (2, 0, D), (2, 5), (2, 5, D + 1))]
    wrong += [(of_words, torch.zeros(shape).long()) for shape in ((0, 5), (2, 0), (2, 5, 1))]
    for model, inputs in wrong:
        refuses(InputError, "input must have shape", model, inputs)
    for bad in (-1, 20):
        refuses(InputError, r"ids in \[0, 20\)", of_words, torch.tensor([[0, bad]]))


def test_an_output_of_another_shape_is_refused_and_a_nan_stays_in_its_row() -> None:
    u = numbers(3, 6, D)
    model = make(n_layers=2, encoder=4, readout="every").eval()
    clean, _ = model(u)
    u[1, 2, 0] = torch.nan
    path, _ = model(u)
    torch.testing.assert_close(path[[0, 2]], clean[[0, 2]])
    assert path[1, 2:].isnan().all() and path[1, :2].isfinite().all()

    class Summed(GRU):
        def forward(self, u, state=None):
            outputs, state = super().forward(u, state)
            return outputs.sum(2), state

    net = SequenceModel(lambda d_in: Summed(d_in, 4), 1, 2, "every", False, n_layers=1)
    says = r"the output of Summed must have shape \(B, T, 4\), so \(3, 5, 4\); got \(3, 5\)"
    refuses(InputError, says, net, torch.zeros(3, 5, 1))


def of_ids(n_ids: int = 20, width: int = H, **options: Any) -> SequenceModel:
    """A network that predicts its own ids."""
    torch.manual_seed(0)
    options = {"embedding": width} | options
    return SequenceModel(gru, n_ids, n_ids, "every", True, **options).double()


def test_tied_softmax_is_one_table_that_stays_tied_and_does_not_train_the_vector_of_the_padding() -> None:
    model = of_ids(tied=True)
    assert model.readout.weight is model.embedding.weight
    assert count_parameters(model) == 20 * H + 20 + 2 * 3 * H * H + 2 * 3 * H
    ids = torch.tensor([[3, 4], [5, 4]])
    path = model.layers[0](model.embedding(ids))[0]
    torch.testing.assert_close(model(ids)[0], path @ model.embedding.weight.T + model.readout.bias)
    model(ids)[0][0, 0, 7].backward()
    grad = model.embedding.weight.grad
    assert grad[7].any() and grad[3].any() and not grad[11].any()  # as an answer, as an input, as neither
    model, other = of_ids(tied=True), of_ids(tied=True, embedding_init="fan_out")
    other.load_state_dict(model.state_dict())
    assert other.readout.weight is other.embedding.weight
    assert torch.equal(other.readout.weight, model.readout.weight)
    model = of_ids(tied=True, padding=1)
    model(torch.tensor([[3, 4], [5, 1]]))[0].square().sum().backward()
    grad = model.embedding.weight.grad
    assert grad[3].any() and not grad[1].any() and not model.embedding.weight[1].any()
    again = copy.deepcopy(model)
    again.zero_grad()
    again(torch.tensor([[3, 4], [5, 1]]))[0].square().sum().backward()
    torch.testing.assert_close(again.embedding.weight.grad, grad)
    assert of_ids(tied=True, padding=1, embedding_trained=False)(torch.tensor([[3, 1]]))[0].isfinite().all()


@pytest.mark.parametrize(
    ("returned", "says"),
    [
        (lambda u: u, r"Returns must return \(outputs, state\); got Tensor"),
        (lambda u: (u, u, u), "got tuple"),
        (lambda u: (u, ()), "Returns must keep the dtype of its input; its output is float64"),
        (lambda u: (u[:, ::2], ()), r"Returns must have shape \(B, T, 4\), so \(2, 3, 4\); got \(2, 2, 4\)"),
        (lambda u: (u.transpose(0, 1), ()), r"so \(2, 3, 4\); got \(3, 2, 4\)"),
    ],
)
def test_what_a_layer_of_ones_own_returns_is_checked(returned: Any, says: str):
    class Returns(nn.Linear):
        d_out = 4

        def forward(self, input: Tensor, state: Any = None) -> Any:
            return returned(super().forward(input.double()))

    net = make(lambda d: Returns(d, 4)).float()
    net.layers.double()
    with pytest.raises(InputError, match=says):
        net(torch.zeros(2, 3, D))  # as many sequences as a pair has parts
    Returns.d_out = 0
    with pytest.raises(InputError, match="Returns must have an integer d_out of at least 1; got 0"):
        make(lambda d: Returns(d, 4))
    with pytest.raises(InputError, match=r"Stepless has no forward\(u, state=None\). Write it, or step"):
        make(lambda d: type("Stepless", (nn.Module,), {"d_out": 3})())


def test_a_layer_that_mixes_the_sequences_of_a_batch_is_refused():
    class Mixer(nn.Module):
        def __init__(self, d_in: int, batch_first: bool) -> None:
            super().__init__()
            self.rnn, self.d_in, self.d_out = nn.RNN(d_in, 4, batch_first=batch_first), d_in, 4

        def forward(self, u: Tensor, state: Any = None) -> Any:
            return self.rnn(u, state)

    drawn, u = torch.get_rng_state(), torch.randn(4, 5, D)
    make(lambda d: Mixer(d, batch_first=True)).float()(u)
    torch.set_rng_state(drawn)
    with pytest.raises(
        InputError, match=r"Mixer mixes the sequences of a batch: .* is batch_first=True missing"
    ):
        make(lambda d: Mixer(d, batch_first=False)).float()(u)
    with pytest.raises(InputError, match=r"Linear.forward must take \(u, state=None\): too many positional"):
        make(lambda d: type("Linear", (nn.Linear,), {"d_out": 4})(d, 4))


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"tied": True, "width": 5}, "Set net.embedding to the width of the last layer, 6"),
        ({"tied": True, "readout_init": "fan_in"}, "Set it to default"),
        ({"embedding_init": "vectors"}, "knows no vectors"),
        ({"embedding_init": "vectors", "vectors": torch.zeros(20, 5)}, r"vectors must have shape \(20, 6\)"),
        ({"embedding_init": "fan"}, "embedding_init must be one of"),
        ({"padding": 20}, r"padding must be an id in \[0, 20\)"),
    ],
)
def test_what_embeddings_cannot_be(options: dict[str, Any], says: str):
    refuses(InputError, says, of_ids, **options)


def test_known_vectors_padding_and_a_frozen_table_where_somebody_asks_for_them():
    vectors = numbers(20, H)
    model = of_ids(embedding_init="vectors", vectors=vectors, padding=1)
    table = model.embedding.weight
    torch.testing.assert_close(table.detach(), vectors.float().double().index_fill(0, torch.tensor(1), 0.0))
    model(torch.tensor([[1, 2, 3]]))[0].sum().backward()
    assert not table.grad[1].any() and table.grad[[2, 3]].any(1).all()
    frozen = of_ids(embedding_init="vectors", vectors=vectors, embedding_trained=False)
    assert not frozen.embedding.weight.requires_grad
    frozen(torch.tensor([[1, 2, 3]]))[0].sum().backward()
    plain, offered = of_ids(), of_ids(vectors=numbers(20, H))
    for a, b in zip(plain.parameters(), offered.parameters(), strict=True):
        assert torch.equal(a, b)
