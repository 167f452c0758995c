"""The selected weights of a run, kept by `runtime.save_model=true`, and the way back to a network.

`model.safetensors` in the run's work folder holds the weights, and as metadata the config and the sizes that
the task gave, so that the network is built without its data. The record says where it is.
"""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from physml import files
from physml.errors import DataError, RecordError
from physml.execution.run_spec import RunSpec
from physml.paths import display_path, work_root
from physml.records import record

if TYPE_CHECKING:
    from torch import nn

NAME = "model.safetensors"
KEY = "physml"  # of the metadata
SIZES = ("d_in", "d_out", "readout", "tokens")  # of the task, which the network needs


def save(spec: RunSpec, task: Any, net: "nn.Module") -> str:
    """Write the present weights of `net` into the work folder; the path below the folder of all runs."""
    from safetensors.torch import save_model  # which knows shared weights

    about = {
        "config": spec.config,
        "identity": spec.place.identity,
        "sizes": {name: getattr(task, name) for name in SIZES},
        "vectors": None if task.vectors is None else list(task.vectors.shape),
    }
    with files.writing(spec.work_folder / NAME) as temporary:
        save_model(net, str(temporary), {KEY: json.dumps(about)})
    return f"{spec.place.folder}/{spec.place.stem}/{NAME}"


def path_of(made: Mapping[str, Any]) -> Path:
    """Where the weights of a recorded run lie: below PHYSML_RUNS, or runs/. DataError if none were kept."""
    if not made.get("weights"):
        raise DataError(
            f"{made['experiment']} split {made['split']} seed {made['seed']} kept no weights. Train it again "
            "with runtime.save_model=true and --force."
        )
    return work_root() / made["weights"]


def load(run: str | Path | Mapping[str, Any], *, plugins: Sequence[str | Path] = ()) -> "nn.Module":
    """The trained network of a run, on the CPU and in evaluation mode.

    Weights are kept by `physml run ... runtime.save_model=true` alone.

    Args:
        run: a record, the path of its JSON file, or the path of a `model.safetensors`.
        plugins: the files of your own that the run was made with. They are run as code, so name only files
            that you trust; a file of weights cannot name any itself.

    Errors: DataError where no weights were kept; RecordError for a file that is neither.

    Example:
        >>> net = load("results/runs/adhoc/mine/0a1b2c3d-split0-seed0.json")  # doctest: +SKIP
    """
    if isinstance(run, Mapping):
        path = path_of(run)
    elif Path(run).suffix == ".safetensors":
        path = Path(run)
    else:
        path = path_of(record.read(Path(run)))
    if not path.is_file():
        raise DataError(
            f"{display_path(path)} is not there. Set PHYSML_RUNS to the folder of runs that has it, or train "
            "the run again with runtime.save_model=true and --force."
        )
    return _built(path, [str(Path(p).expanduser().absolute()) for p in plugins])


def _built(path: Path, plugins: list[str]) -> "nn.Module":
    import torch
    from safetensors import SafetensorError, safe_open
    from safetensors.torch import load_model

    from physml.config import build

    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
        config, vectors = {**about["config"], "plugins": plugins}, about["vectors"]
        sizes = {name: about["sizes"][name] for name in SIZES}
    except (SafetensorError, OSError, KeyError, TypeError, ValueError) as error:
        raise RecordError(f"{display_path(path)} is not a network that physml has kept: {error}.") from error
    task = SimpleNamespace(**sizes, vectors=None if vectors is None else torch.zeros(vectors))
    with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced
        net = build.build_net(build.parts_of(config), task)
    try:
        load_model(net, path)
    except (RuntimeError, SafetensorError) as error:
        raise RecordError(f"{display_path(path)} does not fit the network of its config: {error}.") from error
    return net.eval()
