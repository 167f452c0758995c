"""A recorded run, trained again from its own config, as an ad hoc run."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, RecordError
from physml.base.paths import CONF, display_path
from physml.config import conf_files, studies
from physml.config.compose import Composed, compose
from physml.config.identity import identity, payload
from physml.records import record
from physml.records.export import ADHOC
from physml.records.record import Place
from physml.records.schema import Record
from physml.run import state as run_state
from physml.run.perform import perform
from physml.run.spec import RunSpec, checked_specs
from physml.training.reporter import Reporter

WITH_NUMBERS = ("finished", "diverged")
OUTSIDE = (
    "runtime",
    "tracker",
    "data",
    "trainer",
)  # sections that may have got keys since; null or no matter
SHOWN = 3  # differences of two settings that a message names


def rerun_spec(made: Record, plugins: Sequence[str], runtime: Mapping[str, Any]) -> RunSpec:
    """The recorded run as one to be made now.

    Args:
        made: A record with its `path`.
        plugins: The files of the user's own that the run needs. A record names them, but they are code: only
            those that the user names are run.
        runtime: Keys of `runtime` to change; they are not part of the identity.

    Raises:
        ConfigError: The plugins are not those of the record.
        DataError: Data are not here.
        RecordError: The record has no numbers, or its config has another identity today.
    """
    where = display_path(Path(made["path"]))
    if made["status"] not in WITH_NUMBERS:
        raise RecordError(
            f"{where}: the run is {made['status']}, so there are no numbers to compare. Name a finished run."
        )
    config = _completed(made, _named_plugins(made, plugins), runtime)
    _refuse_other_setting(made, config, where)
    choices = dict(made.get("choices") or {})
    (spec,) = checked_specs([Composed(config, choices, _datasets(made))], adhoc=True, run=True)
    place = Place(f"{ADHOC}/rerun-{_folder(made)}", made["identity"], made["split"], made["seed"])
    spec = RunSpec(spec.config, choices, place, spec.datasets, spec.parts)
    run_state.refuse_blocked(spec)
    return spec


def trained_again(spec: RunSpec, report: Reporter) -> Record:
    """The record of the new run, as read from its file. A run that was stopped goes on."""
    made = perform(spec, report, force=True)
    path = Path(made["path"])
    return {**record.read(path), "path": str(path)}


def seeds_of(made: Record) -> list[Record]:
    """The finished runs of the setting on the split of a record, beside it."""
    beside = [record.read(path) for path in record.run_paths(Path(made["path"]).parent)]
    same = [one for one in beside if one["identity"] == made["identity"] and one["split"] == made["split"]]
    return [one for one in same if one["status"] == "finished"]


def _completed(made: Record, plugins: list[str], runtime: Mapping[str, Any]) -> dict[str, Any]:
    """The recorded config, with the keys that were added since, and without a tracker."""
    today = compose(["model=lem", "task=adding"]).config
    config = {**today, **made["config"], "plugins": plugins, "experiment": made["experiment"]}
    for section in OUTSIDE:
        config[section] = {**today[section], **(made["config"].get(section) or {})}
    config["runtime"] = {key: config["runtime"][key] for key in today["runtime"]}  # options may have gone
    config["tracker"] = {**config["tracker"], "kind": "none"}
    config["runtime"] = {**config["runtime"], "save_model": False, **runtime}
    return config


def _named_plugins(made: Record, given: Sequence[str]) -> list[str]:
    wanted = {Path(name).name for name in made["config"].get("plugins") or ()}
    found = {(path := Path(name).expanduser().absolute()).name: path for name in given}
    if wanted != found.keys():
        files = " ".join(f"--plugin {name}" for name in sorted(wanted)) or "no --plugin"
        raise ConfigError(
            f"the run used {', '.join(sorted(wanted)) or 'no file of your own'}; got "
            f"{', '.join(sorted(found)) or 'none'}. Files of your own are run as code, so name them: {files}."
        )
    for path in found.values():
        if not path.is_file():
            raise ConfigError(f"there is no plugin file {display_path(path)}.")
    return [str(path) for path in found.values()]


def _refuse_other_setting(made: Record, config: dict[str, Any], where: str) -> None:
    if (today := identity(config)) == made["identity"]:
        return
    found = record.differences(made.get("hashed") or {}, record.finite(payload(config)))
    shown = "; ".join(f"{key} {now!r}, was {before!r}" for key, before, now in found[:SHOWN])
    more = f" and {len(found) - SHOWN} more" if len(found) > SHOWN else ""
    commit = (made.get("code") or {}).get("commit")
    hint = f" Check out commit {commit[:10]} to train it again." if commit else ""
    raise RecordError(
        f"{where}: its config has identity {today} with this code, not {made['identity']}: "
        f"{shown or 'its record does not say why'}{more}.{hint}"
    )


def _datasets(made: Record) -> tuple[str, ...]:
    """The data sets that the task reads: of the experiment, else of the task's file."""
    if studies.is_name(made["experiment"]):
        return compose([f"experiment={made['experiment']}"]).datasets
    task = (made.get("choices") or {}).get("task")
    path = conf_files.find("task", task, CONF) if task else None
    return tuple(conf_files.content(path).get("datasets") or ()) if path else ()


def _folder(made: Record) -> str:
    """Name of the rerun's folder: the record's below results/runs as one word, so never the same folder."""
    parts = Path(made["path"]).absolute().parent.parts
    if "runs" in parts:
        below = parts[len(parts) - parts[::-1].index("runs") :]
        return "-".join(part for part in below if part != ADHOC) or conf_files.flat(made["experiment"])
    return conf_files.flat(made["experiment"])
