"""The run that a name means, on the command line or in `physml.load`. No torch, no hydra."""

from pathlib import Path

from physml.config import studies
from physml.errors import ConfigError, DataError, suggest
from physml.paths import results_roots
from physml.records import record
from physml.records.export import ADHOC, adhoc_folders
from physml.records.schema import Record


def record_of(name: str) -> Record:
    """The record of a run.

    Args:
        name: The path of a record; its place below results/runs, `lem/adding-lem/0a1b2c3d-split0-seed0`; or
            a folder there, `lem/adding-lem` or `adding-lem` of adhoc/, with one run that kept its weights.

    Raises:
        ConfigError: No run has this name, with near names; or several have.
        DataError: No run of the folder kept its weights.
        RecordError: A record that cannot be read.
    """
    path = Path(name)
    if path.suffix == ".json":
        return {**record.read(path), "path": str(path)}
    for root in results_roots():
        for place in (f"{name}.json", f"{ADHOC}/{name}.json"):
            if (path := root / "runs" / place).is_file():
                return {**record.read(path), "path": str(path)}
    return _of_folder(name)


def _of_folder(name: str) -> Record:
    known = [*studies.names(), *adhoc_folders()]
    folder = next((option for option in (name, f"{ADHOC}/{name}") if option in known), None)
    if folder is None:
        raise ConfigError(
            f"there is no run {name}. Name one by the path of its record or its place below results/runs. "
            f"{suggest(name, known)}"
        )
    found = record.records(folder)
    kept = [one for one in found if one.get("weights")]
    if not kept:
        raise DataError(
            f"none of the {len(found)} runs of {folder} kept its weights. Train one with "
            "runtime.save_model=true."
        )
    if len(kept) > 1:
        names = ", ".join(f"{folder}/{Path(one['path']).stem}" for one in kept[:10])
        raise ConfigError(f"{len(kept)} runs of {folder} kept their weights. Name one: {names}.")
    return kept[0]
