"""Many small launches as one CUDA graph, replayed.

A graph is captured for a shape and remembers addresses, so it works on buffers of its own: arguments are
copied in, results out. That costs a few per cent; a launch from Python costs more than most kernels here.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from threading import Lock
from typing import Any

import torch
from torch import Tensor

from physml.ops.triton.launch import precision

LIMIT = 8  # graphs kept, each with its buffers; the one longest unused goes first
WARM_UPS = 2  # runs before the capture: kernels are compiled, cuBLAS gets its workspace

Launch = Callable[..., None]  # launch(inputs, changed, outputs, *constants)

log = logging.getLogger("physml")


class _Graph:
    """Launches captured with buffers like these arguments."""

    def __init__(
        self, launch: Launch, groups: Sequence[Sequence[Tensor]], constants: tuple[Hashable, ...]
    ) -> None:
        self.buffers = [[x.detach().clone(memory_format=torch.contiguous_format) for x in g] for g in groups]
        self.replay = capture(lambda: launch(*self.buffers, *constants))
        self.lock = Lock()
        self.done = torch.cuda.Event() if groups[0][0].is_cuda else None

    def run(self, inputs: Sequence[Tensor], changed: Sequence[Tensor], outputs: Sequence[Tensor]) -> None:
        # The buffers are one set: a thread or a stream that comes second waits for the first.
        with self.lock:
            if self.done is not None:
                torch.cuda.current_stream().wait_event(self.done)
            for source, buffer in zip((*inputs, *changed), (*self.buffers[0], *self.buffers[1]), strict=True):
                buffer.copy_(source)
            self.replay()
            for result, buffer in zip(
                (*changed, *outputs), (*self.buffers[1], *self.buffers[2]), strict=True
            ):
                result.copy_(buffer)
            if self.done is not None:
                self.done.record(torch.cuda.current_stream())


def capture(launches: Callable[[], None]) -> Callable[[], Any]:
    """The launches as a graph; what they allocate belongs to it."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        for _ in range(WARM_UPS):
            launches()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    # Other threads may allocate meanwhile, a data loader for one: that is none of this capture's business.
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        launches()
    return graph.replay


def possible(x: Tensor) -> bool:
    """Not without a GPU, and not inside a capture of someone else's, whose graph takes the launches then."""
    return x.is_cuda and not torch.cuda.is_current_stream_capturing()


_graphs: OrderedDict[Hashable, _Graph | None] = OrderedDict()  # None: the capture failed
_lock = Lock()


def clear() -> None:
    """Forget all graphs and free their buffers."""
    with _lock:
        _graphs.clear()


def run(
    launch: Launch,
    inputs: Sequence[Tensor],
    changed: Sequence[Tensor],
    outputs: Sequence[Tensor],
    constants: tuple[Hashable, ...],
) -> None:
    """launch(inputs, changed, outputs, *constants), as a graph where one can be had.

    The number of launches may depend on shapes and constants, on nothing else.

    Args:
        inputs: tensors that are read only.
        changed: tensors that are read and written.
        outputs: tensors that are written only.
    """
    graph = _graph(launch, (inputs, changed, outputs), constants) if possible(inputs[0]) else None
    if graph is None:
        launch(inputs, changed, outputs, *constants)
    else:
        graph.run(inputs, changed, outputs)


def _graph(
    launch: Launch, groups: Sequence[Sequence[Tensor]], constants: tuple[Hashable, ...]
) -> _Graph | None:
    like = tuple((tuple(x.shape), x.dtype, x.device) for group in groups for x in group)
    key = (launch, constants, like, precision(torch.float32))
    with _lock:
        if key not in _graphs:
            try:
                _graphs[key] = _Graph(launch, groups, constants)
            except RuntimeError as error:
                reason = str(error).strip().splitlines()[0]
                log.warning("No CUDA graph for this shape, every kernel is launched by itself: %s", reason)
                _graphs[key] = None
            while len(_graphs) > LIMIT:
                _graphs.popitem(last=False)
        _graphs.move_to_end(key)
        return _graphs[key]
