"""From overrides to one plain config, by the rules of hydra. Never imports torch."""

import copy
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.base.paths import expanded
from physml.config import conf_files, studies
from physml.config.conf_files import is_path, other_kind
from physml.config.hydra_words import refuse_key
from physml.config.load import read_yaml
from physml.config.overrides import GROUPS, PARTS, SEED_OR_SPLIT, first_line, with_overrides
from physml.config.studies import Experiment, merge

REFERENCE = re.compile(r"\$\{([a-z_]\w*(?:\.[a-z_]\w*)+)\}", re.ASCII)  # `${net.hidden}`


@dataclass(frozen=True)
class Composed:
    """A resolved config and the config files it was made of."""

    config: dict[str, Any]
    choices: dict[str, str | None]
    datasets: tuple[str, ...] = ()  # of conf/dataset, which the task reads


def names(group: str) -> list[str]:
    """The config names of a group: conf/model/lem.yaml is `lem`, a row of conf/study an experiment."""
    if group == "experiment":
        return studies.names()
    return sorted(conf_files.files(group))


def is_name(group: str, name: str) -> bool:
    """True if `name` is one of `names(group)`; does not read all files."""
    if group == "experiment":
        return studies.is_name(name)
    return conf_files.find(group, name) is not None


def compose(overrides: list[str], *, searched: bool = True) -> Composed:
    """One run's config from command line overrides, checked for names, not yet for keys.

    In this order, the last counts most: conf/run.yaml, the chosen file of each group, the experiment, the
    profile, the overrides. A part that names its class replaces what is there, with all its keys:
    `model.coupling={_target_: my_gnn.MyGNN, d_in: 64, d_hidden: 64}`. `~net=sequence`, or `~net`, leaves the
    keys of that file out, so that `+net._target_=my_net.MyNet` starts from none. searched: with what a search
    has found for the experiment.

    Errors: ConfigError for an unknown group, name or key, with near names.
    """
    chosen, left_out, typed = _sorted(overrides)
    name = chosen.pop("experiment", "null")
    experiment = Experiment({}, {}) if name == "null" else studies.experiment(name, searched=searched)
    merged, choices = _merged(experiment, chosen)
    for group, value in left_out.items():
        if (now := choices[group]) != value is not None:
            raise ConfigError(f"~{group}={value}: {group} is {now}. To leave it out: ~{group}={now}.")
        merged[group], choices[group] = {}, None
    raw = _plain(merged, typed) or _resolved(with_overrides(merged, typed), choices)
    config, datasets = _finish(raw, {text.partition("=")[0].lstrip("+") for text in typed})
    config["experiment"] = None if name == "null" else conf_files.shown(name)
    return Composed(config, {**choices, "experiment": config["experiment"]}, datasets)


# ---------------------------------------------------------------------------- names


def _sorted(overrides: list[str]) -> tuple[dict[str, str], dict[str, str | None], list[str]]:
    """Files chosen by group, parts to leave out (None: whatever their file), and overrides of keys."""
    chosen: dict[str, str] = {}
    left_out: dict[str, str | None] = {}
    typed = []
    for text in overrides:
        key, equals, value = text.partition("=")
        if not key or not (equals or key[0] == "~"):
            meant = " or ".join(f"{group}={text}" for group in GROUPS if is_name(group, text))
            hint = f" Did you mean {meant}?" if meant else ""
            raise ConfigError(f"an override must be KEY=VALUE; got `{text}`.{hint}")
        bare = key.lstrip("+~")
        if bare.startswith("hydra"):
            refuse_key(key)
        if key[0] == "~" and bare in PARTS and (not equals or is_name(bare, value)):
            left_out[bare] = value if equals else None
        elif bare not in GROUPS:
            typed.append(text)
        elif bare != key:
            raise ConfigError(f"{text}: a config of a group is chosen by {bare}=NAME. Leave out {key[0]}.")
        else:
            value = value.replace("\\:", ":")  # as Hydra's grammar writes the values of a list
            _refuse_unknown(key, value)
            chosen[key] = value
    return chosen, left_out, typed


