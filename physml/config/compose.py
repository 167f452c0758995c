"""From overrides to one plain config. Imports hydra and omegaconf, never torch."""

import itertools
import logging
import re
import tempfile
from contextlib import nullcontext, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from physml.config.compose_cache import kept
from physml.config.yaml_file import read_yaml
from physml.errors import ConfigError, suggest
from physml.paths import CONF

GROUPS = ("experiment", "model", "net", "task", "trainer", "optim", "runtime", "tracker", "profile")
HEADER = "# @package _global_"
OUTSIDE = "an_outside_file"  # the name under which Hydra gets to see an experiment file of a user


@dataclass(frozen=True)
class Composed:
    """A resolved config and the config files it was made of."""

    config: dict[str, Any]
    choices: dict[str, str | None]
    datasets: tuple[str, ...] = ()  # of conf/dataset, which the task reads


def names(group: str) -> list[str]:
    """The config names of a group: conf/model/lem.yaml is `lem`."""
    folder = CONF / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))


def is_name(group: str, name: str) -> bool:
    """Whether `name` is one of `names(group)`, without a look at all files."""
    parts = name.split("/")
    with suppress(OSError):  # a name too long for a file
        return not {"", ".", ".."} & set(parts) and (CONF / group / f"{name}.yaml").is_file()
    return False


def compose(overrides: list[str]) -> Composed:
    """One run's config from command line overrides, checked for names, not yet for keys.

    A part that names its class, on the command line or in an experiment file of the user, replaces what is
    there, with all its keys: `model.coupling={_target_: my_gnn.MyGNN, d_in: 64, d_hidden: 64}`. Hydra would
    mix the two.

    Errors: ConfigError for an unknown group, name or key, with near names.
    """
    outside: Path | None = None
    given = []
    for override in overrides:
        key, value = _known(override)
        if key == "experiment" and value.endswith((".yaml", ".yml")):
            outside = _outside_experiment(value)
            given += [f"experiment={OUTSIDE}", *_parts_of(outside)]
        elif override != "experiment=null":  # as if it had not been said; Hydra takes it for a mistake
            given += _replacing(key, value) if _is_part(key, value) else [override]
    with tempfile.TemporaryDirectory(prefix="physml-conf-") if outside else nullcontext() as overlay:
        if outside and overlay:
            copy = Path(overlay) / "experiment" / f"{OUTSIDE}.yaml"
            copy.parent.mkdir(parents=True)
            copy.write_bytes(outside.read_bytes())
            given.append(f"hydra.searchpath=[file://{overlay}]")
        try:
            raw, choices = _hydra(given) if outside else kept(given, CONF, _hydra)
        except ConfigError as error:
            if outside:
                raise ConfigError(f"{outside}: {error}") from error
            raise
    base = outside.parent if outside else Path.cwd()
    config, datasets = _finish(raw, base, {o.partition("=")[0].lstrip("+") for o in given})
    # Hydra would note the name of the last one, where an experiment starts from another.
    for override in given:
        if override.startswith("experiment=") and override != "experiment=null":
            choices["experiment"] = override.partition("=")[2]
    if outside:
        choices["experiment"] = f"./{outside.name}"
    config["experiment"] = choices.get("experiment")
    return Composed(config, {group: choices.get(group) for group in GROUPS}, datasets)


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
            raise ConfigError(f"{text}: {_first_line(error)}.") from error
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


