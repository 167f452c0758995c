"""The one loop. It knows no task and no model by name."""

import math
import time
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from physml import build
from physml.data.batch import Batch
from physml.data.task import Metrics, Task
from physml.errors import DataError, Preempted
from physml.evaluate import State, apply, detached, evaluate
from physml.progress import Reporter
from physml.seeds import derive, stream

FINITE_CHECK_EVERY = 50  # steps; on a GPU every look at a loss waits for the device


class Diverged(Exception):
    """The loss is no longer a number."""


class Trainer:
    """Trains a network on a task, and can stop and go on at any step.

    All randomness comes from streams of their own: "init" for weights, "dropout" for the global generator,
    ("order", epoch) for training batches. So a resumed run repeats nothing and skips nothing.

    save: called with the state to keep; asked: whether someone wants the run to stop.
    """

    def __init__(
        self,
        config: dict[str, Any],
        task: Task,
        device: str,
        *,
        report: Reporter,
        save: Callable[[dict[str, Any]], None],
        asked: Callable[[], str | None],
        on_row: Callable[[dict[str, Any]], None],
    ) -> None:
        self.config, self.keys, self.task, self.device = config, config["trainer"], task, device
        self.report, self.save, self.asked, self.on_row = report, save, asked, on_row
        self.seed: int = config["seed"]
        set_precision(config["precision"])
        torch.manual_seed(derive(self.seed, "init"))
        self.net: nn.Module = build.build_net(config, task).to(device)
        self.optimizer = build.build_optimizer(config, self.net)
        self.schedule = build.build_schedule(config, self.optimizer)
        self.selector = build.construct(self.keys["select"], "trainer.select")
        self.selector.bind(task.metric, task.better)
        self.stopper = build.construct(self.keys["stop"], "trainer.stop") if self.keys["stop"] else None
        if self.stopper:
            self.stopper.bind(task.metric, task.better)
        torch.manual_seed(derive(self.seed, "dropout"))
        self.steps_per_epoch = task.steps_per_epoch(self.keys["batch_size"])
        self.total_steps = self.keys["epochs"] * self.steps_per_epoch
        if self.keys["max_steps"]:
            self.total_steps = min(self.total_steps, self.keys["max_steps"])
        self.epoch = 0  # whole epochs done
        self.step = 0  # optimiser steps done
        self.step_in_epoch = 0
        self.loss_sum = torch.zeros((), dtype=torch.float64, device=device)
        self.state: State = None
        self.rows: list[dict[str, Any]] = []
        self.kept: dict[str, Any] | None = None
        self.stopped_early = False
        self.train_s = 0.0
        self.eval_s = 0.0
        self.saved_at = time.monotonic()

    # ------------------------------------------------------------------ the loop

    def fit(self) -> None:
        """Train to the end. Diverged or Preempted end it early; the latter after a checkpoint."""
        self.net.train()
        while self.step < self.total_steps and not self.stopped_early:
            self._epoch()
            self._save_if_due()

    def _epoch(self) -> None:
        began = time.monotonic()
        rng = stream(self.seed, "order", self.epoch)
        for i, batch in enumerate(self.task.batches("train", self.keys["batch_size"], rng)):
            if i < self.step_in_epoch:
                continue  # done before a stop; drawn again so that the generator stands where it stood
            if self.epoch == 0:
                refuse_nan(batch, self.task)
            self._step(batch.to(self.device))
            self.step_in_epoch = i + 1
            self.step += 1
            self.report.step(self.step)
            if self.step_in_epoch % FINITE_CHECK_EVERY == 0:
                self._finite()
            if self.step == self.total_steps or self.step_in_epoch == self.steps_per_epoch:
                break
            began = self._between_steps(began)
        self._finite()
        self.train_s += time.monotonic() - began
        self._close_epoch()

    def _between_steps(self, began: float) -> float:
        """A stop or a checkpoint in the middle of an epoch; the clock of training stands still meanwhile."""
        now = time.monotonic()
        reason = self.asked()
        if not reason and now - self.saved_at < self.config["runtime"]["checkpoint_every_s"]:
            return began
        self.train_s += now - began
        self._save()
        if reason:
            raise Preempted(reason)
        return time.monotonic()

    def _step(self, batch: Batch) -> None:
        with torch.autocast(torch.device(self.device).type, torch.bfloat16, enabled=self.config["precision"] == "bf16"):
            output, state = apply(self.net, batch, self.state if batch.carry else None)
            loss = self.task.loss(output, batch)
        self.optimizer.zero_grad(set_to_none=True)
        loss.backward()
        if self.keys["clip_norm"]:
            nn.utils.clip_grad_norm_(self.net.parameters(), self.keys["clip_norm"])
        self.optimizer.step()
        self.loss_sum += loss.detach()
        self.state = detached(state) if batch.carry else None

    def _finite(self) -> None:
        if not math.isfinite(float(self.loss_sum)):
            raise Diverged(f"the loss is not finite in epoch {self.epoch + 1}, by step {self.step}")

    def _close_epoch(self) -> None:
        loss = float(self.loss_sum) / self.step_in_epoch
        self.epoch += 1
        self.step_in_epoch = 0
        self.loss_sum.zero_()
        self.state = None
        over = self.step >= self.total_steps
        row = None
        if over or self.epoch % self.keys["eval_every"] == 0:
            row = self._evaluation(loss)
        self._advance_schedule(row)
        if row is None:
            return
        if self.selector.selected(row):
            self.kept = {"row": row, "weights": copied(self.net.state_dict())}
        self.stopped_early = bool(self.stopper and self.stopper.stops(row))
        self.rows.append(row)
        self.report.row(row)
        self.on_row(row)

    def _evaluation(self, loss: float) -> dict[str, Any]:
        began = time.monotonic()
        row: dict[str, Any] = {
            "epoch": self.epoch,
            "step": self.step,
            "seconds": round(self.train_s, 3),
            "lr": self.optimizer.param_groups[0]["lr"],
            "train/loss": loss,
        }
        row |= named("valid", self.metrics("valid"))
        every = self.keys["test_every"]
        if self.selector.needs_test or (every and (self.epoch % every == 0 or self.step >= self.total_steps)):
            row |= named("test", self.metrics("test"))
        self.eval_s += time.monotonic() - began
        return row

    def metrics(self, part: Any) -> Metrics:
        """Metrics of the present weights."""
        rng = stream(self.seed, "eval", part, self.epoch)
        return evaluate(self.net, self.task, self.task.batches(part, self.keys["eval_batch_size"], rng), self.device)

    def _advance_schedule(self, row: dict[str, Any] | None) -> None:
        if self.schedule is None:
            return
        if isinstance(self.schedule, torch.optim.lr_scheduler.ReduceLROnPlateau):
            if row is not None:
                self.schedule.step(row[f"valid/{self.task.metric}"])
        else:
            self.schedule.step()

    # ------------------------------------------------------------------ stop and go on

    def _save_if_due(self) -> None:
        reason = self.asked()
        due = time.monotonic() - self.saved_at >= self.config["runtime"]["checkpoint_every_s"]
        if reason or due:
            self._save()
        if reason and self.step < self.total_steps:
            raise Preempted(reason)

    def _save(self) -> None:
        self.save(self.state_dict())
        self.saved_at = time.monotonic()

    def state_dict(self) -> dict[str, Any]:
        return {
            "net": self.net.state_dict(),
            "optimizer": self.optimizer.state_dict(),
            "schedule": self.schedule.state_dict() if self.schedule else None,
            "selector": self.selector.state_dict(),
            "stopper": self.stopper.state_dict() if self.stopper else None,
            "rng": torch.get_rng_state(),
            "cuda_rng": torch.cuda.get_rng_state(self.device) if self.device.startswith("cuda") else None,
            "loss_sum": float(self.loss_sum),
            **{name: getattr(self, name) for name in PLAIN_STATE},
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.net.load_state_dict(state["net"])
        self.optimizer.load_state_dict(state["optimizer"])
        if self.schedule:
            self.schedule.load_state_dict(state["schedule"])
        self.selector.load_state_dict(state["selector"])
        if self.stopper:
            self.stopper.load_state_dict(state["stopper"])
        torch.set_rng_state(state["rng"])
        if state["cuda_rng"] is not None and self.device.startswith("cuda"):
            torch.cuda.set_rng_state(state["cuda_rng"], self.device)
        self.loss_sum.fill_(state["loss_sum"])
        for name in PLAIN_STATE:
            setattr(self, name, state[name])
        self.state = moved(self.state, self.device)


PLAIN_STATE = ("epoch", "step", "step_in_epoch", "state", "rows", "kept", "stopped_early", "train_s", "eval_s")


def named(part: str, metrics: Metrics) -> dict[str, float]:
    return {f"{part}/{name}": float(value) for name, value in metrics.items()}


def copied(weights: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name: value.detach().to("cpu", copy=True) for name, value in weights.items()}


def moved(state: State, device: str) -> State:
    if isinstance(state, Tensor):
        return state.to(device)
    return tuple(moved(s, device) for s in state) if isinstance(state, tuple | list) else state


def set_precision(precision: str) -> None:
    """TF32 on or off for CUDA products and convolutions: GPUs differ in their default, records must not."""
    allowed = precision == "tf32"
    torch.backends.cuda.matmul.allow_tf32 = allowed
    torch.backends.cudnn.allow_tf32 = allowed


def refuse_nan(batch: Batch, task: Task) -> None:
    for name, tensor in (("inputs", batch.input), ("targets", batch.target)):
        if tensor.is_floating_point() and not torch.isfinite(tensor).all():
            raise DataError(f"{type(task).__name__}: the training {name} hold NaN or infinite values.")
