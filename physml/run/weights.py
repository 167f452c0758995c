"""The selected weights of a run, kept by `runtime.save_model=true`, and the way back to a network.

`model.safetensors` in the run's work folder holds the weights, and as metadata the config and the sizes that
the task gave, so that the network is built without its data. The record says where it is.

Those of some runs come under the names of their experiments: `lem/adding-5000-lem-short` is
results/weights/lem/adding-5000-lem-short.safetensors, with a card beside it: the run, its scores, and the
checksum of the file. A wheel has the same.
"""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from physml.base import files
from physml.base.errors import DataError, InputError, PhysmlError, RecordError
from physml.base.paths import OWN_RESULTS, PACKAGE, display_path, expanded, results_root, work_root
from physml.config import conf_files
from physml.config.load import walk
from physml.run.named import record_of
from physml.run.spec import RunSpec

if TYPE_CHECKING:
    from torch import nn

    from physml.config.build import Parts

SUFFIX = ".safetensors"
NAME = f"model{SUFFIX}"
KEY = "physml"  # of the metadata
SMALL = 10_000  # layers or units that any file may have, whatever its size
DAMAGED = (  # what building the network of a damaged config may raise
    *(KeyError, TypeError, AttributeError, ValueError),
    *(RuntimeError, OverflowError, MemoryError, RecursionError),
)
SIZES = ("d_in", "d_out", "readout", "tokens")  # of the task, which the network needs


@dataclass(frozen=True)
class About:
    """Facts in a file of weights about its network.

    config: of the run. sizes: of its task, by the names in `SIZES`, and n_nodes where the network knows one
    graph alone. vectors: the shape of the given vectors of ids, if there are any. n_numbers: in all its
    tensors together.
    """

    config: dict[str, Any]
    identity: str
    sizes: dict[str, Any]
    vectors: tuple[int, ...] | None
    n_numbers: int


def save(spec: RunSpec, task: Any, net: "nn.Module") -> str:
    """Write the present weights of `net` into the work folder; the path below the folder of all runs."""
    from safetensors.torch import save_model  # which knows shared weights

    sizes = {name: getattr(task, name) for name in SIZES}
    if hasattr(getattr(net, "stack", None), "n_nodes"):  # it knows one graph alone
        sizes["n_nodes"] = task.n_nodes
    about = {
        "config": conf_files.without_places(spec.config),
        "identity": spec.place.identity,
        "sizes": sizes,
        "vectors": None if task.vectors is None else list(task.vectors.shape),
    }
    with files.writing(spec.work_folder / NAME) as temporary:
        save_model(net, str(temporary), {KEY: json.dumps(about)})
    return f"{spec.place.folder}/{spec.place.stem}/{NAME}"


def path_of(recorded: Mapping[str, Any]) -> Path:
    """Path of the weights of a recorded run. DataError if none were kept.

    They are looked for beside its record, as `NAME` in a folder with the name of the record; then in the
    folder `runs` beside the results that the record is in; then below PHYSML_RUNS or runs/.
    """
    if not recorded.get("weights"):
        raise DataError(
            f"{recorded['experiment']} split {recorded['split']} seed {recorded['seed']} kept no weights. "
            "Train it again with runtime.save_model=true and --force."
        )
    places = [work_root() / recorded["weights"]]
    if recorded.get("path"):
        record = Path(recorded["path"]).absolute()
        above = [folder.parent for folder in record.parents if folder.name == "runs"]  # of the results
        beside = [results.parent / "runs" / recorded["weights"] for results in above]
        places = [record.with_suffix("") / NAME, *beside, *places]
    return next((place for place in places if place.is_file()), places[-1])


def kept_of(name: str) -> Path | None:
    """The kept weights of an experiment, of this checkout or working folder before those of the wheel."""
    if not conf_files.is_id(name):
        return None
    folders = (results_root() / "weights", OWN_RESULTS / "weights", PACKAGE / "_weights")
    return next((path for folder in folders if (path := folder / f"{name}{SUFFIX}").is_file()), None)


def weights_of(run: str | Path | Mapping[str, Any]) -> Path:
    """The file of the weights of a run; arguments as in `load`. DataError where it is not there."""
    recorded: Mapping[str, Any] = {}
    if not isinstance(run, str | Path | Mapping):
        raise InputError(f"load takes the name of a run, a path or a record; got {run!r}.")
    folder = None if isinstance(run, Mapping) else expanded(str(run))
    if folder and folder.suffix == SUFFIX:
        path = folder
    elif folder and (folder / NAME).is_file():
        path = folder / NAME
    elif kept := kept_of(str(run)):
        path = kept
    else:
        recorded = run if isinstance(run, Mapping) else record_of(str(run))
        path = path_of(recorded)
    if not path.is_file():
        record = recorded.get("path")
        beside = f" It is not beside {display_path(Path(record))} either." if record else ""
        raise DataError(
            f"{display_path(path)} is not there. Set PHYSML_RUNS to the folder of runs that has it, or train "
            f"the run again with runtime.save_model=true and --force.{beside}"
        )
    return path


