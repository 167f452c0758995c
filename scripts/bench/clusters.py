"""Training on a graph of the size of ogbn-arxiv, whole and in clusters: `python -m scripts.bench.clusters`.

The graph is made up: 40 classes of nodes, four of five edges between near nodes of a class, features of
noise with a little of the class. GCN of three layers with 128 channels; each way in a process of its own.
"""

import argparse
import json
import multiprocessing
import resource
import sys
import time
from typing import Any

import numpy as np

NODES, EDGES, FEATURES, CLASSES = 169_343, 1_166_243, 128, 40
SAMPLE = "{_target_: physml.training.sampling.Clusters, n_parts: 100, per_batch: 5}"
WAYS = {"whole graph": "null", "100 clusters, 5 a step": SAMPLE}
SETTINGS = ("model=gcn", "net=graph", "task=arxiv_year", "model.n_layers=3", "model.d_hidden=128")
TRAINING = ("net.hidden=128", "optim.lr=0.01", "tracker=none", "runtime.device=cpu")


def graph(n: int, n_edges: int) -> dict[str, Any]:
    """Features, edges and classes, of nodes numbered at random."""
    g = np.random.default_rng(0)
    place = g.permutation(n)  # of each node
    near = np.clip(np.arange(n_edges) % n + g.integers(-50, 51, n_edges), 0, n - 1)
    sender = np.where(g.random(n_edges) < 0.8, near, g.integers(0, n, n_edges))
    label = np.arange(n) * CLASSES // n
    x = g.standard_normal((n, FEATURES), dtype=np.float32)
    x[np.arange(n), label] += 1
    inverse = np.argsort(place)
    edge_index = place[np.stack([sender, np.arange(n_edges) % n])]
    return {"x": x[inverse], "edge_index": edge_index, "y": label[inverse].astype(np.int64)}


def train(sample: str, epochs: int, n: int, n_edges: int) -> dict[str, Any]:
    """Seconds of an epoch, its training alone and with the evaluation, and what came out."""
    import torch

    from physml.config.build import parts_of
    from physml.config.compose import compose
    from physml.data.store import Store
    from physml.run.progress import LineReporter
    from physml.task.nodes import NodeClasses
    from physml.training.interrupt import Interrupt
    from physml.training.trainer import Trainer

    torch.set_num_threads(1)

    class MadeUp(NodeClasses):
        n_classes = d_out = CLASSES
        protocol = "clean"

        def load(self, store: Store, split: int) -> None:
            order = np.random.default_rng(1).permutation(n)
            cuts = {
                "train": order[: n // 2],
                "valid": order[n // 2 : 3 * n // 4],
                "test": order[3 * n // 4 :],
            }
            self.place(**graph(n, n_edges), split=cuts, store=store)

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    keys = [*SETTINGS, *TRAINING, f"trainer.epochs={epochs}", f"trainer.sample={sample}"]
    config = compose(keys).config
    task = MadeUp()
    task.load(Store.from_env(), 0)

    def nothing(_: Any) -> None: ...

    trainer = Trainer(
        config,
        parts_of(config),
        task,
        "cpu",
        report=LineReporter(1e9),
        save=nothing,
        stop=Interrupt(),
        on_row=nothing,
    )
    began = time.process_time()
    trainer.fit()
    whole = time.process_time() - began
    return {
        "steps": trainer.step // epochs,
        "epoch_s": round(trainer.cpu_s / epochs, 2),
        "with_evaluation_s": round(whole / epochs, 2),
        "accuracy": [round(100 * row["valid/accuracy"], 1) for row in trainer.rows],
        "libraries_mib": before // 1024,
        "peak_mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
    }


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m scripts.bench.clusters", description=__doc__)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--nodes", type=int, default=NODES)
    parser.add_argument("--edges", type=int, default=EDGES)
    options = parser.parse_args()
    for way, sample in WAYS.items():
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            measured = pool.apply(train, (sample, options.epochs, options.nodes, options.edges))
        print(way, json.dumps(measured), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
