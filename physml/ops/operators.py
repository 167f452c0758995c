"""Recurrences as operators of torch, for torch.compile and torch.export. Axes: B batch, T time, H units.

Per recurrence there are three in the namespace `torch.ops.physml`, with `lem` for its name:

- `lem` gives the outputs, time first, and the last y and z. At run time it takes the fastest backend, so it
  has the same form on every machine. Its gradients cost a second forward pass. For torch.export.
- `lem_kept` also gives what a backward pass needs, for torch.compile in training.
- `lem_backward` gives the gradients from that. It has none of its own.

Eager calls use `Recurrence`, an autograd Function of the same kernels, for the first call of an operator with
gradients takes seconds (torch imports its compiler), and each one tens of microseconds.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, cast

import torch
from torch import Tensor
from torch.autograd import forward_ad

from physml.base.errors import InputError
from physml.ops import derivatives
from physml.ops.backend import Op, note
from physml.ops.derivatives import Gradients, once
from physml.ops.sequence import no_autocast

Tensors = Sequence[Tensor]
Needs = Sequence[bool]  # for each tensor, whether its gradient is needed
Shapes = tuple[tuple[int, ...], ...]
Incoming = tuple[Tensor | None, Tensor | None, Tensor | None]  # gradients of the outputs, the last y and z
Run = tuple[Tensor, Tensor, list[Tensor], int]  # the last y and z, what is kept, a number for the backward
Arguments = tuple[Any, ...]  # of an operator: tensors, constants, backend

_library = torch.library.Library("physml", "FRAGMENT")


def define(name: str, schema: str, real: Callable[..., Any], fake: Callable[..., Any]) -> Any:
    """The operator `physml::name`: `real` computes it on all devices, `fake` knows its shapes."""
    _library.define(name + schema)
    _library.impl(name, real, "CompositeExplicitAutograd")
    torch.library.register_fake(f"physml::{name}", fake, lib=_library)
    return getattr(torch.ops.physml, name).default


def register_gradients(name: str, backward: Callable[..., Any], save: Callable[..., None]) -> None:
    """The gradients of an operator, from what `save` keeps of its arguments and results."""
    torch.library.register_autograd(f"physml::{name}", backward, setup_context=save, lib=_library)


class Kernel(Protocol):
    """Functions of a module such as `physml.ops.lem.native`, with a recurrence's constants by name."""

    def run(self, *tensors: Tensor, **constants: Any) -> Run:
        """The forward pass. Kept first is the path: outputs (T, B, H), or one more step and padded."""

    def kept_shapes(self, *tensors: Tensor, **constants: Any) -> Shapes:
        """Shapes of the tensors that `run` saves for backward."""

    def gradients(
        self, tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, **constants: Any
    ) -> Gradients:
        """Gradients of all tensors; `number`: that of `run`, on which the order of what is kept depends."""


@dataclass(frozen=True)
class Passes:
    """Both passes of a `Kernel`, for `Recurrence`.

    Args:
        run: the forward pass.
        gradients: the backward pass.
        reads: the places of the tensors that the backward pass reads; others are not kept.
        reads_path: whether it reads the path of outputs.
    """

    run: Callable[..., Run]
    gradients: Callable[..., Gradients]
    reads: tuple[int, ...]
    reads_path: bool = True


