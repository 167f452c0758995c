"""Chameleon and Squirrel of MUSAE: pages of Wikipedia, their nouns, links and traffic. No torch here.

Axes: N pages, F nouns.
"""

import json
from pathlib import Path

import numpy as np

from physml.data import graphs
from physml.data.datasets import Arrays, Files, family
from physml.data.files.array_files import json_value
from physml.data.files.limits import WrongFile, read_bytes
from physml.data.readers.fixtures import communities
from physml.data.readers.webkb import FIXTURE_NODES, pairs

SIZES = {"chameleon": (2277, 3132, 36_101), "squirrel": (5201, 3148, 217_073)}  # pages, nouns, links
FIXTURE_NOUNS = 30


def file_name(graph: str, part: str) -> str:
    """Name of the file with the part "edges" or "target" (.csv), or "features" (.json)."""
    return f"musae/{graph}_{part}.{'json' if part == 'features' else 'csv'}"


def _read(files: Files, graph: str) -> Arrays:
    """Sparse nouns of 0 and 1; y (N,) int64: mean monthly traffic; edge_index, a column per line."""
    n, d, n_edges = SIZES[graph]
    path = files.path(file_name(graph, "target"))
    pages, y = pairs(path, ",", ("id", "target"))
    if files.small and len(y) == FIXTURE_NODES:
        n, d, n_edges = FIXTURE_NODES, FIXTURE_NOUNS, 0
    if len(y) != n or (pages != np.arange(n)).any():
        raise WrongFile(f"{path}: expected the pages 0..{n - 1} in their order; got {len(y)} lines.")
    if y.min() < 0 or y.max() == 0:
        raise WrongFile(f"{path}: traffic must not be negative, nor 0 for all; got {y.min()}.")
    path = files.path(file_name(graph, "edges"))
    edge_index = pairs(path, ",", ("id1", "id2"))
    graphs.check_edges(path, edge_index, n)
    if n_edges and edge_index.shape[1] != n_edges:
        raise WrongFile(f"{path}: {edge_index.shape[1]} links, expected {n_edges}.")
    rows = _nouns(files.path(file_name(graph, "features")), n, d)
    return {**graphs.bags(rows, d), "y": y, "edge_index": edge_index}


def _nouns(path: Path, n: int, d: int) -> list[np.ndarray]:
    """The nouns of each page."""
    lists = json_value(read_bytes(path), path)
    if not isinstance(lists, dict) or set(lists) != {str(page) for page in range(n)}:
        raise WrongFile(f"{path}: expected a list of nouns for each of the pages 0..{n - 1}.")
    rows = []
    for page in range(n):
        row = lists[str(page)]
        if not isinstance(row, list) or not all(isinstance(k, int) and 0 <= k < d for k in row):
            raise WrongFile(f"{path}: the nouns of page {page} must be numbers 0..{d - 1}.")
        rows.append(np.array(row, np.int64))
    return rows


def _fixture(root: Path, graph: str) -> None:
    """60 pages with 30 nouns; the more links a page has, the more traffic. One loop."""
    random_graph = communities(FIXTURE_NODES, FIXTURE_NOUNS, 5, seed=3, homophily=0.3)
    edges = np.random.RandomState(0).permutation([*random_graph.edge_index.T.tolist(), [4, 4]])
    traffic = 100 * np.bincount(edges.reshape(-1), minlength=FIXTURE_NODES) + np.arange(FIXTURE_NODES)
    (root / "musae").mkdir(parents=True, exist_ok=True)
    for part, head, lines in (("edges", "id1,id2", edges), ("target", "id,target", list(enumerate(traffic)))):
        text = "".join(f"{a},{b}\n" for a, b in lines)
        (root / file_name(graph, part)).write_text(f"{head}\n{text}")
    nouns = {str(page): np.flatnonzero(row).tolist() for page, row in enumerate(random_graph.x)}
    (root / file_name(graph, "features")).write_text(json.dumps(nouns))


CHAMELEON, SQUIRREL = family("musae", SIZES, _read, _fixture)
