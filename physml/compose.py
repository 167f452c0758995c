"""From overrides to one plain config. Imports hydra and omegaconf, never torch."""

import itertools
import logging
import re
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from physml.errors import ConfigError, near
from physml.paths import CONF

GROUPS = ("experiment", "model", "net", "task", "trainer", "optim", "runtime", "tracker", "profile")
HEADER = "# @package _global_"


@dataclass(frozen=True)
class Composed:
    """A resolved config and the config files it was made of."""

    config: dict[str, Any]
    choices: dict[str, str | None]


def names(group: str) -> list[str]:
    """The config names of a group: conf/model/lem.yaml is `lem`."""
    folder = CONF / group
    return sorted(str(p.relative_to(folder).with_suffix("")) for p in folder.rglob("*.yaml"))


def compose(overrides: list[str]) -> Composed:
    """One run's config from command line overrides, checked for names, not yet for keys.

    Errors: ConfigError for an unknown group, name or key, with near names.
    """
    outside: Path | None = None
    given = []
    for override in overrides:
        if override.startswith("experiment=") and override.endswith((".yaml", ".yml")):
            outside = _outside_experiment(override.partition("=")[2])
            given.append(f"experiment=outside/{outside.stem}")
        else:
            _known_group_name(override)
            given.append(override)
    with tempfile.TemporaryDirectory(prefix="physml-conf-") as overlay:
        if outside:
            copy = Path(overlay) / "experiment" / "outside" / outside.name
            copy.parent.mkdir(parents=True)
            copy.with_suffix(".yaml").write_text(outside.read_text(encoding="utf-8"), encoding="utf-8")
            given.append(f"hydra.searchpath=[file://{overlay}]")
        raw, choices = _hydra(given)
    base = outside.parent if outside else Path.cwd()
    config = _finish(raw, base)
    name = choices.get("experiment")
    config["experiment"] = f"./{outside.name}" if outside else name
    return Composed(config, {group: choices.get(group) for group in GROUPS})


def expand(overrides: list[str]) -> list[list[str]]:
    """A multirun: `seed=0,1 model=lem,lstm` gives all combinations, by Hydra's own grammar."""
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    parser = OverridesParser.create()
    try:
        parsed = parser.parse_overrides(overrides)
    except HydraException as error:
        raise ConfigError(_first_line(error)) from error
    choices = []
    for text, override in zip(overrides, parsed, strict=True):
        if not override.is_sweep_override():
            choices.append([text])
        elif override.is_discrete_sweep():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            raise ConfigError(f"{text}: -m takes lists and ranges; continuous intervals belong to `physml search`.")
    return [list(combination) for combination in itertools.product(*choices)]


def _hydra(overrides: list[str]) -> tuple[dict[str, Any], dict[str, str | None]]:
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
        choices = dict(composed.hydra.runtime.choices)
        del choices["hydra/env"]
        OmegaConf.set_readonly(composed, False)
        OmegaConf.set_struct(composed, False)
        composed.pop("hydra")
        missing = OmegaConf.missing_keys(composed)
        if "model._target_" in missing:
            raise ConfigError(f"no model is chosen. Add model=NAME. {near('', names('model'))}")
        if "task._target_" in missing:
            raise ConfigError(f"no task is chosen. Add task=NAME. {near('', names('task'))}")
        if missing:
            raise ConfigError(f"these keys have no value yet: {', '.join(sorted(missing))}. Add KEY=VALUE.")
        return OmegaConf.to_container(composed, resolve=True), choices  # type: ignore[return-value]
    except (HydraException, OmegaConfBaseException, yaml.YAMLError) as error:
        raise ConfigError(_readable(error, overrides)) from error


def _finish(raw: dict[str, Any], base: Path) -> dict[str, Any]:
    """Smoke values in, plugin paths absolute."""
    config = dict(raw)
    for key in ("model", "net", "task"):
        node = dict(config.get(key) or {})
        smoke = node.pop("smoke", None)
        if smoke and config.get("profile") == "smoke":
            node |= smoke
        config[key] = node
    config["plugins"] = [str(_plugin(p, base)) for p in config.get("plugins") or []]
    return config


def _plugin(name: str, base: Path) -> Path:
    for folder in dict.fromkeys([base, Path.cwd()]):
        path = (folder / Path(name).expanduser()).absolute()
        if path.is_file():
            if path.suffix != ".py" or not path.stem.isidentifier():
                raise ConfigError(f"a plugin must be a Python file with a plain name; got {name}.")
            return path
    raise ConfigError(f"there is no plugin file {name} in {base}. Give its path: plugins=[path/to/file.py].")


def _outside_experiment(text: str) -> Path:
    path = Path(text).expanduser().absolute()
    if not path.is_file():
        raise ConfigError(f"there is no experiment file {path}.")
    first = path.read_text(encoding="utf-8").partition("\n")[0].rstrip()
    if first != HEADER:
        raise ConfigError(f"{path}: line 1 must be exactly `{HEADER}`, or its values are ignored; it is `{first}`.")
    return path


def _known_group_name(override: str) -> None:
    key, equals, value = override.partition("=")
    if not equals:
        raise ConfigError(f"an override must be KEY=VALUE; got `{override}`.")
    sweep = any(mark in value for mark in ",*()")
    if key in GROUPS and value not in ("null", *names(key)) and not sweep:
        raise ConfigError(f"there is no {key} named {value}. {near(value, names(key))}")


def _readable(error: Exception, overrides: list[str]) -> str:
    """Hydra's messages, with near names where a key or a config is unknown."""
    text = str(error)
    if match := re.search(r"Could not override '([^']+)'", text):
        key = match.group(1)
        others = [o for o in overrides if not o.startswith(f"{key}=")]
        hint = _near_key(key, others) if len(others) < len(overrides) else ""
        return f"there is no config key {key}. {hint} To add one on purpose: +{key}=VALUE."
    if match := re.search(r"Could not find '([^']+)'", text):
        group, _, name = match.group(1).partition("/")
        return f"there is no config {match.group(1)}. {near(name, names(group)) if group in GROUPS else ''}".strip()
    return _first_line(error)


def _near_key(key: str, overrides: list[str]) -> str:
    node: Any = _hydra(overrides)[0]
    *parents, last = key.split(".")
    for parent in parents:
        node = node.get(parent) if isinstance(node, dict) else None
    return near(last, map(str, node)) if isinstance(node, dict) else ""


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
