"""Google12: which of ten words is spoken, if any. Axes: N clips, B batch, T = 126 frames, D = 80 bands."""

import numpy as np
import torch
from torch import Tensor

from physml.base.check import one_of, seed
from physml.base.errors import DataError, InputError
from physml.data.readers.speech_commands import COMMANDS, LENGTH, PARTS, RATE, SPEECH_COMMANDS, WORDS
from physml.data.spectrograms import N_FRAMES, N_MELS, log_mel
from physml.data.store import Arrays, Store
from physml.task.base import Part
from physml.task.sequences import Items, Labelled

UNKNOWN, SILENCE = 0, 1
CLASSES = ("unknown", "silence", *COMMANDS)
LABEL = torch.tensor([CLASSES.index(word) if word in COMMANDS else UNKNOWN for word in WORDS])  # by word

ONE_IN = 10  # clean: one unknown and one silent clip for each ten with a command
STRETCHES = {"train": (0.0, 0.8), "valid": (0.8, 0.9), "test": (0.9, 1.0)}  # clean: of each recording
CHUNK = 256  # clips whose features are computed at once


class Google12(Labelled):
    """Twelve classes of Google Speech Commands v0.02: ten words, unknown (0) and silence (1).

    Input (B, 126, 80): log-mel features, see `physml.data.spectrograms`. Target (B,): position in
    CLASSES. The parts are those of the lists in the data set, which keep the clips of a speaker together.
    Loss: cross entropy. Metrics: accuracy over all items of a part, and cross_entropy.

    Protocols, which differ in what is counted as unknown and as silence:

    - official, as in the LEM code. Unknown are all clips of the 25 other words, so 63 % of the test part.
      Silence are the recordings of noise, in train alone, each brought to decibels with the loudest entry of
      the whole recording and then cut to its first second. So no test item is silent, and always answering
      "unknown" scores not far below the 73.4 % that the paper prints for the tanh RNN.
    - clean, the usual convention of twelve classes: in each part one unknown and one silent clip for each ten
      with a command, rounded up. Unknown are drawn without repetition; silence are random seconds of noise,
      for train of the first 80 % of each recording, for valid of the next 10 %, for test of the last.

    Defined in: target: LEM paper, section 5, "the 12-label task (Google12)"; no class is named; metric: test
    accuracy, caption of Table 5; split: "the pre-defined splitting of the data set", section 5.

    Source: LEM, https://arxiv.org/abs/2110.04744, Table 5; its code; data: https://arxiv.org/abs/1804.03209.
    Not known: whether the printed baselines were trained with the classes of the official code; the text
    names the 12-label task and the predefined split, and no class.
    Cost: `load` computes all features, 1 to 2 ms a clip on one CPU core, and keeps them in memory, 40 KB a
    clip: two to three minutes and 4.3 GB for the whole set, beside its 3.4 GB of samples while they are read.
    To compute them anew in every pass would take three times as long as the steps of LEM themselves.

    Args: protocol: official or clean; data_seed: of the draws of clean; null for official, which draws none.
    """

    datasets = (SPEECH_COMMANDS,)

    def __init__(self, *, protocol: str, data_seed: int | None) -> None:
        one_of("protocol", protocol, ("official", "clean"))
        if (data_seed is None) != (protocol == "official"):
            raise InputError(
                "data_seed must be null for protocol official, which draws nothing, and a number for clean; "
                f"got {data_seed} for {protocol}."
            )
        seed("data_seed", data_seed or 0)
        self.protocol, self.data_seed = protocol, data_seed
        self.d_in, self.d_out = N_MELS, len(CLASSES)
        self.n_classes = len(CLASSES)

    def load(self, store: Store, split: int) -> None:
        arrays = store.read(SPEECH_COMMANDS)
        make = self._official if self.protocol == "official" else self._clean
        clips = np.split(np.arange(arrays["sizes"].sum()), np.cumsum(arrays["sizes"])[:-1])
        parts: dict[Part, Items] = {
            part: make(arrays, part, rows)  # type: ignore[misc]
            for part, rows in zip(PARTS, clips, strict=True)
        }
        self.place(parts, store)

    def _official(self, arrays: Arrays, part: str, clips: np.ndarray) -> tuple[Tensor, Tensor]:
        """All clips; in train, also the recordings of noise, each cut after its features were made."""
        y = LABEL[arrays["word"][clips].astype(np.int64)]
        recordings = _recordings(arrays) if part == "train" else []
        x = torch.empty(len(clips) + len(recordings), N_FRAMES, N_MELS)
        _features(arrays["wave"], arrays["length"], clips, x)
        for row, recording in zip(x[len(clips) :], recordings, strict=True):
            row.copy_(log_mel(_floats(recording)[None], torch.tensor([len(recording)]))[0])
        return x, torch.cat([y, torch.full((len(recordings),), SILENCE)])

    def _clean(self, arrays: Arrays, part: str, clips: np.ndarray) -> tuple[Tensor, Tensor]:
        """All clips with a command, and for each ten of these one other and one second of noise."""
        rng = np.random.RandomState([self.data_seed or 0, PARTS.index(part)])
        y = LABEL[arrays["word"][clips].astype(np.int64)].numpy()
        commands, others = clips[y != UNKNOWN], clips[y == UNKNOWN]
        n = -(-len(commands) // ONE_IN)
        chosen = np.sort(np.concatenate([commands, rng.permutation(others)[:n]]))
        silence = _seconds_of_noise(arrays, part, n, rng)
        x = torch.empty(len(chosen) + n, N_FRAMES, N_MELS)
        _features(arrays["wave"], arrays["length"], chosen, x)
        _features(silence, np.full(n, LENGTH), np.arange(n), x[len(chosen) :])
        return x, torch.cat([LABEL[arrays["word"][chosen].astype(np.int64)], torch.full((n,), SILENCE)])


def _features(wave: np.ndarray, length: np.ndarray, rows: np.ndarray, into: Tensor) -> None:
    """Write features of the clips in some rows of `wave`, a few at a time, into the first rows of `into`."""
    for start in range(0, len(rows), CHUNK):
        some = rows[start : start + CHUNK]
        features = log_mel(_floats(wave[some]), torch.from_numpy(length[some].astype(np.int64)))
        into[start : start + len(some)] = features


def _floats(samples: np.ndarray) -> Tensor:
    """Samples of 16 bits as numbers in [-1, 1)."""
    return torch.from_numpy(samples).float() / 32768


def _recordings(arrays: Arrays) -> list[np.ndarray]:
    return np.split(arrays["noise"], np.cumsum(arrays["noise_length"])[:-1])


def _seconds_of_noise(arrays: Arrays, part: str, n: int, rng: np.random.RandomState) -> np.ndarray:
    """n times 16,000 samples (n, 16000), from the stretch of the recordings that belongs to a part."""
    low, high = STRETCHES[part]
    stretches = [
        recording[int(low * len(recording)) : int(high * len(recording))] for recording in _recordings(arrays)
    ]
    shortest = min(map(len, stretches))
    if shortest < LENGTH:
        raise DataError(
            f"speech_commands: a recording of noise leaves {shortest / RATE:.1f} s for {part}, and clean "
            "needs a second. Get it again: `physml data get speech_commands`."
        )
    noise = np.empty((n, LENGTH), np.int16)
    for row in noise:
        stretch = stretches[rng.randint(len(stretches))]
        start = rng.randint(len(stretch) - LENGTH + 1)
        row[:] = stretch[start : start + LENGTH]
    return noise