class Recurrence(torch.autograd.Function):
    """A recurrence by a kernel's passes: outputs (B, T, H) and the last y and z. Differentiable once."""

    @staticmethod
    def forward(
        ctx: Any, passes: Passes, constants: dict[str, Any], *tensors: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        y, z, (path, *kept), number = passes.run(*tensors, **constants)
        ctx.rest = passes, constants, number
        read = [x if k in passes.reads else None for k, x in enumerate(tensors)]
        ctx.save_for_backward(*read, path if passes.reads_path else None, *kept)
        ctx.set_materialize_grads(False)
        return outputs_of(path, tensors), y, z

    @staticmethod
    @once
    def backward(
        ctx: Any, d_outputs: Tensor | None, d_y: Tensor | None, d_z: Tensor | None
    ) -> tuple[Tensor | None, ...]:
        (passes, constants, number), saved = ctx.rest, ctx.saved_tensors
        needs, incoming = ctx.needs_input_grad[2:], (d_outputs, d_y, d_z)
        tensors, kept = saved[: len(needs)], saved[len(needs) :]
        return None, None, *passes.gradients(tensors, kept, number, incoming, needs, **constants)


def outputs_of(path: Tensor, tensors: Sequence[Tensor]) -> Tensor:
    """The outputs (B, T, H) in a path, which may have one more step before them, be padded, or in float32."""
    first, state, *_ = tensors
    n_steps, _, n_hidden = path.shape
    if n_steps != first.shape[1]:
        path = path[1:]
    if n_hidden != state.shape[1]:
        path = path[..., : state.shape[1]]
    return (path if path.dtype is first.dtype else path.to(first.dtype)).transpose(0, 1)


class Operator:
    """The operators of one recurrence, whose first tensor is (B, T, ...) and second the state y (B, H).

    Args:
        op: the recurrence.
        tensors: the names of its tensors, in the order of the reference.
        constants: per name of a constant its type in a schema of torch.
    """

    def __init__(self, op: Op[Any], tensors: str, **constants: str) -> None:
        self.op, self.names, self.constants = op, tensors.split(), tuple(constants)
        after = "".join(f"{kind} {name}, " for name, kind in constants.items()) + "str backend"
        inputs = ", ".join(f"Tensor {name}" for name in self.names) + f", {after}"
        lists = f"Tensor?[] incoming, Tensor[] tensors, Tensor[] kept, bool[] needs, {after}"
        name, three = op.name, "(Tensor, Tensor, Tensor)"
        self.whole = define(name, f"({inputs}) -> {three}", self._whole, self._fake)
        self.kept = define(f"{name}_kept", f"({inputs}) -> Tensor[]", self._kept, self._fake_kept)
        self.back = define(f"{name}_backward", f"({lists}) -> Tensor[]", self._back, self._fake_back)
        register_gradients(name, once(self._whole_gradients), _save_inputs)
        register_gradients(f"{name}_kept", once(self._kept_gradients), _save_all)

    def __call__(
        self, *tensors: Tensor, backend: str, kept: bool, **constants: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Outputs (B, T, H) and the last y and z, as nodes of a graph; `kept`: a backward pass may follow."""
        arguments = (*tensors, *[constants[name] for name in self.constants], backend)
        if not kept:
            path, y, z = self.whole(*arguments)
            return path.transpose(0, 1), y, z
        y, z, path, *_ = self.kept(*arguments)
        return outputs_of(path, tensors), y, z

    def _parted(self, arguments: Arguments) -> tuple[tuple[Tensor, ...], dict[str, Any], str]:
        """Tensors, constants by name, backend."""
        n = len(self.names)
        constants = (tuple(x) if isinstance(x, list) else x for x in arguments[n:-1])
        return arguments[:n], dict(zip(self.constants, constants, strict=True)), arguments[-1]

    def _kernel(self, backend: str, tensors: tuple[Tensor, ...]) -> Kernel:
        """The module that computes both passes: C where it can, unless `backend` is torch."""
        chosen = "native" if tensors[0].device.type == "cpu" and backend != "torch" else "torch"
        if chosen == "native" and (reason := self.op.refusal("native", tensors)):
            if backend == "native":
                raise InputError(f"{self.op.name} with backend='native': {reason}. Use backend='auto'.")
            chosen = self.op.warn(reason, "torch")
        return cast(Kernel, self.op.module(chosen))

    def _whole(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        tensors, constants, backend = self._parted(arguments)
        no_tangents()
        with torch.no_grad():
            outputs, y, z = self.op(*tensors, backend=backend, **constants)
            return alone(outputs.transpose(0, 1)), alone(y), alone(z)

    def _fake(self, *arguments: Any) -> tuple[Tensor, Tensor, Tensor]:
        (u, y, z, *_), _, _ = self._parted(arguments)
        return u.new_empty(u.shape[1], *y.shape), y.new_empty(y.shape), z.new_empty(z.shape)

    def _kept(self, *arguments: Any) -> list[Tensor]:
        tensors, constants, backend = self._parted(arguments)
        no_tangents()
        kernel = self._kernel(backend, tensors)
        with torch.no_grad(), no_autocast(tensors[0]):
            y, z, kept, number = kernel.run(*tensors, **constants)
        note(kernel.__name__.rpartition(".")[2].replace("autograd", "torch"))  # type: ignore[attr-defined]
        return [alone(y), alone(z), *kept, torch.tensor(number)]

    def _fake_kept(self, *arguments: Any) -> list[Tensor]:
        tensors, constants, backend = self._parted(arguments)
        u, y, z, *_ = tensors
        shapes = self._kernel(backend, tensors).kept_shapes(*tensors, **constants)
        number = torch.empty((), dtype=torch.int64, device="cpu")
        return [y.new_empty(y.shape), z.new_empty(z.shape), *[u.new_empty(shape) for shape in shapes], number]

    def _back(
        self,
        incoming: list[Tensor | None],
        tensors: list[Tensor],
        kept: list[Tensor],
        needs: list[bool],
        *rest: Any,
    ) -> list[Tensor]:
        operands, constants, backend = self._parted((*tensors, *rest))
        d_outputs, d_y, d_z = incoming
        number = int(kept[-1])
        with torch.no_grad(), no_autocast(operands[0]):
            gradients = self._kernel(backend, operands).gradients(
                operands, kept[:-1], number, (d_outputs, d_y, d_z), needs, **constants
            )
        first, *others = gradients
        time_first = None if first is None else first.transpose(0, 1)
        return [
            alone(x) for x, need in zip((time_first, *others), needs, strict=True) if need and x is not None
        ]

    def _fake_back(
        self, incoming: list[Tensor | None], tensors: list[Tensor], kept: Any, needs: list[bool], *_: Any
    ) -> list[Tensor]:
        first, *others = tensors
        shapes = [first.transpose(0, 1).shape, *[x.shape for x in others]]
        return [first.new_empty(shape) for shape, need in zip(shapes, needs, strict=True) if need]

    def _whole_gradients(
        self, ctx: Any, d_path: Tensor | None, d_y: Tensor | None, d_z: Tensor | None
    ) -> Arguments:
        _, _, *kept = self.kept(*ctx.saved_tensors, *ctx.rest)
        d_outputs = None if d_path is None else d_path.transpose(0, 1)
        return self._gradients(ctx, [d_outputs, d_y, d_z], ctx.saved_tensors, kept)

    def _kept_gradients(self, ctx: Any, incoming: list[Tensor | None]) -> Arguments:
        tensors = ctx.saved_tensors[: len(self.names)]
        kept = ctx.saved_tensors[len(self.names) :]
        n_steps, n_hidden = tensors[0].shape[1], tensors[1].shape[1]
        d_y, d_z, d_path, *_ = incoming
        if d_path is not None:
            d_path = d_path[d_path.shape[0] - n_steps :, :, :n_hidden].transpose(0, 1)
        return self._gradients(ctx, [d_path, d_y, d_z], tensors, list(kept))

    def _gradients(
        self, ctx: Any, incoming: list[Tensor | None], tensors: Sequence[Tensor], kept: list[Tensor]
    ) -> Arguments:
        needs = list(ctx.needs_input_grad[: len(self.names)])
        gradients = iter(self.back(incoming, list(tensors), kept, needs, *ctx.rest))
        first, *others = [next(gradients) if need else None for need in needs]
        return (None if first is None else first.transpose(0, 1), *others, *[None] * len(ctx.rest))


def alone(x: Tensor) -> Tensor:
    """x in one piece and in memory of its own: results of an operator may not share any."""
    x = x.contiguous()
    return x if x.untyped_storage().nbytes() == x.nbytes else x.clone()


def no_tangents() -> None:
    """InputError where a tensor may have a tangent: torch has taken it off before it comes here."""
    if forward_ad._current_level >= 0:
        raise InputError(f"a recurrence as an operator of torch: {derivatives.REASON}.")


def _save_inputs(ctx: Any, inputs: Arguments, output: Any) -> None:
    tensors = [x for x in inputs if isinstance(x, Tensor)]
    ctx.save_for_backward(*tensors)
    ctx.rest = inputs[len(tensors) :]
    ctx.set_materialize_grads(False)


def _save_all(ctx: Any, inputs: Arguments, output: list[Tensor]) -> None:
    _save_inputs(ctx, inputs, output)
    ctx.save_for_backward(*[x for x in inputs if isinstance(x, Tensor)], *output[2:])
    ctx.mark_non_differentiable(*output[3:])
