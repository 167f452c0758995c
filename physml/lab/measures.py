"""Numbers of a network that a run logs with each evaluation, named in `measures` of its config.

They are columns of the curve, such as `weights/W`, for figures and `physml plot`. A measure draws no random
numbers and changes nothing, so the run is the same with and without it. Its time counts as evaluation.
"""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from physml.base.check import count
from physml.base.errors import ConfigError
from physml.lab import bounds
from physml.lab.gradients import gradient_by_step, squared_error
from physml.models.sequence.cornn import CoRNN
from physml.models.sequence.lem import LEM
from physml.models.sequence.ode import Field
from physml.models.sequence.unicornn import UnICORNN
from physml.task.base import Task
from physml.task.batch import Batch

Row = dict[str, float]
READOUT = "readout."  # of a SequenceModel; it acts at the last step alone


class WeightNorms:
    r""":math:`\|\cdot\|_\infty` of every weight of the recurrent layers, by the paper's symbols.

    Columns: `weights/W`, of layer 2 of several `weights/w_2`. A matrix has its greatest row sum of absolute
    values, a vector its greatest entry. Source: thesis, Figure 3.7.
    """

    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        symbols = list(_symbols(net))
        if not symbols:
            raise ConfigError("measures: WeightNorms needs a layer with symbols(), such as LEM.")
        ends = [f"_{i}" if len(symbols) > 1 else "" for i in range(1, len(symbols) + 1)]
        return {
            f"weights/{name}{end}": bounds.row_sum(weight)
            for end, of_layer in zip(ends, symbols, strict=True)
            for name, weight in of_layer.items()
        }


class StepSizeAssumption:
    r"""Both sides of assumption (2.16), on which the bounds on the gradients of coRNN rest, during training.

    Columns: `assumption/eta_2_16`, the left side as printed, for implicit damping and gamma = epsilon = 1;
    `assumption/ratio_2_16`, it over :math:`\Delta t^{1/2}`: at most 1 where the assumption holds with r =
    1/2; `assumption/eta_2_51`, the left side for explicit damping. Source: thesis, Figure 2.4.
    """

    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        layer = _one_of(net, CoRNN, "StepSizeAssumption")
        dt, gamma, _ = map(float, layer.constants())
        eta = bounds.eta_2_16(layer.W, layer.Wcal, dt)
        return {
            "assumption/eta_2_16": eta,
            "assumption/ratio_2_16": eta / dt**0.5,
            "assumption/eta_2_51": bounds.eta_2_51(layer.W, layer.Wcal, dt, gamma),
        }


class EffectiveSteps:
    r"""The time steps that the units use: :math:`\Delta t\,\hat\sigma(c)` of UnICORNN, those of LEM on
    valid data.

    Columns: `steps/least_1`, `steps/mean_1`, `steps/greatest_1`, of layer 1; for LEM 1 is the step of z, 2
    that of y. Source: thesis, Figures 3.5 and 5.4.

    Args:
        n: sequences of the validation part, for LEM.
    """

    def __init__(self, n: int = 16) -> None:
        count("n", n)
        self.n = n

    @torch.no_grad()
    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        layer = _one_of(net, UnICORNN | LEM, "EffectiveSteps")
        if isinstance(layer, UnICORNN):
            steps = [oscillators.step() for oscillators in layer._stack()]
        else:
            net = copy.deepcopy(net).eval()  # dropout off, and nothing of the run is touched
            layer, batch = _one_of(net, LEM, "EffectiveSteps"), first_valid(task, self.n).to(device)
            entered: list[Tensor] = []  # what comes to the layer, behind an encoder say
            with layer.register_forward_pre_hook(lambda _, inputs: entered.append(inputs[0])):
                net(batch.input, lengths=batch.lengths)
            steps = list(layer.time_scales(entered[0]))
        return {
            f"steps/{name}_{i}": float(value)
            for i, step in enumerate(steps, 1)
            for name, value in {"least": step.min(), "mean": step.mean(), "greatest": step.max()}.items()
        }


