"""Material of fixtures: archives and small graphs. No torch here. Axes: N nodes, F features, E edges.

Fixtures are cached by the source of the module that writes them: whoever changes what is made here must
delete `fixtures` in the cache.
"""

import gzip
import io
import tarfile
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np


def write_zip(path: Path, members: Mapping[str, bytes | str]) -> None:
    """A zip without dates: the same members, the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content)


def write_tar(path: Path, members: Mapping[str, bytes]) -> None:
    """A tar.gz without dates: the same members, the same bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with gzip.GzipFile(path, "wb", mtime=0) as packed, tarfile.open(fileobj=packed, mode="w") as archive:
        for name, content in members.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            archive.addfile(info, io.BytesIO(content))


class Communities(NamedTuple):
    """x (N, F) float32 of 0 and 1; y (N,) int64; edge_index (2, E) int64, one direction, no loops."""

    x: np.ndarray
    y: np.ndarray
    edge_index: np.ndarray


def communities(
    n_nodes: int, n_features: int, n_classes: int, seed: int, *, homophily: float = 0.8
) -> Communities:
    """A connected graph whose classes take turns and differ in their features.

    Node i has the class i mod C. A node has a third of the features of its class (those k with k mod C = c)
    and one of all. Each node links to two others, of its own class with probability `homophily`; a path
    through all nodes of a class, and one through the first nodes of the classes, hold it together.
    """
    rng = np.random.RandomState(seed)
    y = np.arange(n_nodes) % n_classes
    own = np.arange(n_features)[None] % n_classes == y[:, None]
    x = own & (rng.rand(n_nodes, n_features) < 1 / 3)
    x[np.arange(n_nodes), rng.randint(n_features, size=n_nodes)] = True
    pairs = {(i, i + n_classes) for i in range(n_nodes - n_classes)}
    pairs |= {(i, i + 1) for i in range(n_classes - 1)}
    for i in range(n_nodes):
        for _ in range(2):
            near = rng.rand() < homophily
            those = np.flatnonzero((y == y[i]) == near)
            j = int(rng.choice(those[those != i]))
            pairs.add((min(i, j), max(i, j)))
    edge_index = np.array(sorted(pairs), np.int64).T.copy()
    return Communities(x.astype(np.float32), y.astype(np.int64), edge_index)
