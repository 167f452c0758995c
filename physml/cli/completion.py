"""`physml completion`: what a shell needs to complete commands, options and ids."""

import argparse
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
    from physml.cli.main import commands_of, parser
    from physml.config import conf_files

    with needed_by("physml completion"):
        import shtab

    top = parser()
    # Known names become choices of this one parser, which parses nothing: any path stays allowed.
    commands = commands_of(top)
    for name, group in GROUPS.items():
        (ids,) = (action for action in commands[name]._actions if action.dest == "ids")
        ids.choices = sorted(conf_files.files(group))
    print(shtab.complete(top, options.shell))
    return 0
