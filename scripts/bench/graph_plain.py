"""One run of a small graph as a plain script would make it: `python -m scripts.bench.graph_plain JOB.json`.

Layers of torch_geometric, one loop, all parts evaluated after every epoch, the best weights by validation
kept in memory. Nothing of physml is imported, so the process starts as such a script does. It prints one line
of JSON: {"loop_s", "parameters", "best"}.
"""

import copy
import json
import sys
import time
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional as F

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric uses what torch has deprecated
    from torch_geometric.nn import GCNConv, SAGEConv


class GraphCONNet(nn.Module):
    """GraphCON-GCN (7.4) with the residual terms of the official code for small heterophilic graphs."""

    def __init__(self, d_in: int, d_out: int, keys: dict[str, Any]) -> None:
        super().__init__()
        self.keys, width = keys, keys["hidden"]
        self.encoder, self.decoder = nn.Linear(d_in, width), nn.Linear(width, d_out)
        self.conv, self.residual = GCNConv(width, width), nn.Linear(width, width)

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        keys, drop = self.keys, self.keys["dropout"]
        x = torch.relu(self.encoder(F.dropout(x, keys["input_dropout"], self.training)))
        y = F.dropout(x, drop, self.training)
        x = F.dropout(x, drop, self.training)
        for _ in range(keys["n_layers"]):
            force = torch.relu(self.conv(x, edge_index) + self.residual(x) - self.conv.lin(x))
            y = y + keys["dt"] * (force - keys["alpha"] * y - keys["gamma"] * x)
            x = x + keys["dt"] * y
            x, y = F.dropout(x, drop, self.training), F.dropout(y, drop, self.training)
        return self.decoder(x)


class GatedNet(nn.Module):
    """Gradient gating (8.2 to 8.4), the rates by the mean or the sum over neighbours."""

    def __init__(self, d_in: int, d_out: int, keys: dict[str, Any]) -> None:
        super().__init__()
        self.keys, width = keys, keys["hidden"]
        conv = {"gcn": GCNConv, "sage": SAGEConv}[keys["conv"]]
        self.encoder, self.decoder = nn.Linear(d_in, width), nn.Linear(width, d_out)
        self.conv = conv(width, width)
        self.gate = conv(width, width) if keys["own_gate"] else None

    def forward(self, x: Tensor, edge_index: Tensor) -> Tensor:
        keys = self.keys
        x = torch.relu(self.encoder(F.dropout(x, keys["input_dropout"], self.training)))
        sender, receiver = edge_index
        for _ in range(keys["n_layers"]):
            new = torch.relu(self.conv(x, edge_index))
            q = new if self.gate is None else torch.relu(self.gate(x, edge_index))
            change = (q[sender] - q[receiver]).abs() ** keys["p"]
            total = torch.zeros_like(q).index_add(0, sender, change)
            if keys["aggregate"] == "mean":
                total = total / torch.bincount(sender, minlength=len(q)).clamp(min=1)[:, None]
            rate = torch.tanh(total)
            x = (1 - rate) * x + rate * new
        return self.decoder(F.dropout(x, keys["out_dropout"], self.training))


def main(arguments: list[str]) -> int:
    job = json.loads(Path(arguments[0]).read_text(encoding="utf-8"))
    torch.set_num_threads(1)
    torch.manual_seed(job["seed"])
    with np.load(job["data"]) as data:
        x, y, edge_index = (torch.from_numpy(data[name]) for name in ("x", "y", "edge_index"))
        nodes = {part: torch.from_numpy(data[part]) for part in ("train", "valid", "test")}
    kind = {"graphcon": GraphCONNet, "g2": GatedNet}[job["net"]]
    net = kind(x.shape[1], job["n_classes"], job["keys"])
    optimizer = torch.optim.Adam(net.parameters(), lr=job["lr"], weight_decay=job["weight_decay"])
    best, kept = (-1.0, -1.0), copy.deepcopy(net.state_dict())
    began = time.monotonic()
    for _ in range(job["epochs"]):
        net.train()
        optimizer.zero_grad()
        F.cross_entropy(net(x, edge_index)[nodes["train"]], y[nodes["train"]]).backward()
        optimizer.step()
        net.eval()
        with torch.no_grad():
            right = net(x, edge_index).argmax(1) == y
            scores = {part: right[of].float().mean().item() for part, of in nodes.items()}
        if scores["valid"] > best[0]:
            best, kept = (scores["valid"], scores["test"]), copy.deepcopy(net.state_dict())
    loop_s = time.monotonic() - began
    net.load_state_dict(kept)
    parameters = sum(p.numel() for p in net.parameters())
    print(json.dumps({"loop_s": loop_s, "parameters": parameters, "best": best}))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
