"""The one loop. It knows no task and no model by name."""

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import closing, nullcontext
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim.lr_scheduler import ReduceLROnPlateau
from torch.utils._pytree import tree_map_only

from physml.base.errors import ConfigError, DataError, Preempted, RecordError
from physml.base.seeding import derive, stream
from physml.config import build
from physml.config.build import Parts
from physml.ops.backend import no_bf16_products
from physml.task.base import Metrics, Part, Task
from physml.task.batch import Batch
from physml.training import selection
from physml.training.averaging import Triggered, in_place, refuse_bases
from physml.training.evaluate import State, apply, evaluate, outputs
from physml.training.interrupt import Interrupt
from physml.training.reporter import Reporter

FINITE_CHECK_EVERY = 50  # steps; on a GPU every look at a loss waits for the device


class Diverged(Exception):
    """The loss is no longer a number."""


class Trainer:
    """Trains a network on a task, and can stop and go on at any step.

    All randomness comes from streams of their own: "init" for weights, "dropout" for the global generator,
    ("order", epoch) for training batches. So a resumed run repeats nothing and skips nothing.

    The config is composed and checked, `parts` are its objects, not yet made, and the task has its data.
    `save` is called with the state to keep, `on_row` with the metrics of each evaluation.
    """

    def __init__(
        self,
        config: dict[str, Any],
        parts: Parts,
        task: Task,
        device: str,
        *,
        report: Reporter,
        save: Callable[[dict[str, Any]], None],
        stop: Interrupt,
        on_row: Callable[[dict[str, Any]], None],
    ) -> None:
        self.config, self.keys, self.task, self.device = config, config["trainer"], task, device
        self.report, self.save, self.stop, self.on_row = report, save, stop, on_row
        self.seed: int = config["seed"]
        self.parts = parts
        set_precision(config["precision"])
        torch.manual_seed(derive(self.seed, "init"))
        self.training = parts.sample.make().over(task) if parts.sample else task
        self.net: nn.Module = build.build_net(parts, task).to(device)
        self.optimizer = build.build_optimizer(parts, self.net)
        # What layers add to the loss, such as the distance of a matrix from orthogonal ones.
        self.penalties = penalties(self.net)
        self.schedule = parts.schedule.make(optimizer=self.optimizer) if parts.schedule else None
        self.selector = parts.select.make()
        self.stopper = parts.stop.make() if parts.stop else None
        self.average: Triggered | None = parts.average.make() if parts.average else None
        if self.average:
            refuse_bases(self.net)
        self.measures = [node.make() for node in parts.measures]
        for rule in (self.selector, self.stopper, self.average):
            if rule:
                rule.bind(task.metric, self.training.in_rows)
        mode = {"lower": "min", "higher": "max"}[task.better[task.metric]]
        if isinstance(self.schedule, ReduceLROnPlateau) and self.schedule.mode != mode:
            raise ConfigError(
                f"trainer.schedule.mode must be {mode} for {task.metric}; got {self.schedule.mode}."
            )
        self.scores_test: bool = config["runtime"]["score_test"]
        if self.selector.needs_test and not self.scores_test:
            raise ConfigError(
                f"trainer.select={type(self.selector).__name__} looks at test data, which "
                "runtime.score_test=false forbids. Set "
                "trainer.select._target_=physml.training.selection.BestValid."
            )
        torch.manual_seed(derive(self.seed, "dropout"))
        self.steps_per_epoch = self.training.steps_per_epoch(self.keys["batch_size"])
        self.total_steps = self.keys["epochs"] * self.steps_per_epoch
        if self.keys["max_steps"]:
            self.total_steps = min(self.total_steps, self.keys["max_steps"])
        self.epoch = 0  # whole epochs done
        self.step = 0  # optimiser steps done
        self.step_in_epoch = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.state: State = None
        self.step_metrics: Metrics = {}  # of the last step
        self.rows: list[dict[str, Any]] = []
        self.kept: dict[str, Any] | None = None
        self.stopped_early = False
        self.train_s = 0.0
        self.cpu_s = 0.0  # of all threads, while train_s runs
        self.eval_s = 0.0
        self.eval_cpu_s = 0.0
        self.saved_at = time.monotonic()

    # ------------------------------------------------------------------ the loop

    def check_data(self) -> None:
        """DataError now, not after hours, if the parts that will be evaluated hold NaN."""
        parts: tuple[Part, ...] = ("valid", "test") if self.scores_test else ("valid",)
        for part in parts:
            seen = 0
            for _ in finite(self._evaluated(part, 1), self.task, part):
                self.stop.raise_if_requested()
                seen += 1
            if not seen:
                self._refuse_rules(part)

    def check_products(self) -> None:
        """ConfigError or InputError now if the network has no products for precision=bf16-products."""
        if self.config["precision"] != "bf16-products":
            return
        with closing(outputs(self.net, self.train_batches(stream(0, "check")), self.device)) as pairs:
            next(pairs, None)
        if no_bf16_products():
            raise ConfigError(
                f"precision=bf16-products is of recurrences in C, and {self.parts.model.cls.__name__} has "
                "computed none. Set precision=fp32, or choose a recurrent model."
            )

    def _refuse_rules(self, part: Part) -> None:
        """ConfigError where a rule looks at a part that the task does not have."""
        rules = {"select": self.selector, "stop": self.stopper, "average": self.average}
        if isinstance(self.schedule, ReduceLROnPlateau):
            rules["schedule"] = self.schedule
        for key, rule in rules.items():
            looks_at_test = isinstance(rule, selection.BestTest)
            looks_at_valid = not (rule is None or looks_at_test or isinstance(rule, selection.Last))
            if looks_at_test if part == "test" else looks_at_valid:
                raise ConfigError(
                    f"{type(self.task).__name__} has no {part} items, which trainer.{key}="
                    f"{type(rule).__name__} looks at. Hold some out, or set "
                    "trainer.select._target_=physml.training.selection.Last."
                )

    def fit(self) -> None:
        """Train to the end and save. Diverged and Preempted end it early; the latter saves too.

        After it, the network has the averaged weights, where `trainer.average` has made any.
        """
        self.net.train()
        trained_before = self.done
        try:
            while not self.done:
                self.stop.raise_if_requested()
                if not self._epoch_is_full:  # else a run was stopped in the evaluation, which is made now
                    self._steps()
                self._close_epoch()
                if self._due():
                    self._save()
        except Preempted:
            self._save()
            raise
        if not trained_before:  # a newer checkpoint says that this attempt came on
            self._save()
        if self.average:
            self.average.put(self.net)

    @property
    def done(self) -> bool:
        """All epochs are closed, with their evaluations."""
        return self.stopped_early or (self.step >= self.total_steps and self.step_in_epoch == 0)

    @property
    def _epoch_is_full(self) -> bool:
        return self.step >= self.total_steps or self.step_in_epoch == self.steps_per_epoch

    def _steps(self) -> None:
        began = _clocks()
        batches: Iterable[Batch] = self.train_batches(stream(self.seed, "order", self.epoch))
        if self.epoch == 0:
            batches = finite(batches, self.task, "train")
        for i, batch in enumerate(batches):
            if i < self.step_in_epoch:
                continue  # done before a stop; drawn again so that the generator stands where it stood
            self._step(batch.to(self.device))
            self.step_in_epoch = i + 1
            self.step += 1
            self.report.step(self.step)
            if self.step_in_epoch % FINITE_CHECK_EVERY == 0:
                self._finite()
            if self._epoch_is_full:
                break
            began = self._between_steps(began)
        self._finite()
        self._count(began)
        if not self._epoch_is_full:
            raise DataError(
                f"{type(self.task).__name__}: an epoch has {self.step_in_epoch} batches, "
                f"but steps_per_epoch says {self.steps_per_epoch}."
            )

    def train_batches(self, rng: torch.Generator) -> Iterator[Batch]:
        return self.training.batches("train", self.keys["batch_size"], rng)

    def _between_steps(self, began: tuple[float, float]) -> tuple[float, float]:
        """A stop or a checkpoint in the middle of an epoch; the clocks of training stand still meanwhile."""
        if not self.stop.reason and not self._due():
            return began
        self._count(began)
        self.stop.raise_if_requested()
        self._save()
        return _clocks()

    def _count(self, began: tuple[float, float]) -> None:
        wall, cpu = _clocks()
        self.train_s += wall - began[0]
        self.cpu_s += cpu - began[1]

    def _step(self, batch: Batch) -> None:
        kind = torch.device(self.device).type
        with torch.autocast(kind, torch.bfloat16, enabled=self.config["precision"] == "bf16"):
            output, state = apply(self.net, batch, self.state if batch.carry else None)
            loss = self.task.loss(output, batch)
        for penalty in self.penalties:
            loss = loss if (added := penalty()) is None else loss + added
        self.step_metrics = self.training.train_step_metrics(output.detach(), batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.keys["clip_norm"]:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.keys["clip_norm"])
        self.optimizer.step()
        if self.average:
            self.average.after_step(self.net)
        self.loss_sum += loss.detach()
        self.state = tree_map_only(Tensor, Tensor.detach, state) if batch.carry else None  # truncated BPTT

    def _finite(self) -> None:
        if not math.isfinite(float(self.loss_sum)):
            raise Diverged(f"the loss is not finite in epoch {self.epoch + 1}, by step {self.step}")

    def _close_epoch(self) -> None:
        """Evaluate, then count the epoch. A stop during the evaluation leaves the epoch open."""
        loss = float(self.loss_sum) / self.step_in_epoch
        epoch = self.epoch + 1
        with in_place(self.average, self.net) if self.average else nullcontext():
            row = None
            if self.step >= self.total_steps or epoch % self.keys["eval_every"] == 0:
                row = self._evaluation(epoch, loss)
            if row is not None and self.selector.selected(row):
                weights = self.net.state_dict().items()
                copies = {name: value.detach().to("cpu", copy=True) for name, value in weights}
                self.kept = {"row": row, "weights": copies}
        self.epoch = epoch
        self.step_in_epoch = 0
        self.loss_sum.zero_()
        self.state = None
        self._advance_schedule(row)
        if self.average:
            self.average.after_epoch(epoch, row)
        if row is None:
            return
        self.stopped_early = bool(self.stopper and self.stopper.stops({**row, "next_lr": self._rate()}))
        self.rows.append(row)
        self.report.row(row)
        self.on_row(row)

    def _evaluation(self, epoch: int, loss: float) -> dict[str, Any]:
        began = _clocks()
        row: dict[str, Any] = {
            "epoch": epoch,
            "step": self.step,
            "seconds": round(self.train_s, 3),
            "lr": self._rate(),
            "train/loss": loss,
        }
        row |= named("valid", {**self.metrics("valid", epoch), **self.step_metrics})
        every = self.keys["test_every"]
        for_curve = every and (epoch % every == 0 or self.step >= self.total_steps)
        if self.scores_test and (self.selector.needs_test or for_curve):
            row |= named("test", self.metrics("test", epoch))
        for measure in self.measures:
            columns = measure.measure(self.net, self.task, self.device).items()
            row |= {name: float(value) for name, value in columns}  # a checkpoint holds no number of NumPy
        wall, cpu = _clocks()
        self.eval_s += wall - began[0]
        self.eval_cpu_s += cpu - began[1]
        return row

    def _rate(self) -> float:
        return self.optimizer.param_groups[0]["lr"]

    def metrics(self, part: Part, epoch: int) -> Metrics:
        """Metrics of the present weights, on what the task draws for an epoch. Preempted if asked to stop."""
        return self._evaluate(self._evaluated(part, epoch))

    def _evaluate(self, batches: Iterator[Batch]) -> Metrics:
        return evaluate(self.net, self.task, batches, self.device, self.stop.raise_if_requested)

    def calibrate(self) -> dict[str, float]:
        """Values the task fits on valid for the present weights, such as a temperature; mostly none."""
        net, device, between = self.net, self.device, self.stop.raise_if_requested
        return self.task.calibrate(
            lambda part: outputs(net, self._evaluated(part, self.epoch), device, between)
        )

    def perturbed(self, epoch: int) -> Metrics:
        """The task's own metric on each disturbed test part; the disturbance is the same in all runs."""
        metrics = {}
        for name in self.task.perturbations:
            rng = stream(0, "perturb", name)
            batches = (self.task.perturb(b, name, rng) for b in self._evaluated("test", epoch))
            metrics[f"{self.task.metric}_{name}"] = self._evaluate(batches)[self.task.metric]
        return metrics

    def _evaluated(self, part: Part, epoch: int) -> Iterator[Batch]:
        rng = stream(self.seed, "eval", part, epoch)
        return self.task.batches(part, self.keys["eval_batch_size"], rng)

    def _advance_schedule(self, row: dict[str, Any] | None) -> None:
        if self.schedule is None:
            return
        if not isinstance(self.schedule, ReduceLROnPlateau):
            self.schedule.step()
        elif row is not None:
            self.schedule.step(row[f"valid/{self.task.metric}"])

    # ------------------------------------------------------------------ stop and go on

    def _due(self) -> bool:
        return time.monotonic() - self.saved_at >= self.config["runtime"]["checkpoint_every_s"]

    def _save(self) -> None:
        self.save(self.state_dict())
        self.saved_at = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {
            **{name: part.state_dict() for name, part in self._parts_with_state()},
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.startswith("cuda") else None,
            "loss_sum": float(self.loss_sum),
            **{name: getattr(self, name) for name in PLAIN_STATE},
            "step_metrics": {name: float(value) for name, value in self.step_metrics.items()},
        }

    def _parts_with_state(self) -> list[tuple[str, Any]]:
        names = ("net", "optimizer", "schedule", "selector", "stopper", "average")
        return [(name, part) for name in names if (part := getattr(self, name)) is not None]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """RecordError if the checkpoint was written by code that has changed since."""
        try:
            self._load(state)
        except (AttributeError, KeyError, TypeError, ValueError, RuntimeError) as error:
            what = f"{type(error).__name__}: {error}".partition("\n")[0]
            raise RecordError(
                f"the checkpoint does not fit the code as it is now: {what}. "
                "To train anew, start again with --force."
            ) from error

    def _load(self, state: dict[str, Any]) -> None:
        for name, part in self._parts_with_state():
            part.load_state_dict(state[name])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] is not None and self.device.startswith("cuda"):
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)
        self.loss_sum.fill_(state["loss_sum"])
        # An older checkpoint: one thread computes all the time.
        state = {"cpu_s": state["train_s"], "eval_cpu_s": state["eval_s"]} | state
        for name in PLAIN_STATE:
            setattr(self, name, state[name])
        if self.step:  # else a schedule that steps before the next batch warns that the optimizer never has
            self.optimizer._opt_called = True
        self.state = tree_map_only(Tensor, lambda kept: kept.to(self.device), self.state)


