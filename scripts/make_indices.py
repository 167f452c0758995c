"""Writes physml/data/index: permutations and splits that rest on old random number generators.

    python scripts/make_indices.py [--check]

The files are shipped, so that no run depends on what a generator draws today; this says how each was made.
`--check` writes nothing and fails where a file differs from what is drawn here.
"""

import argparse
import hashlib
import io
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np

from physml.base import files
from physml.data.splits import FOLDER, SUMS

PIXELS = 784
MNIST_TRAIN, CIFAR_TRAIN = 60_000, 50_000
WORMS, ECG_TEST = 259, 4500
RATES, SUBJECTS = 7949, 31
LARGEST_COMPONENTS, ORDERS = (2485, 2120, 19_717), 5  # Cora, Citeseer, Pubmed
SYN_CORA = 1490


def torch_permutation(n: int, seed: int) -> np.ndarray:
    """`torch.manual_seed(seed)`, then `torch.randperm(n)` on the CPU."""
    import torch

    return torch.randperm(n, generator=torch.Generator().manual_seed(seed)).numpy()


def numpy_permutation(n: int, seed: int) -> np.ndarray:
    return np.random.RandomState(seed).permutation(n)


def lem_worms() -> np.ndarray:
    """EigenWorms as in the LEM code: train (181), valid (39), test (39); positions in TRAIN followed by TEST.

    What scikit-learn's train_test_split draws with test_size 0.3, then 0.5, both with random_state 1234.
    """
    first, second = numpy_permutation(WORMS, 1234), numpy_permutation(78, 1234)
    train, held = first[78:], first[:78]
    return np.concatenate([train, held[second[39:]], held[second[:39]]])


def nrde_worms() -> np.ndarray:
    """EigenWorms as in the code of Morrill et al.: train (181), valid (39), test (39), positions as above.

    What scikit-learn's train_test_split draws with test_size 0.15, then 0.15 / 0.85, after np.random.seed(0).
    """
    rng = np.random.RandomState(0)
    first, second = rng.permutation(WORMS), rng.permutation(220)
    test, held = first[:39], first[39:]
    return np.concatenate([held[second[39:]], held[second[:39]], test])


def lem_rates() -> np.ndarray:
    """BIDMC of the TSR archive as in the LEM code: train (5565), valid (1192), test (1192); TRAIN, then TEST.

    What torch's random_split draws for 5565 and 2384, then test before valid, both with generator 123456.
    """
    first, second = torch_permutation(RATES, 123456), torch_permutation(2384, 123456)
    train, held = first[:-2384], first[-2384:]
    return np.concatenate([train, held[second[1192:]], held[second[:1192]]])


INDICES: dict[str, Callable[[], np.ndarray]] = {
    # Order of the pixels of psMNIST: coRNN, Lipschitz RNN; LEM, UnICORNN; expRNN.
    "psmnist-torch-12008": lambda: torch_permutation(PIXELS, 12008),
    "psmnist-torch-5544": lambda: torch_permutation(PIXELS, 5544),
    "psmnist-numpy-92916": lambda: numpy_permutation(PIXELS, 92916),
    # Training images held out for validation. The 2000 are those of the Lipschitz RNN, of MNIST and CIFAR-10;
    # the official 3000 depend on the network's initial weights, so these are our own.
    "mnist-valid-2000": lambda: numpy_permutation(MNIST_TRAIN, 1234)[-2000:],
    "mnist-valid-3000": lambda: numpy_permutation(MNIST_TRAIN, 1234)[-3000:],
    "cifar-valid-2000": lambda: numpy_permutation(CIFAR_TRAIN, 1234)[-2000:],
    "cifar-valid-3000": lambda: numpy_permutation(CIFAR_TRAIN, 1234)[-3000:],
    "eigenworms-lem": lem_worms,
    "eigenworms-nrde": nrde_worms,
    # Which 500 of the 4500 test beats validate: our own, for nobody says it.
    "ecg5000-valid": lambda: numpy_permutation(ECG_TEST, 1234)[:500],
    "bidmc-lem": lem_rates,
    # The order of the 31 subjects of PhysioNet's BIDMC from which splits are cut: our own.
    "bidmc-subjects": lambda: numpy_permutation(SUBJECTS, 1234),
    # Orders of nodes from which random splits are cut: our own, for those of the papers were not seeded.
    **{
        f"nodes-{n}-{k}": lambda n=n, k=k: numpy_permutation(n, k)  # type: ignore[misc]
        for n in LARGEST_COMPONENTS
        for k in range(ORDERS)
    },
    # Of synthetic Cora, as in the code of G2: the first half trains, a quarter validates, the rest tests.
    "syn-cora-123456": lambda: numpy_permutation(SYN_CORA, 123456),
    # Which 5000 training images of the superpixels validate: our own, for the official ones were not seeded.
    "superpixels-valid-5000": lambda: numpy_permutation(MNIST_TRAIN, 1234)[-5000:],
}


def content(index: np.ndarray) -> bytes:
    """Content of a .npy file, in the smallest type that holds the positions."""
    file = io.BytesIO()
    np.save(file, index.astype(np.uint16 if index.max() < 1 << 16 else np.uint32), allow_pickle=False)
    return file.getvalue()


def write(path: Path, content: bytes) -> None:
    files.write(path, lambda file: file.write(content))


def main() -> int:
    parser = argparse.ArgumentParser(description="Makes the files of physml/data/index.")
    parser.add_argument("--check", action="store_true", help="compare only; exit 1 where something differs")
    check = parser.parse_args().check
    files = {f"{name}.npy": content(draw()) for name, draw in INDICES.items()}
    files[SUMS.name] = "".join(
        f"{hashlib.sha256(data).hexdigest()}  {name}\n" for name, data in sorted(files.items())
    ).encode()
    differs = []
    for name, data in files.items():
        path = FOLDER / name
        if not path.is_file() or path.read_bytes() != data:
            differs.append(name)
            if not check:
                write(path, data)
    print(
        f"{len(files)} files, {len(differs)} {'differ' if check else 'written'}"
        + "".join(f"\n  {name}" for name in differs)
    )
    return int(check and bool(differs))


if __name__ == "__main__":
    sys.exit(main())
