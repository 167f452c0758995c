"""Tasks on many graphs: a batch is some of them, as one graph of parts that no edge joins.

Axes: G graphs of a set, B graphs of a batch, V nodes and E edge rows of the set, N nodes of a batch, D
features, O outputs.
"""

from collections.abc import Iterator, Mapping

import numpy as np
import torch
from torch import Generator, Tensor

from physml.base.check import positive
from physml.base.errors import DataError, InputError
from physml.data.datasets import Arrays
from physml.data.splits import parted
from physml.data.store import Store
from physml.task.base import Part, Task, features, positions, tensor
from physml.task.batch import Batch


class Runs:
    """Rows of each graph among the rows of all graphs.

    offsets (G + 1,): rows offsets[g] to offsets[g + 1] are those of graph g.
    """

    def __init__(self, offsets: np.ndarray) -> None:
        self._start = torch.from_numpy(np.ascontiguousarray(offsets[:-1], dtype=np.int64))
        self._size = torch.from_numpy(np.diff(offsets).astype(np.int64))

    def sizes(self, graphs: Tensor) -> Tensor:
        return self._size[graphs]

    def rows(self, graphs: Tensor) -> Tensor:
        """The rows of `graphs` (B,), one graph after the other, in their order: (R,) int64."""
        size = self._size[graphs]
        first = torch.cumsum(size, 0) - size  # where each graph starts in the batch
        shift = torch.repeat_interleave(self._start[graphs] - first, size)
        return shift + torch.arange(len(shift))


class ManyGraphs(Task):
    """Graphs that lie in memory, on the device; a batch is any selection, shuffled in train.

    A batch: input (N, D), edge_index (2, E_B) that counts nodes through the batch, batch (N,) the graph of
    each node, from 0 on, index (B,) the positions of the graphs in their part; target (B,) or (B, O) where
    labels belong to graphs, (N, O) where they belong to nodes.

    A subclass sets `d_in`, `d_out`, `readout` and `protocol`, and calls `place` in `load`.
    """

    def place(
        self,
        x: np.ndarray,
        arrays: Arrays,
        target: np.ndarray,
        parts: Mapping[Part, np.ndarray],
        store: Store,
    ) -> None:
        """Take the graphs, and which of them belong to each part; DataError where they cannot be right.

        Shapes: x (V, D) float32; arrays: edge_index, node_offsets and edge_offsets as `physml.data.graphs`
        says; target (G, ...) or (V, ...), by `readout`; the graphs of each part (n,).
        """
        name = type(self).__name__
        if lacking := {"edge_index", "node_offsets", "edge_offsets"} - set(arrays):
            raise InputError(f"{name}: arrays must have {min(lacking)}; got {', '.join(arrays) or 'none'}.")
        n_graphs = len(arrays["node_offsets"]) - 1
        labelled = n_graphs if self.readout == "graph" else len(x)
        if x.ndim != 2 or x.shape[1] != self.d_in or len(x) != arrays["node_offsets"][-1]:
            raise DataError(
                f"{name}: {arrays['node_offsets'][-1]} nodes need {self.d_in} features each; got {x.shape}."
            )
        if len(target) != labelled:
            raise DataError(
                f"{name}: expected {labelled} targets, one per {self.readout}; got {len(target)}."
            )
        if not np.diff(arrays["node_offsets"]).all():
            empty = int(np.flatnonzero(np.diff(arrays["node_offsets"]) == 0)[0])
            raise DataError(f"{name}: graph {empty} has no node. Leave it out of the set.")
        self._graphs = positions(name, "graph", parts, n_graphs)
        self.sizes = {part: len(chosen) for part, chosen in self._graphs.items()}
        self._x, self._target = features(name, x), tensor(target)
        _refuse_edges(name, arrays)
        self._edges = torch.from_numpy(np.ascontiguousarray(arrays["edge_index"]))  # may be of a narrow type
        self._nodes_of, self._edges_of = Runs(arrays["node_offsets"]), Runs(arrays["edge_offsets"])
        self._facts = {**self.data_facts(store), "n_nodes": len(x), "n_edges": arrays["edge_index"].shape[1]}
        self.tell_shared(self._graphs, "graphs")

    def to(self, device: str) -> None:
        self._x, self._target = self._x.to(device), self._target.to(device)
        self._edges = self._edges.to(device)

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        positive("size", size)
        for index in self.selections(part, size, rng):
            yield self.joined(self._graphs[part][index], index)

    def joined(self, graphs: Tensor, index: Tensor | None = None) -> Batch:
        """Graphs of the set, (B,), by number, as one batch."""
        device = self._x.device
        n_nodes, n_edges = self._nodes_of.sizes(graphs), self._edges_of.sizes(graphs)
        nodes = self._nodes_of.rows(graphs).to(device)
        shift = torch.repeat_interleave(torch.cumsum(n_nodes, 0) - n_nodes, n_edges).to(device)
        edges = self._edges[:, self._edges_of.rows(graphs).to(device)].to(torch.int64)
        return Batch(
            input=self._x[nodes],
            target=self._target[graphs.to(device) if self.readout == "graph" else nodes],
            index=None if index is None else index.to(device),
            edge_index=edges.add_(shift),
            batch=torch.repeat_interleave(torch.arange(len(graphs)), n_nodes).to(device),
        )


def _refuse_edges(name: str, arrays: Arrays) -> None:
    """DataError where an edge joins nodes that its graph does not have, or edge_offsets cut other edges."""
    edges, ends = arrays["edge_index"], arrays["edge_offsets"]
    n_nodes = np.diff(arrays["node_offsets"])
    fits = len(ends) == len(n_nodes) + 1 and (ends[0], ends[-1]) == (0, edges.shape[1])
    if not fits or (np.diff(ends) < 0).any():
        raise DataError(f"{name}: edge_offsets must cut {edges.shape[1]} edges into {len(n_nodes)} graphs.")
    linked = np.flatnonzero(np.diff(ends))
    highest = np.maximum.reduceat(edges.max(0), ends[linked]) if len(linked) else linked
    strange = [*highest[highest >= n_nodes[linked]], *(low for low in [edges.min(initial=0)] if low < 0)]
    if strange:
        raise DataError(
            f"{name}: an edge names node {strange[0]}, which its graph does not have. Edges count the nodes "
            "of their own graph, from 0 on."
        )


def parts_in_order(n_graphs: np.ndarray) -> dict[Part, np.ndarray]:
    """The first graphs train, the next ones validate, the rest tests: numbers (3,) -> graphs of each part."""
    n_train, n_valid, n_test = n_graphs.tolist()
    return parted(np.arange(n_train + n_valid + n_test), n_train, n_valid)
