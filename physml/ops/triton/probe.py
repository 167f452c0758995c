"""The smallest Triton kernel: does it compile, run and give the right number?"""

import torch
import triton
import triton.language as tl


@triton.jit
def double(x):
    tl.store(x, 2 * tl.load(x))


def run(device: str) -> None:
    x = torch.ones(1, device=device)
    if (
        x.is_cuda
        and torch.version.hip is None
        and (have := torch.cuda.get_device_capability(x.device)) < (8, 0)
    ):
        raise RuntimeError(f"compute capability 8.0 or newer is needed; this GPU has {have[0]}.{have[1]}")
    with torch.cuda.device_of(x):
        double[(1,)](x)
    if x.item() != 2:
        raise RuntimeError("a kernel ran and gave a wrong number")
