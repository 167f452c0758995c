"""A command line typed for a program of Hydra, in the words of this one. docs/hydra.md has the list."""

import shlex
from collections.abc import Container

from physml.base.errors import ConfigError
from physml.config.hydra_words import refuse_option

BEFORE_RUN = ("-m", "--multirun", "-c", "--cfg", "--resolve")


def translated(arguments: list[str], commands: Container[str]) -> list[str]:
    """`--cfg job` becomes `--cfg`; options and forms that mean nothing here are refused with a hint."""
    first = arguments[0] if arguments else "run"
    if first not in commands:
        if first in BEFORE_RUN or ("=" in first and not first.startswith("-")):
            meant = shlex.join(["physml", "run", *arguments])
            raise ConfigError(f"settings belong to a command. Did you mean: {meant}")
        refuse_option(first)
    if first != "run":
        return arguments
    words: list[str] = []
    for word in arguments:
        name, equals, value = word.partition("=")
        if name in ("-c", "--cfg"):
            words.append("--cfg")
            _refuse_other(value if equals else "job")
        elif words[-1:] == ["--cfg"] and word in ("job", "hydra", "all"):
            _refuse_other(word)
        else:
            refuse_option(word)
            words.append(word)
    if "--resolve" in words and "--cfg" not in words:
        raise ConfigError("--resolve belongs to --cfg: give both.")
    return words


def _refuse_other(value: str) -> None:
    if value != "job":
        raise ConfigError(f"--cfg {value}: a run has no config of Hydra's own. --cfg job prints the config.")
