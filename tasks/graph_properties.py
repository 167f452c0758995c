"""Distances in small random graphs: what a network must carry far. Axes: G graphs, N nodes, E edge rows."""

import hashlib
from collections.abc import Callable
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.random import RandomState
from torch import Tensor

from physml.base.check import each, has_shape, one_of, positive, seed
from physml.base.errors import InputError
from physml.data import graphs, splits
from physml.data.cache import Generated
from physml.data.store import Arrays, Store
from physml.task.base import Better, Metrics, Readout, Sums
from physml.task.batch import Batch
from physml.task.graphs import ManyGraphs
from physml.task.trivial import least_squares, linear, score_reference

TARGETS: dict[str, Readout] = {"diameter": "graph", "eccentricity": "node", "distance": "node"}
TOGGLED = 0.1  # share of the edges that leave; as many others appear, on average
SMALLEST = 4  # nodes of a graph

FIRST = 8  # graphs that a fingerprint is of: they are the same whatever the sizes

# (least, greatest number of nodes, data_seed) -> sha256 of the first graphs: whole numbers, and doubles as
# RandomState draws them, so the same on every machine.
FINGERPRINTS: dict[tuple[int, int, int], str] = {
    (25, 35, 1): "123530f9726a3c0d1ebb61cfa0a11fa471dae8fe7478a0318b7ffd4c71bc0dd8",
    (15, 25, 2): "30efe63d940d1216db19c1b3918e1fb190f91c1e69ddbfc1ae9a5c33e964735e",
    (25, 35, 3): "02be68f01977e486451ce92bcb7a48d67cea2b2087dc37ca89989a5e03c2af1f",
    (15, 25, 4): "025f8a258d0a62dee5b6ca4393c4ea125e2ba7c865e0ce5acccbbb05cda7a0b2",
    (25, 35, 5): "23c3a2aaaa4933285ccaa937a18848ef0d8cf4a4bb7775ecbbe4eeee4d3d0eab",
    (15, 25, 6): "431fa1c824d482aec6667742132852cb1727b7c83a782d3f9afc40f404be268e",
    (25, 35, 1234): "d4da32d4339be8f6aa7cc6bb0f84d2c880cb163c9deb79b15278fe4b0eca9c20",
}


