"""Layers that pass messages, ours and PyG's, from H to H channels in double precision."""

import torch
from torch import nn
from torch_geometric.nn import GATConv, GCNConv, SAGEConv

from physml.models.graph import graph_layers as ours

H = 4


def couplings() -> dict[str, nn.Module]:
    torch.manual_seed(0)
    layers = {
        "gcn": ours.GraphConvolution(H, H),
        "sage": ours.MeanConvolution(H, H),
        "gat": ours.GraphAttention(H, H, n_heads=2),
        "tran": ours.TransformerAttention(H, d_attention=4, n_heads=2),
        "pyg-gcn": GCNConv(H, H),
        "pyg-sage": SAGEConv(H, H),
        "pyg-gat": GATConv(H, H, heads=3),
    }
    return {name: layer.double() for name, layer in layers.items()}


NAMES = tuple(couplings())
