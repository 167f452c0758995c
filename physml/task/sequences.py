"""Tasks whose sequences lie in memory, with one label or one number each.

Axes: N items, B batch, T time, D features, C classes.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import torch
from torch import Generator, Tensor
from torch.nn import functional as F

from physml.base.check import has_shape, positive
from physml.base.errors import DataError, InputError
from physml.data.files.labels import in_both
from physml.data.splits import Part
from physml.data.store import Store
from physml.task.base import Better, Metrics, Readout, Sums, Task, refuse_empty, refuse_parts, tensor
from physml.task.batch import Batch
from physml.task.classes import Classes, refuse_labels
from physml.task.trivial import score_reference

MOST_COMPARED = 2**26  # bytes of a set that is looked through for items that stand in two parts

# Inputs (N, T, D), or ids (N, T); targets (N,); and the true lengths (N,) of padded sequences.
Items = tuple[Tensor, Tensor] | tuple[Tensor, Tensor, Tensor]


class InMemory(Task):
    """Items of which a batch is any selection; the base of `Labelled` and `Valued`.

    A subclass sets `d_in`, `d_out` and `protocol`, and calls `place` in `load`. It may override `prepare`,
    which makes network inputs of what is stored, and `selections`, which says what the batches are made of.
    """

    readout: ClassVar[Readout] = "last"

    def place(self, parts: Mapping[Part, Items], store: Store) -> None:
        """Take the data of one split, tensors or NumPy arrays; DataError where they cannot be right."""
        self.require("d_in")
        refuse_parts(type(self).__name__, parts)
        for part, items in parts.items():
            if not isinstance(items, tuple | list) or len(items) not in (2, 3):
                got = f"{len(items)} of them" if isinstance(items, tuple | list) else type(items).__name__
                raise InputError(
                    f"{type(self).__name__}, part {part}: expected inputs, targets and, of padded sequences, "
                    f"lengths: (x, y) or (x, y, lengths); got {got}."
                )
        self._items = {part: _tensors(items) for part, items in parts.items()}
        self.sizes = {part: len(items[0]) for part, items in parts.items()}
        refuse_empty(type(self).__name__, "items", self.sizes)
        for part, (x, y, lengths) in self._items.items():
            name = f"{type(self).__name__}, part {part}"
            if y.shape != (len(x),) or (lengths is not None and lengths.shape != (len(x),)):
                raise DataError(
                    f"{name}: {len(x)} inputs need as many targets and lengths; got {tuple(y.shape)}."
                )
            _check_input(name, x, self.d_in, self.tokens)
        self._facts = self.data_facts(store)
        known = [rows for part in ("train", "valid") if part in self._items for rows in self._rows(part)]
        self.tell_leaks(in_both(known, self._rows("test")), "items")

    def _rows(self, part: str) -> list[np.ndarray]:
        """The inputs of a part at their true lengths; none of a set that is too large to compare."""
        x, _, lengths = self._items[part]  # type: ignore[index]
        if sum(items[0].nbytes for items in self._items.values()) > MOST_COMPARED:
            return []
        rows = list(x.cpu().numpy())
        return rows if lengths is None else [row[:n] for row, n in zip(rows, lengths.tolist(), strict=True)]

    def to(self, device: str) -> None:
        self._items = {
            part: tuple(t if t is None else t.to(device) for t in items)  # type: ignore[misc]
            for part, items in self._items.items()
        }

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        """Batches as in `Task.batches`; none if the part is absent, such as when no item is held out."""
        positive("size", size)
        if part not in self.sizes:
            return
        x, y, lengths = self._items[part]
        for index in self.selections(part, size, rng):
            index = index.to(x.device)
            input, n = x[index], None if lengths is None else lengths[index]
            if n is not None:
                input = input[:, : int(n.max())]
            yield self.prepare(Batch(input=input, target=y[index], index=index, lengths=n), part)

    def prepare(self, batch: Batch, part: Part) -> Batch:
        """From stored items to network inputs: scaling, order of steps, padding. Here: as float32."""
        if self.tokens or batch.input.dtype == torch.float32:
            return batch
        return replace(batch, input=batch.input.float())


class Labelled(Classes, InMemory):
    """Sequences with one class each: loss, score and output are those of `Classes`.

    Shapes: input (B, T, D) or ids (B, T); target (B,) int64.
    """

    def place(self, parts: Mapping[Part, Items], store: Store) -> None:
        super().place(parts, store)
        refuse_labels(self, {part: y for part, (_, y, _) in self._items.items()})

    def disturb(self, names: Iterable[str]) -> None:
        """Have test scored under these perturbations too, each by an accuracy of its own."""
        self.perturbations = tuple(names)
        disturbed: Better = {f"accuracy_{name}": "higher" for name in self.perturbations}
        self.better = Labelled.better | disturbed  # type: ignore[misc]

    def references(self) -> dict[str, Metrics]:
        """The shares of the classes in train as the answer to all: the accuracy of the most frequent class.

        A class that train lacks counts as half an item, for its cross entropy would be infinite. The answer
        is the same where test is disturbed.
        """
        y = self._items["train"][1]
        logits = torch.bincount(y, minlength=self.n_classes).clamp(min=0.5).float().log().log_softmax(0)
        if self.one_logit:
            logits = (logits[1] - logits[0]).reshape(1)
        metrics = score_reference(self, lambda b: logits.expand(len(b.target), -1))
        disturbed = {f"accuracy_{name}": metrics["accuracy"] for name in self.perturbations}
        return {"majority class": metrics | disturbed}


class Valued(InMemory):
    """Sequences with one number each. Loss: MSE. Metrics: rmse and mae, in the unit of the target.

    Shapes: input (B, T, D); target (B, 1); output (B, 1).
    """

    metric: ClassVar[str] = "rmse"
    better: ClassVar[Better] = {"rmse": "lower", "mae": "lower"}

    def place(self, parts: Mapping[Part, Items], store: Store) -> None:
        super().place(parts, store)
        for part, (_, y, _) in self._items.items():
            if not torch.isfinite(y).all():
                raise DataError(f"{type(self).__name__}, part {part}: targets must be finite numbers.")

    def batches(self, part: Part, size: int, rng: Generator | None = None) -> Iterator[Batch]:
        for batch in super().batches(part, size, rng):
            yield replace(batch, target=batch.target.float().unsqueeze(1))

    def loss(self, output: Tensor, batch: Batch) -> Tensor:
        has_shape("output", output, tuple(batch.target.shape))
        return F.mse_loss(output, batch.target)

    def score(self, output: Tensor, batch: Batch) -> Sums:
        has_shape("output", output, tuple(batch.target.shape))
        error = output.detach().double() - batch.target.double()
        return {
            "square_sum": error.square().sum().item(),
            "absolute_sum": error.abs().sum().item(),
            "n": len(error),
        }

    def finish(self, sums: Sums) -> Metrics:
        if not sums:
            return {}
        return {"rmse": (sums["square_sum"] / sums["n"]) ** 0.5, "mae": sums["absolute_sum"] / sums["n"]}

    def references(self) -> dict[str, Metrics]:
        """The mean of train as the answer to all."""
        mean = self._items["train"][1].float().mean()
        return {"constant": score_reference(self, lambda batch: mean.expand_as(batch.target))}


def _tensors(items: Items) -> tuple[Tensor, Tensor, Tensor | None]:
    """Input, target and lengths; an input that is a tensor, of bytes say, stays as it is."""
    x, y, *lengths = items
    return x if isinstance(x, Tensor) else tensor(x), tensor(y), tensor(lengths[0]) if lengths else None


def _check_input(name: str, x: Tensor, d_in: int, tokens: bool) -> None:
    if tokens:
        if x.dtype != torch.int64 or x.dim() != 2:
            raise InputError(f"{name}: ids must be int64 with axes (N, T); got {x.dtype} {tuple(x.shape)}.")
        if x.min() < 0 or x.max() >= d_in:
            raise DataError(
                f"{name}: ids must be from 0 to {d_in - 1}; got {x.min().item()} to {x.max().item()}."
            )
        return
    if x.dim() != 3:
        raise InputError(f"{name}: inputs must have axes (N, T, D); got {tuple(x.shape)}.")
    if x.is_floating_point():
        bad = ~torch.isfinite(x).flatten(1).all(1)
        if n := bad.sum().item():
            raise DataError(
                f"{name}: NaN or infinite values in {n} item{'s' * (n > 1)}, first at {bad.int().argmax()}."
            )
