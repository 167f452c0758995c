"""The task interface: data, splits, loss, score. The trainer knows nothing else of a task."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar, Literal

from torch import Generator, Tensor

from physml.data.cache import Generated
from physml.data.datasets import DataSet, kind_of
from physml.data.store import Store
from physml.task.batch import Batch

Part = Literal["train", "valid", "test"]
Sums = dict[str, float]
Metrics = dict[str, float]


class Task(ABC):
    """Base of all tasks; a task is one file in `tasks/` and one config in `conf/task/`.

    Scores are sums and counts per batch (`score`) and become metrics at the end (`finish`), so that no
    metric depends on the batch size.
    """

    version: ClassVar[int] = 1  # raised when old and new scores stop being comparable
    readout: ClassVar[Literal["last", "every", "node", "graph"]]
    metric: ClassVar[str]  # the metric that selection and search look at
    better: ClassVar[dict[str, Literal["lower", "higher"]]]  # every metric of `finish`
    scoring: ClassVar[dict[str, str]] = {}  # metric -> protocol, where a metric has another than the run
    tokens: ClassVar[bool] = False  # inputs are ids below d_in, for an embedding
    n_splits: ClassVar[int] = 1
    datasets: Sequence[DataSet] = ()  # of others, which `load` reads
    perturbations: tuple[str, ...] = ()  # names of disturbances of test, scored once after training
    vectors: Tensor | None = None  # (d_in, width), vectors of ids known before training, such as GloVe

    protocol: str  # the conventions of data and selection: official, paper or clean
    d_in: int
    d_out: int

    @abstractmethod
    def load(self, store: Store, split: int) -> None:
        """Read or generate the data of one split. Called once, before anything below."""

    @abstractmethod
    def steps_per_epoch(self, size: int) -> int:
        """How many batches `batches("train", size, ...)` gives."""

    @abstractmethod
    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        """One pass over a part. `rng` orders (or draws) the training batches: same rng, same batches."""

    def perturb(self, batch: Batch, name: str, rng: Generator) -> Batch:
        """A batch of test with its input disturbed in the way `name`, one of `perturbations`.

        What a batch draws from `rng` must not depend on how the part is cut into batches. The task's own
        metric m of the disturbed part is called m_<name>, and stands in `better`.
        """
        raise NotImplementedError(f"{type(self).__name__} has no perturbation {name}")

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The scalar to minimise."""

    def aside(self, output: Tensor, batch: Batch) -> Metrics:
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
        """Trivial references: name -> metrics on the test part, fitted on train only."""

    @abstractmethod
    def facts(self) -> dict[str, Any]:
        """For the record: version, sizes of the parts, sha256 of files, fingerprint of generated data."""

    def data_facts(self, store: Store) -> dict[str, Any]:
        """The part of `facts` about data sets read from `store`: their files, and how far they are verified.

        `kind` is one word for all of them, see `dataset.kind_of`.
        """
        names = [file.name for dataset in self.datasets for file in dataset.upstream.files]
        used = {name: store.used[name] for name in names if name in store.used}
        return {
            "version": self.version,
            "sizes": dict(getattr(self, "sizes", {})),
            "sha256": {name: one["sha256"] for name, one in used.items()},
            "verified": {name: one["verified"] for name, one in used.items()},
            "kind": kind_of(used.values()),
            "readers": {dataset.name: dataset.version for dataset in self.datasets},
            "fingerprint": None,
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
