"""Node classification on any data set of torch_geometric. Axes: N nodes, D features, C classes."""

import contextlib
import inspect
import io
import tempfile
import warnings
from collections.abc import Mapping
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

import numpy as np

from physml.base.check import one_of
from physml.base.errors import DataError, InputError, needed_by, suggest
from physml.base.text import brief
from physml.data import graphs
from physml.data.datasets import Arrays, DataFile, DataSet, Files, Upstream
from physml.data.files.labels import coded
from physml.data.files.safe_pickle import no_code
from physml.data.splits import held_out
from physml.data.store import Store
from physml.task.nodes import NodeClasses

PARTS = {"train": "train_mask", "valid": "val_mask", "test": "test_mask"}
UNKNOWN = -1  # the class of a node of no part
N_SPLITS = {"masks": 10, "random": 5}


class PyGNodes(NodeClasses):
    r"""Which class a node is of, on the graph that a class of torch_geometric.datasets reads from files.

    Edges are as PyG gives them; loops are left out. Nothing is downloaded: the raw files lie below
    PHYSML_DATA, in pyg/<class>/ with the folders that PyG makes, or flat in a folder named as the class in
    lower case. PyG downloads them once: `torch_geometric.datasets.Planetoid("pyg/Planetoid", "Cora")`.
    No checksums are published for all of them: files are pinned when first seen.

    PyG opens some raw files as pickles, which can run code: use files of publishers that you trust.

    The classes are those of the nodes that train, in the order of their numbers; with masks also those that
    only other parts have.

    Splits: masks: those that come with the data, one, or one per column. random: 60 % train, 20 % validate
    and 20 % test, of each class, drawn by the number of the split.

    Defined in: target, metric and split: here, by the arguments and the masks of the files; no table of the
    papers reads it.

    Source: Fey and Lenssen, 2019, https://arxiv.org/abs/1903.02428.

    Args:
        dataset: a class of torch_geometric.datasets, such as Planetoid or WebKB.
        options: its arguments besides root, such as {name: Cora}.
        split_of: "masks" or "random".
        protocol: "clean".
    Errors: InputError for a class or arguments that are not there; DataError where files are missing, or the
        data are not of one graph with features and one class per node.
    """

    version: ClassVar[int] = 2

    def __init__(self, *, dataset: str, options: dict[str, Any], split_of: str, protocol: str) -> None:
        one_of("split_of", split_of, tuple(N_SPLITS))
        one_of("protocol", protocol, ("clean",))
        if strange := [k for k, v in options.items() if not isinstance(v, str | int | float | bool | None)]:
            raise InputError(f"options.{strange[0]} must be a number, a text, true, false or null.")
        self.dataset, self.options, self.split_of, self.protocol = dataset, options, split_of, protocol
        self.n_splits = N_SPLITS[split_of]  # type: ignore[misc]

    def load(self, store: Store, split: int) -> None:
        cls = _class(self.dataset)
        names = _raw_files(cls, self.options)
        if names:
            data_set = _data_set(cls, self.options, names)
            self.datasets, arrays = (data_set,), store.read(data_set)
        else:
            with tempfile.TemporaryDirectory() as folder:
                self.datasets, arrays = (), _arrays(_made(cls, self.options, folder), self.dataset)
        y = arrays["y"]
        parts = _masked(arrays, split) if self.split_of == "masks" else _random(y, split)
        labels = {part: y[nodes].tolist() for part, nodes in parts.items()}
        codes, classes = coded(labels, self.dataset, divided=self.split_of == "masks")
        self.n_classes = self.d_out = len(classes)
        place = np.full(len(y), UNKNOWN)
        for part, nodes in parts.items():
            place[nodes] = codes[part]
        self.place(arrays["x"], graphs.without_loops(arrays["edge_index"]), place, parts, store)


def _class(name: str) -> type:
    with warnings.catch_warnings(), needed_by("task=pyg"):
        warnings.filterwarnings("ignore", ".*torch.jit.script", FutureWarning)
        from torch_geometric import datasets
        from torch_geometric.data import Dataset

    known = {n: c for n, c in vars(datasets).items() if inspect.isclass(c) and issubclass(c, Dataset)}
    if name not in known:
        raise InputError(f"torch_geometric.datasets has no data set {name}. {suggest(name, known)}")
    return known[name]


class _Listed(Exception):
    """The raw files that a class is about to look for."""


def _raw_files(cls: type, options: Mapping[str, Any]) -> list[str]:
    """Paths of the raw files below the root of the data set; none for a class that has its data in code."""

    def listed(self: Any) -> None:
        raise _Listed(*(Path(path).relative_to(self.root).as_posix() for path in self.raw_paths))

    with tempfile.TemporaryDirectory() as folder:  # some classes make folders before they look
        try:
            _made(type(cls.__name__, (cls,), {"_download": listed}), options, folder)
        except _Listed as listing:
            return list(listing.args)
    return []


