from physml import results as results
from physml.graph.measures import dirichlet_energy as dirichlet_energy
from physml.graph.measures import edge_homophily as edge_homophily
from physml.graph.measures import mean_average_distance as mean_average_distance
from physml.models.graph.acm_gcn import ACMGCN as ACMGCN
from physml.models.graph.adgn import ADGN as ADGN
from physml.models.graph.appnp import APPNP as APPNP
from physml.models.graph.cgnn import CGNN as CGNN
from physml.models.graph.diffusion import Diffusion as Diffusion
from physml.models.graph.directional import DirectionalConvolution as DirectionalConvolution
from physml.models.graph.f2gnn import F2GNN as F2GNN
from physml.models.graph.fagcn import FAGCN as FAGCN
from physml.models.graph.g2 import GradientGating as GradientGating
from physml.models.graph.gcnii import GCNII as GCNII
from physml.models.graph.geniepath import GeniePath as GeniePath
from physml.models.graph.geom_gcn import GeomGCN as GeomGCN
from physml.models.graph.ggcn import GGCN as GGCN
from physml.models.graph.glognn import GloGNN as GloGNN
from physml.models.graph.gnn import GNN as GNN
from physml.models.graph.gnn import PairNorm as PairNorm
from physml.models.graph.gprgnn import GPRGNN as GPRGNN
from physml.models.graph.graph_convolutions import GatedConvolution as GatedConvolution
from physml.models.graph.graph_convolutions import IsomorphismConvolution as IsomorphismConvolution
from physml.models.graph.graph_convolutions import MixtureConvolution as MixtureConvolution
from physml.models.graph.graph_convolutions import PrincipalConvolution as PrincipalConvolution
from physml.models.graph.graph_layers import GraphAttention as GraphAttention
from physml.models.graph.graph_layers import GraphConvolution as GraphConvolution
from physml.models.graph.graph_layers import MeanConvolution as MeanConvolution
from physml.models.graph.graph_layers import TransformerAttention as TransformerAttention
from physml.models.graph.graph_net import GraphModel as GraphModel
from physml.models.graph.graph_transformer import GraphTransformer as GraphTransformer
from physml.models.graph.graphcon import CitationGraphCON as CitationGraphCON
from physml.models.graph.graphcon import CoupledCitationGraphCON as CoupledCitationGraphCON
from physml.models.graph.graphcon import GraphCON as GraphCON
from physml.models.graph.h2gcn import H2GCN as H2GCN
from physml.models.graph.jknet import JKNet as JKNet
from physml.models.graph.link import LINK as LINK
from physml.models.graph.linkx import LINKX as LINKX
from physml.models.graph.mixhop import MixHop as MixHop
from physml.models.graph.mpnn import MPNN as MPNN
from physml.models.graph.multirate import MultiRate as MultiRate
from physml.models.graph.pagerank_gnn import PageRankGNN as PageRankGNN
from physml.models.graph.pde_gcn import PDEGCN as PDEGCN
from physml.models.graph.phdgn import PHDGN as PHDGN
from physml.models.graph.spline import SplineCNN as SplineCNN
from physml.models.sequence.antisymmetric import AntisymmetricRNN as AntisymmetricRNN
from physml.models.sequence.bilstm import BiLSTM as BiLSTM
from physml.models.sequence.continuous_depth import ContinuousDepth as ContinuousDepth
from physml.models.sequence.cornn import CoRNN as CoRNN
from physml.models.sequence.diagonal_ssm import S4D as S4D
from physml.models.sequence.diagonal_ssm import S5 as S5
from physml.models.sequence.fastrnn import FastGRNN as FastGRNN
from physml.models.sequence.fastrnn import FastRNN as FastRNN
from physml.models.sequence.gated import GRU as GRU
from physml.models.sequence.gated import LSTM as LSTM
from physml.models.sequence.gated import TanhRNN as TanhRNN
from physml.models.sequence.incremental import IncrementalRNN as IncrementalRNN
from physml.models.sequence.indrnn import IndRNN as IndRNN
from physml.models.sequence.koopman import KoopmanAutoencoder as KoopmanAutoencoder
from physml.models.sequence.kronecker import KroneckerRNN as KroneckerRNN
from physml.models.sequence.leaky import LeakyRNN as LeakyRNN
from physml.models.sequence.lem import LEM as LEM
from physml.models.sequence.linoss import LinOSS as LinOSS
from physml.models.sequence.lipschitz import LipschitzRNN as LipschitzRNN
from physml.models.sequence.lru import LRU as LRU
from physml.models.sequence.min_gated import MinGRU as MinGRU
from physml.models.sequence.min_gated import MinLSTM as MinLSTM
from physml.models.sequence.momentum import MomentumLSTM as MomentumLSTM
from physml.models.sequence.momentum import MomentumRNN as MomentumRNN
from physml.models.sequence.nais import SequentialNAISNet as SequentialNAISNet
from physml.models.sequence.neural_ode import GeneralisedHeavyBallNODE as GeneralisedHeavyBallNODE
from physml.models.sequence.neural_ode import HeavyBallNODE as HeavyBallNODE
from physml.models.sequence.neural_ode import NeuralODE as NeuralODE
from physml.models.sequence.nnrnn import NonNormalRNN as NonNormalRNN
from physml.models.sequence.noisy import NoisyRNN as NoisyRNN
from physml.models.sequence.nrde import NeuralRDE as NeuralRDE
from physml.models.sequence.orthogonal import ExpRNN as ExpRNN
from physml.models.sequence.oscillator import MultilayerOscillator as MultilayerOscillator
from physml.models.sequence.oscillator import NeuralOscillator as NeuralOscillator
from physml.models.sequence.relu_gru import ReLUGRU as ReLUGRU
from physml.models.sequence.rnn import SequenceModel as SequenceModel
from physml.models.sequence.skip import SkipGRU as SkipGRU
from physml.models.sequence.skip import SkipLSTM as SkipLSTM
from physml.models.sequence.slstm import SLSTM as SLSTM
from physml.models.sequence.soft_orthogonal import SoftOrthogonalRNN as SoftOrthogonalRNN
from physml.models.sequence.sru import SRU as SRU
from physml.models.sequence.tarnn import TARNN as TARNN
from physml.models.sequence.truncated import TruncatedLSTM as TruncatedLSTM
from physml.models.sequence.unicornn import UnICORNN as UnICORNN
from physml.models.sequence.unitary import FullCapacityURNN as FullCapacityURNN
from physml.models.sequence.unitary import UnitaryRNN as UnitaryRNN
from physml.models.sequence.wave import WaveRNN as WaveRNN
from physml.ops.cell import recurrence as recurrence
from physml.ops.cell import recurrent as recurrent
from physml.run.weights import load as load

