"""How long a run will take: a few steps of it, timed."""

import time
from itertools import islice
from typing import Any

STEPS = 3


def probe(config: dict[str, Any]) -> dict[str, Any]:
    """Milliseconds per step, hours for all steps and evaluations, and memory. Nothing is recorded.

    `memory_mib` and `gpu_mib` are peaks of the process and of what torch has reserved on a GPU, 0 on a CPU.
    """
    import torch

    from physml.ops import backend
    from physml.run.attempt import loaded
    from physml.run.progress import LineReporter
    from physml.run.record import peak_memory_mib
    from physml.training.evaluate import evaluate
    from physml.training.interrupt import Interrupt

    with backend.running(config["runtime"]["backend"], config["precision"]):
        trainer = loaded(config, None, report=LineReporter(), save=None, stop=Interrupt(), on_row=None)
        task, device = trainer.task, trainer.device
        keys, rng = config["trainer"], torch.Generator
        batch = next(iter(task.batches("train", keys["batch_size"], rng().manual_seed(0)))).to(device)
        trainer._step(batch)  # warm-up
        began = time.perf_counter()
        for _ in range(STEPS):
            trainer._step(batch)
        float(trainer.loss_sum)  # waits for the device
        step_s = (time.perf_counter() - began) / STEPS
        began = time.perf_counter()
        one = islice(task.batches("valid", keys["eval_batch_size"], rng().manual_seed(0)), 1)
        evaluate(trainer.net, task, one, device)
        evaluation_s = time.perf_counter() - began
    evaluations = trainer.total_steps / max(trainer.steps_per_epoch, 1) / keys["eval_every"]
    hours = (trainer.total_steps * step_s + evaluations * evaluation_s) / 3600
    return {
        "ms_per_step": round(1000 * step_s, 3),
        "n_steps": trainer.total_steps,
        "hours": round(hours, 9),
        "memory_mib": round(peak_memory_mib("cpu"), 1),
        "gpu_mib": torch.cuda.max_memory_reserved(device) / 2**20 if device.startswith("cuda") else 0,
    }
