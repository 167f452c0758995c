"""One of two processes that train a small stack together: `two_processes.py RANK FILE`."""

import sys

import torch
from torch import Tensor, distributed, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

from physml.models.sequence.lem import LEM
from physml.models.sequence.rnn import SequenceModel

B, T, D = 6, 5, 2


def net() -> SequenceModel:
    torch.manual_seed(0)
    return SequenceModel(lambda d: LEM(d, 4), d_in=D, d_out=3, n_layers=2, readout="last", tokens=False)


def gradients(model: nn.Module, u: Tensor) -> list[Tensor]:
    model(u)[0].pow(2).mean().backward()
    return [p.grad for p in model.parameters() if p.grad is not None]


def main(rank: int, file: str) -> None:
    distributed.init_process_group("gloo", init_method=f"file://{file}", rank=rank, world_size=2)
    u = torch.randn(B, T, D, generator=torch.Generator().manual_seed(1))
    half = u[rank * B // 2 : (rank + 1) * B // 2]
    want = gradients(net(), u)
    ddp = gradients(DistributedDataParallel(net()), half)
    sharded = net()
    mesh = init_device_mesh("cpu", (2,))
    for layer in sharded.layers:
        fully_shard(layer, mesh=mesh)
    fully_shard(sharded, mesh=mesh)
    for name, reduced in {"DDP": ddp, "FSDP2": [g.full_tensor() for g in gradients(sharded, half)]}.items():
        assert len(reduced) == len(want) == 10
        for a, b in zip(reduced, want, strict=True):
            torch.testing.assert_close(a, b)
        print(name, "agrees")
    distributed.destroy_process_group()


main(int(sys.argv[1]), sys.argv[2])
