"""A recorded run, trained again from its own config, as an ad hoc run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, RecordError
from physml.base.paths import display_path, expanded
from physml.config import conf_files, studies
from physml.config.compose import Composed, compose
from physml.config.identity import identity, payload
from physml.records import record
from physml.records.record import ADHOC, Place
from physml.records.schema import Record
from physml.run import state as run_state
from physml.run.attempt import DONE
from physml.run.perform import perform
from physml.run.spec import RunSpec, checked_specs
from physml.training.reporter import Reporter

# Sections that may have got keys since; null or no matter.
OUTSIDE = ("runtime", "tracker", "data", "trainer")
SHOWN = 3  # differences of two settings that a message names


def rerun_spec(recorded: Record, plugins: Sequence[str], runtime: Mapping[str, Any]) -> RunSpec:
    """The recorded run as one to be made now.

    Args:
        recorded: A record with its `path`.
        plugins: The files of the user's own that the run needs. A record names them, but they are code: only
            those that the user names are run.
        runtime: Keys of `runtime` to change; they are not part of the identity.

    Raises:
        ConfigError: The plugins are not those of the record.
        DataError: Data are not here.
        RecordError: The record has no numbers, or its config has another identity today.
    """
    where = display_path(Path(recorded["path"]))
    if recorded["status"] not in DONE:
        raise RecordError(
            f"{where}: the run is {recorded['status']}, so there are no numbers to compare. "
            "Name a finished run."
        )
    config = _completed(recorded, _named_plugins(recorded, plugins), runtime)
    _refuse_other_setting(recorded, config, where)
    choices = dict(recorded.get("choices") or {})
    (spec,) = checked_specs([Composed(config, choices, _datasets(recorded))], adhoc=True, run=True)
    place = Place(
        f"{ADHOC}/rerun-{_folder(recorded)}", recorded["identity"], recorded["split"], recorded["seed"]
    )
    spec = RunSpec(spec.config, choices, place, spec.datasets, spec.parts)
    run_state.refuse_blocked(spec)
    return spec


def trained_again(spec: RunSpec, report: Reporter) -> Record:
    """The record of the new run, as read from its file. A run that was stopped goes on."""
    return record.read(Path(perform(spec, report, force=True)["path"]))


def seeds_of(recorded: Record) -> list[Record]:
    """The finished runs of the setting on the split of a record."""
    beside = record.records_beside(Path(recorded["path"]))
    same = [
        run for run in beside if run["identity"] == recorded["identity"] and run["split"] == recorded["split"]
    ]
    return [run for run in same if run["status"] == "finished"]


def _completed(recorded: Record, plugins: list[str], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded config, with the keys that were added since, and without a tracker."""
    today = compose(["model=lem", "task=adding"]).config
    config = {**today, **recorded["config"], "plugins": plugins, "experiment": recorded["experiment"]}
    for section in OUTSIDE:
        config[section] = {**today[section], **(recorded["config"].get(section) or {})}
    config["runtime"] = {key: config["runtime"][key] for key in today["runtime"]}  # options may have gone
    config["tracker"] = {**config["tracker"], "kind": "none"}
    config["runtime"] = {**config["runtime"], "save_model": False, **runtime}
    return config


def _named_plugins(recorded: Record, plugins: Sequence[str]) -> list[str]:
    required = {Path(name).name for name in recorded["config"].get("plugins") or ()}
    named = {(path := expanded(name).absolute()).name: path for name in plugins}
    if required != named.keys():
        files = " ".join(f"--plugin {name}" for name in sorted(required)) or "no --plugin"
        raise ConfigError(
            f"the run used {', '.join(sorted(required)) or 'no file of your own'}; got "
            f"{', '.join(sorted(named)) or 'none'}. Files of your own are run as code, so name them: {files}."
        )
    for path in named.values():
        if not path.is_file():
            raise ConfigError(f"there is no plugin file {display_path(path)}.")
    return [str(path) for path in named.values()]


def _refuse_other_setting(recorded: Record, config: dict[str, Any], where: str) -> None:
    if (today := identity(config)) == recorded["identity"]:
        return
    differences = record.differences(recorded.get("hashed") or {}, record.finite(payload(config)))
    shown = "; ".join(f"{key} {now!r}, was {before!r}" for key, before, now in differences[:SHOWN])
    more = f" and {len(differences) - SHOWN} more" if len(differences) > SHOWN else ""
    commit = (recorded.get("code") or {}).get("commit")
    own = [key.partition(".")[2] for key, _, _ in differences if key.startswith(("plugins.", "files."))]
    todo = [f"put {' and '.join(own)} back as it was"] if own else []
    todo += [f"check out commit {commit[:10]}"] if commit and len(own) < len(differences) else []
    hint = f" To train it again, {', and '.join(todo)}." if todo else ""
    raise RecordError(
        f"{where}: its config has identity {today} with this code, not {recorded['identity']}: "
        f"{shown or 'its record does not say why'}{more}.{hint}"
    )


def _datasets(recorded: Record) -> tuple[str, ...]:
    """The data sets that the task reads: of the experiment, else of the task's file."""
    if studies.is_name(recorded["experiment"]):
        return compose([f"experiment={recorded['experiment']}"]).datasets
    task = (recorded.get("choices") or {}).get("task")
    path = conf_files.find("task", task) if task else None
    return tuple(conf_files.content(path).get("datasets") or ()) if path else ()


def _folder(recorded: Record) -> str:
    """Name of the rerun's folder: the record's below results/runs as one word, so never the same folder."""
    below = record.below_runs(Path(recorded["path"]).absolute())
    return "-".join(part for part in below if part != ADHOC) or conf_files.flat(recorded["experiment"])
