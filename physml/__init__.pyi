from physml.graph.measures import dirichlet_energy as dirichlet_energy
from physml.graph.measures import edge_homophily as edge_homophily
from physml.graph.measures import mean_average_distance as mean_average_distance
from physml.models.graph.diffusion import Diffusion as Diffusion
from physml.models.graph.g2 import GradientGating as GradientGating
from physml.models.graph.gcnii import GCNII as GCNII
from physml.models.graph.gnn import GNN as GNN
from physml.models.graph.gnn import PairNorm as PairNorm
from physml.models.graph.graph_layers import GraphAttention as GraphAttention
from physml.models.graph.graph_layers import GraphConvolution as GraphConvolution
from physml.models.graph.graph_layers import MeanConvolution as MeanConvolution
from physml.models.graph.graph_layers import TransformerAttention as TransformerAttention
from physml.models.graph.graph_net import GraphModel as GraphModel
from physml.models.graph.graphcon import GraphCON as GraphCON
from physml.models.sequence.antisymmetric import AntisymmetricRNN as AntisymmetricRNN
from physml.models.sequence.bilstm import BiLSTM as BiLSTM
from physml.models.sequence.cornn import CoRNN as CoRNN
from physml.models.sequence.fastrnn import FastGRNN as FastGRNN
from physml.models.sequence.fastrnn import FastRNN as FastRNN
from physml.models.sequence.gated import GRU as GRU
from physml.models.sequence.gated import LSTM as LSTM
from physml.models.sequence.gated import TanhRNN as TanhRNN
from physml.models.sequence.indrnn import IndRNN as IndRNN
from physml.models.sequence.lem import LEM as LEM
from physml.models.sequence.lipschitz import LipschitzRNN as LipschitzRNN
from physml.models.sequence.noisy import NoisyRNN as NoisyRNN
from physml.models.sequence.orthogonal import ExpRNN as ExpRNN
from physml.models.sequence.rnn import SequenceModel as SequenceModel
from physml.models.sequence.truncated import TruncatedLSTM as TruncatedLSTM
from physml.models.sequence.unicornn import UnICORNN as UnICORNN
from physml.ops.cell import recurrence as recurrence
from physml.ops.cell import recurrent as recurrent
from physml.run.weights import load as load

__version__: str

__all__ = [
    "GCNII",
    "GNN",
    "GRU",
    "LEM",
    "LSTM",
    "AntisymmetricRNN",
    "BiLSTM",
    "CoRNN",
    "Diffusion",
    "ExpRNN",
    "FastGRNN",
    "FastRNN",
    "GradientGating",
    "GraphAttention",
    "GraphCON",
    "GraphConvolution",
    "GraphModel",
    "IndRNN",
    "LipschitzRNN",
    "MeanConvolution",
    "NoisyRNN",
    "PairNorm",
    "SequenceModel",
    "TanhRNN",
    "TransformerAttention",
    "TruncatedLSTM",
    "UnICORNN",
    "__version__",
    "dirichlet_energy",
    "edge_homophily",
    "load",
    "mean_average_distance",
    "recurrence",
    "recurrent",
]
