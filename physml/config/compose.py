"""From overrides to one plain config. Takes the grammar of overrides from hydra, never imports torch."""

import copy
import itertools
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from physml.config import studies
from physml.config.load import kept_yaml, read_yaml
from physml.config.studies import Experiment, merge
from physml.errors import ConfigError, suggest
from physml.paths import CONF, expanded

PARTS = ("model", "net", "task", "trainer", "optim", "runtime", "tracker")
GROUPS = ("experiment", *PARTS, "profile")
HEADER = "# @package _global_"


@dataclass(frozen=True)
class Composed:
    """A resolved config and the config files it was made of."""

    config: dict[str, Any]
    choices: dict[str, str | None]
    datasets: tuple[str, ...] = ()  # of conf/dataset, which the task reads


def names(group: str) -> list[str]:
    """The config names of a group: conf/model/lem.yaml is `lem`, a row of conf/study an experiment."""
    if group == "experiment":
        return studies.names(CONF)
    folder = CONF / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))


def is_name(group: str, name: str) -> bool:
    """Whether `name` is one of `names(group)`, without a look at all files."""
    with suppress(OSError):  # a name too long for a file
        if group == "experiment":
            return studies.is_name(name, CONF)
        parts = name.split("/")
        return not {"", ".", ".."} & set(parts) and (CONF / group / f"{name}.yaml").is_file()
    return False


def compose(overrides: list[str]) -> Composed:
    """One run's config from command line overrides, checked for names, not yet for keys.

    In this order, the last counts most: conf/run.yaml, the chosen file of each group, the experiment, the
    profile, the overrides. A part that names its class replaces what is there, with all its keys:
    `model.coupling={_target_: my_gnn.MyGNN, d_in: 64, d_hidden: 64}`. `~net=sequence` leaves the keys of that
    file out, so that `+net._target_=my_net.MyNet` starts from none.

    Errors: ConfigError for an unknown group, name or key, with near names.
    """
    chosen: dict[str, str] = {}
    left_out: dict[str, str] = {}
    typed = []
    for text in overrides:
        key, value = _known(text)
        if key in GROUPS:
            chosen[key] = value
        elif key[1:] in PARTS:
            left_out[key[1:]] = value
        else:
            typed.append(text)
    name: str | None = chosen.pop("experiment", None)
    name = None if name == "null" else name
    outside = _outside_experiment(name) if name and name.endswith((".yaml", ".yml")) else None
    try:
        experiment = _from_file(outside) if outside else studies.experiment(name, CONF) if name else None
        merged, choices = _merged(experiment or Experiment({}, {}), chosen)
        for group, value in left_out.items():
            if (there := choices[group]) != value:
                raise ConfigError(f"~{group}={value}: {group} is {there}. To leave it out: ~{group}={there}.")
            merged[group], choices[group] = {}, None
        raw = _plain(merged, typed) or _resolved(_with_typed(merged, typed), choices)
    except ConfigError as error:
        if outside:
            raise ConfigError(f"{outside}: {error}") from error
        raise
    base = outside.parent if outside else Path.cwd()
    config, datasets = _finish(raw, base, {text.partition("=")[0].lstrip("+") for text in typed})
    config["experiment"] = f"./{outside.name}" if outside else name
    return Composed(config, {**choices, "experiment": config["experiment"]}, datasets)


