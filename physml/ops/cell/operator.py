"""Compiled cells as operators of torch, for torch.compile and torch.export. Axes: B batch, T time.

There are three for all cells, in the namespace `torch.ops.physml`. Each takes the text of an outline, from
which any process makes the program, and all tensors in one list: inputs (B, T, D), states (B, H), leaves.

- `cell` gives the outputs, time first, and the last states. Its gradients cost a second forward pass. For
  torch.export.
- `cell_kept` also gives what a backward pass needs, for torch.compile in training.
- `cell_backward` gives the gradients from that. It has none of its own.

C computes them, or torch where C cannot (replay.py). Eager calls do not come here.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from physml.base.errors import InputError
from physml.ops.backend import Op, note
from physml.ops.cell.outline import Outline, parsed
from physml.ops.cell.program import Backward, Forward, Program, program
from physml.ops.cell.replay import replay
from physml.ops.derivatives import once, recorded
from physml.ops.native.library import Unavailable
from physml.ops.operators import Arguments, alone, define, no_tangents, register_gradients
from physml.ops.sequence import no_autocast

Outputs = tuple[Tensor, tuple[Tensor, ...]]

# `wanted`, below `input_needs`: for each input, whether its gradient is wanted, on which the program depends.
ARGUMENTS = "str outline, Tensor[] tensors, bool[] wanted, float[] numbers, str backend"


@dataclass
class _Call:
    """The arguments of an operator, and the program; None where torch has to compute it."""

    outline: Outline
    tensors: list[Tensor]
    n_inputs: int
    numbers: tuple[float, ...]
    program: Program | None

    @property
    def sizes(self) -> tuple[int, int]:
        """How many inputs and states there are."""
        return self.n_inputs, len(self.outline.outputs) - 1

    @property
    def states(self) -> list[Tensor]:
        return self.tensors[self.n_inputs :][: self.sizes[1]]

    def replay(self, tensors: Sequence[Tensor]) -> Outputs:
        a, b = self.n_inputs, sum(self.sizes)
        return replay(self.outline, tensors[:a], tensors[a:b], tensors[b:], self.numbers)


class CellOperator:
    """The operators of all cells."""

    def __init__(self, op: Op[Any]) -> None:
        self.op = op
        lists = f"Tensor?[] incoming, Tensor[] kept, bool[] needs, {ARGUMENTS}"
        self.whole = define("cell", f"({ARGUMENTS}) -> Tensor[]", self._whole, self._fake)
        self.kept = define("cell_kept", f"({ARGUMENTS}) -> Tensor[]", self._kept, self._fake_kept)
        self.back = define("cell_backward", f"({lists}) -> Tensor[]", self._back, self._fake_back)
        register_gradients("cell", once(self._whole_gradients), _save)
        register_gradients("cell_kept", once(self._kept_gradients), _save)

    def __call__(
        self,
        outline: str,
        inputs: Sequence[Tensor],
        states: Sequence[Tensor],
        leaves: Sequence[Tensor],
        numbers: Sequence[float],
        backend: str,
    ) -> Outputs:
        """Outputs (B, T, n) and the last states, as nodes of a graph."""
        tensors = [*inputs, *states, *leaves]
        kept = recorded(*tensors) and not torch.compiler.is_exporting()
        operator = self.kept if kept else self.whole
        input_needs = [x.requires_grad for x in inputs]
        results = operator(outline, tensors, input_needs, list(numbers), backend)
        return results[0].transpose(0, 1), tuple(results[1 : 1 + len(states)])

    def _call(
        self, outline: str, tensors: list[Tensor], input_needs: list[bool], numbers: list[float], backend: str
    ) -> _Call:
        known = parsed(outline)
        call = _Call(known, tensors, len(input_needs), tuple(numbers), None)
        reason = self.op.refusal("native", tuple(tensors))
        if reason is None:
            from physml.ops.cell.native import CProgram

            try:
                call.program = program(CProgram, known, tuple(input_needs), tensors[0].dtype)
                return call
            except Unavailable as error:
                reason = str(error)
        if backend == "native":
            raise InputError(f"a cell with backend='native': {reason}. Use backend='auto'.")
        self.op.warn(reason, "reference")
        return call

    def _whole(self, *arguments: Any) -> list[Tensor]:
        no_tangents()
        call = self._call(*arguments)
        with torch.no_grad(), no_autocast(call.tensors[0]):
            if call.program is None:
                out, last = call.replay(call.tensors)
            else:
                work = Forward(call.program, call.numbers, call.sizes, call.tensors)
                out, last = call.program.forward(work, keep=False)  # type: ignore[assignment]
        note("reference" if call.program is None else "native")
        return [alone(out.transpose(0, 1)), *map(alone, last)]

    def _fake(self, outline: str, tensors: list[Tensor], input_needs: list[bool], *_: Any) -> list[Tensor]:
        known, first = parsed(outline), tensors[0]
        shape = (first.shape[1], first.shape[0], known.widths[known.outputs[0]])
        states = tensors[len(input_needs) :][: len(known.outputs) - 1]
        return [first.new_empty(shape), *(x.new_empty(x.shape) for x in states)]

    def _kept(self, *arguments: Any) -> list[Tensor]:
        call = self._call(*arguments)
        if call.program is None:
            return self._whole(*arguments)
        no_tangents()
        with torch.no_grad():
            work = Forward(call.program, call.numbers, call.sizes, call.tensors)
            out, last = call.program.forward(work, keep=True)
        note("native")
        results = [alone(out.transpose(0, 1)), *map(alone, last)]
        return [*results, work.path, work.weights, work.vec, work.fixed]

    def _fake_kept(self, *arguments: Any) -> list[Tensor]:
        call, results = self._call(*arguments), self._fake(*arguments)
        if call.program is None:
            return results
        layout, first = call.program.layout, call.tensors[0]
        n_batch, n_steps = first.shape[:2]
        kept = ((n_steps + 2) * n_batch + 1, layout.ld_row), (layout.n_weights,), (layout.ld_vec,)
        return [*results, *(first.new_empty(s) for s in (*kept, (n_batch, layout.ld_fixed)))]

    def _back(
        self, incoming: list[Tensor | None], kept: list[Tensor], needs: list[bool], *arguments: Any
    ) -> list[Tensor]:
        call = self._call(*arguments)
        assert all(want for want, need in zip(arguments[2], needs, strict=False) if need)
        d_path, *d_last = incoming
        d_out = None if d_path is None else d_path.transpose(0, 1)
        if call.program is None:
            with no_autocast(call.tensors[0]):
                gradients = _replayed_back(call, [d_out, *d_last], needs)
        else:
            with torch.no_grad():
                shapes = [x.shape for x in call.tensors]
                work = Backward(call.program, call.numbers, call.sizes, shapes, kept, needs)
                call.program.backward(work, d_out, d_last)
                gradients = work.gradients()
        return [
            alone(x.transpose(0, 1) if k < call.n_inputs else x)
            for k, x in enumerate(gradients)
            if needs[k] and x is not None
        ]

    def _fake_back(
        self,
        incoming: Any,
        kept: Any,
        needs: list[bool],
        outline: str,
        tensors: list[Tensor],
        input_needs: list[bool],
        *_: Any,
    ) -> list[Tensor]:
        shapes = [x.transpose(0, 1).shape if k < len(input_needs) else x.shape for k, x in enumerate(tensors)]
        return [tensors[0].new_empty(shape) for shape, need in zip(shapes, needs, strict=True) if need]

    def _whole_gradients(self, ctx: Any, incoming: list[Tensor | None]) -> Arguments:
        outline, input_needs, *rest = ctx.rest
        input_needs = list(ctx.needs_input_grad[1][: len(input_needs)])
        kept = self.kept(outline, list(ctx.saved_tensors), input_needs, *rest)[len(incoming) :]
        return self._gradients(ctx, incoming, list(ctx.saved_tensors), kept, input_needs)

    def _kept_gradients(self, ctx: Any, incoming: list[Tensor | None]) -> Arguments:
        n = len(ctx.needs_input_grad[1])
        tensors, kept = list(ctx.saved_tensors[:n]), list(ctx.saved_tensors[n:])
        return self._gradients(ctx, incoming[: len(incoming) - len(kept)], tensors, kept, ctx.rest[1])

    def _gradients(
        self,
        ctx: Any,
        incoming: list[Tensor | None],
        tensors: list[Tensor],
        kept: list[Tensor],
        input_needs: list[bool],
    ) -> Arguments:
        outline, _, numbers, backend = ctx.rest
        needs = list(ctx.needs_input_grad[1])
        gradients = iter(self.back(incoming, kept, needs, outline, tensors, input_needs, numbers, backend))
        every = [next(gradients) if need else None for need in needs]
        every = [x if x is None or k >= len(input_needs) else x.transpose(0, 1) for k, x in enumerate(every)]
        # torch takes an empty list for one of tensors, whose gradient is a list too
        return None, every, None, None if numbers else [], None


def _replayed_back(call: _Call, incoming: list[Tensor | None], needs: list[bool]) -> list[Tensor | None]:
    """Gradients of all tensors, by a second forward pass in torch."""
    tensors = [x.detach().requires_grad_(need) for x, need in zip(call.tensors, needs, strict=True)]
    with torch.enable_grad():
        out, last = call.replay(tensors)
    pairs = [(x, d) for x, d in zip((out, *last), incoming, strict=True) if d is not None and x.requires_grad]
    asked = [x for x in tensors if x.requires_grad]
    results, gradients = zip(*pairs, strict=True) if pairs else ((), ())
    d_asked = iter(torch.autograd.grad(results, asked, gradients, allow_unused=True, materialize_grads=True))
    return [next(d_asked) if need else None for need in needs]


def _save(ctx: Any, inputs: Arguments, output: list[Tensor]) -> None:
    outline, tensors, input_needs, numbers, backend = inputs
    ctx.rest = outline, input_needs, numbers, backend
    kept = output[len(parsed(outline).outputs) :]
    ctx.save_for_backward(*tensors, *kept)
    ctx.mark_non_differentiable(*kept)
    ctx.set_materialize_grads(False)
