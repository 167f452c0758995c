"""The command `physml records`: files of results/runs brought up to date, packed, made into runs.csv."""

import argparse
from typing import Any

from physml.base.errors import ConfigError, suggest
from physml.base.paths import display_path, results_root, work_root

DESCRIPTION = """pack: join the runs of each folder in runs.jsonl, and the curves of each
    setting in one file
export: write runs.csv, a row per run, from the records of tables
costs: add what --plan --probe has measured here to costs.jsonl, for others
Several are done in this order. Each can be stopped and started again."""


ACTIONS = ("pack", "export", "costs")


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "records",
        help="pack or export the records of results/runs",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("actions", nargs="+", metavar="ACTION")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.base.lock import held
    from physml.records import curves, export, pack, record
    from physml.run.progress import tracked

    root = results_root()
    runs = root / "runs"
    for action in options.actions:
        if action not in ACTIONS:
            raise ConfigError(f"there is no action {action}. {suggest(action, ACTIONS)}")
    if "pack" in options.actions:
        with held(work_root() / "pack"):
            done = 0
            for folder in tracked(record.folders_below(runs), "packing"):
                curves.pack(folder)
                done += pack.pack(folder, work_root() / folder.relative_to(runs))
        print(f"packed {done} runs below {display_path(runs)}")
    if "export" in options.actions:
        print(f"written: {display_path(export.write_runs_csv(root))}")
    if "costs" in options.actions:
        from physml.queue.planning import gather_costs

        print(f"written: {display_path(gather_costs(root))}")
    return 0