def expand(overrides: list[str]) -> list[list[str]]:
    """A multirun: `seed=0,1 model=lem,lstm` gives all combinations, by Hydra's own grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    choices = []
    for text in overrides:
        try:
            override = parser.parse_override(text)
        except HydraException as error:
            raise ConfigError(f"{text}: {_first_line(error)}. Check its brackets and quotes.") from error
        if not override.is_sweep_override():
            choices.append([text])
        elif override.is_discrete_sweep():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            raise ConfigError(
                f"{text}: -m takes lists and ranges; continuous intervals belong to `physml search`."
            )
    return [list(combination) for combination in itertools.product(*choices)]


def _merged(experiment: Experiment, chosen: dict[str, str]) -> tuple[dict[str, Any], dict[str, str | None]]:
    """The settings of the chosen files, one over the other, and which files these are."""
    run = kept_yaml(CONF / "run.yaml", _as_read)
    choices = {
        group: name
        for default in run["defaults"]
        if isinstance(default, dict)
        for group, name in default.items()
    }
    above = experiment.choices | chosen
    profile = _file("profile", above.get("profile", choices["profile"]))
    above = experiment.choices | _overridden(profile) | chosen
    choices |= _overridden(_file("task", above.get("task", choices["task"]))) | above
    parts = {group: _file(group, choices[group]) for group in PARTS}
    merged = {key: value for key, value in {**run, **parts}.items() if key != "defaults"}
    for group, content in parts.items():
        merged[group] = {key: value for key, value in content.items() if key != "defaults"}
    merged = merge(merged, experiment.settings)
    merged = merge(merged, {key: value for key, value in profile.items() if key != "defaults"})
    return merged, {group: choices[group] for group in GROUPS}


def _as_read(content: dict[str, Any], path: Path) -> dict[str, Any]:
    return content


def _file(group: str, name: str) -> dict[str, Any]:
    if not is_name(group, name):
        raise ConfigError(f"there is no config {group}/{name}. {suggest(name, names(group))}")
    return kept_yaml(CONF / group / f"{name}.yaml", _as_read)


def _overridden(content: Mapping[str, Any]) -> dict[str, str]:
    """The files that a file chooses for other groups: `override /net: graph` in its defaults."""
    found = {}
    for default in content.get("defaults") or []:
        for key, name in default.items() if isinstance(default, dict) else ():
            match = re.fullmatch(r"override /(\w+)(@_global_\.\1)?", str(key))
            if match is None:
                raise ConfigError(f"`{key}: {name}` in defaults must be `override /GROUP: NAME`.")
            if match[1] not in (*PARTS, "profile"):
                raise ConfigError(f"there is no config group {match[1]}. {suggest(match[1], GROUPS)}")
            found[match[1]] = str(name)
    return found


def _from_file(path: Path) -> Experiment:
    """An experiment file of a user; it may start from experiments of conf/."""
    content = dict(read_yaml(path))
    defaults = content.pop("defaults", None) or []
    if not isinstance(defaults, list):
        raise ConfigError(f"defaults must be a list; got {defaults!r}.")
    choices: dict[str, str] = {}
    settings: dict[str, Any] = {}
    for default in defaults if "_self_" in defaults else [*defaults, "_self_"]:
        if default == "_self_":
            settings = merge(settings, content)
        elif not isinstance(default, dict):
            base = studies.experiment(str(default), CONF)
            choices, settings = choices | base.choices, merge(settings, base.settings)
    return Experiment(choices | _overridden({"defaults": defaults}), settings)


SEED_OR_SPLIT = re.compile(r"(seed|split)=(\d{1,18})")  # of every run of a table: it needs no more grammar


def _plain(merged: dict[str, Any], typed: list[str]) -> dict[str, Any] | None:
    """The config at once, where nothing is interpolated or missing, and seed and split alone are typed."""
    matches = [SEED_OR_SPLIT.fullmatch(text) for text in typed]
    if not all(matches) or any(key in text for text in _texts(merged) for key in ("${", "???")):
        return None
    return copy.deepcopy(merged) | {match[1]: int(match[2]) for match in matches if match}


def _texts(node: Any) -> Iterator[str]:
    if isinstance(node, str):
        yield node
    elif isinstance(node, dict | list):
        for value in node.values() if isinstance(node, dict) else node:
            yield from _texts(value)


def _with_typed(merged: dict[str, Any], typed: list[str]) -> Any:
    """An OmegaConf node with the overrides of the command line in it."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    text = ""
    try:
        node = OmegaConf.create(merged)
        OmegaConf.set_struct(node, True)
        for text in typed:
            _apply(node, text)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{text or error.full_key}: {_first_line(error)}.") from error
    return node


