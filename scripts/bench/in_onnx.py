"""nn.LSTM in onnxruntime, forward alone. Axes: B batch, T time, D, H, L layers."""

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from physml.base.errors import InputError, needed_by


class OnnxStep:
    """One batch through an LSTM with the weights of `lstm`; calling it gives the outputs (T, B, H)."""

    def __init__(self, lstm: nn.LSTM, u: Tensor, device: str) -> None:
        if device != "cpu":
            raise InputError("onnxruntime is timed on a CPU alone")
        with needed_by("the variant onnx"):
            import onnxruntime

            model = _model(lstm)
        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = options.inter_op_num_threads = 1
        self.session = onnxruntime.InferenceSession(model, options, providers=["CPUExecutionProvider"])
        self.inputs = {"x0": u.transpose(0, 1).contiguous().numpy()}

    def __call__(self) -> Any:
        return self.session.run(None, self.inputs)[0]


def _model(lstm: nn.LSTM) -> bytes:
    from onnx import TensorProto, helper, numpy_helper

    nodes, weights = [], [numpy_helper.from_array(np.array([1]), "direction")]
    for k in range(lstm.num_layers):
        w_ih, w_hh, b_ih, b_hh = (_reordered(p.detach()) for p in lstm.all_weights[k])
        for name, x in {"W": w_ih, "R": w_hh, "B": torch.cat([b_ih, b_hh])}.items():
            weights.append(numpy_helper.from_array(x.unsqueeze(0).numpy(), f"{name}{k}"))
        inputs = [f"{name}{k}" for name in "xWRB"]
        nodes.append(helper.make_node("LSTM", inputs, [f"y{k}"], hidden_size=lstm.hidden_size))
        nodes.append(helper.make_node("Squeeze", [f"y{k}", "direction"], [f"x{k + 1}"]))
    ends = {"x0": lstm.input_size, f"x{lstm.num_layers}": lstm.hidden_size}
    graph_inputs, graph_outputs = (
        [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["T", "B", width])]
        for name, width in ends.items()
    )
    graph = helper.make_graph(nodes, "lstm", graph_inputs, graph_outputs, weights)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    content: bytes = model.SerializeToString()
    return content


def _reordered(x: Tensor) -> Tensor:
    """Gates as torch has them, [i f g o], as ONNX has them: [i o f g]."""
    i, f, g, o = x.chunk(4)
    return torch.cat([i, o, f, g])