PLAIN_STATE = (
    *("epoch", "step", "step_in_epoch", "state", "step_metrics", "rows", "kept", "stopped_early"),
    *("train_s", "cpu_s", "eval_s", "eval_cpu_s"),
)


def _clocks() -> tuple[float, float]:
    """Seconds of the wall clock, and CPU seconds of all threads of this process."""
    return time.monotonic(), time.process_time()


def penalties(net: nn.Module) -> list[Callable[[], Tensor | None]]:
    """The methods `penalty` of all layers: what they add to the loss in training, or None for nothing."""
    return [penalty for layer in net.modules() if callable(penalty := getattr(layer, "penalty", None))]


def named(part: str, metrics: Metrics) -> dict[str, float]:
    return {f"{part}/{name}": float(value) for name, value in metrics.items()}


def set_precision(precision: str) -> None:
    """TF32 on or off for CUDA products and convolutions: GPUs differ in their default, records must not."""
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = precision == "tf32"


def finite(batches: Iterable[Batch], task: Task, part: Part) -> Iterator[Batch]:
    """The same batches; DataError at the first one that holds NaN or infinite values."""
    for batch in batches:
        for name, tensor in (("inputs", batch.input), ("targets", batch.target)):
            if tensor.is_floating_point() and not torch.isfinite(tensor).all():
                raise DataError(f"{type(task).__name__}: the {part} {name} hold NaN or infinite values.")
        yield batch
