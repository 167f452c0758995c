"""EigenWorms: which of five strains a worm is, from how it moves.

Axes: N worms, B batch, T = 17984 steps, D = 6 shapes.
"""

from typing import ClassVar, Literal

import numpy as np
import torch

from physml.base.check import one_of, positive
from physml.base.errors import InputError
from physml.data import splits
from physml.data.readers.eigenworms import EIGENWORMS, LABELS, D
from physml.data.store import Arrays, Store
from physml.task.base import Part
from physml.task.sequences import Items, Labelled

# Of the 259 worms; the rest trains.
N_TRAIN, N_VALID, N_TEST = 181, 39, 39

SPLITS = {"official": ("lem", "nrde"), "clean": ("stratified",)}
ENTRIES_SEED = 1234  # of the random entries that are kept


class EigenWorms(Labelled):
    r"""Say whether a worm is of the wild type or of which of four mutants, after reading how it moves.

    Input (B, 17984, 6): the weights of six base shapes of the worm's body, as they are. Target (B,): 0..4.
    Loss: cross entropy at the last step. Metric: accuracy on 39 worms, so that one worm is 2.56 points.

    TRAIN and TEST of the archive are put in one row, 259 worms, and divided anew into 181, 39 and 39.

    Protocols:
      official, split_of "lem": as the LEM code does it, train_test_split of scikit-learn with random_state
        1234, not stratified. The code of UnICORNN expects files that were divided before. The texts of both
        say "the same split as Morrill et al.", but this is the only one that their authors published.
      official, split_of "nrde": what the code of Morrill et al. (neural rough differential equations) draws,
        from numpy's seed 0; another split than LEM's. With inputs "nrde" its inputs too: time in [0, 1]
        first, as it is, and the six channels standardised with mean and standard deviation of train.
      clean, split_of "stratified": split j draws the worms of each class from its own seed, so that every
        part has its share of each class. One split of 39 worms says little: five are there.

    Sub-sampling (UnICORNN, Figure 3; LEM, Table 11): `entries` of the steps are kept, in all parts: the last
    ones, or a random set of them in their order in time. The text does not say when the random ones are
    drawn: here once for each worm, the same in all runs.

    Defined in: target: LEM paper, section 5, "worms as belonging to either the wild-type or four different
    mutants", from 259 sequences of N = 17984; metric: test accuracy, mean of 5 starts, caption of Table 2;
    split: "70%, 15%, 15%", 39 for validation and for test, ibid.; thesis 3.3: "the same" as Morrill et al.

    Source: Rusch et al., LEM, ICLR 2022, https://arxiv.org/abs/2110.04744, Table 2; Rusch and Mishra,
    UnICORNN, ICML 2021, https://arxiv.org/abs/2103.05487; Morrill et al., https://arxiv.org/abs/2009.08295;
    data: Brown et al. 2013 in the UEA archive, https://arxiv.org/abs/1811.00075.

    Args: split_of: "lem", "nrde" or "stratified"; inputs: "raw" or "nrde"; entries: steps that are kept, or
        null for all; keep: which, "last" or "random"; protocol: "official" or "clean".
    """

    n_splits: ClassVar[int] = 5  # of protocol clean
    datasets = (EIGENWORMS,)

    def __init__(
        self,
        *,
        split_of: Literal["lem", "nrde", "stratified"],
        inputs: Literal["raw", "nrde"],
        entries: int | None,
        keep: Literal["last", "random"],
        protocol: Literal["official", "clean"],
    ) -> None:
        one_of("protocol", protocol, tuple(SPLITS))
        one_of("split_of", split_of, ("lem", "nrde", "stratified"))
        one_of("inputs", inputs, ("raw", "nrde"))
        one_of("keep", keep, ("last", "random"))
        if split_of not in SPLITS[protocol]:
            raise InputError(
                f"protocol={protocol} is divided as split_of={' or '.join(SPLITS[protocol])}; got {split_of}."
            )
        if entries is not None:
            positive("entries", entries)
        self.d_in = D + 1 if inputs == "nrde" else D
        self.d_out = self.n_classes = len(LABELS)
        self.split_of, self.inputs, self.protocol = split_of, inputs, protocol
        self.entries, self.keep = entries, keep

    def load(self, store: Store, split: int) -> None:
        if split and self.protocol != "clean":
            raise InputError(f"protocol={self.protocol} has one split, 0; got {split}. Use protocol=clean.")
        x, y = pooled(store.read(EIGENWORMS))
        order = (
            stratified(y, split)
            if self.split_of == "stratified"
            else splits.load_index(f"eigenworms-{self.split_of}")
        )
        where = splits.parted(order, N_TRAIN, N_VALID)
        if self.inputs == "nrde":
            x = timed(x, x[where["train"]])
        x = self._kept(x)
        parts: dict[Part, Items] = {
            part: (torch.from_numpy(x[worms]), torch.from_numpy(y[worms])) for part, worms in where.items()
        }
        self.place(parts, store)

    def _kept(self, x: np.ndarray) -> np.ndarray:
        """The entries that are read, (N, entries, D)."""
        n, steps, _ = x.shape
        if self.entries is None:
            return x
        if self.entries > steps:
            raise InputError(f"entries must be at most the {steps} steps of a worm; got {self.entries}.")
        if self.keep == "last":
            return x[:, steps - self.entries :]
        rng = np.random.RandomState(ENTRIES_SEED)
        chosen = np.stack([np.sort(rng.permutation(steps)[: self.entries]) for _ in range(n)])
        return np.take_along_axis(x, chosen[:, :, None], 1)


def pooled(arrays: Arrays) -> tuple[np.ndarray, np.ndarray]:
    """TRAIN, then TEST: x (N, T, D), y (N,)."""
    x, y = (np.concatenate([arrays[f"{k}_train"], arrays[f"{k}_test"]]) for k in "xy")
    return x, y


def stratified(y: np.ndarray, seed: int) -> np.ndarray:
    """All positions: N_TRAIN to train on, then N_VALID, then N_TEST, each class shared out evenly.

    Classes stand one behind the other, each shuffled; of the first c of these, N_TEST c / N test, rounded,
    and N_VALID c / N validate.
    """
    rng = np.random.RandomState(seed)
    parts: tuple[list[int], ...] = ([], [], [])
    seen = 0
    for label in range(len(LABELS)):
        those = rng.permutation(np.flatnonzero(y == label)).tolist()
        seen += len(those)
        for part, n in ((1, N_VALID), (2, N_TEST)):
            share = round(n * seen / len(y)) - len(parts[part])
            parts[part].extend(those[:share])
            those = those[share:]
        parts[0].extend(those)
    return np.array([i for part in parts for i in part])


def timed(x: np.ndarray, train: np.ndarray) -> np.ndarray:
    """Time from 0 to 1, then the channels with mean 0 and standard deviation 1 in train; (N, T, D + 1)."""
    mean, std = (f(train, (0, 1), dtype=np.float64) for f in (np.mean, np.std))
    time = np.broadcast_to(np.linspace(0.0, 1.0, x.shape[1])[:, None], (*x.shape[:2], 1))
    return np.concatenate([time, (x - mean) / std], 2).astype(np.float32)
