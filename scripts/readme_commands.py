"""The commands of README.md and the how-tos, extracted and run, so that they can't rot.

What counts, in any Markdown file:
- a fenced block opened by ```console is run in the checkout, one by ```console elsewhere in a folder outside;
- in it, each line that starts with `$ ` is a command, without its ` # comment`; other lines are output;
- a block opened by ```python NAME (so for yaml, csv) is written to the outside folder as the file NAME;
- a block right below `<!-- not run: reason -->` is not run.
Commands that would train for long get the tiny sizes: `profile=smoke`, `--smoke` or `SMOKE=1` is added.
Nothing is written into the checkout: results, work folders and caches are temporary, those of all files the
same ones, as a reader's are; compiled C is shared.
"""

import argparse
import multiprocessing
import os
import re
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import torch  # noqa: F401 - for the processes that are forked

from physml.base.paths import own_folders
from physml.cli import main as physml

ROOT = Path(__file__).resolve().parent.parent
TIME_LIMIT_S = 600
_FENCE = re.compile(r"^```(\w+)?[ ]*(\S+)?[ ]*$")
_SKIP = re.compile(r"^<!-- not run: (.+) -->$")
_QUICK = re.compile(r"RUN=0|PLAN=1|--(no-run|plan|cfg|help)\b|SMOKE=1|--smoke|profile=smoke")
_SETTING = re.compile(r"(\w+)=(.*)")  # of a variable, before a command
# What is put behind the first words of a command.
_TINY = (
    (re.compile(r"\bphysml run\b"), " profile=smoke"),
    (re.compile(r"\bphysml (table|figure)\b(?! --all)"), " --smoke"),
    (re.compile(r"\bmake(?= (demo|table-|figure-))"), " SMOKE=1"),
)
# Settings of the person, or of a `make` around this one, that would change what the commands do.
_FOREIGN = (
    *("MAKEFLAGS", "MFLAGS", "MAKEOVERRIDES", "MAKELEVEL", "SEEDS", "RUN", "FORCE", "SMOKE", "PLAN", "JOBS"),
    *("MAX_HOURS", "DEVICE", "VERIFY", "ARGS", "PAPER", "PHYSML_DATA", "PHYSML_CONF"),
)


@dataclass(frozen=True)
class Block:
    """A fenced block: language, the word after it, lines, number of its first line, why it is not run."""

    language: str
    word: str
    lines: tuple[str, ...]
    line: int
    skip: str | None


@dataclass(frozen=True)
class Command:
    text: str
    line: int
    elsewhere: bool
    skip: str | None

    @property
    def tiny(self) -> str:
        """The command as it is tested."""
        if _QUICK.search(self.text):
            return self.text
        text = self.text
        for pattern, words in _TINY:
            text = pattern.sub(rf"\g<0>{words}", text)
        return text


def blocks(text: str) -> Iterator[Block]:
    lines = text.splitlines()
    start: int | None = None
    language = word = ""
    for i, line in enumerate(lines):
        if start is None:
            if match := _FENCE.match(line):
                start, language, word = i, match.group(1) or "", match.group(2) or ""
        elif line == "```":
            above = _SKIP.match(lines[start - 1]) if start else None
            yield Block(
                language, word, tuple(lines[start + 1 : i]), start + 2, above.group(1) if above else None
            )
            start = None
    if start is not None:
        raise SystemExit(f"the fenced block opened in line {start + 1} is not closed.")


def commands(text: str) -> list[Command]:
    return [
        Command(
            re.sub(r"\s+# .*$", "", line[2:]).strip(), block.line + i, block.word == "elsewhere", block.skip
        )
        for block in blocks(text)
        if block.language == "console"
        for i, line in enumerate(block.lines)
        if line.startswith("$ ")
    ]


def files(text: str) -> dict[str, str]:
    """The files that a text shows: name -> content."""
    return {
        block.word: "\n".join(block.lines) + "\n"
        for block in blocks(text)
        if block.language in ("python", "yaml", "csv") and block.word
    }


def environment() -> dict[str, str]:
    kept = {key: value for key, value in os.environ.items() if key not in _FOREIGN}
    return kept | {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "WANDB_MODE": "offline",
    }


def run(document: Path, own: dict[str, str]) -> int:
    """Run the commands of one file in their order, with `own` folders; how many failed."""
    text = document.read_text(encoding="utf-8")
    failed = 0
    with tempfile.TemporaryDirectory(prefix="physml-readme-") as folder:
        outside = Path(folder)
        for name, content in files(text).items():
            (outside / name).parent.mkdir(parents=True, exist_ok=True)
            (outside / name).write_text(content, encoding="utf-8")
        for command in commands(text):
            where = f"{document.relative_to(ROOT)}:{command.line}"
            if command.skip:
                print(f"--- {where}: not run ({command.skip}): {command.text}", flush=True)
                continue
            print(f"--- {where}: {command.tiny}", flush=True)
            started = time.monotonic()
            code = carried_out(command.tiny, outside if command.elsewhere else ROOT, environment() | own)
            failed += code != 0
            seconds = time.monotonic() - started
            print(f"    {'ok' if code == 0 else f'FAILED, exit code {code}'}, {seconds:.1f} s", flush=True)
    return failed


def carried_out(text: str, folder: Path, variables: dict[str, str]) -> int:
    """The exit code of a command. Those of physml run in a fork of this process, which has imported torch."""
    words = shlex.split(text)
    while words and (setting := _SETTING.match(words[0])):
        variables |= {setting[1]: setting[2]}
        del words[0]
    if words[0] == "physml":
        process = multiprocessing.get_context("fork").Process(
            target=_physml, args=(words[1:], folder, variables)
        )
        process.start()
        process.join(TIME_LIMIT_S)
        process.kill()
        return 124 if process.exitcode is None else process.exitcode
    bash = ["bash", "-euo", "pipefail", "-c", text]
    try:
        return subprocess.run(
            bash, cwd=folder, env=variables, stdin=subprocess.DEVNULL, timeout=TIME_LIMIT_S
        ).returncode
    except subprocess.TimeoutExpired:
        return 124


def _physml(arguments: list[str], folder: Path, variables: dict[str, str]) -> None:
    """Run `physml` with these arguments, in a process that was forked for it."""
    os.chdir(folder)
    os.environ.clear()
    os.environ |= variables
    sys.argv, sys.path = ["physml", *arguments], sys.path[1:]
    sys.exit(physml.main(arguments))


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--run", action="store_true", help="run the commands; without it they are only listed"
    )
    parser.add_argument(
        "documents", nargs="*", type=Path, default=[ROOT / "README.md"], help="Markdown files"
    )
    arguments = parser.parse_args()
    failed, scratch = 0, tempfile.TemporaryDirectory(prefix="physml-readme-")
    own = own_folders(Path(scratch.name))
    for document in arguments.documents:
        path = document.resolve()
        listed = commands(path.read_text(encoding="utf-8"))
        if not listed:
            raise SystemExit(f"{document} holds no command: no line of a ```console block starts with `$ `.")
        if arguments.run:
            failed += run(path, own)
        else:
            print("\n".join(f"{command.line}: {command.tiny}" for command in listed))
    scratch.cleanup()
    if arguments.run:
        print(f"{failed} commands failed" if failed else "all commands passed")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
