"""Associative recall: pairs of a key and a value, and then a key. Axes: N sequences, T steps, D symbols."""

from typing import Literal

import torch
from torch import Generator
from torch.nn import functional as F

from physml.base.check import each, one_of, positive
from physml.base.errors import InputError
from physml.data.store import Store
from physml.task.base import Part
from physml.task.sequences import Items, Labelled

PART_NUMBER: dict[Part, int] = {"train": 0, "valid": 1, "test": 2}


class Recall(Labelled):
    r"""Say which value stood behind a key.

    .. math:: k_1, v_1, k_2, v_2, \dots, k_n, v_n, k_i \mapsto v_i

    Input (B, 2 n_pairs + 1, n_keys + n_values): each step is one symbol, a key or a value, with a 1 at its
    place. The keys of a sequence are different; the values need not be. Target (B,): 0..n_values - 1. Loss:
    cross entropy at the last step. Metric: accuracy; a guess has 1 / n_values, and whoever remembers m of the
    n pairs, and guesses else, has m / n + (1 - m / n) / n_values.

    Protocol clean: three fixed sets, drawn with `data_seed`.

    Defined in: target, metric and split: here; the question after the pairs is that of Ba et al., section
    4.1.

    Source: Ba et al., NeurIPS 2016, https://arxiv.org/abs/1610.06258, section 4.1; with more than one
    question, Arora et al., ICLR 2024, https://arxiv.org/abs/2312.04927. The sizes are chosen here.

    Args:
        n_pairs: pairs of a sequence.
        n_keys: different keys, at least n_pairs.
        n_values: different values.
        n_train: sequences of train.
        n_eval: sequences of valid, and of test.
        data_seed: seed of all sequences.
        protocol: "clean".
    """

    files = ()

    def __init__(
        self,
        *,
        n_pairs: int,
        n_keys: int,
        n_values: int,
        n_train: int,
        n_eval: int,
        data_seed: int,
        protocol: Literal["clean"],
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        each(positive, n_pairs=n_pairs, n_train=n_train, n_eval=n_eval)
        if n_keys < n_pairs:
            raise InputError(
                f"n_keys must be at least n_pairs = {n_pairs}: keys are different; got {n_keys}."
            )
        if n_values < 2:
            raise InputError(f"n_values must be at least 2, or there is nothing to recall; got {n_values}.")
        self.d_in, self.d_out, self.n_classes, self.protocol = n_keys + n_values, n_values, n_values, protocol
        self.n_pairs, self.n_keys, self.n_values = n_pairs, n_keys, n_values
        self.n_train, self.n_eval, self.data_seed = n_train, n_eval, data_seed

    def load(self, store: Store, split: int) -> None:
        self.place({part: self._draw(part) for part in PART_NUMBER}, store)

    def _draw(self, part: Part) -> Items:
        rng = Generator().manual_seed(10 * self.data_seed + PART_NUMBER[part])
        n = self.n_train if part == "train" else self.n_eval
        keys = torch.rand(n, self.n_keys, generator=rng).argsort(1)[:, : self.n_pairs]
        values = torch.randint(0, self.n_values, (n, self.n_pairs), generator=rng)
        asked = torch.randint(0, self.n_pairs, (n, 1), generator=rng)
        pairs = torch.stack([keys, self.n_keys + values], 2).flatten(1)
        symbols = torch.cat([pairs, keys.gather(1, asked)], 1)
        return F.one_hot(symbols, self.d_in).float(), values.gather(1, asked).squeeze(1)
