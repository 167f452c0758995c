from physml.execution.saved_model import load as load
from physml.graph.measures import dirichlet_energy as dirichlet_energy
from physml.graph.measures import edge_homophily as edge_homophily
from physml.graph.measures import mean_average_distance as mean_average_distance
from physml.models.antisymmetric import AntisymmetricRNN as AntisymmetricRNN
from physml.models.bilstm import BiLSTM as BiLSTM
from physml.models.cornn import CoRNN as CoRNN
from physml.models.diffusion import Diffusion as Diffusion
from physml.models.fastrnn import FastGRNN as FastGRNN
from physml.models.fastrnn import FastRNN as FastRNN
from physml.models.g2 import GradientGating as GradientGating
from physml.models.gated import GRU as GRU
from physml.models.gated import LSTM as LSTM
from physml.models.gated import TanhRNN as TanhRNN
from physml.models.gcnii import GCNII as GCNII
from physml.models.gnn import GNN as GNN
from physml.models.gnn import PairNorm as PairNorm
from physml.models.graph_layers import GraphAttention as GraphAttention
from physml.models.graph_layers import GraphConvolution as GraphConvolution
from physml.models.graph_layers import MeanConvolution as MeanConvolution
from physml.models.graph_layers import TransformerAttention as TransformerAttention
from physml.models.graph_net import GraphModel as GraphModel
from physml.models.graphcon import GraphCON as GraphCON
from physml.models.indrnn import IndRNN as IndRNN
from physml.models.lem import LEM as LEM
from physml.models.lipschitz import LipschitzRNN as LipschitzRNN
from physml.models.noisy import NoisyRNN as NoisyRNN
from physml.models.orthogonal import ExpRNN as ExpRNN
from physml.models.rnn import SequenceModel as SequenceModel
from physml.models.truncated import TruncatedLSTM as TruncatedLSTM
from physml.models.unicornn import UnICORNN as UnICORNN
from physml.ops.cell import recurrence as recurrence
from physml.ops.cell import recurrent as recurrent

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
