"""physml: physics-inspired models of sequences and graphs, and the harness that regenerates their tables.

    >>> from physml import LEM
    >>> layer = LEM(d_in=2, d_hidden=16)

The names below are imported when they are first used, so `import physml` costs nothing.
`__init__.pyi` says the same to type checkers.
"""

from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "physml.models.sequence.lem": ("LEM",),
    "physml.models.sequence.cornn": ("CoRNN",),
    "physml.models.sequence.unicornn": ("UnICORNN",),
    "physml.models.graph.graphcon": ("CitationGraphCON", "CoupledCitationGraphCON", "GraphCON"),
    "physml.models.graph.g2": ("GradientGating",),
    "physml.models.sequence.antisymmetric": ("AntisymmetricRNN",),
    "physml.models.sequence.bilstm": ("BiLSTM",),
    "physml.models.sequence.continuous_depth": ("ContinuousDepth",),
    "physml.models.sequence.diagonal_ssm": ("S4D", "S5"),
    "physml.models.sequence.fastrnn": ("FastGRNN", "FastRNN"),
    "physml.models.sequence.gated": ("GRU", "LSTM", "TanhRNN"),
    "physml.models.sequence.incremental": ("IncrementalRNN",),
    "physml.models.sequence.indrnn": ("IndRNN",),
    "physml.models.sequence.koopman": ("KoopmanAutoencoder",),
    "physml.models.sequence.kronecker": ("KroneckerRNN",),
    "physml.models.sequence.leaky": ("LeakyRNN",),
    "physml.models.sequence.linoss": ("LinOSS",),
    "physml.models.sequence.lipschitz": ("LipschitzRNN",),
    "physml.models.sequence.lru": ("LRU",),
    "physml.models.sequence.min_gated": ("MinGRU", "MinLSTM"),
    "physml.models.sequence.momentum": ("MomentumLSTM", "MomentumRNN"),
    "physml.models.sequence.nais": ("SequentialNAISNet",),
    "physml.models.sequence.neural_ode": ("GeneralisedHeavyBallNODE", "HeavyBallNODE", "NeuralODE"),
    "physml.models.sequence.nnrnn": ("NonNormalRNN",),
    "physml.models.sequence.noisy": ("NoisyRNN",),
    "physml.models.sequence.nrde": ("NeuralRDE",),
    "physml.models.sequence.orthogonal": ("ExpRNN",),
    "physml.models.sequence.oscillator": ("MultilayerOscillator", "NeuralOscillator"),
    "physml.models.sequence.relu_gru": ("ReLUGRU",),
    "physml.models.sequence.rnn": ("SequenceModel",),
    "physml.models.sequence.skip": ("SkipGRU", "SkipLSTM"),
    "physml.models.sequence.slstm": ("SLSTM",),
    "physml.models.sequence.soft_orthogonal": ("SoftOrthogonalRNN",),
    "physml.models.sequence.sru": ("SRU",),
    "physml.models.sequence.tarnn": ("TARNN",),
    "physml.models.sequence.truncated": ("TruncatedLSTM",),
    "physml.models.sequence.unitary": ("FullCapacityURNN", "UnitaryRNN"),
    "physml.models.sequence.wave": ("WaveRNN",),
    "physml.models.graph.acm_gcn": ("ACMGCN",),
    "physml.models.graph.adgn": ("ADGN",),
    "physml.models.graph.appnp": ("APPNP",),
    "physml.models.graph.cgnn": ("CGNN",),
    "physml.models.graph.diffusion": ("Diffusion",),
    "physml.models.graph.directional": ("DirectionalConvolution",),
    "physml.models.graph.f2gnn": ("F2GNN",),
    "physml.models.graph.fagcn": ("FAGCN",),
    "physml.models.graph.gcnii": ("GCNII",),
    "physml.models.graph.geniepath": ("GeniePath",),
    "physml.models.graph.geom_gcn": ("GeomGCN",),
    "physml.models.graph.ggcn": ("GGCN",),
    "physml.models.graph.glognn": ("GloGNN",),
    "physml.models.graph.gnn": ("GNN", "PairNorm"),
    "physml.models.graph.gprgnn": ("GPRGNN",),
    "physml.models.graph.graph_convolutions": (
        "GatedConvolution",
        "IsomorphismConvolution",
        "MixtureConvolution",
        "PrincipalConvolution",
    ),
    "physml.models.graph.graph_layers": (
        "GraphAttention",
        "GraphConvolution",
        "MeanConvolution",
        "TransformerAttention",
    ),
    "physml.models.graph.graph_net": ("GraphModel",),
    "physml.models.graph.graph_transformer": ("GraphTransformer",),
    "physml.models.graph.h2gcn": ("H2GCN",),
    "physml.models.graph.jknet": ("JKNet",),
    "physml.models.graph.link": ("LINK",),
    "physml.models.graph.linkx": ("LINKX",),
    "physml.models.graph.mixhop": ("MixHop",),
    "physml.models.graph.mpnn": ("MPNN",),
    "physml.models.graph.multirate": ("MultiRate",),
    "physml.models.graph.pagerank_gnn": ("PageRankGNN",),
    "physml.models.graph.pde_gcn": ("PDEGCN",),
    "physml.models.graph.phdgn": ("PHDGN",),
    "physml.models.graph.spline": ("SplineCNN",),
    "physml.ops.cell": ("recurrence", "recurrent"),
    "physml.graph.measures": ("dirichlet_energy", "edge_homophily", "mean_average_distance"),
    "physml.run.weights": ("load",),
    "physml": ("results",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'physml' has no attribute {name!r}")
    from importlib import import_module

    home = _MODULE_OF[name]
    exported = import_module(f"physml.{name}") if home == "physml" else getattr(import_module(home), name)
    globals()[name] = exported
    return exported


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
