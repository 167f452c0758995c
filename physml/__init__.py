"""physml: physics-inspired models of sequences and graphs, and the harness that regenerates their tables.

    >>> from physml import LEM
    >>> layer = LEM(d_in=2, d_hidden=16)

The names below are imported when they are first used, so `import physml` costs nothing.
`__init__.pyi` says the same to type checkers.
"""

from typing import Any

__version__ = "0.1.0"

_MODULES = {
    "physml.models.lem": ("LEM",),
    "physml.models.cornn": ("CoRNN",),
    "physml.models.unicornn": ("UnICORNN",),
    "physml.models.graphcon": ("GraphCON",),
    "physml.models.g2": ("GradientGating",),
    "physml.models.antisymmetric": ("AntisymmetricRNN",),
    "physml.models.bilstm": ("BiLSTM",),
    "physml.models.fastrnn": ("FastGRNN", "FastRNN"),
    "physml.models.gated": ("GRU", "LSTM", "TanhRNN"),
    "physml.models.indrnn": ("IndRNN",),
    "physml.models.lipschitz": ("LipschitzRNN",),
    "physml.models.noisy": ("NoisyRNN",),
    "physml.models.orthogonal": ("ExpRNN",),
    "physml.models.truncated": ("TruncatedLSTM",),
    "physml.models.rnn": ("SequenceModel",),
    "physml.ops.cell": ("recurrence", "recurrent"),
    "physml.models.diffusion": ("Diffusion",),
    "physml.models.gcnii": ("GCNII",),
    "physml.models.gnn": ("GNN", "PairNorm"),
    "physml.models.graph_net": ("GraphModel",),
    "physml.models.graph_layers": (
        "GraphAttention",
        "GraphConvolution",
        "MeanConvolution",
        "TransformerAttention",
    ),
    "physml.graph.measures": ("dirichlet_energy", "edge_homophily", "mean_average_distance"),
    "physml.execution.saved_model": ("load",),
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
