"""A task with its data, and a part of it as one batch."""

from typing import TypeVar

from physml.data.store import Store
from physml.task.base import Part, Task
from physml.task.batch import Batch

T = TypeVar("T", bound=Task)


def with_data(task: T, store: Store, split: int = 0) -> T:
    task.load(store, split)
    return task


def whole(task: Task, part: Part = "train") -> Batch:
    (batch,) = task.batches(part, 100_000)
    return batch
