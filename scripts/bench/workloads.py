"""The timed workloads: published settings. Axes: B batch, T time, D features, H hidden units, L layers."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Workload:
    """One layer, or stack of layers, on one batch.

    `settings`: further arguments of the layer, those of the published runs where they are known. They move
    the numbers inside the layer, not the time.
    """

    name: str
    title: str
    recurrence: str  # cornn, lem or unicornn
    T: int
    B: int
    D: int
    H: int
    L: int = 1
    settings: dict[str, Any] = field(default_factory=dict)

    def with_sizes(self, sizes: Mapping[str, int]) -> "Workload":
        changed: dict[str, Any] = dict(sizes)
        return dataclasses.replace(self, **changed)

    @property
    def sizes(self) -> dict[str, int]:
        return {"T": self.T, "B": self.B, "D": self.D, "H": self.H, "L": self.L}

    @property
    def flops(self) -> int:
        """Floating point operations of all matrix products of one forward and backward pass.

        Two for each weight, step and sequence forward, four backward: for the gradients of the weight and of
        what it acts on. The first layer's input needs no gradient, so its weights cost four in all. The
        element-by-element part of a step is not counted.
        """
        states = {"cornn": 2 * self.H, "lem": 4 * self.H, "unicornn": 0}[self.recurrence]
        inputs = {"cornn": self.D, "lem": 4 * self.D, "unicornn": self.D}[self.recurrence]
        recurrent = self.H * states + (self.L - 1) * self.H * self.H
        return self.T * self.B * (6 * recurrent + 4 * self.H * inputs)


# Batch sizes, dt, gamma, epsilon and alpha are those of the official code or the papers' tables, but for the
# gamma of coRNN psMNIST H128, whose cell in the table is lost.
WORKLOADS = (
    Workload("cornn-psmnist-128", "coRNN psMNIST H128", "cornn", 784, 120, 1, 128,
             settings={"dt": 0.083, "gamma": 0.13, "epsilon": 4.1, "init": "joint"}),
    Workload("cornn-psmnist-256", "coRNN psMNIST H256", "cornn", 784, 120, 1, 256,
             settings={"dt": 0.076, "gamma": 0.4, "epsilon": 8.0, "init": "joint"}),
    Workload("cornn-ncifar", "coRNN nCIFAR H128", "cornn", 1000, 100, 96, 128,
             settings={"dt": 0.034, "gamma": 1.3, "epsilon": 12.7, "init": "separate"}),
    Workload("lem-smnist", "LEM sMNIST H128", "lem", 784, 128, 1, 128, settings={"dt": 0.21}),
    Workload("lem-fhn", "LEM FitzHugh-Nagumo H16", "lem", 1000, 32, 2, 16, settings={"dt": 1.0}),
    Workload("lem-eigenworms", "LEM EigenWorms H32", "lem", 17984, 8, 6, 32, settings={"dt": 1.7e-4}),
    Workload("lem-ptb", "LEM PTB H1024", "lem", 150, 128, 128, 1024, settings={"dt": 1.0}),
    Workload("unicornn-psmnist", "UnICORNN psMNIST 3x256", "unicornn", 784, 32, 1, 256, 3,
             settings={"dt": 0.19, "alpha": 30.65}),
    Workload("unicornn-eigenworms", "UnICORNN EigenWorms 2x32", "unicornn", 17984, 8, 6, 32, 2,
             settings={"dt": [2.81e-5, 0.0343], "alpha": 0.0}),
)  # fmt: skip
