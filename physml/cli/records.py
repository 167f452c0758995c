"""The command `physml records`: files of results/runs brought up to date, packed, made into runs.csv."""

import argparse
from pathlib import Path
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.base.paths import display_path, results_root

DESCRIPTION = """convert: rewrite records of an older schema, and their curves, in the present one
pack: join the curves of each setting in one file
export: write runs.csv, a row per run, from the records of tables
push URL, pull URL: copy records of tables to or from a store, s3://bucket/physml or a folder
Several of the first three are done in this order. Each can be stopped and started again."""


ACTIONS = ("convert", "pack", "export")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "records",
        help="convert, pack, export or copy the records of results/runs",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("actions", nargs="+", metavar="ACTION")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.records import curves, export
    from physml.run.progress import tracked

    root = results_root()
    runs = root / "runs"
    if options.actions[0] in ("push", "pull"):
        return _copied(options.actions, runs)
    for action in options.actions:
        if action not in ACTIONS:
            raise ConfigError(f"there is no action {action}. {suggest(action, (*ACTIONS, 'push', 'pull'))}")
    if "convert" in options.actions:
        paths = export.run_files(root, adhoc=True)
        changed = sum(curves.convert(path) for path in tracked(paths, "converting records"))
        print(f"converted {changed} of {len(paths)} records below {display_path(runs)}")
    if "pack" in options.actions:
        folders = sorted({path.parent for path in runs.rglob("*.csv.?z")})
        packed = sum(curves.pack(folder) for folder in tracked(folders, "packing curves"))
        print(f"packed the curves of {packed} runs below {display_path(runs)}")
    if "export" in options.actions:
        print(f"written: {display_path(export.write_runs_csv(root))}")
    return 0


def _copied(words: list[str], runs: Path) -> int:
    """Exit code 1 where a file of a store was refused."""
    from physml.records import remote

    if len(words) != 2:
        raise ConfigError(f"records {words[0]} takes one URL, such as s3://bucket/physml or a folder.")
    made = remote.push(runs, words[1]) if words[0] == "push" else remote.pull(words[1], runs)
    print(f"{len(made.new)} files copied, {len(made.same)} were there, {len(made.kept)} differ and were left")
    for name in made.kept:
        print(f"  {name}: another one is there")
    for name, why in made.refused.items():
        print(f"  {name}: refused: {why}")
    return int(bool(made.refused))
