"""UnICORNN on a GPU, its scan and its backward as Triton kernels. Axes: B batch, T time, H hidden units.

Beside input and output, memory is needed for one z every SEGMENT steps only; `ops.triton.unicornn_kernels`
restores the others.
"""

import torch
from torch import Tensor

from physml.ops.derivatives import Gradients, recorded
from physml.ops.operators import Incoming, Needs, Passes, Recurrence, Run, Tensors, outputs_of
from physml.ops.triton.available import refusal as refusal
from physml.ops.triton.inputs import in_dtype, of_last_states
from physml.ops.triton.launch import on_device, scan_block

SEGMENT = 128  # steps between two stored z
PREFETCH = 8  # steps whose input is on its way


def _scan(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, alpha: float) -> tuple[Tensor, Tensor]:
    """The path (T + 1, B, H), the state before first, and z at the end of every segment."""
    from physml.ops.triton.unicornn_kernels import forward

    n_batch, n_steps, n_hidden = push.shape
    path = push.new_empty(n_steps + 1, n_batch, n_hidden, dtype=torch.float32)
    path[0] = y
    z_ends = path.new_empty(-(-n_steps // SEGMENT), n_batch, n_hidden)
    block, warps = scan_block(n_batch, n_hidden)
    with on_device(push):
        forward[(n_batch, -(-n_hidden // block))](
            *(push, *push.stride(), path, z.contiguous(), z_ends, w.contiguous(), step.contiguous()),
            *(alpha, n_steps, n_batch, n_hidden),
            SEGMENT=SEGMENT,
            PREFETCH=PREFETCH,
            BLOCK=block,
            num_warps=warps,
        )
    return path, z_ends


def run(push: Tensor, y: Tensor, z: Tensor, w: Tensor, step: Tensor, *, alpha: float) -> Run:
    """The forward pass, see `operators.Kernel`. Copies of the last states do not keep the path alive."""
    (path, z_ends), dtype = _scan(push, y, z, w, step, alpha), push.dtype
    return path[-1].to(dtype, copy=True), z_ends[-1].to(dtype, copy=True), [path, z_ends], 0


def gradients(
    tensors: Tensors, kept: Tensors, number: int, incoming: Incoming, needs: Needs, *, alpha: float
) -> Gradients:
    """Gradients of all tensors, see `operators.Kernel`."""
    from physml.ops.triton.unicornn_kernels import backward

    (push, _, _, w, step), (path, z_ends), (d_outputs, *d_last) = tensors, kept, incoming
    n_batch, n_steps, n_hidden = push.shape
    needs_push, *others_needed = needs
    state = of_last_states(path, d_last)
    sums = torch.empty_like(state)
    d_push = path.new_empty(n_steps, n_batch, n_hidden) if needs_push else None
    block, warps = scan_block(n_batch, n_hidden)
    with on_device(push):
        backward[(n_batch, -(-n_hidden // block))](
            *(push, *push.stride(), path, z_ends, w.contiguous(), step.contiguous()),
            push if d_outputs is None else d_outputs,
            *(push if d_outputs is None else d_outputs).stride(),
            *(state[0], state[1], path if d_push is None else d_push, sums[0], sums[1]),
            *(alpha, n_steps, n_batch, n_hidden),
            OUTPUTS=d_outputs is not None,
            PUSH=d_push is not None,
            SEGMENT=SEGMENT,
            PREFETCH=PREFETCH,
            BLOCK=block,
            num_warps=warps,
        )
    of_others = zip((*state, *sums.sum(1)), others_needed, strict=True)
    d_push = None if d_push is None else d_push.transpose(0, 1)
    return in_dtype(push.dtype, d_push, *(x if need else None for x, need in of_others))


PASSES = Passes(run, gradients, reads=(0, 3, 4))


def unicornn(*tensors: Tensor, alpha: float) -> tuple[Tensor, Tensor, Tensor]:
    """`reference.unicornn` in one kernel per pass, state and sums in float32; differentiable once."""
    if recorded(*tensors):
        return Recurrence.apply(PASSES, {"alpha": alpha}, *tensors)
    with torch.no_grad():
        y, z, (path, _), _ = run(*tensors, alpha=alpha)
        return outputs_of(path, tensors), y, z