def _apply(node: Any, text: str) -> None:
    """One override by Hydra's grammar: KEY=VALUE changes, +KEY=VALUE adds, ++ does either, ~ deletes."""
    from omegaconf import OmegaConf, open_dict

    if plain := SEED_OR_SPLIT.fullmatch(text):
        OmegaConf.update(node, plain[1], int(plain[2]))
        return
    override = _parsed(text)
    key = override.key_or_group
    if override.is_sweep_override():
        raise ConfigError(
            f"{text}: several values need -m; a list stands in brackets, in quotes: 'KEY=[1,2]'."
        )
    if override.package is not None or "/" in key:
        raise ConfigError(f"there is no config group {text.partition('=')[0]}. {suggest(key, GROUPS)}")
    value, parent = override.value(), _parent(node, key)
    there = None if parent is None else OmegaConf.select(node, key, throw_on_missing=False)
    if override.is_add() and there is not None and not isinstance(value, dict | list):
        raise ConfigError(f"{text}: {key} is there already. Change it without the +.")
    if override.is_add() or override.is_force_add():
        OmegaConf.update(node, key, value, merge=True, force_add=True)
    elif parent is None:
        raise ConfigError(_no_key(node, key))
    elif override.is_delete():
        if value is not None and value != there:
            raise ConfigError(f"{text}: {key} is {there!r}. To delete it: ~{key}={there}.")
        with open_dict(node):
            del parent[key.rpartition(".")[2]]
    else:
        whole = "." in key and isinstance(value, dict) and "_target_" in value
        OmegaConf.update(node, key, value, merge=not whole)


