"""The task interface: data, splits, loss, score. The trainer knows nothing else of a task."""

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal

from torch import Generator, Tensor

from physml.data.batch import Batch
from physml.data.fetch import DataFile
from physml.data.store import Generated, Store

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

    @abstractmethod
    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        """The scalar to minimise."""

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

    def sources(self) -> Sequence[Generated | DataFile]:
        """What `physml data` lists, checks and gets; empty where all data are drawn as they are used."""
        return ()

    def to(self, device: str) -> None:  # noqa: B027
        """Make small data resident on the device; else batches are moved one by one."""
