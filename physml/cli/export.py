"""`physml export`: the trained network of a run as a folder to take away."""

import argparse
from typing import Any

from physml.base.paths import display_path, expanded, results_root
from physml.cli.options import add_options

DESCRIPTION = """Writes the network of a run that kept its weights (runtime.save_model=true)
into a folder:
safetensors: the weights, for physml.load
onnx: a graph with a loop over time, for onnxruntime and others
and beside it a model card, the config and a file load.py of about ten lines."""


def add(commands: Any) -> None:
    parser = commands.add_parser(
        "export",
        help="the trained network of a run as safetensors or ONNX",
        description=DESCRIPTION,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("run", metavar="RUN", help="a record, its place below results/runs, or weights")
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--out", metavar="DIR", help="the folder, new or empty")
    where.add_argument(
        "--keep",
        action="store_true",
        help="put the weights into results/weights, if their score on test data is the recorded one",
    )
    parser.add_argument("--to", choices=("safetensors", "onnx"), default="safetensors")
    parser.add_argument(
        "--lengths", action="store_true", help="the graph takes the true lengths of padded sequences too"
    )
    add_options(parser, ("--plugin",))
    parser.add_argument("--force", action="store_true", help="write into a folder that has files")
    parser.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    if options.keep:
        return _keep(options.run, options.plugin)
    from physml.export.export import export

    out = expanded(options.out)
    exported = export(
        options.run, options.to, out, lengths=options.lengths, plugins=options.plugin, force=options.force
    )
    for name in exported.written:
        print(f"written: {display_path(out / name)}")
    if exported.difference is not None:
        print(f"greatest difference to the trained network: {exported.difference:.2g}")
    return 0


def _keep(run: str, plugins: list[str]) -> int:
    from physml.export import keeping
    from physml.run.named import record_of
    from physml.run.weights import weights_of

    record = record_of(run)
    target = keeping.keep(record, weights_of(record), plugins)
    name = target.relative_to(results_root() / "weights").with_suffix("").as_posix()
    print(f"written: {display_path(target)}; physml.load({name!r}) reads it")
    return 0
