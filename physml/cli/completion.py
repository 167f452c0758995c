"""`physml completion`: what a shell needs to complete commands, options and ids."""

import argparse
from collections.abc import Iterator
from typing import Any

# The command -> where the names of its arguments are found in conf/.
GROUPS = {"table": "table", "cite": "table", "figure": "figure"}


def add(commands: Any) -> None:
    completion = commands.add_parser(
        "completion",
        help="print the completion of commands, options and ids for a shell",
        epilog='Example: eval "$(physml completion bash)" in ~/.bashrc',
    )
    completion.add_argument("shell", choices=("bash", "zsh", "tcsh"))
    completion.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.base.errors import needed_by
    from physml.cli.main import parser

    with needed_by("physml completion"):
        import shtab

    top = parser()
    for name, command in _commands(top):
        _offer_names(name, command)
    print(shtab.complete(top, options.shell))
    return 0


def _commands(top: argparse.ArgumentParser) -> Iterator[tuple[str, argparse.ArgumentParser]]:
    for action in top._actions:
        if isinstance(action, argparse._SubParsersAction):
            yield from action.choices.items()


def _offer_names(name: str, command: argparse.ArgumentParser) -> None:
    """Make the known names choices of this one parser, which parses nothing: any path stays allowed."""
    from physml.config import conf_files

    if name not in GROUPS:
        return
    for action in command._actions:
        if action.dest == "ids":
            action.choices = sorted(conf_files.files(GROUPS[name]))
