"""Four small tasks that use every part of the task interface, and a tiny graph network.

Each has a known structure, so that its `oracle`, a function of a batch, scores perfectly or nearly so.
Axes: B batch, T time, D features, N nodes, E edges, C classes or ids.
"""

from abc import abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, ClassVar, Literal

import torch
from torch import Generator, Tensor, nn
from torch.nn import functional as F

from physml.base.check import has_shape
from physml.data.store import Store
from physml.task.base import Metrics, Part, Sums, Task
from physml.task.batch import Batch
from physml.task.trivial import score_reference

SEED: dict[str, int] = {"train": 1, "valid": 2, "test": 3}

Readout = Literal["last", "every", "node", "graph"]
Better = dict[str, Literal["lower", "higher"]]


def generator(seed: int) -> Generator:
    return Generator().manual_seed(seed)


class SmallTask(Task):
    """What the four share: sizes, protocol, facts."""

    def __init__(self, protocol: str) -> None:
        self.protocol = protocol
        self.sizes: dict[str, int] = {}

    def facts(self) -> dict[str, Any]:
        return {"version": self.version, "sizes": self.sizes, "sha256": {}, "fingerprint": "none"}


class SetOfSequences(SmallTask):
    """A fixed set of items for each part, shuffled for training."""

    def __init__(self, n: int, protocol: str) -> None:
        super().__init__(protocol)
        self.sizes = {"train": n, "valid": n // 2, "test": n // 2}

    def load(self, store: Store, split: int) -> None:
        self.parts = {part: self.draw(n, generator(SEED[part])) for part, n in self.sizes.items()}

    @abstractmethod
    def draw(self, n: int, rng: Generator) -> Batch:
        """All items of one part at once."""

    def steps_per_epoch(self, size: int) -> int:
        return -(-self.sizes["train"] // size)

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        whole, n = self.parts[part], self.sizes[part]
        order = torch.arange(n) if rng is None or part != "train" else torch.randperm(n, generator=rng)
        for index in order.split(size):
            yield Batch(
                input=whole.input[index],
                target=whole.target[index],
                index=index,
                lengths=None if whole.lengths is None else whole.lengths[index],
                mask=None if whole.mask is None else whole.mask[index],
            )


class SignOfSum(SetOfSequences):
    """Last step, classes, padding: is the sum of a sequence positive?

    Input (B, T, 1), zero after the true length (B,); target (B,) 0 or 1. Metric: accuracy, higher is better.
    """

    readout: ClassVar[Readout] = "last"
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Better] = {"accuracy": "higher", "cross_entropy": "lower"}

    def __init__(self, *, n: int, length: int, protocol: str) -> None:
        super().__init__(n, protocol)
        self.d_in, self.d_out, self.length = 1, 2, length

    def draw(self, n: int, rng: Generator) -> Batch:
        lengths = torch.randint(self.length // 2, self.length + 1, (n,), generator=rng)
        u = torch.randn(n, self.length, generator=rng) * (torch.arange(self.length) < lengths[:, None])
        return Batch(u.unsqueeze(-1), (u.sum(1) > 0).long(), lengths=lengths)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (len(batch.target), self.d_out))
        return F.cross_entropy(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (len(batch.target), self.d_out))
        return {
            "right_sum": float((output.argmax(-1) == batch.target).sum()),
            "nats_sum": F.cross_entropy(output.double(), batch.target, reduction="sum").item(),
            "items_n": float(len(batch.target)),
        }

    def finish(self, sums: Sums) -> Metrics:
        n = sums["items_n"]
        return {"accuracy": sums["right_sum"] / n, "cross_entropy": sums["nats_sum"] / n}

    def references(self) -> dict[str, Metrics]:
        share = self.parts["train"].target.double().mean()
        logits = torch.stack([1 - share, share]).log()
        return {"majority": score_reference(self, lambda batch: logits.expand(len(batch.target), 2))}

    @staticmethod
    def oracle(batch: Batch) -> Tensor:
        total = batch.input.sum((1, 2))
        return torch.stack([-total, total], -1) * 1e6


class LeakyMean(SetOfSequences):
    """Every step, a mask of steps, several splits: follow y_n = 0.8 y_{n-1} + 0.2 u_n.

    Input (B, T, 1); target (B, T, 1); mask (B, T) leaves out about a tenth of the steps, whose targets are
    wrong on purpose. Each split has its own sequences.
    """

    readout: ClassVar[Readout] = "every"
    metric: ClassVar[str] = "rmse"
    better: ClassVar[Better] = {"rmse": "lower"}
    n_splits: ClassVar[int] = 3

    def __init__(self, *, n: int, length: int, protocol: str) -> None:
        super().__init__(n, protocol)
        self.d_in = self.d_out = 1
        self.length = length

    def load(self, store: Store, split: int) -> None:
        self.parts = {p: self.draw(n, generator(SEED[p] + 10 * split)) for p, n in self.sizes.items()}

    def draw(self, n: int, rng: Generator) -> Batch:
        u = torch.randn(n, self.length, 1, generator=rng)
        mask = torch.rand(n, self.length, generator=rng) > 0.1
        return Batch(u, torch.where(mask[..., None], self.oracle(Batch(u, u)), 99.0), mask=mask)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        assert batch.mask is not None
        return F.mse_loss(output[batch.mask], batch.target[batch.mask])

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        assert batch.mask is not None
        error = (output - batch.target)[batch.mask].double()
        return {"error_sum": error.square().sum().item(), "error_n": float(error.numel())}

    def finish(self, sums: Sums) -> Metrics:
        return {"rmse": (sums["error_sum"] / sums["error_n"]) ** 0.5}

    def references(self) -> dict[str, Metrics]:
        return {"zero": score_reference(self, lambda batch: torch.zeros_like(batch.target))}

    @staticmethod
    def oracle(batch: Batch) -> Tensor:
        y, path = torch.zeros_like(batch.input[:, 0]), []
        for u in batch.input.unbind(1):
            y = 0.8 * y + 0.2 * u
            path.append(y)
        return torch.stack(path, 1)


class Echo(SmallTask):
    """A stream of tokens with carried state: each id is the one `lag` places earlier, with noise.

    The training stream is cut into `size` rows, and the rows into windows of `window` steps: input (B, W)
    ids, target (B, W) the next ids. With `window` < `lag` only a carried state can know what comes. Valid
    and test are one row, whatever the batch size, so that their metrics don't depend on it.
    """

    readout: ClassVar[Readout] = "every"
    metric: ClassVar[str] = "nats"
    better: ClassVar[Better] = {"nats": "lower"}
    tokens: ClassVar[bool] = True

    def __init__(self, *, n: int, n_ids: int, lag: int, window: int, noise: float, protocol: str) -> None:
        super().__init__(protocol)
        self.sizes = {"train": n, "valid": n // 2, "test": n // 2}
        self.d_in = self.d_out = n_ids
        self.lag, self.window, self.noise = lag, window, noise

    def load(self, store: Store, split: int) -> None:
        self.streams = {part: self.draw(n, generator(SEED[part])) for part, n in self.sizes.items()}

    def draw(self, n: int, rng: Generator) -> Tensor:
        ids = torch.randint(0, self.d_in, (n,), generator=rng)
        noisy = torch.rand(n, generator=rng) < self.noise
        for i in range(self.lag, n):
            if not noisy[i]:
                ids[i] = ids[i - self.lag]
        return ids

    def rows(self, part: Part, size: int) -> Tensor:
        stream = self.streams[part]
        size = size if part == "train" else 1
        return stream[: len(stream) // size * size].view(size, -1)

    def steps_per_epoch(self, size: int) -> int:
        return -(-(self.rows("train", size).shape[1] - 1) // self.window)

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        rows = self.rows(part, size)
        for at in range(0, rows.shape[1] - 1, self.window):
            end = min(at + self.window, rows.shape[1] - 1)
            yield Batch(input=rows[:, at:end], target=rows[:, at + 1 : end + 1], carry=True)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (*batch.target.shape, self.d_out))
        return F.cross_entropy(output.flatten(0, 1), batch.target.flatten())

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (*batch.target.shape, self.d_out))
        nats = F.cross_entropy(output.double().flatten(0, 1), batch.target.flatten(), reduction="sum")
        return {"nats_sum": nats.item(), "ids_n": float(batch.target.numel())}

    def finish(self, sums: Sums) -> Metrics:
        return {"nats": sums["nats_sum"] / sums["ids_n"]}

    def references(self) -> dict[str, Metrics]:
        counts = torch.bincount(self.streams["train"], minlength=self.d_in) + 1.0
        logits = (counts / counts.sum()).log()
        return {"unigram": score_reference(self, lambda batch: logits.expand(*batch.target.shape, self.d_in))}

    def oracle_nats(self) -> float:
        """The entropy of an id given the one `lag` places earlier."""
        echo = 1 - self.noise + self.noise / self.d_in
        p = torch.tensor([echo] + [self.noise / self.d_in] * (self.d_in - 1), dtype=torch.float64)
        return float(-(p * p.log()).sum())


class Communities(SmallTask):
    """Nodes of one graph: which community a node belongs to.

    Input (N, D): a one-hot community with strong noise; edges mostly within communities, so the mean over
    neighbours shows it. Target (N,); mask (N,) the nodes of the part. Each split has its own masks on the
    same graph.
    """

    readout: ClassVar[Readout] = "node"
    metric: ClassVar[str] = "accuracy"
    better: ClassVar[Better] = {"accuracy": "higher"}
    n_splits: ClassVar[int] = 2

    def __init__(self, *, n: int, n_classes: int, degree: int, noise: float, protocol: str) -> None:
        super().__init__(protocol)
        self.sizes = {"train": n // 2, "valid": n // 4, "test": n - n // 2 - n // 4}
        self.d_in = self.d_out = n_classes
        self.n, self.degree, self.noise = n, degree, noise

    def load(self, store: Store, split: int) -> None:
        rng = generator(7)
        label = torch.arange(self.n) % self.d_out
        self.label = label[torch.randperm(self.n, generator=rng)]
        self.x = F.one_hot(self.label, self.d_in) + self.noise * torch.randn(self.n, self.d_in, generator=rng)
        tail = torch.arange(self.n).repeat_interleave(self.degree)
        head = torch.randint(0, self.n, tail.shape, generator=rng)
        within = (self.label[tail] == self.label[head]) & (tail != head)
        one_way = torch.stack([tail[within], head[within]])
        self.edge_index = torch.cat([one_way, one_way.flip(0)], 1)
        order = torch.randperm(self.n, generator=generator(100 + split))
        chosen = order.split([self.sizes[part] for part in ("train", "valid", "test")])
        self.masks = {
            part: torch.zeros(self.n, dtype=torch.bool).index_fill(0, nodes, True)
            for part, nodes in zip(("train", "valid", "test"), chosen, strict=True)
        }

    def steps_per_epoch(self, size: int) -> int:
        return 1

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        yield Batch(input=self.x, target=self.label, mask=self.masks[part], edge_index=self.edge_index)

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, (self.n, self.d_out))
        return F.cross_entropy(output[batch.mask], batch.target[batch.mask])

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, (self.n, self.d_out))
        right = (output.argmax(-1) == batch.target)[batch.mask]
        return {"right_sum": float(right.sum()), "nodes_n": float(right.numel())}

    def finish(self, sums: Sums) -> Metrics:
        return {"accuracy": sums["right_sum"] / sums["nodes_n"]}

    def references(self) -> dict[str, Metrics]:
        ((majority, _),) = Counter(self.label[self.masks["train"]].tolist()).most_common(1)
        answer = F.one_hot(torch.full((self.n,), majority), self.d_out).float()
        return {
            "majority": score_reference(self, lambda batch: answer),
            "own features": score_reference(self, lambda batch: batch.input),
        }

    @staticmethod
    def oracle(batch: Batch) -> Tensor:
        assert batch.edge_index is not None
        return MeanConv.mean(batch.input, batch.edge_index)


class MeanConv(nn.Module):
    """A graph layer: tanh(W [x, mean of x over the neighbours] + b). x (N, D) -> (N, H)."""

    version: ClassVar[int] = 1

    def __init__(self, d_in: int, d_hidden: int) -> None:
        super().__init__()
        self.d_in, self.d_out = d_in, d_hidden
        self.linear = nn.Linear(2 * d_in, d_hidden)

    def forward(self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        return torch.tanh(self.linear(torch.cat([x, self.mean(x, edge_index, edge_weight)], -1)))

    @staticmethod
    def mean(x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None) -> Tensor:
        tail, head = edge_index
        weight = x.new_ones(len(tail)) if edge_weight is None else edge_weight
        total = torch.zeros_like(x).index_add(0, head, x[tail] * weight[:, None])
        return total / x.new_zeros(len(x)).index_add(0, head, weight).clamp(min=1e-9)[:, None]


class GraphNet(nn.Module):
    """One graph layer and a linear read-out at every node: (N, D) -> (N, C)."""

    def __init__(self, layer: Callable[[int], MeanConv], d_in: int, d_out: int) -> None:
        super().__init__()
        self.layer = layer(d_in)
        self.readout = nn.Linear(self.layer.d_out, d_out)

    def forward(
        self, x: Tensor, edge_index: Tensor, edge_weight: Tensor | None = None, batch: Tensor | None = None
    ) -> Tensor:
        return self.readout(self.layer(x, edge_index, edge_weight))


def small_tasks() -> dict[str, SmallTask]:
    """All four, at sizes that train in seconds."""
    return {
        "sign_of_sum": SignOfSum(n=64, length=12, protocol="clean"),
        "leaky_mean": LeakyMean(n=32, length=20, protocol="clean"),
        "echo": Echo(n=600, n_ids=4, lag=3, window=2, noise=0.1, protocol="clean"),
        "communities": Communities(n=120, n_classes=3, degree=20, noise=0.7, protocol="clean"),
    }