def _hydra(overrides: list[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    composed, choices = _merged(overrides)
    for group in ("model", "task"):
        if OmegaConf.is_dict(composed[group]) and OmegaConf.is_missing(composed[group], "_target_"):
            wanted = [n for n in names(group) if n != "own"]
            raise ConfigError(f"no {group} is chosen. Add {group}=NAME. {suggest('', wanted)}")
    try:
        missing = OmegaConf.missing_keys(composed)
        config: dict[str, Any] = OmegaConf.to_container(composed, resolve=True)  # type: ignore[assignment]
    except OmegaConfBaseException as error:
        raise ConfigError(_unresolved(error, choices)) from error
    if missing:
        raise ConfigError(f"these keys have no value yet: {', '.join(sorted(missing))}. Add KEY=VALUE.")
    return config, choices


def _unresolved(error: Exception, choices: dict[str, str | None]) -> str:
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


def _merged(overrides: list[str]) -> tuple[Any, dict[str, str | None]]:
    """Hydra's composition, with its own keys taken out: an OmegaConf node, and the chosen files."""
    from hydra import compose as hydra_compose
    from hydra import initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.errors import HydraException
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    logging.getLogger("hydra").setLevel(logging.ERROR)
    GlobalHydra.instance().clear()
    try:
        with initialize_config_dir(version_base="1.3", config_dir=str(CONF)):
            composed = hydra_compose("run", overrides=overrides, return_hydra_config=True)
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(_readable(error, overrides)) from error
    choices = dict(composed.hydra.runtime.choices)
    OmegaConf.set_readonly(composed, False)
    OmegaConf.set_struct(composed, False)
    composed.pop("hydra")
    return composed, choices


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
        path = (folder / Path(name).expanduser()).absolute()
        if path.is_file():
            if path.suffix != ".py" or not path.stem.isidentifier():
                raise ConfigError(f"a plugin must be a Python file with a plain name; got {name}.")
            return path
    raise ConfigError(
        f"there is no plugin file {name} in {base}. Give its path: 'plugins=[path/to/file.py]'."
    )


def _outside_experiment(text: str) -> Path:
    path = Path(text.strip("'\"")).expanduser().absolute()
    if not path.is_file():
        name = text.removesuffix(".yaml").removeprefix("conf/experiment/")
        hint = f" Did you mean experiment={name}?" if name in names("experiment") else ""
        raise ConfigError(f"there is no experiment file {path}.{hint}")
    read_yaml(path)  # says what is wrong with the file by its own name, equal keys too
    first = path.read_text(encoding="utf-8").partition("\n")[0].rstrip()
    if first != HEADER:
        raise ConfigError(
            f"{path}: line 1 must be exactly `{HEADER}`, or its values are ignored; it is `{first}`."
        )
    return path


def _is_part(key: str, value: str) -> bool:
    return "." in key and key[0] not in "+~" and value.startswith("{") and "_target_" in value


def _replacing(key: str, value: str) -> list[str]:
    return [f"{key}=null", f"{key}={value}"]


def _parts_of(file: Path) -> list[str]:
    """Overrides that make every part of an experiment file which names its class stand as it is written."""
    found = []
    for group, content in read_yaml(file).items():
        if isinstance(content, dict):
            parts = {key: v for key, v in content.items() if isinstance(v, dict) and "_target_" in v}
            for key, value in parts.items():
                found += _replacing(f"{group}.{key}", _grammar(value))
    return found


def _grammar(value: Any) -> str:
    """A value of YAML as Hydra's overrides have it."""
    if isinstance(value, dict):
        return "{" + ",".join(f"{key}:{_grammar(v)}" for key, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(_grammar, value)) + "]"
    if isinstance(value, str):
        return "'" + re.sub(r"(\\*)('|\Z)", lambda m: m[1] * 2 + m[2].replace("'", "\\'"), value) + "'"
    return "null" if value is None else str(value).lower()


def _known(override: str) -> tuple[str, str]:
    """Key and value of an override; ConfigError where the name of a config is unknown."""
    key, equals, value = override.partition("=")
    if not equals or not key:
        raise ConfigError(f"an override must be KEY=VALUE; got `{override}`.")
    if key.lstrip("+~").partition(".")[0].partition("/")[0] == "hydra":
        raise ConfigError(f"{key}: keys of hydra itself have no meaning here.")
    if key not in GROUPS or value.endswith((".yaml", ".yml")):
        return key, value
    if is_name(key, value) or (key, value) == ("experiment", "null"):
        return key, value
    if "," in value:
        raise ConfigError(f"{override}: a list of configs needs -m: physml run -m {override}.")
    known = [*names(key), *(["null"] if key == "experiment" else [])]
    raise ConfigError(f"there is no {key} named {value}. {suggest(value, known)}")


def _readable(error: Exception, overrides: list[str]) -> str:
    """Hydra's messages, with near names where a key or a config is unknown."""
    text = str(error)
    if match := re.search(r"Could not override '?([^'\s]+?)'?\.\s+No match in the defaults list", text):
        return f"there is no config group {match.group(1)}. {suggest(match.group(1), GROUPS)}"
    if match := re.search(r"Could not override '([^']+)'", text):
        key = match.group(1)
        others = [o for o in overrides if not o.startswith(f"{key}=")]
        hint = _near_key(key, others) if len(others) < len(overrides) else ""
        addable = key.startswith(("model.", "net.", "task.", "optim.", "trainer.s"))
        hint += f" To add one on purpose: +{key}=VALUE." if addable else ""
        return f"there is no config key {key}. {hint.strip()}".strip()
    if match := re.search(r"Could not find '([^']+)'", text):
        group, _, name = match.group(1).partition("/")
        hint = suggest(name, names(group)) if group in GROUPS else ""
        return f"there is no config {match.group(1)}. {hint}".strip()
    if match := re.search(r"Ambiguous value for argument '(.+)'", text):
        return f"{match.group(1)}: several values need -m; a list stands in brackets, in quotes: 'KEY=[1,2]'."
    if typed := getattr(error, "override", None):
        return f"{typed}: {_first_line(error)}."
    return " ".join(text.split()) if isinstance(error, yaml.YAMLError) else f"{_first_line(error)}."


def _near_key(key: str, overrides: list[str]) -> str:
    """Near names for the first part of a dotted key that is not there."""
    node: Any = _merged(overrides)[0]
    for part in key.split("."):
        if not hasattr(node, "keys"):
            return ""
        if part not in node:
            return suggest(part, [str(k) for k in node])
        node = node[part]
    return ""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
