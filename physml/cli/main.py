"""The command line. Nothing slow is imported here; each command imports what it needs."""

import argparse
import importlib
import logging
import os
import re
import shlex
import signal
import sys
from collections.abc import Callable
from difflib import get_close_matches
from typing import Any, NoReturn, cast

from physml import __version__
from physml.base.errors import ConfigError, InputError, PhysmlError, suggest
from physml.cli.console import Line, aligned, write_what_the_terminal_can
from physml.cli.distribution import distributed, of_pilot
from physml.cli.options import CONFIGS, add_options, own_configs
from physml.config.hydra_words import refuse_option
from physml.training.interrupt import SIGNALS, handled

# The commands by purpose, in the order of `physml --help`.
GROUPS = {
    "start": ("list", "table", "run", "data", "doctor"),
    "results": ("figure", "compare", "diff", "plot", "rerun", "site", "cite"),
    "work of your own": ("search", "export", "track", "records"),
    "operate": ("status", "logs", "failed", "retry", "pilot", "completion"),
}
# The module of a command, where it has another name.
MODULES = {
    **{"list": "listing", "pilot": "distribution", "diff": "compare"},
    **dict.fromkeys(("logs", "failed", "retry"), "status"),
}
COMMANDS = {name: MODULES.get(name, name) for names in GROUPS.values() for name in names}
BEFORE_RUN = ("-m", "--multirun", "-c", "--cfg", "--resolve")  # typed so for a program of Hydra
ENDING = [number for number in SIGNALS if number != signal.SIGINT]
EPILOG = """first steps:
  physml table lem-4 --no-run        a table of a paper beside recorded runs
  physml run model=lem task=adding   train a model on a task
  physml COMMAND --help              the options of a command

exit codes: 0 ok, 1 a run failed, 2 bad config or input, 75 stopped (the same
  command goes on)
environment: PHYSML_RESULTS (records, tables), PHYSML_DATA, PHYSML_CACHE,
  PHYSML_RUNS (work folders), PHYSML_CONF (configs of your own)
"""


