"""The file load.py of an exported network, about ten lines, for a machine without this checkout."""

from collections.abc import Mapping, Sequence

from physml.export.facts import Facts

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
