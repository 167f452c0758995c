"""The files of an exported network, by format, each compared with the trained one before it is kept."""

import contextlib
import io
import json
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from physml.base import files
from physml.base.errors import InputError, needed_by
from physml.export.program import Inputs, greatest_difference, traced
from physml.run.weights import About

if TYPE_CHECKING:
    from torch.export import ExportedProgram

FILES = {"safetensors": "model.safetensors", "onnx": "model.onnx"}


def write_onnx(net: nn.Module, about: About, path: Path, *, lengths: bool) -> float:
    """The ONNX file; the greatest difference of onnxruntime's outputs to those of `net`.

    Errors: MissingExtra without onnx, onnxscript and onnxruntime; InputError as of `traced` and
    `greatest_difference`, or for an operation that ONNX does not have.
    """
    with needed_by("--to onnx"):
        import onnx
        import onnxruntime
        import onnxscript  # noqa: F401

    model = _onnx_model(traced(net, lengths=lengths))
    onnx.helper.set_model_props(model, {"physml": json.dumps(origin(about))})
    onnx.checker.check_model(model, full_check=True)
    content = model.SerializeToString()
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3  # errors alone
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])

    def run(inputs: Inputs) -> Tensor:
        names = [value.name for value in session.get_inputs()]
        arrays = {name: x.numpy() for name, x in zip(names, inputs, strict=True)}
        return torch.from_numpy(session.run(["output"], arrays)[0])

    difference = greatest_difference(net, run, lengths=lengths)
    files.write(path, lambda file: file.write(content))
    return difference


def _onnx_model(program: "ExportedProgram") -> Any:
    """The ModelProto, with readable names of inputs, outputs and free sizes."""
    from onnx_ir.passes.common import RemoveUnusedNodesPass  # a part of onnxscript

    try:
        with _quiet():
            exported = torch.onnx.export(
                program, (), dynamo=True, optimize=True, verify=False, verbose=False, output_names=["output"]
            )
    except torch.onnx.errors.OnnxExporterError as error:
        cause = error.__cause__ or error
        line = str(cause).strip().partition("\n")[0]
        raise InputError(
            f"this network cannot be written as ONNX: {line}. Export it with --to safetensors."
        ) from error
    assert exported is not None
    RemoveUnusedNodesPass()(exported.model)  # its unused constants make onnxruntime warn
    model = exported.model_proto
    _forget_places(model.graph)
    names = {}
    first = model.graph.input[0].type.tensor_type.shape.dim
    for dim, name in zip(first, ("batch", "time"), strict=False):
        names[dim.dim_param] = name
    for value in (*model.graph.input, *model.graph.output, *model.graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if dim.dim_param in names:
                dim.dim_param = names[dim.dim_param]
    return model


def _forget_places(graph: Any) -> None:
    """Without the lines of code that made each node: they hold paths of this machine."""
    for node in graph.node:
        del node.metadata_props[:]
        for attribute in node.attribute:
            _forget_places(attribute.g)


def origin(about: About) -> dict[str, Any]:
    """The facts that a file says of its network."""
    return {"identity": about.identity, "sizes": about.sizes, "config": about.config}


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without the exporter's remarks about packages that it does without."""
    log = logging.getLogger("torch.onnx")
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        log.setLevel(level)
