"""The command `physml track`: finished runs for a tracker, from their records."""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base.errors import PhysmlError
from physml.base.paths import results_root
from physml.cli.console import Line, aligned
from physml.cli.options import PAPER, add_options

if TYPE_CHECKING:
    from physml.records.schema import Record
    from physml.run.trackers.upload import Upload

DESCRIPTION = """sync: send finished records, with their curves, that a tracker has not got yet. Sending twice
sends nothing new."""


def add(commands: Any) -> None:
    parser = commands.add_parser("track", help="send finished runs to W&B or MLflow", description=DESCRIPTION)
    parser.add_argument("action", choices=("sync",))
    parser.add_argument(
        "names",
        nargs="*",
        default=[],
        metavar="RECORD|FOLDER|TABLE",
        help="records, folders of records, ids of tables; default: all records of tables",
    )
    parser.add_argument("--plan", action="store_true", help="show what would be sent, and stop")
    parser.add_argument("--tracker", choices=("wandb", "mlflow"), default="wandb", help="default: wandb")
    parser.add_argument("--project", help="default: that of conf/tracker")
    add_options(parser, PAPER)
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.run.trackers.registry import SERVICES
    from physml.run.trackers.upload import Upload

    if not options.plan:
        SERVICES[options.tracker].refuse()
    upload = Upload(options.tracker, options.project, _records(options.names, options.paper))
    return _plan(upload) if options.plan else _send(upload)


def _send(upload: "Upload") -> int:
    """Exit code 1 where something could not be sent. If the first is not taken, the others are not tried."""
    from physml.run.progress import tracked

    lacking, sent = upload.lacking(), 0
    for run, record in tracked(lacking, f"sending records to {upload.service.name}"):
        if upload.send(run, record):
            sent += 1
            continue
        print(f"{run.name}: not sent")
        if not sent:
            print(f"{upload.service.address()} took nothing; the others were not tried.")
            break
    print(
        f"{sent} runs sent to {upload.service.address()}; "
        f"{len(lacking) - sent} of {len(upload.runs)} records are not there"
    )
    return int(sent < len(lacking))


def _plan(upload: "Upload") -> int:
    lacking = upload.lacking()
    every = Counter(run.place.folder for run, _ in upload.runs)
    new = Counter(run.place.folder for run, _ in lacking)
    rows = [Line(("experiment", "records", "to send"))]
    rows += [Line((folder, str(number), str(new[folder]))) for folder, number in sorted(every.items())]
    print(aligned(rows))
    print(
        f"{len(lacking)} of {len(upload.runs)} records to send to {upload.service.name}: "
        f"{upload.service.address()}, project {upload.keys['project']}"
    )
    try:
        upload.service.refuse()
    except PhysmlError as error:
        print(f"Not yet: {error}")
    return 0


def _records(names: list[str], paper: str) -> "list[Record]":
    from physml.records import export, record
    from physml.run.progress import tracked

    if not names:
        paths = list(export.run_paths(results_root()))
        return [record.read(path) for path in tracked(paths, "reading records")]
    by_path: dict[str, Record] = {}
    for name in names:
        for run in _named(name, paper):
            by_path.setdefault(run["path"], run)
    return list(by_path.values())


def _named(name: str, paper: str) -> "list[Record]":
    """A record, the records below a folder, or those of a table."""
    from physml.config.conf_files import YAML
    from physml.records import record
    from physml.report.table.spec import experiments_of, find_table, load_table
    from physml.run.spec import folder_of

    path = Path(name).absolute()
    if path.is_dir() or (record.exists(path) and not name.endswith(YAML)):
        paths = record.runs_below(path) if path.is_dir() else [path]
        return [record.read(file) for file in paths]
    experiments = experiments_of(load_table(find_table(name, paper)))
    return [run for experiment in experiments for run in record.records(folder_of(experiment))]
