"""Overrides of the command line, by Hydra's grammar: expanded to multiruns, put into a config."""

import itertools
import math
import re
from collections.abc import Callable
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.config.load import walk

PARTS = ("model", "net", "task", "trainer", "optim", "runtime", "tracker")
KEY = re.compile(r"\$\{\.*\w[\w.\[\]]*\}", re.ASCII)  # `${net.hidden}`, OmegaConf's form of another key
MOST_RUNS = 100_000  # of one command
GROUPS = ("experiment", *PARTS, "profile")
SEED_OR_SPLIT = re.compile(r"(seed|split)=(\d{1,18})")  # of every run of a table: it needs no more grammar


def expand(overrides: list[str], names: Callable[[str], list[str]]) -> list[list[str]]:
    """A multirun: `seed=0,1 model=lem,lstm` gives all combinations, `model=glob(*rnn)` all names that fit.

    names: the config names of a group.
    """
    from hydra.core.override_parser.types import Glob, RangeSweep

    choices = []
    for text in overrides:
        override = _parsed(text)
        if not override.is_sweep_override():
            choices.append([text])
        elif isinstance(override.value(), Glob):
            choices.append([f"{override.key_or_group}={name}" for name in _fitting(text, override, names)])
        elif override.is_discrete_sweep():
            if isinstance(override.value(), RangeSweep):
                _check_range(text, override.value())
            values = [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
            if not values:
                raise ConfigError(f"{text}: it has no values.")
            choices.append(values)
        else:
            raise ConfigError(
                f"{text}: -m takes lists and ranges; continuous intervals belong to `physml search`."
            )
    if (n := math.prod(map(len, choices))) > MOST_RUNS:
        raise ConfigError(f"these overrides make {n} combinations; at most {MOST_RUNS} are taken at once.")
    return [list(combination) for combination in dict.fromkeys(itertools.product(*choices))]


def _check_range(text: str, values: Any) -> None:
    """ConfigError for a range without an end, or of more values than there may be runs."""
    try:
        n = sum(1 for _ in itertools.islice(values.range(), MOST_RUNS + 1)) if values.step else MOST_RUNS + 1
    except (ValueError, ArithmeticError) as error:
        raise ConfigError(f"{text}: {error}.") from error
    if n > MOST_RUNS:
        raise ConfigError(f"{text}: a range has at most {MOST_RUNS} values, and a step that is not 0.")


def _fitting(text: str, override: Any, names: Callable[[str], list[str]]) -> list[str]:
    """The names of a group that fit a pattern; ConfigError where none does."""
    group = override.key_or_group
    if group not in GROUPS:
        raise ConfigError(f"{text}: a pattern is for the names of a group, such as model; {group} is none.")
    known = names(group)
    matching: list[str] = override.value().filter(known)
    if not matching:
        raise ConfigError(f"{text}: none of the {len(known)} names of {group} fits. {suggest('', known)}")
    return matching


def with_overrides(config: dict[str, Any], overrides: list[str]) -> Any:
    """The config as an OmegaConf node, with the overrides in it."""
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    text = ""
    refuse_resolvers(config)
    try:
        node = OmegaConf.create(config)
        OmegaConf.set_struct(node, True)
        for text in overrides:
            _apply(node, text)
    except OmegaConfBaseException as error:
        raise ConfigError(f"{text or error.full_key}: {first_line(error)}.") from error
    return node


def refuse_resolvers(tree: Any, where: str = "") -> None:
    """ConfigError for `${...}` that is more than another key: `${oc.env:HOME}` would read a variable."""
    for at, value in walk(tree, where):
        for text in value if isinstance(value, dict) else (value,):
            if isinstance(text, str) and "${" in KEY.sub("", text):
                raise ConfigError(
                    f"{at or text} must not have {text!r}: `${{...}}` may name another key of the config, as "
                    "${net.hidden}, and nothing else. Write the value itself."
                )


def _apply(node: Any, text: str) -> None:
    """One override: KEY=VALUE changes, +KEY=VALUE adds, ++ does either, ~ deletes."""
    from omegaconf import DictConfig, OmegaConf, open_dict

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
    value = override.value()
    refuse_resolvers(value, key)
    holder, near = _holder(node, key)
    current = None if holder is None else OmegaConf.select(node, key, throw_on_missing=False)
    if override.is_add() and current is not None and not isinstance(value, dict | list):
        raise ConfigError(f"{text}: {key} is there already. Change it without the +.")
    if override.is_add() or override.is_force_add():
        OmegaConf.update(node, key, value, merge=True, force_add=True)
    elif holder is None:
        if not override.is_delete() and key.startswith(("model.", "net.", "task.", "optim.", "trainer.s")):
            near += f" To add one on purpose: +{key}=VALUE."
        raise ConfigError(f"there is no config key {key}. {near.strip()}".strip())
    elif override.is_delete():
        if value is not None and value != current:
            raise ConfigError(f"{text}: {key} is {current!r}. To delete it: ~{key}={current}.")
        with open_dict(node):
            del holder[key.rpartition(".")[2]]
    else:
        of_no_class = isinstance(current, DictConfig) and "_target_" not in current
        whole = "." in key and isinstance(value, dict) and (of_no_class or "_target_" in value)
        OmegaConf.update(node, key, value, merge=not whole)


def _parsed(text: str) -> Any:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        return OverridesParser.create().parse_override(text)
    except (HydraException, ValueError) as error:  # ValueError: a number of thousands of digits
        raise ConfigError(f"{text}: {first_line(error)}. Check its brackets and quotes.") from error


def _holder(node: Any, key: str) -> tuple[Any, str]:
    """The node that holds a dotted key; else None, with the names near to its first unknown part."""
    from omegaconf import OmegaConf

    holder = None
    for part in key.split("."):
        if not OmegaConf.is_dict(node):
            return None, ""
        if part not in node.keys():  # noqa: SIM118
            return None, suggest(part, map(str, node.keys()))
        holder, node = node, node._get_node(part, validate_access=False)
    return holder, ""


def first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0].rstrip(".")
