"""The task interface: data, splits, loss, score. The trainer knows nothing else of a task."""

import inspect
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy as np
import torch
from torch import Generator, Tensor

from physml.base.errors import DataError, InputError, suggest
from physml.config.class_source import OWN_PACKAGES, data_sha256, own_file
from physml.data.cache import Generated
from physml.data.datasets import OWN_FILE, UNDECLARED, DataSet, kind_of
from physml.data.files.tables import table
from physml.data.splits import Part
from physml.data.store import Store
from physml.task.batch import Batch

log = logging.getLogger(__name__)

PARTS: tuple[Part, ...] = ("train", "valid", "test")
Readout = Literal["last", "every", "node", "graph"]
Better = dict[str, Literal["lower", "higher"]]  # of each metric
LOADED = ("d_in", "d_out", "protocol", "readout", "metric", "better")  # set once data are loaded
Sums = dict[str, float]
Metrics = dict[str, float]


class Task(ABC):
    """Base of all tasks; a task is one file in `tasks/` and one config in `conf/task/`.

    Scores are sums and counts per batch (`score`) and become metrics at the end (`finish`), so that no
    metric depends on the batch size.
    """

    version: ClassVar[int] = 1  # raised when old and new scores stop being comparable
    readout: ClassVar[Readout]
    metric: ClassVar[str]  # the metric that selection and search look at
    better: ClassVar[Better]  # every metric of `finish`
    scoring: ClassVar[dict[str, str]] = {}  # metric -> protocol, where a metric has another than the run
    tokens: ClassVar[bool] = False  # inputs are ids below d_in, for an embedding
    n_splits: ClassVar[int] = 1
    datasets: Sequence[DataSet] = ()  # of others, which `load` reads
    files: Sequence[str] | None = None  # own data files, which `load` reads by `file`; (): none
    perturbations: tuple[str, ...] = ()  # names of disturbances of test, scored once after training
    vectors: Tensor | None = None  # (d_in, width), vectors of ids known before training, such as GloVe

    _facts: dict[str, Any]
    protocol: str  # the conventions of data and selection: official, paper or clean
    d_in: int
    d_out: int
    sizes: dict[str, int]  # items of each part

    @abstractmethod
    def load(self, store: Store, split: int) -> None:
        """Read or generate the data of one split. Called once, before anything below."""

    def require(self, *names: str) -> None:
        """InputError for attributes of these that neither the class nor its methods have set."""
        if missing := [name for name in names if not hasattr(self, name)]:
            raise InputError(
                f"{type(self).__name__} has no {', '.join(missing)}. Set it in its constructor or in load."
            )

    def steps_per_epoch(self, size: int) -> int:
        """How many batches `batches("train", size, ...)` gives. Default: each item is used once."""
        return -(-self.sizes["train"] // size)

    @abstractmethod
    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        """One pass over a part. `rng` orders (or draws) the training batches: same rng, same batches."""

    def selections(self, part: Part, size: int, rng: Generator | None) -> Iterator[Tensor]:
        """Positions (B,) of the items of each batch: shuffled in train, else in order; none if absent."""
        if part not in self.sizes:
            return
        n = self.sizes[part]
        order = torch.arange(n) if rng is None or part != "train" else torch.randperm(n, generator=rng)
        yield from order.split(size)

    def perturb(self, batch: Batch, name: str, rng: Generator) -> Batch:
        """A batch of test with its input disturbed in the way `name`, one of `perturbations`.

        What a batch draws from `rng` must not depend on how the part is cut into batches. The task's own
        metric m of the disturbed part is called m_<name>, and stands in `better`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no perturbation {name}")

    @property
    def in_rows(self) -> Better:
        """The metrics of an evaluation: `better` without those of disturbed parts, scored once at the end."""
        at_the_end = {f"{self.metric}_{name}" for name in self.perturbations}
        return {name: better for name, better in self.better.items() if name not in at_the_end}

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The scalar to minimise."""

    def train_step_metrics(self, output: Tensor, batch: Batch) -> Metrics:
        """Validation metrics computed from the training-mode output, by name. Default: none.

        They belong to the row that the epoch ends with, and stand in `better`.
        """
        return {}

    @abstractmethod
    def score(self, output: Tensor, batch: Batch) -> Sums:
        """Sums and counts over one batch; keys ending in `_sum` or `_n` by custom."""

    @abstractmethod
    def finish(self, sums: Sums) -> Metrics:
        """Metrics from the sums of all batches of a part."""

    @abstractmethod
    def references(self) -> dict[str, Metrics]:
        """Trivial references: name -> metrics on the test part, fitted without it."""

    def facts(self) -> dict[str, Any]:
        """For the record: version, sizes of the parts, sha256 of files, fingerprint of generated data.

        Default: `_facts`, which `load` has set.
        """
        return self._facts

    def data_facts(self, store: Store) -> dict[str, Any]:
        """The part of `facts` about data sets read from `store`: their files, and how far they are verified.

        `kind` is one word for all of them, see `dataset.kind_of`.
        """
        names = [file.name for dataset in self.datasets for file in dataset.upstream.files]
        used = {name: store.used[name] for name in names if name in store.used}
        return {
            "version": self.version,
            "sizes": dict(getattr(self, "sizes", {})),
            **files_facts(used),
            "readers": {dataset.name: dataset.version for dataset in self.datasets},
            "fingerprint": None,
        }

    def tell_shared(self, parts: Mapping[Part, Tensor], kind: str) -> None:
        """`tell_leaks` for parts that are positions."""
        known = torch.cat([items for part, items in parts.items() if part != "test"])
        self.tell_leaks(int(torch.isin(parts["test"], known).sum()), kind)

    def tell_leaks(self, n: int, kind: str) -> None:
        """A note for the record and the log where n items of test are among those to learn from too."""
        if n:
            note = f"{n} of {self.sizes['test']} {kind} of test stand in train or valid too"
            self._facts["notes"] = [*self._facts.get("notes", ()), note]
            log.warning("%s: %s: their score is no score on new data.", type(self).__name__, note)

    def file(self, name: str) -> Path:
        """The path of one of the task's own data files: `files` names it, relative to the file of the class.

        Its content is part of the setting: a run on an edited file is another run, and the record has its
        sha256. Errors: InputError where `files` does not name it, DataError where it is missing.
        """
        if name not in (self.files or ()):
            raise InputError(
                f"{type(self).__name__} reads {name}, which its `files` do not name. Add it to the class: "
                f'files = ("{name}",)'
            )
        path = own_file(Path(inspect.getfile(type(self))), name)
        self.__dict__.setdefault("_own_sha256", {})[name] = data_sha256(path)
        return path

    def table(self, name: str, *, gaps: bool = False) -> np.ndarray:
        """The numbers of one of the task's own text files, such as CSV: (N, K); see `data.files.tables`."""
        return table(self.file(name), gaps=gaps)

    def recorded_data(self, hashed: Mapping[str, str]) -> dict[str, Any]:
        """For the record: `facts`, and how far the task's own files are known.

        A task from a plugin may read any file. Those of `files` are known; where the class neither names its
        files nor reads data sets, nothing is known, and the record says so under the name of the plugin.

        Args:
            hashed: the sha256 of the files that are part of the setting's identity.
        """
        facts = self.facts()
        read: dict[str, str] = self.__dict__.get("_own_sha256", {})
        own = {
            name: {"sha256": sha256, "verified": OWN_FILE if hashed.get(name) == sha256 else UNDECLARED}
            for name, sha256 in {**hashed, **read}.items()
        }
        module = type(self).__module__
        if module.partition(".")[0] not in OWN_PACKAGES and self.files is None and not self.datasets:
            own[Path(inspect.getfile(type(self))).name] = {"sha256": "", "verified": UNDECLARED}
        if not own:
            return facts
        hashes = {name: file["sha256"] for name, file in own.items() if file["sha256"]}
        known: dict[str, str] = facts.get("verified", {})
        return {
            **facts,
            "sha256": {**facts.get("sha256", {}), **hashes},
            "verified": {**known, **{name: file["verified"] for name, file in own.items()}},
            "kind": kind_of([*({"verified": how} for how in known.values()), *own.values()]),
        }

    def sources(self) -> Sequence[Generated]:
        """Data that a program makes, which `physml data` gets; empty where all are drawn as they are used."""
        return ()

    def to(self, device: str) -> None:  # noqa: B027
        """Make small data resident on the device; else batches are moved one by one."""

    def calibrate(self, outputs: Callable[[Part], Iterator[tuple[Tensor, Batch]]]) -> dict[str, float]:
        """Values fitted on valid that the scores of these weights need, such as a temperature, by name.

        Called before the selected and the last weights are scored on test; the values go into the record.
        Default: {}, and no output is computed.

        Args:
            outputs: the output of the network for each batch of a part, with the batch.
        """
        return {}


def files_facts(used: Mapping[str, Mapping[str, str]]) -> dict[str, Any]:
    """The part of `facts` about files {name: {"sha256", "verified"}}: hashes, and how far they are known."""
    return {
        "sha256": {name: file["sha256"] for name, file in used.items()},
        "verified": {name: file["verified"] for name, file in used.items()},
        "kind": kind_of(used.values()),
    }


def refuse_parts(name: str, parts: Mapping[Any, Any]) -> None:
    """InputError where parts have other names, or train or test is not there."""
    if not isinstance(parts, Mapping):
        got = type(parts).__name__
        raise InputError(f'{name}: parts must be a dict, {{"train": ..., "test": ...}}; got {got}.')
    if strange := [part for part in parts if part not in PARTS]:
        raise InputError(
            f"{name}: parts must be named train, valid and test; got {strange[0]!r}. "
            f"{suggest({'val': 'valid', 'dev': 'valid'}.get(strange[0], strange[0]), PARTS)}"
        )
    if lacking := [part for part in ("train", "test") if part not in parts]:
        raise InputError(f"{name}: there is no part {lacking[0]}; got {', '.join(parts) or 'none'}.")


def refuse_empty(name: str, kind: str, sizes: Mapping[Any, int]) -> None:
    for part, n in sizes.items():
        if not n:
            raise DataError(f"{name}, part {part}: there are no {kind}. Make the other parts smaller.")


def positions(name: str, kind: str, parts: Mapping[Any, Any], n: int) -> dict[Part, Tensor]:
    """The positions of the items of each part, of positions or masks (n,); `kind` of one: a node, say.

    Errors: InputError, DataError for parts that cannot be right.
    """
    refuse_parts(name, parts)
    chosen: dict[Part, Tensor] = {}
    for part, items in parts.items():
        at = torch.as_tensor(items)
        if at.dtype == torch.bool:
            if at.shape != (n,):
                raise DataError(f"{name}, part {part}: a mask must have shape ({n},); got {tuple(at.shape)}.")
            at = at.nonzero().flatten()
        chosen[part] = at = at.long()
        if len(strange := at[(at < 0) | (at >= n)]):
            raise DataError(f"{name}, part {part}: {kind} {int(strange[0])} is none of {n}, from 0 on.")
    refuse_empty(name, f"{kind}s", {part: len(at) for part, at in chosen.items()})
    return chosen


def features(name: str, x: Any) -> Tensor:
    """Features of nodes (N, D) as float32. DataError where one is not finite."""
    x = tensor(x).float()
    if x.numel() and not torch.stack(torch.aminmax(x)).isfinite().all():  # without a mask as large as x
        node = int((~x.isfinite()).reshape(len(x), -1).any(1).int().argmax())
        raise DataError(f"{name}: node {node} has features that are NaN or infinite. Correct them.")
    return x


def tensor(array: Any) -> Tensor:
    """Numbers as float32, whole ones as int64."""
    if not isinstance(array, Tensor):
        try:
            array = np.asarray(array)
        except ValueError as error:
            raise DataError(
                "arrays must be rectangular; got rows of unequal lengths. Pad sequences to one length, and "
                "place (x, y, lengths)."
            ) from error
        if array.dtype.kind not in "biuf":
            raise DataError(f"arrays must hold real numbers; got {array.dtype}. Code classes as 0, 1, 2, ...")
        kind = np.float32 if array.dtype.kind == "f" else np.int64  # whatever its width and order of bytes
        with np.errstate(over="ignore"):
            array = torch.from_numpy(np.require(array, kind, ["C", "W"]))
    return array.float() if array.is_floating_point() else array.long()
