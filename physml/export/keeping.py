"""The way of weights into results/weights: evaluated first, then copied, with a card."""

import hashlib
import math
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from physml.base import files
from physml.base.errors import DataError
from physml.base.paths import display_path, expanded, results_root
from physml.records.record import below_runs
from physml.run.weights import SUFFIX

MOST = 25 * 2**20  # bytes of all weights in the repository
AGREE = 1e-3  # relative; machines round differently
CARD = ("experiment", "identity", "split", "seed", "metrics", "selected", "n_parameters", "code", "packages")


def keep(record: Mapping[str, Any], weights: Path, plugins: Sequence[str] = ()) -> Path:
    """Copy the weights of a recorded run to results/weights, with a card; the path of the copy.

    Its name is that of the record's folder; an ad hoc run may have other settings than its experiment.
    plugins: files of one's own that the run was made with; they are run.
    Errors: DataError where their score on test data is not that of the record, or all take more than `MOST`.
    """
    recorded = record["metrics"]["best"]["test"]
    if None in recorded.values() or not recorded:
        raise DataError(f"{display_path(Path(record['path']))} has no score on test data to compare with.")
    evaluated = scores(weights, record["selected"]["epoch"], plugins)
    for name, value in recorded.items():
        got = evaluated.get(name, math.nan)
        if not abs(got - value) <= AGREE * max(abs(value), 1e-12):
            raise DataError(
                f"{display_path(weights)} gives test {name} {got:.6g}, the record {value:.6g}: these "
                "are not the weights that it describes."
            )
    root = results_root() / "weights"
    name = "/".join(below_runs(Path(record["path"]))) or record["experiment"]
    target = root / f"{name}{SUFFIX}"
    others = sum(path.stat().st_size for path in root.rglob(f"*{SUFFIX}") if path != target)
    if (total := others + weights.stat().st_size) > MOST:
        raise DataError(f"all kept weights would take {total / 2**20:.1f} MiB, more than {MOST / 2**20:.0f}.")
    with files.writing(target) as temporary:
        shutil.copyfile(weights, temporary)
    digest = hashlib.sha256(target.read_bytes()).hexdigest()
    card = {key: record.get(key) for key in CARD} | {"sha256": digest, "evaluated": evaluated}
    card["experiment"] = name
    files.write_text(target.with_suffix(".json"), files.json_text(card))
    return target


def scores(weights: Path, epoch: int, plugins: Sequence[str] = ()) -> dict[str, float]:
    """Metrics on test data of the network in a file of weights, on this machine."""
    from safetensors.torch import load_model

    from physml.ops import backend
    from physml.run.attempt import loaded
    from physml.run.progress import LineReporter
    from physml.run.weights import read_about
    from physml.training.interrupt import Interrupt

    own = [str(expanded(plugin).absolute()) for plugin in plugins]  # a file of weights names no code to run
    config = read_about(weights).config | {"plugins": own}
    with backend.running(config["runtime"]["backend"], config["precision"]):
        trainer = loaded(config, None, report=LineReporter(), save=None, stop=Interrupt(), on_row=None)
        load_model(trainer.net, weights)
        trainer.net.eval()
        trainer.calibrate()
        metrics: dict[str, float] = {**trainer.metrics("test", epoch), **trainer.perturbed(epoch)}
    return metrics