class GraphProperties(ManyGraphs):
    r"""Predict a distance in a connected random graph, of which a node sees its neighbours alone.

    With :math:`d(u, v)` the number of edges of a shortest path, the targets are

    .. math:: \mathrm{distance}_v = d(s, v), \qquad \mathrm{eccentricity}_v = \max_u d(u, v), \qquad
        \mathrm{diameter} = \max_v \mathrm{eccentricity}_v

    with s the source, a node drawn for each graph: its single-source shortest paths. Numbers are not scaled.
    Features of a node, D = 2: a number from U(0, 1), and 1 at the source, 0 elsewhere.
    Loss: mean squared error; by nodes, their mean over each graph first, so that graphs count alike.
    Metrics: mse, and log10_mse, the published one.

    The graphs, by their share: Erdos-Renyi (20 %), Barabasi-Albert (20 %), grid (5 %), caveman (5 %), random
    tree (15 %), ladder (5 %), line (5 %), star (5 %), caterpillar (10 %), lobster (10 %). The number of nodes
    is uniform; then a tenth of the edges leave and as many appear elsewhere, drawn again until the graph is
    connected.

    Defined in: target: Gravina et al., section 4.1, diameter, single-source shortest paths and eccentricity;
    metric: log10 of the mean square error on test, their Table 1; split: 5120 / 640 / 1280 graphs of 25 to
    35 nodes, section 4.1.

    Source: Gravina et al., ICLR 2023, https://arxiv.org/abs/2210.09789, with the families of Corso et al.,
    NeurIPS 2020, https://arxiv.org/abs/2004.05718. Departures: the graphs are drawn here, so the numbers of
    the papers are of other ones; caves are joined; trees are uniform among labelled ones.

    Shapes: input (N, 2), edge_index (2, E) both ways, batch (N,); target (B,) and output (B, 1) of diameters,
    target (N,) and output (N, 1) of the others.

    Args:
        target: "diameter", "eccentricity" or "distance".
        n_train, n_valid, n_test: graphs of each part.
        nodes: least and greatest number of nodes.
        data_seed: of graphs, sources and features.
        protocol: "clean".
    Errors: InputError for fewer than 4 nodes, or a least above the greatest.
    """

    name: ClassVar[str] = "graph_properties"
    metric: ClassVar[str] = "log10_mse"
    better: ClassVar[Better] = {"log10_mse": "lower", "mse": "lower"}

    readout: Readout = "node"  # type: ignore[misc]  # "graph" for diameters

    def __init__(
        self,
        *,
        target: str,
        n_train: int,
        n_valid: int,
        n_test: int,
        nodes: tuple[int, int],
        data_seed: int,
        protocol: str,
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        one_of("target", target, tuple(TARGETS))
        self.sizes = {"train": n_train, "valid": n_valid, "test": n_test}
        each(positive, n_train=n_train, n_valid=n_valid, n_test=n_test)
        seed("data_seed", data_seed)
        if len(nodes) != 2 or not SMALLEST <= nodes[0] <= nodes[1]:
            raise InputError(
                f"nodes must be the least and the greatest number, from {SMALLEST} on; got {list(nodes)}."
            )
        self.d_in, self.d_out, self.readout = 2, 1, TARGETS[target]
        self.target, self.nodes, self.protocol = target, (int(nodes[0]), int(nodes[1])), protocol
        self.data_seed = data_seed

    def key(self) -> dict[str, Any]:
        """Every argument that moves a number of `make`: graphs are the same for all targets."""
        return {"sizes": self.sizes, "nodes": list(self.nodes), "data_seed": self.data_seed}

    def make(self) -> Arrays:
        rng = RandomState(self.data_seed)
        n_graphs = sum(self.sizes.values())
        return graphs.together([_with_distances(connected(rng, self.nodes), rng) for _ in range(n_graphs)])

    def sources(self) -> list[Generated]:
        return [Generated(self.name, self.key(), self.version, self.make)]

    def load(self, store: Store, split: int) -> None:
        (source,) = self.sources()
        arrays = store.get(source)
        n_train, n_valid = self.sizes["train"], self.sizes["valid"]
        parts = splits.parted(np.arange(sum(self.sizes.values())), n_train, n_valid)
        y = arrays[self.target].astype(np.float32)
        self.place(arrays["x"].astype(np.float32), arrays, y, parts, store)
        self._facts |= {"fingerprint": self.fingerprint(arrays)}

    def fingerprint(self, arrays: Arrays) -> str:
        expected = FINGERPRINTS.get((*self.nodes, self.data_seed))
        if expected is None or sum(self.sizes.values()) < FIRST:
            return "none for these arguments"
        fingerprint = sha256_of_first(arrays, FIRST)
        return "matches" if fingerprint == expected else f"differs: {fingerprint[:8]}"

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        return self._squares(output, batch).mean()

    def score(self, output: Tensor, batch: Batch) -> Sums:
        squares = self._squares(output.detach().double(), batch)
        return {"square_sum": squares.sum().item(), "n": len(squares)}

    def _squares(self, output: Tensor, batch: Batch) -> Tensor:
        """The squared error of each graph, or its mean over the nodes of each: (B,)."""
        has_shape("output", output, (len(batch.target), 1))
        squares = (output.squeeze(1) - batch.target).square()
        if self.readout == "graph":
            return squares
        assert batch.batch is not None
        count = torch.bincount(batch.batch)
        return squares.new_zeros(len(count)).index_add(0, batch.batch, squares) / count

    def finish(self, sums: Sums) -> Metrics:
        mse = sums["square_sum"] / sums["n"]
        return {"log10_mse": float(np.log10(max(mse, np.finfo(float).tiny))), "mse": mse}

    def references(self) -> dict[str, Metrics]:
        """The mean of train; a linear map of what can be counted without messages.

        Of a graph: its number of nodes, of edges, and of edges for each node. Of a node, beside these:
        whether it is the source, and its degree.
        """
        train = [(self._counted(b), b.target) for b in self.batches("train", 256)]
        counted, y = (torch.cat(both) for both in zip(*train, strict=True))
        a, mean = least_squares(counted, y[:, None]), y.mean()
        return {
            "mean of train": score_reference(self, lambda b: mean.expand(len(b.target), 1)),
            "linear (counts)": score_reference(self, lambda b: linear(self._counted(b), a)),
        }

    def _counted(self, batch: Batch) -> Tensor:
        assert batch.batch is not None and batch.edge_index is not None
        n = torch.bincount(batch.batch)
        degree = torch.bincount(batch.edge_index[1], minlength=len(batch.batch))
        edges = torch.bincount(batch.batch, degree.double(), minlength=len(n))
        of_graph = torch.stack([n.double(), edges, edges / n], 1)
        if self.readout == "graph":
            return of_graph
        return torch.cat([of_graph[batch.batch], batch.input[:, 1:].double(), degree[:, None].double()], 1)


def sha256_of_first(arrays: Arrays, n: int) -> str:
    """SHA-256 of names, types and values of everything that the first n graphs have."""
    n_nodes, n_edges = arrays["node_offsets"][n], arrays["edge_offsets"][n]
    ends = {"x": n_nodes, "eccentricity": n_nodes, "distance": n_nodes, "diameter": n}
    first = {name: arrays[name][:end] for name, end in ends.items()}
    first["edge_index"] = np.ascontiguousarray(arrays["edge_index"][:, :n_edges])
    digest = hashlib.sha256()
    for name, array in sorted(first.items()):
        digest.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
    return digest.hexdigest()


def distances(A: np.ndarray, source: int | None = None) -> np.ndarray:
    """Edges of the shortest path between each two nodes, or from `source` to each; infinite where none is."""
    from scipy.sparse.csgraph import shortest_path  # not needed where the data are cached

    lengths: np.ndarray = shortest_path(A, unweighted=True, indices=source)
    return lengths


def _with_distances(A: np.ndarray, rng: RandomState) -> Arrays:
    """Features, edges both ways and node targets of a connected graph A (N, N)."""
    n = len(A)
    d = distances(A).astype(np.int16)
    source = rng.randint(n)
    x = np.stack([rng.uniform(size=n), np.arange(n) == source], 1)
    return {
        "x": x,
        "edge_index": np.stack(np.nonzero(A)).astype(np.int16),
        "diameter": d.max(keepdims=True)[0],
        "eccentricity": d.max(1),
        "distance": d[source],
    }


# ---------------------------------------------------------------------------- random graphs
# A[i, j] is True where an edge joins i and j: (N, N) bool, symmetric, without loops.


def connected(rng: RandomState, nodes: tuple[int, int]) -> np.ndarray:
    """A connected graph of a random family, its nodes in random order and some of its edges moved."""
    n = rng.randint(nodes[0], nodes[1] + 1)
    family = list(FAMILIES)[rng.choice(len(FAMILIES), p=[share for share, _ in FAMILIES.values()])]
    while True:
        A = moved(FAMILIES[family][1](n, rng), rng)
        if np.isfinite(distances(A, source=0)).all():
            order = rng.permutation(n)
            return A[np.ix_(order, order)]


def moved(A: np.ndarray, rng: RandomState) -> np.ndarray:
    """A share `TOGGLED` of the edges leaves, and as many pairs are joined: on average, each drawn alone.

    Where there are fewer pairs to join than edges, as many edges leave as appear.
    """
    i, j = np.triu_indices(len(A), 1)
    linked = A[i, j]
    n_edges, n_free = linked.sum(), (~linked).sum()
    n_moved = TOGGLED * min(n_edges, n_free)
    leaves, appears = n_moved / max(n_edges, 1), n_moved / max(n_free, 1)
    toggled = rng.uniform(size=len(i)) < np.where(linked, leaves, appears)
    return _graph(len(A), np.stack([i, j])[:, linked ^ toggled])


def _graph(n: int, pairs: Any) -> np.ndarray:
    """The graph of these pairs of nodes, (2, P)."""
    A = np.zeros((n, n), bool)
    i, j = np.asarray(pairs, np.int64).reshape(2, -1)
    A[i, j] = A[j, i] = True
    return A


def _of_parents(parents: list[int]) -> np.ndarray:
    """The tree in which node v > 0 is joined to parents[v - 1]."""
    return _graph(len(parents) + 1, [parents, list(range(1, len(parents) + 1))])


def _rows(n: int) -> int:
    """The greatest divisor of n up to its root."""
    return max(k for k in range(1, int(n**0.5) + 1) if n % k == 0)


def erdos_renyi(n: int, rng: RandomState) -> np.ndarray:
    """Each pair with one probability, itself uniform."""
    p = rng.uniform()
    pairs = np.stack(np.triu_indices(n, 1))
    return _graph(n, pairs[:, rng.uniform(size=pairs.shape[1]) < p])


def barabasi_albert(n: int, rng: RandomState) -> np.ndarray:
    """Nodes join one after another, each to m others by their degrees; m uniform from 1 to n - 1.

    The first m nodes have no edges when node m joins them all.
    """
    m = rng.randint(1, n)
    pairs = [(m, v) for v in range(m)]
    ends = [v for pair in pairs for v in pair]  # a node stands here once for each of its edges
    for node in range(m + 1, n):
        chosen: set[int] = set()
        while len(chosen) < m:
            chosen.add(ends[rng.randint(len(ends))])
        pairs += [(node, v) for v in sorted(chosen)]
        ends += [v for pair in pairs[-m:] for v in pair]
    return _graph(n, np.array(pairs).T)


def grid(n: int, rng: RandomState) -> np.ndarray:
    """A grid as near to a square as n nodes allow."""
    v, k = np.arange(n), n // _rows(n)  # k nodes in a row
    right, down = v[v % k < k - 1], v[v < n - k]
    return _graph(n, np.concatenate([[right, right + 1], [down, down + k]], 1))


def caveman(n: int, rng: RandomState) -> np.ndarray:
    """A line of cliques, as many as each has nodes or fewer, an edge between one and the next."""
    v, k = np.arange(n), n // _rows(n)
    A = (v[:, None] // k == v // k) & ~np.eye(n, dtype=bool)
    last = v[k - 1 : -1 : k]
    return A | _graph(n, [last, last + 1])


def tree(n: int, rng: RandomState) -> np.ndarray:
    """Uniform among the labelled trees, by its Pruefer code: v leaves as often as it stands there, plus 1."""
    code = rng.randint(n, size=n - 2)
    degree = np.bincount(code, minlength=n) + 1
    pairs = []
    for v in code:
        leaf = int(np.flatnonzero(degree == 1)[0])
        pairs.append((leaf, int(v)))
        degree[leaf] -= 1
        degree[v] -= 1
    left, right = np.flatnonzero(degree == 1).tolist()
    pairs.append((left, right))
    return _graph(n, np.array(pairs).T)


def ladder(n: int, rng: RandomState) -> np.ndarray:
    """Two rows of n // 2 nodes; an odd one is joined to the first."""
    half = n // 2
    v = np.arange(half)
    pairs = [[v[:-1], v[1:]], [half + v[:-1], half + v[1:]], [v, half + v]]
    odd = [[[0], [n - 1]]] if n % 2 else []
    return _graph(n, np.concatenate([*pairs, *odd], 1))


def line(n: int, rng: RandomState) -> np.ndarray:
    return _of_parents(list(range(n - 1)))


def star(n: int, rng: RandomState) -> np.ndarray:
    return _of_parents([0] * (n - 1))


def caterpillar(n: int, rng: RandomState) -> np.ndarray:
    """A line of uniform length from 1 to n - 1, and the other nodes each at any of its nodes."""
    b = rng.randint(1, n)
    return _of_parents([*range(b - 1), *rng.randint(b, size=n - b)])


def lobster(n: int, rng: RandomState) -> np.ndarray:
    """A caterpillar, and the other nodes each at any of those that are not in its line."""
    b = rng.randint(1, n)
    c = rng.randint(b + 1, n + 1)  # nodes of the caterpillar
    return _of_parents([*range(b - 1), *rng.randint(b, size=c - b), *rng.randint(b, c, size=n - c)])


FAMILIES: dict[str, tuple[float, Callable[[int, RandomState], np.ndarray]]] = {
    "erdos_renyi": (0.2, erdos_renyi),
    "barabasi_albert": (0.2, barabasi_albert),
    "grid": (0.05, grid),
    "caveman": (0.05, caveman),
    "tree": (0.15, tree),
    "ladder": (0.05, ladder),
    "line": (0.05, line),
    "star": (0.05, star),
    "caterpillar": (0.1, caterpillar),
    "lobster": (0.1, lobster),
}
