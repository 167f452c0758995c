"""The command `physml track`: finished runs for a tracker, from offline copies and from records."""

import argparse
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.paths import results_root, work_root

if TYPE_CHECKING:
    from physml.execution.trackers.upload import Upload
    from physml.records.schema import Record

DESCRIPTION = """sync: send what a tracker has not got yet: offline runs of W&B in the work folders, and
finished records with their curves. Sending twice sends nothing new."""


def add(commands: Any) -> None:
    parser = commands.add_parser("track", help="send finished runs to W&B or MLflow", description=DESCRIPTION)
    parser.add_argument("action", choices=("sync",))
    parser.add_argument(
        "names",
        nargs="*",
        metavar="RECORD|FOLDER|TABLE",
        help="records, folders of records, ids of tables; default: all records of tables",
    )
    parser.add_argument("--plan", action="store_true", help="show what would be sent, and stop")
    parser.add_argument("--tracker", choices=("wandb", "mlflow"), default="wandb", help="default: wandb")
    parser.add_argument("--project", help="default: that of conf/tracker")
    parser.add_argument("--paper", default="lem", help="the paper that a bare number of a table belongs to")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.execution.progress import tracked
    from physml.execution.trackers.upload import Upload

    if not options.plan:
        from physml.execution.trackers.registry import SERVICES

        SERVICES[options.tracker].refuse()
    folders = (
        [Path(name) for name in options.names if Path(name).is_dir()] if options.names else [work_root()]
    )
    records = _records(options.names, options.paper)
    upload = Upload(options.tracker, options.project, records, folders)
    if options.plan:
        return _plan(upload)
    waiting = upload.waiting()
    unsent = upload.service.send_waiting(waiting)
    lacking, failed = upload.lacking(), 0
    for run, made in tracked(lacking, f"sending records to {upload.service.name}"):
        if not upload.send(run, made):
            failed += 1
            print(f"{run.name}: not sent")
            if failed == 1 and run is lacking[0][0]:
                print(f"{upload.service.address()} took nothing; the others were not tried.")
                failed = len(lacking)
                break
    sent = len(lacking) - failed + len(waiting) - len(unsent)
    print(f"{sent} runs sent to {upload.service.address()}, {len(upload.runs) - len(lacking)} were there")
    return int(bool(failed or unsent))


def _plan(upload: "Upload") -> int:
    from physml.cli.console import Line, aligned

    waiting, lacking = upload.waiting(), upload.lacking()
    every = Counter(run.place.folder for run, _ in upload.runs)
    new = Counter(run.place.folder for run, _ in lacking)
    rows = [Line(("experiment", "records", "to send"))]
    rows += [Line((folder, str(number), str(new[folder]))) for folder, number in sorted(every.items())]
    print(aligned(rows))
    print(
        f"{len(waiting)} offline runs and {len(lacking)} of {len(upload.runs)} records "
        f"to send to {upload.service.name}: {upload.service.address()}, project {upload.keys['project']}"
    )
    return 0


def _records(names: list[str], paper: str) -> "list[Record]":
    from physml.execution.progress import tracked
    from physml.records import export, record

    if not names:
        paths = export.run_files(results_root())
        return [{**record.read(path), "path": str(path)} for path in tracked(paths, "reading records")]
    found: dict[str, Record] = {}
    for name in names:
        for made in _named(name, paper):
            found.setdefault(made["path"], made)
    return list(found.values())


def _named(name: str, paper: str) -> "list[Record]":
    """A record, the records below a folder, or those of a table."""
    from physml.execution.run_spec import folder_of
    from physml.records import record
    from physml.reporting.table_spec import experiments_of, find_table, load_table

    path = Path(name)
    if path.exists():
        paths = sorted(path.rglob(record.RUNS)) if path.is_dir() else [path]
        return [{**record.read(one), "path": str(one.absolute())} for one in paths]
    experiments = experiments_of(load_table(find_table(name, paper)))
    return [made for experiment in experiments for made in record.records(folder_of(experiment))]