def main(arguments: list[str] | None = None) -> int:
    """Run one command; errors meant for a person become one line and an exit code."""
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s: %(message)s")
    arguments = sys.argv[1:] if arguments is None else arguments
    write_what_the_terminal_can(arguments)
    try:
        try:
            if arguments[:1] == ["pilot"] and len(arguments) > 1 and not arguments[1].startswith("-"):
                arguments = of_pilot(arguments[1:])
            if not arguments:
                print(parser().format_help(), end="")
                return 0
            options = parsed(arguments)
            command: Callable[[argparse.Namespace], int] = options.command
            # They end a command as Ctrl-C does, until a run takes them over to leave a checkpoint.
            ending = handled(ENDING, signal.default_int_handler)
            with ending, own_configs(options.config_dir), distributed(options, arguments):
                return command(options)
        finally:
            sys.stdout.flush()  # here, where a closed pipe is no error
    except PhysmlError as error:
        print(f"error: {error}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return _stopped()
    except BrokenPipeError:  # the reader, say `head`, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except OSError as error:  # a full disk, a folder that may not be written
        place = f"{error.filename}: " if error.filename else ""
        print(f"error: {place}{error.strerror or error}.", file=sys.stderr)
        return 2
    except Exception as error:
        if _came_of_a_stop(error):
            return _stopped()
        raise


def _stopped() -> int:
    print("stopped; start the same command again to go on.", file=sys.stderr)
    return 75


def _came_of_a_stop(error: BaseException | None) -> bool:
    """True if a stop caused this error: some libraries fail to clean up after one in an import."""
    while error and not isinstance(error, KeyboardInterrupt):
        error = error.__cause__ or error.__context__
    return error is not None


def parsed(arguments: list[str]) -> argparse.Namespace:
    """Overrides and ids may also stand after and between options, which argparse alone refuses."""
    for word in arguments:
        try:
            word.encode()
        except UnicodeEncodeError as error:
            raise InputError(f"an argument must be UTF-8 text; got {word!a}.") from error
        if not word or (word.startswith("--") and word.find("=") == len(word) - 1):
            raise InputError(f"{word or 'an argument'} is empty. Is a variable of the shell not set?")
    arguments = translated(arguments)
    top = parser(arguments[0])
    options, rest = top.parse_known_args(arguments)
    name = next((name for name in ("overrides", "ids", "names") if hasattr(options, name)), None)
    if strange := [word for word in rest if word.startswith("-") or name is None]:
        settings = "Settings are written KEY=VALUE, such as model=lem. " if name == "overrides" else ""
        command = commands_of(top).get(arguments[0], top)
        option = strange[0].partition("=")[0]
        names = {known.lstrip("-"): known for known in command._option_string_actions}
        near = get_close_matches(option.lstrip("-"), names, n=1)
        hint = f"Did you mean {names[near[0]]}?" if near else f"See {command.prog} --help"
        if name == "overrides" and option == "--device":
            hint = "Did you mean runtime.device=cpu?"
        top.error(f"unrecognized arguments: {' '.join(strange)}. {settings}{hint}")
    if name and rest:
        setattr(options, name, [*getattr(options, name), *rest])
    if getattr(options, "probe", False) and not options.plan:
        raise ConfigError("--probe measures what --plan shows: give both.")
    return options


def translated(arguments: list[str]) -> list[str]:
    """A line typed for Hydra, in words of this program: `--cfg job` becomes `--cfg`; options and forms that
    mean nothing here are refused with a hint. docs/hydra.md has the list.
    """
    first = arguments[0]
    if first not in COMMANDS:
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
            if name == "seed" and (ends := re.fullmatch(r"(\d+)-(\d+)", value)):
                first_seed, last = map(int, ends.groups())
                raise ConfigError(f"{word}: a sweep names seeds as -m 'seed=range({first_seed},{last + 1})'.")
            words.append(word)
    if "--resolve" in words and "--cfg" not in words:
        raise ConfigError("--resolve belongs to --cfg: give both.")
    return words


def _refuse_other(value: str) -> None:
    if value != "job":
        raise ConfigError(f"--cfg {value}: a run has no config of Hydra's own. --cfg job prints the config.")


def parser(command: str | None = None) -> argparse.ArgumentParser:
    """The parser of one command, its module alone imported; of all where `command` is none of them."""
    top = _Grouped(prog="physml", description="Check, compare and extend physics-inspired ML.")
    top.add_argument("--version", action="version", version=f"physml {__version__}")
    commands = top.add_subparsers(metavar="COMMAND", required=True, parser_class=_Parser)
    modules = [COMMANDS[command]] if command in COMMANDS else dict.fromkeys(COMMANDS.values())
    for module in modules:
        importlib.import_module(f"physml.cli.{module}").add(commands)
    for subparser in commands.choices.values():
        add_options(subparser, CONFIGS)
    return top


def commands_of(top: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    """The parsers of the commands, by name."""
    (commands,) = cast(Any, top._subparsers)._group_actions
    return dict(commands.choices)


class _Parser(argparse.ArgumentParser):
    """Near names for mistyped commands and choices. Options are whole words: pilots get some of them."""

    def __init__(self, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options | {"allow_abbrev": False})

    def error(self, message: str) -> NoReturn:
        if match := re.search(r"invalid choice: '(.+?)' \(choose from (.+)\)", message):
            typed, known = match.group(1), re.findall(r"[\w-]+", match.group(2))
            message = f"{message[: match.start()]}there is no {typed}. {suggest(typed, known)}"
        super().error(message)


class _Grouped(_Parser):
    """Shows the commands by purpose."""

    def format_help(self) -> str:
        (commands,) = cast(Any, self._subparsers)._group_actions
        helps = {action.dest: action.help or "" for action in commands._get_subactions()}
        lines = [self.format_usage(), f"{self.description}\n"]
        for title, names in GROUPS.items():
            shown = [Line((f"  {name}", helps[name])) for name in names if name in helps]
            lines.append(f"{title}:\n{aligned(shown, 80)}\n" if shown else "")
        return "\n".join([*filter(None, lines), EPILOG])
