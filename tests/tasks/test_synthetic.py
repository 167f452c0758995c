"""Parity and recall: targets by loops of their own, and what the sets promise."""

from typing import Any

import pytest
from loaded_tasks import whole, with_data

from physml.data.store import Store
from physml.task.base import Part
from tasks.parity import Parity
from tasks.recall import Recall

PARITY: dict[str, Any] = {"lengths": [2, 9], "test_lengths": [10, 20]}
RECALL: dict[str, Any] = {"n_pairs": 3, "n_keys": 5, "n_values": 4}
SETS: dict[str, Any] = {"n_train": 50, "n_eval": 40, "data_seed": 7, "protocol": "clean"}


@pytest.mark.parametrize("part", ["valid", "test"])
def test_parity_counts_ones_and_recall_has_the_value_behind_the_key(part: Part, store: Store) -> None:
    batch = whole(with_data(Parity(**PARITY, **SETS), store), part)
    assert batch.lengths is not None
    shortest, longest = PARITY["test_lengths" if part == "test" else "lengths"]
    for x, y, n in zip(batch.input, batch.target, batch.lengths, strict=True):
        steps = x[: int(n), 0].tolist()
        assert shortest <= n <= longest and {*steps} <= {-1.0, 1.0} and not x[int(n) :].any()
        assert y.item() == steps.count(1.0) % 2
    assert 0 < batch.target.float().mean() < 1, "both answers occur"
    batch = whole(with_data(Recall(**RECALL, **SETS), store), part)
    assert batch.input.shape == (40, 7, 9) and (batch.input.sum(2) == 1).all()
    for symbols, y in zip(batch.input.argmax(2).tolist(), batch.target.tolist(), strict=True):
        behind = dict(zip(symbols[:-1:2], symbols[1:-1:2], strict=True))
        assert len(behind) == 3, "keys of a sequence are different"
        assert behind[symbols[-1]] == 5 + y
