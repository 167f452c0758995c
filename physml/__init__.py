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
    "physml.models.graph.graphcon": ("GraphCON",),
    "physml.models.graph.g2": ("GradientGating",),
    "physml.models.sequence.antisymmetric": ("AntisymmetricRNN",),
    "physml.models.sequence.bilstm": ("BiLSTM",),
    "physml.models.sequence.fastrnn": ("FastGRNN", "FastRNN"),
    "physml.models.sequence.gated": ("GRU", "LSTM", "TanhRNN"),
    "physml.models.sequence.indrnn": ("IndRNN",),
    "physml.models.sequence.lipschitz": ("LipschitzRNN",),
    "physml.models.sequence.noisy": ("NoisyRNN",),
    "physml.models.sequence.orthogonal": ("ExpRNN",),
    "physml.models.sequence.truncated": ("TruncatedLSTM",),
    "physml.models.sequence.rnn": ("SequenceModel",),
    "physml.ops.cell": ("recurrence", "recurrent"),
    "physml.models.graph.diffusion": ("Diffusion",),
    "physml.models.graph.gcnii": ("GCNII",),
    "physml.models.graph.gnn": ("GNN", "PairNorm"),
    "physml.models.graph.graph_net": ("GraphModel",),
    "physml.models.graph.graph_layers": (
        "GraphAttention",
        "GraphConvolution",
        "MeanConvolution",
        "TransformerAttention",
    ),
    "physml.graph.measures": ("dirichlet_energy", "edge_homophily", "mean_average_distance"),
    "physml.run.weights": ("load",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}

__all__ = ["__version__", *sorted(_MODULE_OF)]  # noqa: PLE0604


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'physml' has no attribute {name!r}")
    from importlib import import_module

    globals()[name] = found = getattr(import_module(_MODULE_OF[name]), name)
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
