"""Times that a benchmark wrote, for figures: nothing is measured here."""

import json

import numpy as np

from physml.base.errors import DataError, suggest
from physml.base.paths import display_path, results_root

Arrays = dict[str, np.ndarray]


def per_batch(*, file: str, layer: str) -> Arrays:
    """Milliseconds of forward and backward by the length of sequences, as `scripts.bench.layers` wrote them.

    file: name in results/bench, without .json; it names the class of machines.
    Shapes: x (n,) the lengths N, y (n,) medians. Errors: DataError where file or layer are not there.
    """
    path = results_root() / "bench" / f"{file}.json"
    if not path.is_file():
        raise DataError(f"{display_path(path)} is not there. `python -m scripts.bench.layers` writes it.")
    lengths = json.loads(path.read_text(encoding="utf-8"))["lengths"]
    timed = {int(n): layers for n, layers in lengths.items() if "ms" in layers.get(layer, {})}
    if not timed:
        known = {name for layers in lengths.values() for name, facts in layers.items() if "ms" in facts}
        raise DataError(f"{display_path(path)} has no times of {layer!r}. {suggest(layer, known)}")
    return {
        "x": np.array(sorted(timed), float),
        "y": np.array([timed[n][layer]["ms"] for n in sorted(timed)]),
    }
