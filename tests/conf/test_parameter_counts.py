"""Parameter counts against the printed ones, row by row: every table of three papers where a row's way of
counting is known. Rows of own-sequence and own-images have equally many parameters, as their notes say.

A printed count is taken as rounded to its last digit. Rows whose printed count is not that of the network
stand in `EXCEPTIONS` with the reason, and the test checks that the exception is one. Left out: the Lipschitz
RNN of lem-7, whose embedding has an unknown width.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from each import each
from torch import nn
from variants import variants

from physml.base.paths import CONF
from physml.config.build import build_net, build_task, parts_of
from physml.config.compose import compose
from physml.config.load import read_yaml
from physml.config.resolve import resolve
from physml.config.schema import checked
from physml.models.sequence.rnn import SequenceModel
from physml.report.figure import spec as figure_spec
from physml.report.table.spec import experiments_of, load_table
from physml.run.record import count_parameters

Layer = Callable[[int], nn.Module]
WEIGHTS = "weights without biases and read-out"


def of(name: str, h: int, **options: Any) -> Layer:
    """With the class of conf/model, which alone is taken from there."""
    cls = resolve(read_yaml(CONF / "model" / f"{name}.yaml")["_target_"])
    return lambda d: cls(d, h, **options)


lstm, gru, tanh = partial(of, "lstm"), partial(of, "gru"), partial(of, "tanh_rnn")
antisymmetric = partial(of, "antisymmetric", epsilon=0.01, gamma=0.01)
lipschitz, exprnn, indrnn = partial(of, "lipschitz", dt=0.03), partial(of, "exprnn"), partial(of, "indrnn")
fastrnn, fastgrnn = partial(of, "fastrnn"), partial(of, "fastgrnn")
cornn = partial(of, "cornn", dt=0.1, gamma=1.0, epsilon=1.0)
unicornn, lem = partial(of, "unicornn", dt=0.1, alpha=1.0), partial(of, "lem", dt=1.0)
bilstm, truncated = partial(of, "bilstm"), partial(of, "truncated", last=500)
relu_gru, skip_lstm, skip_gru = partial(of, "relu_gru"), partial(of, "skip_lstm"), partial(of, "skip_gru")
momentum_lstm = partial(of, "momentum_lstm", mu=0.6, s=0.6)
urnn, full_urnn = partial(of, "urnn"), partial(of, "full_urnn")
soft_orthogonal, nnrnn = partial(of, "soft_orthogonal"), partial(of, "nnrnn")
incremental, kronecker = partial(of, "incremental"), partial(of, "kronecker")
nais, tarnn = partial(of, "nais"), partial(of, "tarnn")
nrde = partial(of, "nrde", d_field=96, n_layers=2)
INDRNN, UNICORNN = indrnn(32, n_layers=2), unicornn(32, n_layers=2)


def second_biases(layer: nn.Module) -> int:
    """torch's gated layers have two biases per gate, of which one is enough."""
    return sum(p.numel() for name, p in layer.named_parameters() if name.startswith("cell.bias_hh"))


def weights(layer: nn.Module, *, recurrent_only: bool = False) -> int:
    named = {name: p for name, p in layer.named_parameters() if p.dim() == 2}
    if recurrent_only:
        named = {name: p for name, p in named.items() if p.shape[1] == layer.d_out}
    return sum(p.numel() for p in named.values())


@dataclass(frozen=True)
class Row:
    """`meant`: where another network has the printed count, what it has that the row has not."""

    tables: str
    label: str
    layer: Layer
    d_in: int
    d_out: int
    convention: str  # which of the parameters count: "full", "two biases", or some of them
    count: int
    printed: str
    meant: dict[str, Any] | None = None


def count(row: Row) -> int:
    net = SequenceModel(row.layer, row.d_in, row.d_out, readout="last", tokens=False)
    (inner,) = net.layers
    if "weights" in row.convention:
        return weights(inner, recurrent_only="recurrent" in row.convention)
    counted = count_parameters(inner if "without read-out" in row.convention else net)
    return counted - ("one bias" in row.convention) * second_biases(inner)


