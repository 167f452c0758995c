"""A folder with a trained network, for somewhere else."""

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml

from physml.base import files
from physml.base.check import one_of
from physml.base.errors import InputError
from physml.base.paths import display_path, expanded
from physml.export.card import card
from physml.export.facts import Facts, facts_of
from physml.export.formats import FILES, origin, write_onnx
from physml.run import weights as saved_model


@dataclass(frozen=True)
class Exported:
    """Names of the files that were written.

    difference: the greatest one to the outputs of the trained network; None where none were compared.
    """

    written: tuple[str, ...]
    difference: float | None


def export(
    run: str | Path,
    to: str,
    out: Path,
    *,
    lengths: bool = False,
    plugins: Sequence[str | Path] = (),
    force: bool = False,
) -> Exported:
    """Write the network of a run, its card, its config and a loader.

    Args:
        run: as `physml.load` takes it.
        to: "safetensors" or "onnx".
        out: the folder, new or empty.
        lengths: a graph that takes the true lengths of padded sequences too.
        plugins: files of one's own that the run was made with; they are run, and go with the weights.
        force: write into a folder that has files.

    Errors: InputError for a folder with files, or a network that the format cannot hold; errors of
    `physml.load`; MissingExtra without the packages of onnx.
    """
    one_of("--to", to, tuple(FILES))
    if lengths and to == "safetensors":
        raise InputError(
            "--lengths is for a graph; weights are built into a network that takes lengths anyway."
        )
    if out.exists() and not out.is_dir():
        raise InputError(f"--out {display_path(out)} is a file. Name a folder.")
    if not force and out.is_dir() and any(out.iterdir()):
        raise InputError(f"--out {display_path(out)} is not empty. Name another folder, or add --force.")
    sources = [expanded(str(plugin)) for plugin in plugins]
    weights = saved_model.weights_of(run)
    about = saved_model.read_about(weights)
    facts = facts_of(weights, about, run)
    net = saved_model.built(weights, sources)
    difference = None
    if to == "safetensors":
        with files.writing(out / FILES[to]) as temporary:
            shutil.copyfile(weights, temporary)
    else:
        difference = write_onnx(net, about, out / FILES[to], lengths=lengths)
    dtype = "int64" if about.sizes["tokens"] else str(next(net.parameters()).dtype).removeprefix("torch.")
    inputs = {"input": dtype} | ({"lengths": "int64"} if lengths else {})
    own = {} if to == "onnx" else {path.name: path.read_text("utf-8") for path in sources}
    content = own | {
        "config.yaml": yaml.safe_dump(origin(about), sort_keys=False, allow_unicode=True),
        "README.md": card(facts, to, tuple(inputs), difference, tuple(own)),
        "load.py": loader(facts, to, inputs, tuple(own)),
    }
    for name, text in content.items():
        files.write_text(out / name, text)
    return Exported((FILES[to], *content), difference)


# ---------------------------------------------------------------------------- load.py


# The loader of a folder, for a machine without this checkout.
SAFETENSORS = '''"""Loads the network of this folder. Needs physml and its base packages."""

from pathlib import Path

import physml
import torch

here = Path(__file__).parent
net = physml.load(here / "model.safetensors"{plugins})

if __name__ == "__main__":
    {example}
    print(tuple({call}.shape))
'''

ONNX = '''"""Loads the network of this folder. Needs onnxruntime and numpy, neither torch nor physml."""

from pathlib import Path

import numpy as np
import onnxruntime

session = onnxruntime.InferenceSession(Path(__file__).with_name("model.onnx"))

if __name__ == "__main__":
    {example}
    print(session.run(["output"], {call})[0].shape)
'''


def loader(facts: Facts, kind: str, inputs: Mapping[str, str], plugins: Sequence[str] = ()) -> str:
    """The content of load.py.

    inputs: for each input of an exported graph, its type in numpy. plugins: files of the folder that the
    network is built with.
    """
    listed = ", ".join(f'here / "{name}"' for name in plugins)
    named = f", plugins=[{listed}]" if plugins else ""
    sizes = facts.about.sizes
    if sizes["readout"] in ("node", "graph"):
        n_nodes = sizes.get("n_nodes", 3)  # where the network knows one graph alone
        example = f"x, edges = torch.zeros({n_nodes}, {sizes['d_in']}), torch.tensor([[0, 1], [1, 2]])"
        return SAFETENSORS.format(example=example, call="net(x, edges)", plugins=named)
    shape = "(2, 50)" if sizes["tokens"] else f"(2, 50, {sizes['d_in']})"
    if kind == "onnx":
        values = {"input": f"np.zeros({shape}, np.{inputs['input']})", "lengths": "np.array([50, 20])"}
        example = "inputs = {" + ", ".join(f'"{name}": {values[name]}' for name in inputs) + "}"
        return ONNX.format(example=example, call="inputs")
    dtype = f", dtype=torch.{inputs['input']}"
    example = f"x = torch.zeros({shape[1:-1]}{dtype})"
    return SAFETENSORS.format(example=example, call="net(x)[0]", plugins=named)