def _refuse_unknown(group: str, name: str) -> None:
    of_experiment = group == "experiment"
    if (of_experiment and (name == "null" or is_path(name))) or is_name(group, name):
        return
    if name.startswith("{"):
        raise ConfigError(f"{group} names a config file. Set keys of it one by one: {group}.KEY=VALUE.")
    if of_experiment and any(f"{suffix}:" in name for suffix in conf_files.YAML):
        raise ConfigError(f"{name}: a row's name has letters, digits and `_.-` alone.")
    if "," in name or name.startswith("glob("):
        raise ConfigError(f"{group}={name}: a list of configs needs -m: physml run -m {group}={name}.")
    known = [*names(group), *(["null"] if of_experiment else [])]
    hint = other_kind(name) or suggest(name, known)
    raise ConfigError(f"there is no {group} named {name}. {hint}")


# ---------------------------------------------------------------------------- files


def _merged(experiment: Experiment, chosen: dict[str, str]) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The settings of the chosen files, one over the other, and which files these are."""
    run = conf_files.content(conf_files.CONF / "run.yaml")
    choices: dict[str, str] = {}
    for default in run["defaults"]:
        choices |= default if isinstance(default, dict) else {}
    profile = _file("profile", (choices | experiment.choices | chosen)["profile"])
    above = experiment.choices | _overridden(profile) | chosen
    task = _file("task", (choices | above)["task"])
    choices |= _overridden(task) | above
    parts = {group: _settings(_file(group, choices[group])) for group in PARTS}
    of_parts = [plugin for part in parts.values() for plugin in part.pop("plugins", ())]
    merged = merge(merge(_settings(run) | parts, experiment.settings), _settings(profile))
    if of_parts and isinstance(merged["plugins"], list):
        merged["plugins"] = list(dict.fromkeys([*of_parts, *merged["plugins"]]))
    return merged, {group: choices[group] for group in GROUPS}


def _file(group: str, name: str) -> dict[str, Any]:
    path = conf_files.find(group, name)
    if path is None:
        raise ConfigError(f"there is no config {group}/{name}. {suggest(name, names(group))}")
    return conf_files.content(path)


def _settings(content: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in content.items() if key != "defaults"}


def _overridden(content: Mapping[str, Any]) -> dict[str, str]:
    """The files that a file chooses for other groups: `override /net: graph` in its defaults."""
    choices = {}
    for default in content.get("defaults") or []:
        for key, name in default.items() if isinstance(default, dict) else ():
            match = re.fullmatch(r"override /(\w+)(@_global_\.\1)?", str(key))
            if match is None:
                raise ConfigError(f"`{key}: {name}` in defaults must be `override /GROUP: NAME`.")
            if match[1] not in (*PARTS, "profile"):
                raise ConfigError(f"there is no config group {match[1]}. {suggest(match[1], GROUPS)}")
            choices[match[1]] = str(name)
    return choices


# ---------------------------------------------------------------------------- values


def _plain(merged: dict[str, Any], typed: list[str]) -> dict[str, Any] | None:
    """The config at once, where seed and split alone are typed; None for all that needs OmegaConf.

    A value may be `${net.hidden}`, the number or text of another key, and nothing beside it.
    """
    matches = [SEED_OR_SPLIT.fullmatch(text) for text in typed]
    if not all(matches):
        return None
    whole = merged | {match[1]: int(match[2]) for match in matches if match}
    text = repr(whole)
    if "???" in text:
        return None
    try:
        return _with_references(whole, whole) if "${" in text else copy.deepcopy(whole)
    except LookupError:
        return None


def _with_references(value: Any, whole: dict[str, Any]) -> Any:
    """A copy with plain values in place of references. LookupError for anything that is not plain."""
    match value:
        case dict() if not any("${" in str(key) for key in value):
            return {key: _with_references(inner, whole) for key, inner in value.items()}
        case list():
            return [_with_references(inner, whole) for inner in value]
        case str() if "${" in value:
            return _referred(value, whole)
        case None | bool() | int() | float() | str():
            return value
    raise LookupError


def _referred(text: str, whole: dict[str, Any]) -> Any:
    if (match := REFERENCE.fullmatch(text)) is None:
        raise LookupError
    value: Any = whole
    for part in match[1].split("."):
        if not isinstance(value, dict):
            raise LookupError
        value = value[part]
    if isinstance(value, dict | list) or "${" in str(value):
        raise LookupError
    return _with_references(value, whole)


def _resolved(composed: Any, choices: Mapping[str, str | None]) -> dict[str, Any]:
    """Plain values, with every interpolation in place."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for group in ("model", "task"):
        if OmegaConf.is_dict(composed[group]) and OmegaConf.is_missing(composed[group], "_target_"):
            known = [n for n in names(group) if n != "own"]
            raise ConfigError(
                f"no {group} is chosen. Add {group}=NAME, or a class of your own: "
                f"{group}._target_=MODULE.CLASS plugins=[MODULE.py]. {suggest('', known)}"
            )
    try:
        config: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment]
        missing = OmegaConf.missing_keys(composed)
    except OmegaConfBaseException as error:
        raise ConfigError(_unresolved(error, choices)) from error
    if missing:
        raise ConfigError(f"these keys have no value yet: {', '.join(sorted(missing))}. Add KEY=VALUE.")
    return config