def rounds_to(n: int, printed: str) -> bool:
    """Whether n, rounded half up to the digits of `printed`, is the printed number."""
    digits, unit = printed[:-1], {"k": 3, "M": 6}[printed[-1]]
    decimals = len(digits.partition(".")[2])
    step = 10 ** (unit - decimals)
    return (n + step // 2) // step == round(float(digits) * 10**decimals)


def test_rounding_and_that_shared_parameters_count_once_and_frozen_ones_never() -> None:
    for n, printed in ((5157, "5.2k"), (5285, "5.3k"), (34_499, "34k"), (1_320_603, "1.3M")):
        assert rounds_to(n, printed)
    assert not rounds_to(34_500, "34k")
    net = SequenceModel(cornn(128), 25_002, 1, readout="last", tokens=True, embedding=100)
    assert count_parameters(net) == 45_825 + 25_002 * 100
    layer = antisymmetric(4)(1)
    assert count_parameters(layer) == 6 + 4 + 4
    assert count_parameters(nn.Sequential(layer, layer)) == 6 + 4 + 4
    assert count_parameters(layer.requires_grad_(False)) == 0


# d_in and d_out: pixels 1 -> 10 classes, noise padded CIFAR-10 96 -> 10, HAR-2 9 -> 1 logit, IMDB words of
# 100 -> 1 logit, Lorenz-96 5 -> 5, EigenWorms 6 -> 5, heart rate 2 -> 1, FitzHugh-Nagumo 1 -> 1, Google12
# 80 -> 12, PTB characters of 200, PTB words of 256; its embeddings and softmax are never counted.
ROWS = [
    Row("cornn-1", "anti.sym. RNN", antisymmetric(128), 1, 10, "full", 9_674, "10k"),
    Row("cornn-1", "DTRIV-inf", exprnn(512, base="start"), 1, 10, "full", 136_970, "137k"),
    Row("cornn-1", "FastGRNN", fastgrnn(128), 1, 10, "full", 18_060, "18k"),
    Row("cornn-1, lem-1", "coRNN 128", cornn(128), 1, 10, "full", 34_314, "34k"),
    Row("cornn-1", "coRNN 256", cornn(256), 1, 10, "full", 134_154, "134k"),
    Row("cornn-2, unicornn-2", "FastRNN", fastrnn(128), 96, 10, "recurrent weights only", 16_384, "16k"),
    Row("cornn-2, unicornn-2, lem-1", "coRNN", cornn(128), 96, 10, "full", 46_474, "46k"),
    Row("cornn-3", "GRU", gru(75), 9, 1, "one bias", 19_201, "19k"),
    Row("cornn-3", "LSTM", lstm(64), 9, 1, "recurrent weights only", 16_384, "16k"),
    Row("cornn-3", "FastRNN", fastrnn(80), 9, 1, "full", 7_283, "7k"),
    Row("cornn-3", "FastGRNN", fastgrnn(80), 9, 1, "full", 7_363, "7k"),
    Row("cornn-3", "anti.sym. RNN", antisymmetric(120), 9, 1, "full", 8_461, "8k"),
    Row("cornn-3", "incremental RNN", incremental(64), 9, 1, "recurrent weights only", 4_096, "4k"),
    Row("cornn-3", "coRNN", cornn(64), 9, 1, "full", 8_897, "9k"),
    Row("cornn-3", "tiny coRNN", cornn(20), 9, 1, "full", 1_021, "1k"),
    Row("cornn-4, unicornn-5", "coRNN", cornn(128), 100, 1, "full", 45_825, "46k"),
    Row("cornn-6, unicornn-6", "LSTM, one bias", lstm(44), 5, 5, "one bias", 9_025, "9k"),
    Row("cornn-6, unicornn-6", "LSTM, two biases", lstm(44), 5, 5, "two biases", 9_201, "9k"),
    Row("cornn-6, unicornn-6", "coRNN", cornn(64), 5, 5, "full", 8_901, "9k"),
    Row("unicornn-2", "Lipschitz RNN", lipschitz(256), 96, 10, "full", 158_474, "158k"),
    Row("unicornn-2", "UnICORNN", unicornn(128, n_layers=3), 96, 10, "full", 47_498, "47k"),
    Row("unicornn-3, lem-2", "expRNN", exprnn(64), 6, 5, "full", 2_789, "2.8k"),
    Row("unicornn-3, lem-2", "coRNN", cornn(32), 6, 5, "full", 2_437, "2.4k"),
    Row("unicornn-4, lem-3", "UnICORNN", unicornn(128, n_layers=3), 2, 1, "full", 34_305, "34k"),
    Row("unicornn-5", "UnICORNN", unicornn(128, n_layers=2), 100, 1, "full", 30_081, "30k"),
    Row("lem-1", "GRU, MNIST", gru(256), 1, 10, "one bias", 200_714, "201k"),
    Row("lem-1", "GRU, CIFAR", gru(128), 96, 10, "one bias", 87_690, "88k"),
    Row("lem-1", "LSTM, MNIST", lstm(256), 1, 10, "one bias", 266_762, "267k"),
    Row("lem-1", "LSTM, CIFAR", lstm(128), 96, 10, "one bias", 116_490, "116k"),
    Row("lem-1", "chrono-LSTM, MNIST", lstm(128, chrono=784), 1, 10, "one bias", 67_850, "68k"),
    Row("lem-1", "chrono-LSTM, CIFAR", lstm(128, chrono=1000), 96, 10, "one bias", 116_490, "116k"),
    Row("lem-1", "anti.sym. RNN, MNIST", antisymmetric(128), 1, 10, "full", 9_674, "10k"),
    Row("lem-1", "Lipschitz RNN, MNIST", lipschitz(128), 1, 10, "full", 34_314, "34k"),
    Row("lem-1", "Lipschitz RNN, CIFAR", lipschitz(128), 96, 10, "full", 46_474, "46k"),
    Row("lem-1", "expRNN, MNIST", exprnn(360), 1, 10, "full", 68_950, "69k"),
    Row("lem-1", "expRNN, CIFAR", exprnn(360), 96, 10, "full", 103_150, "103k"),
    Row("lem-1", "LEM, MNIST", lem(128, biases=1), 1, 10, "full", 67_850, "68k"),
    Row("lem-1", "LEM, MNIST, official", lem(128, biases=2), 1, 10, "two biases", 68_362, "68k"),
    Row("lem-1", "LEM, CIFAR", lem(128, biases=1), 96, 10, "full", 116_490, "116k"),
    Row("unicornn-3, lem-2, lem-10, lem-11", "LSTM", lstm(32), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-2, lem-10", "chrono-LSTM", lstm(32, chrono=17_984), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-2", "BiLSTM+1d-conv", bilstm(22, kernel=7), 6, 5, "two biases", 5_763, "5.8k"),
    Row("unicornn-3, lem-11", "t-BPTT LSTM", truncated(32), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-11", "dt-LSTM v1", lstm(32, dt=0.1, dt_version=1), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-11", "dt-LSTM v2", lstm(32, dt=0.1, dt_version=2), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-2, lem-10, lem-11", "LEM", lem(32, biases=2), 6, 5, "two biases", 5_285, "5.3k"),
    Row("lem-3", "LSTM", lstm(128), 2, 1, "one bias", 67_201, "67k"),
    Row("lem-3", "chrono-LSTM", lstm(128, chrono=4000), 2, 1, "one bias", 67_201, "67k"),
    Row("lem-3", "expRNN", exprnn(256), 2, 1, "full", 33_665, "34k"),
    Row("lem-3", "IndRNN", indrnn(128, n_layers=3), 2, 1, "full", 33_921, "34k"),
    Row("lem-3", "LEM", lem(128, biases=1), 2, 1, "full", 67_201, "67k"),
    Row("lem-4, lem-9", "LSTM, one bias", lstm(16), 1, 1, "one bias", 1_169, "1k"),
    Row("lem-4, lem-9", "LSTM, two biases", lstm(16), 1, 1, "two biases", 1_233, "1k"),
    Row("lem-4", "expRNN", exprnn(50), 1, 1, "full", 1_376, "1k"),
    Row("lem-4", "LipschitzRNN", lipschitz(24), 1, 1, "full", 1_225, "1k"),
    Row("lem-4", "FastGRNN", fastgrnn(34), 1, 1, "full", 1_295, "1k"),
    Row("lem-4", "coRNN", cornn(24), 1, 1, "full", 1_225, "1k"),
    Row("lem-4, lem-9", "LEM", lem(16, biases=1), 1, 1, "full", 1_169, "1k"),
    Row("lem-4, lem-9", "LEM, official", lem(16, biases=2), 1, 1, "two biases", 1_233, "1k"),
    Row("lem-9", "LEM w/o multi-scale", lem(16, biases=1, multiscale=False), 1, 1, "full", 593, "1k"),
    Row("lem-5", "tanh-RNN", tanh(128), 80, 12, "one bias, without read-out", 26_752, "27k"),
    Row("lem-5", "anti.sym. RNN", antisymmetric(128), 80, 12, "full", 20_044, "20k"),
    Row("lem-5", "LSTM", lstm(128), 80, 12, "one bias, without read-out", 107_008, "107k"),
    Row("lem-5", "GRU", gru(128), 80, 12, "one bias, without read-out", 80_256, "80k"),
    Row("lem-5", "FastGRNN", fastgrnn(128), 80, 12, "without read-out", 26_882, "27k"),
    Row("lem-5", "LEM", lem(128, biases=1), 80, 12, "without read-out", 107_008, "107k"),
    Row("lem-6", "anti.sym. RNN", antisymmetric(1437), 200, 50, "without read-out", 1_320_603, "1.3M"),
    Row("lem-6", "Lipschitz RNN", lipschitz(764), 200, 50, "without read-out", 1_320_956, "1.3M"),
    Row("lem-6", "expRNN", exprnn(1437), 200, 50, "without read-out", 1_320_603, "1.3M"),
    Row("lem-6", "coRNN", cornn(1024), 200, 50, "without read-out", 2_302_976, "2.3M"),
    Row("lem-6", "nnRNN", nnrnn(1024), 200, 50, "without read-out", 1_254_400, "1.3M"),
    Row("lem-6", "LSTM", lstm(1000), 200, 50, "one bias, without read-out", 4_804_000, "5M"),
    Row("lem-6", "LEM", lem(1024, biases=1), 200, 50, "without read-out", 5_017_600, "5M"),
    Row("talk-1-lipschitz", "Soft orth. RNN", soft_orthogonal(128), 1, 10, "full", 17_930, "18k"),
    Row("talk-1-lipschitz", "NAIS-Net", nais(128), 1, 10, "full", 17_930, "18k"),
    Row("lem-7", "TARNN", tarnn(256), 256, 1, WEIGHTS, 524_288, "524k"),
    Row("lem-7", "FastRNN", fastrnn(256), 256, 1, WEIGHTS, 131_072, "131k"),
    Row("lem-7", "LSTM", lstm(256), 256, 1, WEIGHTS, 524_288, "524k"),
    Row("lem-7", "LEM", lem(256, biases=1), 256, 1, WEIGHTS, 524_288, "524k"),
]


@each("row", ROWS)
def test_count_is_the_printed_one(row: Row):
    assert count(row) == row.count
    assert rounds_to(row.count, row.printed)


# Rows whose printed count is not that of the network, with the reason above them.
EXCEPTIONS = [
    # The LSTM of the same size; the gate has 256 weights more.
    Row("lem-7", "SkipLSTM", skip_lstm(256), 256, 1, WEIGHTS, 524_544, "524k", {"layer": lstm(256)}),
    # Printed with two digits; lem-1 prints 267k and 201k.
    Row("cornn-1", "LSTM", lstm(256), 1, 10, "one bias", 266_762, "270k"),
    Row("cornn-1", "GRU", gru(256), 1, 10, "one bias", 200_714, "200k"),
    # The recurrent weights alone, 64 times 1024; the whole network has 116,490 (lem-1).
    Row("cornn-2, unicornn-2", "LSTM", lstm(128), 96, 10, "recurrent weights only", 65_536, "64k"),
    # The count for one input; unicornn-2 prints 158k.
    Row("cornn-2", "Lipschitz RNN", lipschitz(256), 96, 10, "full", 158_474, "134k", {"d_in": 1}),
    # The count for the three inputs of pixel-by-pixel CIFAR-10; the first stands in lem-1 too.
    Row("cornn-2, unicornn-2", "anti.sym.", antisymmetric(256), 96, 10, "full", 60_042, "36k", {"d_in": 3}),
    Row(
        *("cornn-2, unicornn-2", "gated anti.sym. RNN", antisymmetric(256, gated=True), 96, 10, "full"),
        *(84_874, "37k", {"d_in": 3}),
    ),
    # The count for words of 300 numbers; coRNN and UnICORNN have 100. Of GRU the weights without biases.
    Row("cornn-4, unicornn-5", "LSTM", lstm(128), 100, 1, "one bias", 117_377, "220k", {"d_in": 300}),
    Row("cornn-4, unicornn-5", "Skip LSTM", skip_lstm(128), 100, 1, "full", 117_506, "220k", {"d_in": 300}),
    Row(
        *("cornn-4", "GRU", gru(128), 100, 1, "one bias", 88_065, "164k"),
        {"d_in": 300, "convention": WEIGHTS},
    ),
    # So too; cornn-4 prints 164k, as for GRU.
    Row("unicornn-5", "Skip GRU", skip_gru(128), 100, 1, "full", 88_194, "165k", {"d_in": 300}),
    # The count for words of 128 numbers; coRNN and UnICORNN have 100.
    Row("unicornn-5", "GRU", gru(128), 100, 1, "one bias", 88_065, "99k", {"d_in": 128}),
    Row("cornn-4, unicornn-5", "ReLU GRU", relu_gru(128), 100, 1, "full", 88_065, "99k", {"d_in": 128}),
    # 32 H + 10, as Wisdom et al. count; how 9k were counted is unknown.
    Row("cornn-1, talk-1-lipschitz", "uRNN", urnn(512), 1, 10, "full", 16_394, "9k"),
    # The weights of the input alone, 128 times 96.
    Row("cornn-2, unicornn-2", "incremental RNN", incremental(128), 96, 10, "full", 30_091, "12k"),
    # Free matrix; rank 25 would have 8k, rank 10 4k.
    Row("talk-1-lipschitz", "incremental RNN", incremental(128), 1, 10, "full", 17_931, "8k"),
    # 11,346 without the 512 biases of modReLU.
    Row("talk-1-lipschitz", "Kronecker RNN", kronecker(512), 1, 10, "full", 11_858, "11k"),
    # Printed with two digits; H^2 + 25 H + 10, of which 2 H are the first state.
    Row("talk-1-lipschitz", "full-capacity uRNN", full_urnn(512), 1, 10, "full", 274_954, "270k"),
    # Printed with two digits; with two biases per gate.
    Row("talk-1-lipschitz", "MomentumLSTM", momentum_lstm(256), 1, 10, "full", 267_786, "270k"),
    # Swapped with each other.
    Row("unicornn-3, lem-2", "IndRNN", INDRNN, 6, 5, "full", 1_509, "1.6k", {"layer": UNICORNN}),
    Row("unicornn-3, lem-2", "UnICORNN", UNICORNN, 6, 5, "full", 1_573, "1.5k", {"layer": INDRNN}),
    # Cut off, not rounded.
    Row("unicornn-6", "UnICORNN", unicornn(90, n_layers=2), 5, 5, "full", 9_545, "9k"),
    # The count with log-signatures of depth 1, with which the code looks for its sizes.
    Row("lem-2", "NRDE", nrde(32, depth=2), 7, 5, "full", 99_813, "35k", {"layer": nrde(32, depth=1)}),
    # One more than the count; the other rows of 34k are right.
    Row("lem-3", "coRNN", cornn(128), 2, 1, "full", 33_281, "34k"),
    # Rounded up; with the read-out it is 20,044.
    Row("lem-5", "expRNN", exprnn(128), 80, 12, "without read-out", 18_496, "19k"),
    # Cut off, not rounded; without the read-out it is 43,136.
    Row("lem-5", "coRNN", cornn(128), 80, 12, "full", 44_684, "44k"),
    # A quoted row; the width of its embedding is not stated.
    Row("lem-6", "GRU", gru(1024), 200, 50, "one bias, without read-out", 3_763_200, "3M"),
]


@each("row", EXCEPTIONS)
def test_exception_is_one(row: Row):
    assert count(row) == row.count
    assert not rounds_to(row.count, row.printed)
    if row.meant:
        assert rounds_to(count(replace(row, **row.meant)), row.printed)


PARAMETERS, WITHIN = 5000, 0.05
# Dimensions and classes of UEA sets, which are else known from their files.
SIZES = {"japanese_vowels": (12, 9), "osu_leaf": (1, 6)}
TABLES = [load_table(CONF / "table" / f"{name}.yaml") for name in ("own-sequence", "own-images")]
EXPERIMENTS = [name for table in TABLES for name in experiments_of(table)]


@each("name", variants([name for name in EXPERIMENTS if name.startswith("sequence/recall-")], EXPERIMENTS))
def test_every_network_has_five_thousand_parameters(name: str) -> None:
    config = compose([f"experiment={name}"]).config
    task = build_task(config)
    column = name.removeprefix("sequence/").rpartition("-")[0]
    if column in SIZES:
        task.d_in, task.d_out = SIZES[column]
    torch.manual_seed(0)
    n = count_parameters(build_net(parts_of(config), task))
    assert abs(n - PARAMETERS) <= WITHIN * PARAMETERS


def test_every_model_of_the_table_is_in_every_column() -> None:
    assert len(EXPERIMENTS) == 11 * len({name.rpartition("-")[2] for name in EXPERIMENTS}) >= 200


WEBKB, SUPERPIXELS = (1703, 5, "node"), (3, 10, "graph")
ATOMS, KINDS_OF_ATOMS = (1, 1, "graph"), (28, 1, "graph")
COUNTS = [  # an experiment; inputs, outputs and the read-out of its task; parameters
    # about 100,000; the first as the official code counts it
    ("graphcon/zinc-graphcon_gcn", ATOMS, 97_901),
    ("graphcon/zinc-graphcon_gcn-kinds", KINDS_OF_ATOMS, 99_301),
    ("graphcon/zinc-graphcon_gat", ATOMS, 98_891),
    ("graphcon/zinc-gcn", ATOMS, 97_186),
    ("graphcon/zinc-gat", ATOMS, 96_293),
    ("graphcon/zinc-gcn_shared-20", ATOMS, 99_222),
    # the first four as the official code counts them
    ("graphcon/superpixels-graphcon_gcn", SUPERPIXELS, 135_178),
    ("graphcon/superpixels-graphcon_gcn-official", SUPERPIXELS, 135_178),
    ("graphcon/superpixels-graphcon_gat", SUPERPIXELS, 531_978),
    ("graphcon/superpixels-graphcon_gat-official", SUPERPIXELS, 531_978),
    ("graphcon/superpixels-gcn_shared-32", SUPERPIXELS, 69_386),
]


def parameters(experiment: str, d_in: int, d_out: int, readout: str) -> int:
    _, parts = checked(compose([f"experiment={experiment}", "tracker=none"]).config)
    task = SimpleNamespace(d_in=d_in, d_out=d_out, readout=readout, tokens=None, vectors=None)
    return count_parameters(build_net(parts, task))


@pytest.mark.parametrize(("experiment", "task", "n"), COUNTS)
def test_experiments_have_the_parameters_of_the_code(experiment: str, task: tuple, n: int) -> None:
    assert parameters(experiment, *task) == n


def test_the_figure_of_sizes_shows_the_sizes_of_its_networks() -> None:
    (panel,) = figure_spec.load_figure(CONF / "figure" / "g2-fig-8.yaml").panels
    for point in (point for series in panel.series for point in series.points):
        assert parameters(point.experiment, *WEBKB) == point.x
