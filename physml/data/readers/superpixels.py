"""MNIST as graphs of 75 superpixels. No torch at import. Axes: G graphs, V = 75 G nodes, E edges of all."""

import io
import zipfile
from pathlib import Path
from typing import Any

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, DataSet, Files
from physml.data.files.archives import ZipTree
from physml.data.files.limits import WrongFile
from physml.data.readers.fixtures import write_zip

ARCHIVE, MEMBER = "superpixels/MNISTSuperpixels.zip", "MNISTSuperpixels.pt"
SIZES = {"train": 60_000, "test": 10_000}
FIXTURE_SIZES = {"train": 30, "test": 20}
NODES, CLASSES = 75, 10
KEYS = ("x", "edge_index", "pos", "y")


def _read(files: Files) -> Arrays:
    """x (V, 1) float32: grey; pos (V, 2) float32: pixels; y (G,) int64; edge_index (2, E) uint8: E is 10^8.

    The training graphs stand first; n_graphs is (those, 0, the test graphs): none is held out to validate.
    """
    import torch

    tree = files.tree(ARCHIVE)
    content = tree.bytes(MEMBER)
    where = f"{tree.path}: {MEMBER}"
    if zipfile.is_zipfile(io.BytesIO(content)):
        ZipTree(tree.path, content)  # refuses what would unpack to more than it may
    try:
        parts = torch.load(io.BytesIO(content), weights_only=True)
    except Exception as error:  # a damaged file can make torch raise nearly anything
        said = str(error).splitlines()[0] if str(error) else type(error).__name__
        raise WrongFile(f"{where} cannot be read: {said}.") from error
    if not isinstance(parts, list | tuple) or len(parts) != 2:
        raise WrongFile(f"{where}: expected two lists, of training and test graphs.")
    for part, subset in zip(SIZES, parts, strict=True):
        if not isinstance(subset, list) or len(subset) not in files.sizes(SIZES[part], FIXTURE_SIZES[part]):
            got = f"{len(subset)} graphs" if isinstance(subset, list) else type(subset).__name__
            raise WrongFile(f"{where}: {got} to {part}, expected {SIZES[part]}.")
    checked = [_graph(f"{where}: graph {k}", graph) for k, graph in enumerate([*parts[0], *parts[1]])]
    counts = np.array([len(parts[0]), 0, len(parts[1])], np.int64)
    return graphs.together(checked) | {"n_graphs": counts}


def _graph(where: str, entry: Any) -> Arrays:
    if not isinstance(entry, dict) or not set(KEYS) <= set(entry):
        raise WrongFile(f"{where} lacks one of {', '.join(KEYS)}.")
    if not all(hasattr(entry[key], "dtype") for key in KEYS):
        raise WrongFile(f"{where} has something else than tensors.")
    x, edge_index, pos, y = (np.asarray(entry[key]) for key in KEYS)
    if edge_index.ndim != 2 or edge_index.shape[1] > NODES**2:
        raise WrongFile(f"{where} has edges of shape {edge_index.shape}, expected 2 x E.")
    if x.shape != (NODES, 1) or pos.shape != (NODES, 2) or y.size != 1 or edge_index.shape[0] != 2:
        raise WrongFile(
            f"{where} has x {x.shape}, pos {pos.shape}, edge_index {edge_index.shape} and "
            f"{y.size} labels; expected ({NODES}, 1), ({NODES}, 2), (2, E) and 1."
        )
    edge_index, y = graphs.whole(where, "edges", edge_index), graphs.whole(where, "y", y)
    graphs.check_edges(where, edge_index, NODES)
    graphs.check_labels(where, y.reshape(1), CLASSES)
    graphs.check_finite(where, "x or pos", np.concatenate([x, pos], 1))
    return {
        "x": x.astype(np.float32),
        "pos": pos.astype(np.float32),
        "y": y.reshape(1),
        "edge_index": edge_index.astype(np.uint8),
    }


def _fixture(root: Path) -> None:
    """75 points each, linked to the next two; the brighter ones lie in a column that is the digit."""
    import torch

    rng = np.random.RandomState(0)
    parts = []
    for n in FIXTURE_SIZES.values():
        part = []
        for k in range(n):
            pos = rng.uniform(0, 27, (NODES, 2)).astype(np.float32)
            x = (np.abs(pos[:, :1] - 2.7 * (k % CLASSES)) < 3).astype(np.float32)
            a = np.repeat(np.arange(NODES), 2)
            b = (a + np.tile([1, 2], NODES)) % NODES
            entry = {"x": x, "edge_index": np.stack([a, b]), "pos": pos, "y": np.array([k % CLASSES])}
            part.append({key: torch.from_numpy(value) for key, value in entry.items()})
        parts.append(part)
    file = io.BytesIO()
    torch.save(tuple(parts), file)
    write_zip(root / ARCHIVE, {MEMBER: file.getvalue()})


SUPERPIXELS = DataSet("superpixels", 1, _read, _fixture)
