"""The lowest versions that pyproject.toml promises, as constraints for pip: `make bounds` installs them.

`--without torch` leaves packages out, which pip then chooses.
"""

import argparse
import re
import sys
import tomllib
from pathlib import Path

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"
LOWEST = re.compile(r"(?P<name>[\w.-]+)(\[[\w,]+\])?>=(?P<version>[\w.]+)")
OPTIONAL = ("all",)  # the extras whose bounds are tested


def lowest(content: str, extras: tuple[str, ...] = OPTIONAL) -> dict[str, str]:
    """The lowest version of each package that has one, of the base and of `extras` with those they name."""
    project = tomllib.loads(content)["project"]
    optional = project["optional-dependencies"]
    requirements, names = list(project["dependencies"]), list(extras)
    for name in names:
        for requirement in optional[name]:
            if whole := re.fullmatch(rf"{project['name']}\[([\w,]+)\]", requirement):
                names += [part for part in whole[1].split(",") if part not in names]
            else:
                requirements.append(requirement)
    bounds = (LOWEST.match(requirement) for requirement in requirements)
    return {bound["name"]: bound["version"] for bound in bounds if bound}


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--without", nargs="*", default=[], metavar="PACKAGE")
    without = parser.parse_args(arguments).without
    for name, version in lowest(PYPROJECT.read_text(encoding="utf-8")).items():
        if name not in without:
            print(f"{name}=={version}")


if __name__ == "__main__":
    main(sys.argv[1:])