def load(run: str | Path | Mapping[str, Any], *, plugins: Sequence[str | Path] = ()) -> "nn.Module":
    """The trained network of a run, on the CPU and in evaluation mode.

    Weights are kept by `physml run ... runtime.save_model=true`; those of some runs of the tables come with
    physml, under the names of their experiments (results/weights).

    Args:
        run: the name of an experiment, such as "lem/adding-5000-lem-short"; a record; the path of its JSON
            file, of a `model.safetensors` or of a folder with one, such as
            `physml export --to safetensors` writes; or the name of a run, as `physml export` takes it.
        plugins: the files of your own that the run was made with. They are run as code, so name only files
            that you trust; a file of weights cannot name any itself.

    Errors: ConfigError for a name that no run has; DataError where no weights were kept; RecordError for a
    file that is no record and no network, or whose weights do not fit its config.

    Example:
        >>> net = load("results/runs/adhoc/mine/0a1b2c3d-split0-seed0.json")  # doctest: +SKIP
    """
    return built(weights_of(run), plugins)


def read_about(path: Path) -> About:
    """Read the facts in a file of weights. RecordError for a file that physml has not written."""
    from safetensors import SafetensorError, safe_open

    try:
        with safe_open(path, "pt") as file:
            about = json.loads((file.metadata() or {})[KEY])
            shapes = [file.get_slice(name).get_shape() for name in file.keys()]  # noqa: SIM118
        n_numbers = sum(map(math.prod, shapes))
        _refuse_counts(about["config"], n_numbers)
        sizes = {name: about["sizes"][name] for name in SIZES}
        if "n_nodes" in about["sizes"]:
            sizes["n_nodes"] = _count(about["sizes"]["n_nodes"])
        vectors = None if about["vectors"] is None else tuple(map(_count, about["vectors"]))
        if vectors and math.prod(vectors) > n_numbers:
            raise ValueError(f"it has {n_numbers} numbers, fewer than its vectors of {vectors}")
        return About(
            config=conf_files.without_places(about["config"]),
            identity=str(about.get("identity")),
            sizes=sizes | {name: _count(sizes[name]) for name in ("d_in", "d_out")},
            vectors=vectors,
            n_numbers=n_numbers,
        )
    except (SafetensorError, OSError, KeyError, TypeError, ValueError, RecursionError) as error:
        raise _foreign(path, error) from error


def _foreign(path: Path, why: object) -> RecordError:
    return RecordError(f"{display_path(path)} is not a network that physml has kept: {str(why).rstrip('.')}.")


def _refuse_counts(config: Any, n_numbers: int) -> None:
    """ValueError for more layers or units than the file can have numbers of: building them would not end."""
    most = max(n_numbers, SMALL)
    for at, value in walk({key: config[key] for key in ("model", "net")}):
        if type(value) is int and at.rpartition(".")[2].startswith(("n_", "d_")) and abs(value) > most:
            raise ValueError(f"{at} is {value:.3g}, in a file of {n_numbers} numbers")


def _count(value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value < 2**40:
        raise ValueError(f"a size must be a positive whole number; got {str(value)[:40]}")
    return value


def built(path: Path, plugins: Iterable[str | Path] = ()) -> "nn.Module":
    """The network of a file of weights. RecordError if it is none, or its weights do not fit its config."""
    import torch
    from safetensors import SafetensorError
    from safetensors.torch import load_model

    from physml.config import build

    about = read_about(path)
    names = [str(expanded(str(p)).absolute()) for p in plugins]
    vectors = None if about.vectors is None else torch.zeros(()).expand(about.vectors)
    task = SimpleNamespace(**about.sizes, vectors=vectors)
    try:
        parts = build.parts_of({**about.config, "plugins": names})
        _refuse_larger(path, parts, task, about.n_numbers)
        with torch.random.fork_rng(devices=[]):  # the weights drawn here are replaced
            net = build.build_net(parts, task)
    except PhysmlError:
        raise
    except DAMAGED as error:
        raise _foreign(path, f"its config is damaged: {type(error).__name__}: {error}") from error
    try:
        load_model(net, path)
    except (RuntimeError, SafetensorError) as error:
        raise RecordError(f"{display_path(path)} does not fit the network of its config: {error}.") from error
    return net.eval()


def _refuse_larger(path: Path, parts: "Parts", task: Any, n_numbers: int) -> None:
    """RecordError where the config has more parameters than the file: it could ask for any amount of memory.

    Judged on torch's meta device, where parameters take no memory; classes of plugins may not know it.
    """
    from physml.config.rehearse import on_meta

    net = None if parts.model.of_plugin or parts.net.of_plugin else on_meta(parts, task)
    if net is not None and (n := sum(p.numel() for p in net.parameters())) > n_numbers:
        raise RecordError(
            f"{display_path(path)} does not fit the network of its config: that has {n} parameters, the file "
            f"{n_numbers} numbers."
        )