__version__: str

__all__ = [
    "ACMGCN",
    "ADGN",
    "APPNP",
    "CGNN",
    "F2GNN",
    "FAGCN",
    "GCNII",
    "GGCN",
    "GNN",
    "GPRGNN",
    "GRU",
    "H2GCN",
    "LEM",
    "LINK",
    "LINKX",
    "LRU",
    "LSTM",
    "MPNN",
    "PDEGCN",
    "PHDGN",
    "S4D",
    "S5",
    "SLSTM",
    "SRU",
    "TARNN",
    "AntisymmetricRNN",
    "BiLSTM",
    "CitationGraphCON",
    "CoRNN",
    "ContinuousDepth",
    "CoupledCitationGraphCON",
    "Diffusion",
    "DirectionalConvolution",
    "ExpRNN",
    "FastGRNN",
    "FastRNN",
    "FullCapacityURNN",
    "GatedConvolution",
    "GeneralisedHeavyBallNODE",
    "GeniePath",
    "GeomGCN",
    "GloGNN",
    "GradientGating",
    "GraphAttention",
    "GraphCON",
    "GraphConvolution",
    "GraphModel",
    "GraphTransformer",
    "HeavyBallNODE",
    "IncrementalRNN",
    "IndRNN",
    "IsomorphismConvolution",
    "JKNet",
    "KoopmanAutoencoder",
    "KroneckerRNN",
    "LeakyRNN",
    "LinOSS",
    "LipschitzRNN",
    "MeanConvolution",
    "MinGRU",
    "MinLSTM",
    "MixHop",
    "MixtureConvolution",
    "MomentumLSTM",
    "MomentumRNN",
    "MultiRate",
    "MultilayerOscillator",
    "NeuralODE",
    "NeuralOscillator",
    "NeuralRDE",
    "NoisyRNN",
    "NonNormalRNN",
    "PageRankGNN",
    "PairNorm",
    "PrincipalConvolution",
    "ReLUGRU",
    "SequenceModel",
    "SequentialNAISNet",
    "SkipGRU",
    "SkipLSTM",
    "SoftOrthogonalRNN",
    "SplineCNN",
    "TanhRNN",
    "TransformerAttention",
    "TruncatedLSTM",
    "UnICORNN",
    "UnitaryRNN",
    "WaveRNN",
    "__version__",
    "dirichlet_energy",
    "edge_homophily",
    "load",
    "mean_average_distance",
    "recurrence",
    "recurrent",
    "results",
]
