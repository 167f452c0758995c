"""Check an environment with torch for CPUs alone: its size, and that a model can be trained in it."""

import os
import sys
import tempfile
from pathlib import Path

import torch

from physml.cli.main import main

MOST = 1.5 * 2**30  # bytes
RUN = ["run", "model=lem", "task=adding", "profile=smoke", "tracker=none"]


def size(folder: Path) -> int:
    """Bytes of all files below a folder."""
    return sum(path.lstat().st_size for path in folder.rglob("*") if not path.is_dir())


if __name__ == "__main__":
    taken = size(Path(sys.prefix))
    print(f"{sys.prefix}: torch {torch.__version__}, {taken / 2**30:.2f} GiB")
    if torch.version.cuda or taken > MOST:
        sys.exit("torch is built for GPUs, or the environment is larger than 1.5 GiB.")
    with tempfile.TemporaryDirectory() as folder:
        os.environ["PHYSML_RESULTS"] = folder
        sys.exit(main(RUN))
