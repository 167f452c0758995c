"""Parity: one bit to keep, whatever the length. Axes: N sequences, T steps."""

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Generator, Tensor

from physml.base.check import each, one_of, positive
from physml.base.errors import InputError
from physml.data.store import Store
from physml.task.base import Part
from physml.task.sequences import Items, Labelled

PART_NUMBER: dict[Part, int] = {"train": 0, "valid": 1, "test": 2}


class Parity(Labelled):
    r"""Say whether a sequence of bits has an even or an odd number of ones.

    .. math:: y = x_1 \oplus x_2 \oplus \dots \oplus x_T

    Input (B, T, 1): -1 for the bit 0 and 1 for the bit 1; sequences have different lengths, and shorter ones
    are padded with 0 behind their end. Target (B,): 0 for even, 1 for odd. Loss: cross entropy at the last
    true step. Metric: accuracy; a guess has one half.

    Training lengths are drawn from `lengths`, and so are those of valid. Test sequences are longer than any
    of training, from `test_lengths`: what counts bits up to a length, or remembers sequences, fails on them,
    and what has found the two states of the parity does not. A recurrence that is linear in its state, with
    real positive eigenvalues, cannot have these two states.

    Protocol clean: three fixed sets, drawn with `data_seed`.

    Defined in: target, metric and split: here; parity of bits as in Deletang et al., tested on
    lengths beyond those of training.

    Source: as a test of sequence models, Beck et al., xLSTM, NeurIPS 2024, https://arxiv.org/abs/2405.04517,
    and Deletang et al., ICLR 2023, https://arxiv.org/abs/2207.02098. The sizes are chosen here.

    Args:
        lengths: [shortest, longest] sequence of train and valid.
        test_lengths: [shortest, longest] sequence of test.
        n_train: sequences of train.
        n_eval: sequences of valid, and of test.
        data_seed: seed of all sequences.
        protocol: "clean".
    """

    files = ()

    def __init__(
        self,
        *,
        lengths: Sequence[int],
        test_lengths: Sequence[int],
        n_train: int,
        n_eval: int,
        data_seed: int,
        protocol: Literal["clean"],
    ) -> None:
        one_of("protocol", protocol, ("clean",))
        each(positive, n_train=n_train, n_eval=n_eval)
        for name, bounds in (("lengths", lengths), ("test_lengths", test_lengths)):
            if len(bounds) != 2 or not 1 <= bounds[0] <= bounds[1]:
                raise InputError(f"{name} must be [shortest, longest], from 1 on; got {list(bounds)}.")
        self.d_in, self.d_out, self.n_classes, self.protocol = 1, 2, 2, protocol
        self.n_train, self.n_eval, self.data_seed = n_train, n_eval, data_seed
        self.lengths, self.test_lengths = tuple(lengths), tuple(test_lengths)

    def load(self, store: Store, split: int) -> None:
        self.place({part: self._draw(part) for part in PART_NUMBER}, store)

    def _draw(self, part: Part) -> Items:
        rng = Generator().manual_seed(10 * self.data_seed + PART_NUMBER[part])
        shortest, longest = self.test_lengths if part == "test" else self.lengths
        n = self.n_train if part == "train" else self.n_eval
        bits = torch.randint(0, 2, (n, longest), generator=rng)
        lengths = torch.randint(shortest, longest + 1, (n,), generator=rng)
        present = torch.arange(longest) < lengths[:, None]
        return (torch.where(present, 2 * bits - 1, 0).float().unsqueeze(-1), parity(bits, present), lengths)


def parity(bits: Tensor, present: Tensor) -> Tensor:
    """0 where the number of ones among the bits that are there is even, else 1; (N, T) each -> (N,)."""
    return (bits * present).sum(1) % 2
