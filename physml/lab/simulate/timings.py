"""Times that a benchmark wrote, for figures: nothing is measured here."""

import numpy as np

from physml.base import opened
from physml.base.errors import DataError, suggest
from physml.base.paths import display_path, in_results, results_root
from physml.base.text import brief

Arrays = dict[str, np.ndarray]


def per_batch(*, file: str, layer: str) -> Arrays:
    """Milliseconds of forward and backward by the length of sequences, as `scripts.bench.layers` wrote them.

    file: name in results/bench, without .json; it names the class of machines.
    Shapes: x (n,) the lengths N, y (n,) medians. Errors: DataError where file or layer are not there.
    """
    path = in_results("bench", f"{file}.json")
    if path is None:
        missing = display_path(results_root() / "bench" / f"{file}.json")
        raise DataError(f"{missing} is not there. `python -m scripts.bench.layers` writes it.")
    try:
        lengths = opened.read_json(path, opened.LARGE)["lengths"].items()
        each = [(int(n), name, facts) for n, layers in lengths for name, facts in layers.items()]
        times = [(n, name, float(facts["ms"])) for n, name, facts in each if "ms" in facts]
    except (OSError, ValueError, LookupError, TypeError, AttributeError) as error:
        again = "`python -m scripts.bench.layers` writes it anew"
        raise DataError(f"{display_path(path)} is damaged: {brief(error)}. {again}.") from error
    if not (timed := sorted((n, ms) for n, name, ms in times if name == layer)):
        known = {name for _, name, _ in times}
        raise DataError(f"{display_path(path)} has no times of {layer!r}. {suggest(layer, known)}")
    x, y = zip(*timed, strict=True)
    return {"x": np.array(x, float), "y": np.array(y)}