def _unresolved(error: Exception, choices: Mapping[str, str | None]) -> str:
    """The message for a key that takes its value from one that is not there."""
    message = f"{getattr(error, 'full_key', None)}: {first_line(error)}."
    lacking = re.search(r"Interpolation key 'net\.(\w+)' not found", message)
    nets = conf_files.files("net")
    having = [n for n in sorted(nets) if lacking and lacking[1] in read_yaml(nets[n])]
    if lacking is None or not having:
        return message
    model, task, net = (choices.get(group) for group in ("model", "task", "net"))
    return (
        f"model={model} does not fit task={task}: it needs net.{lacking[1]}, a key of "
        f"{' and '.join(f'net={n}' for n in having)}, and the task brings net={net}. "
        "Choose a task that brings one of those, or another model; `physml list` has both."
    )


def _finish(raw: dict[str, Any], typed: set[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Smoke values in, plugin paths absolute; beside it, the data sets that the task reads.

    typed: keys of the command line, which smoke values spare.
    """
    config = dict(raw)
    datasets: tuple[str, ...] = ()
    for key in ("model", "net", "task"):
        node = config.get(key)
        if not isinstance(node, dict):
            raise ConfigError(f"{key} must hold keys and values; got {node!r}.")
        node = dict(node)
        if key == "task":
            datasets = _datasets(node.pop("datasets", None) or [])
        smoke = _smoke_values(key, node)
        if config.get("profile") == "smoke":
            node |= {name: value for name, value in smoke.items() if f"{key}.{name}" not in typed}
        config[key] = node
    config["plugins"] = _plugins(config.get("plugins") or [])
    return config, datasets


def _smoke_values(key: str, node: dict[str, Any]) -> dict[str, Any]:
    """The `smoke` section of a part, taken out of it."""
    smoke = node.pop("smoke", None) or {}
    if not isinstance(smoke, dict):
        raise ConfigError(f"{key}.smoke must hold keys and values; got {smoke!r}.")
    for name in smoke:
        if name not in node:
            hint = suggest(str(name), map(str, node))
            raise ConfigError(f"{key}.smoke.{name}: {key} has no such key. {hint}")
    return smoke


def _datasets(value: Any) -> tuple[str, ...]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"task.datasets must be a list of names of conf/dataset; got {value!r}.")
    for name in value:
        if not is_name("dataset", name):
            raise ConfigError(
                f"task.datasets: there is no data set {name}. {suggest(name, names('dataset'))}"
            )
    return tuple(value)


def _plugins(value: Any) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise ConfigError(f"plugins must be a list of files: 'plugins=[my_rnn.py]'; got {value!r}.")
    paths: dict[str, Path] = {}
    for path in map(_plugin, value):
        if not paths.setdefault(path.stem, path).samefile(path):
            raise ConfigError(f"two plugins are named {path.name}. Rename one.")
    return list(map(str, paths.values()))


def _plugin(name: str) -> Path:
    path = expanded(name).absolute()
    if not path.is_file():
        folder = path.parent if Path(name).is_absolute() else Path.cwd()
        raise ConfigError(
            f"there is no plugin file {name} in {folder}. Give its path: 'plugins=[path/to/file.py]'."
        )
    if path.suffix != ".py" or not path.stem.isidentifier():
        raise ConfigError(f"a plugin must be a Python file with a plain name; got {name}.")
    return path