def _made(cls: type, options: Mapping[str, Any], root: str) -> Any:
    takes = inspect.signature(cls).parameters
    arguments = {"root": root} if "root" in takes else {}
    try:
        # It says that it is processing, and may open raw files as pickles.
        with contextlib.redirect_stderr(io.StringIO()), no_code():
            return cls(**arguments, **options)
    except (_Listed, DataError, OSError):
        raise
    except Exception as error:  # PyG, and the packages that its classes call, raise about a dozen kinds
        known = ", ".join(n for n in takes if n != "root" and not n.startswith(("pre_", "transform")))
        raise InputError(
            f"{cls.__name__} cannot be made with options {dict(options)}: "
            f"{str(error) or type(error).__name__}. It takes {known or 'none'}."
        ) from error


def _data_set(cls: type, options: Mapping[str, Any], names: list[str]) -> DataSet:
    name = cls.__name__
    stored = {f"pyg/{name}/{path}": path for path in names}
    files = tuple(
        DataFile(file, "raw file", also=(f"{name.lower()}/{PurePosixPath(path).name}",))
        for file, path in stored.items()
    )
    options_text = "".join(f", {key}={value!r}" for key, value in options.items())
    about = Upstream(
        title=f"{name} of torch_geometric",
        source=f"torch_geometric.datasets.{name}",
        licence="see its page in the documentation of torch_geometric",
        files=files,
        name=f"pyg_{name}",
        get=f"python -c \"from torch_geometric.datasets import {name}; {name}('pyg/{name}'{options_text})\"",
    )

    def read(raw_files: Files) -> Arrays:
        """From a folder of links: PyG writes beside the raw files, whose own folder may be read-only."""
        with tempfile.TemporaryDirectory() as folder:
            for file, path in stored.items():
                link = Path(folder) / path
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(raw_files.path(file).absolute())
            try:
                dataset = _made(cls, options, folder)
            except InputError as error:  # the options were found right where the files were listed
                raise DataError(f"{name}: raw files cannot be read: {brief(error.__cause__)}.") from error
            return _arrays(dataset, name)

    return DataSet(f"pyg_{name}", 1, read, _no_fixture, about=about, options=tuple(options.items()))


def _no_fixture(root: Path) -> None:
    raise DataError(
        "there is no tiny stand-in for this data set. Use task.dataset=KarateClub task.options={}."
    )


def _arrays(dataset: Any, name: str) -> Arrays:
    """x (N, D) float32, edge_index (2, E), y (N,) int64 and the masks (N,) or (N, S) that are there."""
    graph = dataset[0]
    lacking = [key for key in ("x", "edge_index", "y") if getattr(graph, key, None) is None]
    if len(dataset) != 1 or lacking:
        what = f"no {lacking[0]}" if lacking else f"{len(dataset)} graphs"
        raise DataError(f"{name} has {what}; this task is for one graph with features, edges and classes.")
    y = graph.y.squeeze(-1) if graph.y.ndim == 2 else graph.y
    if y.ndim != 1 or y.is_floating_point():
        raise DataError(f"{name}: each node must have one class; got {y.dtype} of shape {tuple(y.shape)}.")
    arrays = {
        "x": np.ascontiguousarray(graph.x.to_dense().float().numpy()),
        "edge_index": graph.edge_index.numpy(),
        "y": y.numpy().astype(np.int64),
    }
    masks = {key: getattr(graph, key, None) for key in PARTS.values()}
    return arrays | {key: mask.numpy().astype(bool) for key, mask in masks.items() if mask is not None}


def _masked(arrays: Arrays, split: int) -> dict[str, np.ndarray]:
    parts = {}
    for part, key in PARTS.items():
        if key not in arrays:
            raise DataError(f"the data come without {key}. Set task.split_of=random.")
        mask = arrays[key].reshape(len(arrays["y"]), -1)
        if mask.shape[1] == 1 and part == "test":  # some have one test part for all splits
            mask = np.repeat(mask, split + 1, 1)
        if split >= mask.shape[1]:
            raise DataError(f"the data have {mask.shape[1]} split(s), counted from 0; got split={split}.")
        parts[part] = np.flatnonzero(mask[:, split] & (arrays["y"] >= 0))
    return parts


def _random(y: np.ndarray, split: int) -> dict[str, np.ndarray]:
    known = np.flatnonzero(y >= 0)
    rest, test = held_out(y[known], 0.2, split)
    train, valid = held_out(y[known][rest], 0.25, split)
    return {"train": known[rest[train]], "valid": known[rest[valid]], "test": known[test]}
