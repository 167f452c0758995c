"""The content of a record: its setting, its training, its scores. No torch is imported here."""

import platform
import resource
import sys
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from physml.config.conf_files import without_places
from physml.config.identity import payload
from physml.records import costs, curves
from physml.records.provenance import code, cpu_facts, cpu_model, now, packages
from physml.records.schema import SCHEMA, data_of, scores_of
from physml.run.spec import RunSpec

if TYPE_CHECKING:
    from torch import nn

    from physml.training.trainer import Trainer

Scores = dict[str, dict[str, float]]  # part -> metric -> value


def of_run(
    spec: RunSpec, status: str, reason: str | None, started: str, tracker_id: str | None
) -> dict[str, Any]:
    """All keys of a record, with what is known even of a run that failed before it began."""
    place, config = spec.place, spec.config
    return {
        "schema": SCHEMA,
        "experiment": config["experiment"] or place.folder,
        "protocol": None,
        **{key: getattr(place, key) for key in ("identity", "split", "seed")},
        "status": status,
        "reason": reason,
        "metrics": {"best": None, "last": None},
        "selected": None,
        "n_parameters": None,
        "n_parameters_printed": config["n_parameters_printed"],
        "cost": None,
        "precision": config["precision"],
        "backend": None,
        "short": config["short"],
        "provenance": config["provenance"],
        "curve": None,
        "arrays": None,
        "code": code(),
        "packages": packages(),
        "started": started,
        "ended": now(),
        "wandb": tracker_id if config["tracker"]["kind"] == "wandb" else None,
        "choices": spec.choices,
        "hashed": payload(config),
        "config": without_places(config),
    }


def of_training(trainer: Any, task: Any, devices: Sequence[str], config: dict[str, Any]) -> dict[str, Any]:
    """The keys of a record that need data and a network. `devices`: names of those that it was trained on."""
    from physml.ops import backend

    device = trainer.device
    return {
        "protocol": task.protocol,
        "scoring": {name: task.scoring.get(name, task.protocol) for name in task.better},
        "data": data_of(task.recorded_data(payload(config).get("files", {}))),
        "n_parameters": count_parameters(trainer.net),
        "n_steps": trainer.step,
        "n_epochs": trainer.epoch,
        "cost": {
            "train_s": round(trainer.train_s, 3),
            "cpu_s": round(trainer.cpu_s, 3),
            "eval_s": round(trainer.eval_s, 3),
            "eval_cpu_s": round(trainer.eval_cpu_s, 3),
            "ms_per_step": round(1000 * trainer.train_s / max(trainer.step, 1), 3),
            "peak_memory_mib": round(peak_memory_mib(device), 1),
            "sgemm_gflops": round(sgemm_gflops(), 1) if list(devices) == ["cpu"] else None,
        },
        # What computed the recurrences, as native or native+torch; a net without choices is plain torch.
        "backend": "+".join(backend.ran()) or "torch",
        "machine": machine(device, config) | {"device": costs.MOVED.join(devices) or device_name(device)},
    }


def count_parameters(module: "nn.Module") -> int:
    """Free entries of all trainable tensors, shared ones once.

    A layer that stores more entries than it has freedom, such as a skew matrix in full, gives the number
    of the others as `n_redundant`.

    Example:
        >>> from torch import nn
        >>> count_parameters(nn.Linear(3, 2))
        8
    """
    count = sum(p.numel() for p in module.parameters() if p.requires_grad)
    for part in module.modules():
        if any(p.requires_grad for p in part.parameters()):
            count -= getattr(part, "n_redundant", 0)
    return count


def final_scores(trainer: "Trainer", status: str) -> dict[str, Any]:
    """Score test for the last and for the selected weights, and nothing in between.

    Afterwards the network has the selected weights.
    """
    finished = status == "finished"
    last_row = trainer.rows[-1] if trainer.rows else None
    calibration: dict[str, Any] = {}
    metrics: dict[str, Scores | None] = {"best": None, "last": None}
    selected = None
    if finished and last_row:
        metrics["last"] = _scored(trainer, last_row, "last", calibration)
    if trainer.kept:
        row = trainer.kept["row"]
        selected = {"rule": trainer.selector.rule(), "step": row["step"], "epoch": row["epoch"]}
        if finished and last_row and row["step"] == last_row["step"]:
            metrics["best"] = metrics["last"]
        else:
            trainer.net.load_state_dict(trainer.kept["weights"])
            metrics["best"] = _scored(trainer, row, "best", calibration)
    return {
        **({"calibration": calibration} if calibration else {}),
        "metrics": metrics,
        "selected": selected,
        "references": trainer.task.references(),
    }


def _scored(trainer: "Trainer", row: dict[str, Any], which: str, calibration: dict[str, Any]) -> Scores:
    """Metrics of the present weights, those of `row`. A task may calibrate itself first."""
    calibrated = trainer.calibrate() if trainer.scores_test else {}
    if not calibrated:
        return {"valid": curves.of_part(row, "valid"), "test": _test(trainer, row)}
    calibration[which] = calibrated
    return {"valid": trainer.metrics("valid", trainer.epoch), "test": _test(trainer, {})}


def _test(trainer: "Trainer", row: dict[str, Any]) -> dict[str, float]:
    """Test metrics of the present weights: those of the row, if there are any; a search asks for none."""
    if not trainer.scores_test:
        return {}
    plain = curves.of_part(row, "test") or trainer.metrics("test", trainer.epoch)
    return {**plain, **trainer.perturbed(trainer.epoch)}


def summary(record: Mapping[str, Any]) -> dict[str, Any]:
    """The few numbers that a tracker shows beside a run."""
    scores = {f"best/{name}": value for name, value in scores_of(record).items()}
    return {"status": record["status"], "n_parameters": record["n_parameters"], **scores}


def device_name(device: str) -> str:
    """The model of a GPU, or `cpu`."""
    import torch

    return torch.cuda.get_device_name(device) if device.startswith("cuda") else "cpu"


def machine(device: str, config: dict[str, Any]) -> dict[str, Any]:
    import torch

    cuda = device.startswith("cuda")
    return {
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda if cuda else None,
        "device": device_name(device),
        "cpu": cpu_model(),
        "microarchitecture": cpu_facts().get("microarchitecture"),
        "threads": config["runtime"]["threads"],
        "tf32": config["precision"] == "tf32",
        "deterministic": config["runtime"]["deterministic"],
        "platform": platform.platform(),
    }


def sgemm_gflops() -> float:
    """The best rate of a core in a few products of float32 matrices, by the time that it had itself."""
    import torch

    n = 384
    a, best = torch.ones(n, n), float("inf")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    for _ in range(50):
        began = time.process_time()
        torch.mm(a, a)
        best = min(best, time.process_time() - began)
    torch.set_num_threads(threads)
    return 2e-9 * n**3 / best


def peak_memory_mib(device: str) -> float:
    """Peak of the device's memory on CUDA, of the whole process elsewhere."""
    if device.startswith("cuda"):
        import torch

        return torch.cuda.max_memory_allocated(device) / 2**20
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10