class GradientByLag:
    r"""How much of the gradient of the loss at the last step comes from how long ago; double precision.

    Columns, n the last step:

    - `gradient/lag_l`: :math:`\|\partial E_n^{(n-l)}/\partial\theta\|_2` over all parameters of the network
      but those of the read-out, which acts at step n alone, for the task's own loss;
    - `gradient/total`: :math:`\|\partial E_n/\partial\theta\|_2`; `gradient/early`: the greatest norm of
      the first tenth of all steps over that of all;
    - `gradient/entry` and `gradient/bound`, where a paper has a bound: the greatest entry for its loss
      :math:`\tfrac12\|y_n - \bar y\|^2` on the units of the layer, all with the target 1, and the bound
      printed.

    Args:
        lags: the l; those beyond the sequence are left out.
        n: sequences of the validation part.
    """

    def __init__(self, lags: Sequence[int] = (0,), n: int = 8) -> None:
        count("n", n)
        if not lags or min(lags) < 0:
            raise ConfigError(f"measures: lags must be numbers of steps, 0 or more; got {list(lags)}.")
        self.lags, self.n = tuple(lags), n

    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        batch = first_valid(task, self.n).to(device)
        if batch.edge_index is not None or batch.lengths is not None:
            raise ConfigError("measures: GradientByLag needs sequences of one length.")
        double = copy.deepcopy(net).double().eval()
        u = batch.input.double() if batch.input.is_floating_point() else batch.input
        by_step = gradient_by_step(double, u, partial(loss_of, task, batch))
        whole = by_step.whole(without=READOUT).flip(0)
        row = {f"gradient/lag_{lag}": float(whole[lag]) for lag in self.lags if lag < len(whole)}
        parts = [g.flatten() for name, g in by_step.total.items() if not name.startswith(READOUT)]
        row["gradient/total"] = float(torch.cat(parts).norm())
        tenth = max(1, len(whole) // 10)
        row["gradient/early"] = float(whole[-tenth:].max() / whole.max())
        return row | self._beside_bound(double, u)

    def _beside_bound(self, net: nn.Module, u: Tensor) -> Row:
        layers = [m for m in net.modules() if isinstance(m, CoRNN | UnICORNN | LEM)]
        if len(layers) != 1 or not u.is_floating_point() or getattr(net, "encoder", None) is not None:
            return {}
        (layer,) = layers
        limit = bounds.total(layer, 1.0, u.shape[1])
        if limit is None:
            return {}
        target = u.new_ones(len(u), layer.d_out)
        by_step = gradient_by_step(layer, u, squared_error(target))
        entry = max(float(g.abs().max()) for g in by_step.total.values())
        return {"gradient/entry": entry, "gradient/bound": limit}


class FunctionEvaluations:
    r"""How often the right-hand side of an ODE in the network is evaluated for one batch: NFE.

    Columns: `nfe/forward`; `nfe/backward`, for the gradient, 0 where it goes back through the steps in place
    of an adjoint ODE. Source: lecture of B. Wang (Utah, 2023), Figure 3, after Chen et al., NeurIPS 2018.

    Args:
        n: items of the validation part, as one batch: the steps are chosen for all of them together.
    """

    def __init__(self, n: int = 128) -> None:
        count("n", n)
        self.n = n

    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        net = copy.deepcopy(net).eval()
        field, batch = _one_of(net, Field, "FunctionEvaluations"), first_valid(task, self.n).to(device)
        field.evaluations = 0
        with torch.enable_grad():
            loss = task.loss(net(batch.input)[0], batch)
            forward = field.evaluations
            torch.autograd.grad(loss, list(net.parameters()), allow_unused=True)
        return {"nfe/forward": float(forward), "nfe/backward": float(field.evaluations - forward)}


class Stiffness:
    r"""The stiffness of an ODE in the network where it starts after the first input, x(0).

    Columns, medians over items: `stiffness/ratio`, :math:`\max|\lambda| / \min|\lambda|` over the
    eigenvalues of :math:`\partial F/\partial x` for x' = F(x), with both h and m in x; `stiffness/greatest`,
    its numerator.
    Source: lecture of B. Wang (Utah, 2023), "Stiffness analysis of the linearized models" and Figure 3.

    Args:
        n: items of the validation part.
    """

    def __init__(self, n: int = 32) -> None:
        count("n", n)
        self.n = n

    def measure(self, net: nn.Module, task: Task, device: str) -> Row:
        net = copy.deepcopy(net).double().eval()
        field, u = _one_of(net, Field, "Stiffness"), first_valid(task, self.n).to(device).input.double()
        layer: Any = next(m for m in net.modules() if callable(getattr(m, "enter", None)))
        rest = tuple(u.new_zeros(len(u), layer.d_out) for _ in layer.names)
        with torch.no_grad():
            x = layer.enter(u[:, 0], rest)
        each = torch.autograd.functional.jacobian(lambda x: field.slope(x).sum(0), x)  # (N, B, N)
        size = torch.linalg.eigvals(each.transpose(0, 1)).abs()
        greatest, least = size.max(1).values, size.min(1).values
        return {
            "stiffness/ratio": float((greatest / least).median()),
            "stiffness/greatest": float(greatest.median()),
        }


# ---------------------------------------------------------------------------- parts


def loss_of(task: Task, batch: Batch, output: Tensor) -> Tensor:
    """The loss of the task at the last step."""
    if task.readout == "last":
        target = batch.target.double() if batch.target.is_floating_point() else batch.target
        return task.loss(output, replace(batch, target=target))
    raise ConfigError(f"{type(task).__name__}: gradients by step need a task with its loss at the last step.")


def first_valid(task: Task, n: int) -> Batch:
    """The first n items of valid. ConfigError where none are held out."""
    if (batch := next(iter(task.batches("valid", n)), None)) is None:
        raise ConfigError(
            f"{type(task).__name__} has no valid items, on which gradients and other measures are taken. "
            "Hold some out."
        )
    return batch


def _symbols(net: nn.Module) -> Iterator[dict[str, Tensor]]:
    """The weights of each layer by the paper's names."""
    for module in net.modules():
        if callable(symbols := getattr(module, "symbols", None)):
            weights: Any = symbols()
            yield from [weights] if isinstance(weights, dict) else weights


def _one_of(net: nn.Module, kind: Any, measure: str) -> Any:
    layers = [m for m in net.modules() if isinstance(m, kind)]
    if len(layers) != 1:
        names = getattr(kind, "__name__", " or ".join(c.__name__ for c in getattr(kind, "__args__", ())))
        raise ConfigError(f"measures: {measure} needs one layer of {names}; the network has {len(layers)}.")
    return layers[0]
