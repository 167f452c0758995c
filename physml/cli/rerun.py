"""`physml rerun`: a recorded run is trained again, and its numbers are compared."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from physml.base.paths import display_path
from physml.cli.options import add_options, count

if TYPE_CHECKING:
    from physml.records.schema import Record
    from physml.run.spec import RunSpec

BACKENDS = ("auto", "reference", "torch", "native", "triton")


def add(commands: Any) -> None:
    rerun = commands.add_parser(
        "rerun",
        help="train a recorded run again, and say whether the numbers are the same",
        epilog="Exit code 0: equal, or within what another processor or backend explains. 1: different.",
    )
    rerun.add_argument(
        "run", metavar="RECORD", help="a record, its place below results/runs, or an experiment"
    )
    rerun.add_argument("--seed", type=int, default=0, help="of an experiment's runs; default: 0")
    rerun.add_argument("--split", type=int, default=0, help="of an experiment's runs; default: 0")
    rerun.add_argument("--plan", action="store_true", help="show what it would train and cost, and stop")
    add_options(rerun, ("--plugin", "--device"))
    rerun.add_argument("--backend", choices=BACKENDS, help="another one than the run preferred")
    rerun.add_argument("--threads", type=count, metavar="N", help="another number than the run had")
    rerun.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from physml.report.compare.rerun import dirty, verdict
    from physml.run.named import run_of
    from physml.run.progress import reporter
    from physml.run.rerun import rerun_spec, seeds_of, trained_again

    record = run_of(options.run, options.split, options.seed)
    changed = {key: getattr(options, key) for key in ("device", "backend", "threads")}
    spec = rerun_spec(record, options.plugin, {key: value for key, value in changed.items() if value})
    if line := dirty(record):
        print(line)
    if options.plan:
        _show(record, spec)
        return 0
    seeds = seeds_of(record)
    new = trained_again(spec, reporter())
    print(f"recorded: {display_path(Path(record['path']))}")
    print(f"again:    {display_path(Path(new['path']))}")
    comparison = verdict(record, new, seeds)
    print(comparison.sentence)
    return 1 if comparison.outcome == "different" else 0


def _show(record: "Record", spec: "RunSpec") -> None:
    """Print the run that is trained, its recorded cost, and the place of the new record."""
    cost, machine = record.get("cost"), record.get("machine") or {}
    print(f"trains again: {display_path(Path(record['path']))}")
    print(f"  {record['experiment']} {record['identity']}, split {record['split']}, seed {record['seed']}")
    if cost:
        device = machine.get("cpu") if machine.get("device") == "cpu" else machine.get("device")
        print(
            f"  took {cost['train_s'] + cost['eval_s']:.1f} s ({record.get('n_steps')} steps of "
            f"{cost['ms_per_step']:.1f} ms) and {cost['peak_memory_mib']:.0f} MiB on {device}"
        )
    print(f"  the new record: {display_path(spec.record_path)}")
