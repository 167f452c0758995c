"""The run that a name means, on the command line or in `physml.load`. No torch, no hydra."""

import contextlib
from pathlib import Path

from physml.base.errors import ConfigError, DataError, RecordError, suggest
from physml.base.paths import results_roots
from physml.config import studies
from physml.config.compose import compose
from physml.config.conf_files import other_kind
from physml.config.identity import identity
from physml.records import record
from physml.records.record import ADHOC, adhoc_folders
from physml.records.schema import Record
from physml.run.spec import folder_of


def record_of(name: str) -> Record:
    """The record of a run.

    Args:
        name: The path of a record; its place below results/runs, `lem/adding-lem/0a1b2c3d-split0-seed0`; a
            folder there, `lem/adding-lem` or `adding-lem` of adhoc/, with one run that kept its weights; or
            `./study.yaml:row`.

    Raises:
        ConfigError: No run has this name, with near names; or several have.
        DataError: No run of the folder kept its weights.
        RecordError: A record that cannot be read.
    """
    return of_file(name) or _with_weights(_folder(name))


def run_of(name: str, split: int, seed: int) -> Record:
    """The record of a run, with or without weights.

    Args:
        name: As for `record_of`; of a folder, the run with today's settings, or with the only ones there.
        split: Split of a folder's runs.
        seed: Seed of a folder's runs.

    Raises:
        ConfigError: No folder has this name, with near names; or it has runs of several settings.
        RecordError: The folder has no such run, or it cannot be read.
    """
    if recorded := of_file(name):
        return recorded
    folder = _folder(name)
    every = record.records(folder)
    settings = {run["identity"] for run in every}
    chosen = {identity_of(name)} & settings or settings
    matching = [
        run for run in every if (run["split"], run["seed"]) == (split, seed) and run["identity"] in chosen
    ]
    if not matching:
        raise RecordError(
            f"{folder} has {len(every)} records, none with split {split} and seed {seed}. Name a record."
        )
    return _only(matching, folder, f"{folder} has runs of {len(matching)} settings")


def of_file(name: str) -> Record | None:
    """The record at a path, or at a place below results/runs, of any root; None for other names."""
    place = name.removeprefix("results/runs/").removesuffix(".json")
    paths = [Path(name)] if name.endswith(".json") else []
    paths += [root / "runs" / at / f"{place}.json" for root in results_roots() for at in ("", ADHOC)]
    existing = [*filter(record.exists, paths)] or (paths[:1] if name.endswith(".json") else [])
    return record.read(existing[0]) if existing else None


def _folder(name: str) -> str:
    hint = "Name one by the path of its record or its place below results/runs."
    return folder_named(name, f"there is no run {name}. {hint}")


def folder_named(name: str, wrong: str) -> str:
    """The folder of an experiment below results/runs, or in adhoc/. ConfigError `wrong`, with near names."""
    known = [*studies.names(), *adhoc_folders()]
    options = (folder_of(name), f"{ADHOC}/{name}")  # of ./study.yaml:row too
    folder = next((option for option in options if option in known), None)
    if folder is None:
        raise ConfigError(f"{wrong} {other_kind(name) or suggest(name, known)}")
    return folder


def identity_of(experiment: str) -> str | None:
    """Identity of an experiment with its present settings.

    None if no study has it, or a data file of its own is gone.
    """
    if studies.is_name(experiment):
        with contextlib.suppress(DataError):
            return identity(compose([f"experiment={experiment}"]).config)
    return None


def _with_weights(folder: str) -> Record:
    runs = record.records(folder)
    kept = [run for run in runs if run.get("weights")]
    if not kept:
        raise DataError(
            f"none of the {len(runs)} runs of {folder} kept its weights. Train one with "
            "runtime.save_model=true."
        )
    return _only(kept, folder, f"{len(kept)} runs of {folder} kept their weights")


def _only(candidates: list[Record], folder: str, several: str) -> Record:
    if len(candidates) > 1:
        names = ", ".join(f"{folder}/{Path(run['path']).stem}" for run in candidates[:10])
        raise ConfigError(f"{several}. Name one: {names}.")
    return candidates[0]