def _parsed(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except HydraException as error:
        raise ConfigError(f"{text}: {_first_line(error)}. Check its brackets and quotes.") from error


def _parent(node: Any, key: str) -> Any:
    """The node that holds a dotted key; None where the key is not there."""
    from omegaconf import OmegaConf

    *parents, last = key.split(".")
    for part in parents:
        node = node._get_node(part, validate_access=False) if OmegaConf.is_dict(node) else None
    return node if OmegaConf.is_dict(node) and last in node.keys() else None  # noqa: SIM118


def _no_key(node: Any, key: str) -> str:
    """The message for a key that is not there, with names near to its first unknown part."""
    from omegaconf import OmegaConf

    hint = ""
    for part in key.split("."):
        if not OmegaConf.is_dict(node):
            break
        if part not in node.keys():  # noqa: SIM118
            hint = suggest(part, map(str, node))
            break
        node = node._get_node(part)
    if key.startswith(("model.", "net.", "task.", "optim.", "trainer.s")):
        hint += f" To add one on purpose: +{key}=VALUE."
    return f"there is no config key {key}. {hint.strip()}".strip()


def _resolved(composed: Any, choices: Mapping[str, str | None]) -> dict[str, Any]:
    """Plain values, with every interpolation in place."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    for group in ("model", "task"):
        if OmegaConf.is_dict(composed[group]) and OmegaConf.is_missing(composed[group], "_target_"):
            wanted = [n for n in names(group) if n != "own"]
            raise ConfigError(f"no {group} is chosen. Add {group}=NAME. {suggest('', wanted)}")
    try:
        config: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        raise ConfigError(_unresolved(error, choices)) from error
    if missing := sorted(_without_value(config)):
        raise ConfigError(f"these keys have no value yet: {', '.join(missing)}. Add KEY=VALUE.")
    return config


def _without_value(node: Any, where: str = "") -> Iterator[str]:
    """Keys whose value is ???: the user must give one."""
    if node == "???":
        yield where
    elif isinstance(node, dict | list):
        for key, value in node.items() if isinstance(node, dict) else enumerate(node):
            yield from _without_value(value, f"{where}.{key}" if where else str(key))


def _unresolved(error: Exception, choices: Mapping[str, str | None]) -> str:
    """What to say of a key that takes its value from one that is not there."""
    message = f"{getattr(error, 'full_key', None)}: {_first_line(error)}."
    lacking = re.search(r"Interpolation key 'net\.(\w+)' not found", message)
    having = [n for n in names("net") if lacking and lacking[1] in read_yaml(CONF / "net" / f"{n}.yaml")]
    if lacking is None or not having:
        return message
    model, task, net = (choices.get(group) for group in ("model", "task", "net"))
    return (
        f"model={model} does not fit task={task}: it needs net.{lacking[1]}, a key of "
        f"{' and '.join(f'net={n}' for n in having)}, and the task brings net={net}. "
        "Choose a task that brings one of those, or another model; `physml list` has both."
    )


def _finish(raw: dict[str, Any], base: Path, typed: set[str]) -> tuple[dict[str, Any], tuple[str, ...]]:
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
        smoke = node.pop("smoke", None) or {}
        if not isinstance(smoke, dict):
            raise ConfigError(f"{key}.smoke must hold keys and values; got {smoke!r}.")
        for name in smoke:
            if name not in node:
                raise ConfigError(
                    f"{key}.smoke.{name}: {key} has no such key. {suggest(str(name), map(str, node))}"
                )
        if config.get("profile") == "smoke":
            node |= {name: value for name, value in smoke.items() if f"{key}.{name}" not in typed}
        config[key] = node
    plugins = config.get("plugins") or []
    if not isinstance(plugins, list) or not all(isinstance(p, str) for p in plugins):
        raise ConfigError(f"plugins must be a list of files: 'plugins=[my_rnn.py]'; got {plugins!r}.")
    paths = [_plugin(p, base) for p in plugins]
    for i, path in enumerate(paths):
        if any(path.stem == other.stem for other in paths[:i]):
            raise ConfigError(f"two plugins are named {path.name}. Rename one.")
    config["plugins"] = list(map(str, paths))
    return config, datasets


def _datasets(given: Any) -> tuple[str, ...]:
    if not isinstance(given, list) or not all(isinstance(name, str) for name in given):
        raise ConfigError(f"task.datasets must be a list of names of conf/dataset; got {given!r}.")
    for name in given:
        if not is_name("dataset", name):
            raise ConfigError(
                f"task.datasets: there is no data set {name}. {suggest(name, names('dataset'))}"
            )
    return tuple(given)


def _plugin(name: str, base: Path) -> Path:
    for folder in dict.fromkeys([base, Path.cwd()]):
        path = (folder / expanded(name)).absolute()
        if path.is_file():
            if path.suffix != ".py" or not path.stem.isidentifier():
                raise ConfigError(f"a plugin must be a Python file with a plain name; got {name}.")
            return path
    raise ConfigError(
        f"there is no plugin file {name} in {base}. Give its path: 'plugins=[path/to/file.py]'."
    )


def _outside_experiment(text: str) -> Path:
    path = expanded(text.strip("'\"")).absolute()
    if not path.is_file():
        name = text.removesuffix(".yaml")
        hint = f" Did you mean experiment={name}?" if is_name("experiment", name) else ""
        raise ConfigError(f"there is no experiment file {path}.{hint}")
    read_yaml(path)  # says what is wrong with the file by its own name, equal keys too
    first = path.read_text(encoding="utf-8").partition("\n")[0].rstrip()
    if first != HEADER:
        raise ConfigError(
            f"{path}: line 1 must be exactly `{HEADER}`, or its values are ignored; it is `{first}`."
        )
    return path


def _known(override: str) -> tuple[str, str]:
    """Key and value of an override; ConfigError where the name of a config is unknown."""
    key, equals, value = override.partition("=")
    if not equals or not key:
        meant = " or ".join(f"{group}={override}" for group in GROUPS if is_name(group, override))
        hint = f" Did you mean {meant}?" if meant else ""
        raise ConfigError(f"an override must be KEY=VALUE; got `{override}`.{hint}")
    bare = key.lstrip("+~")
    if bare.partition(".")[0].partition("/")[0] == "hydra":
        raise ConfigError(f"{key}: keys of hydra itself have no meaning here.")
    if key[0] == "~" and bare in PARTS and is_name(bare, value):
        return key, value
    if bare in GROUPS and bare != key:
        raise ConfigError(f"{override}: a config of a group is chosen by {bare}=NAME. Leave out {key[0]}.")
    outside = key == "experiment" and value.endswith((".yaml", ".yml"))
    if key not in GROUPS or outside or is_name(key, value) or (key, value) == ("experiment", "null"):
        return key, value
    if "," in value:
        raise ConfigError(f"{override}: a list of configs needs -m: physml run -m {override}.")
    known = [*names(key), *(["null"] if key == "experiment" else [])]
    raise ConfigError(f"there is no {key} named {value}. {suggest(value, known)}")


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
