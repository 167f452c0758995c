"""The scores of a record: metrics of the last and of the selected weights, on valid and test."""

from typing import Any

from physml.records import curves
from physml.training.trainer import Trainer

Scores = dict[str, dict[str, float]]  # part -> metric -> value


def final_scores(trainer: Trainer, status: str) -> dict[str, Any]:
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


def _scored(trainer: Trainer, row: dict[str, Any], which: str, calibration: dict[str, Any]) -> Scores:
    """Metrics of the present weights, those of `row`. A task may calibrate itself first."""
    calibrated = trainer.calibrate() if trainer.scores_test else {}
    if not calibrated:
        return {"valid": curves.of_part(row, "valid"), "test": _test(trainer, row)}
    calibration[which] = calibrated
    return {"valid": trainer.metrics("valid", trainer.epoch), "test": _test(trainer, {})}


def _test(trainer: Trainer, row: dict[str, Any]) -> dict[str, float]:
    """Test metrics of the present weights: those of the row, if there are any; a search asks for none."""
    if not trainer.scores_test:
        return {}
    plain = curves.of_part(row, "test") or trainer.metrics("test", trainer.epoch)
    return {**plain, **trainer.perturbed(trainer.epoch)}
