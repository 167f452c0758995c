"""The page of one search: its trials, and the best value so far."""

from typing import Any

from physml.report.text.document import NONE
from physml.search.state import Content, best_trial, state_text
from physml.site import plots


def search_context(ident: str, experiment: str, content: Content) -> dict[str, Any]:
    spec = content["search"]
    metric = f"valid/{spec['metric']}"
    trials = sorted(content["trials"], key=lambda trial: _order(trial, spec["better"]))
    keys = list(dict.fromkeys(key for trial in trials for key in trial["point"]))
    facts = [(key, str(spec[key])) for key in ("trials", "seed", "sampler", "pruner") if key in spec]
    best = best_trial(content)
    facts += [("best trial", str(best["trial"]))] if best else []
    facts += [(f"range of {key}", _range(value)) for key, value in spec["space"].items()]
    return {
        "ident": ident,
        "experiment": experiment,
        "state": state_text(ident),
        "metric": metric,
        "facts": facts,
        "keys": keys,
        "best": _best_so_far(content),
        "trials": [
            {
                "number": trial["trial"],
                "value": NONE if (value := _value(trial)) is None else f"{value:.5g}",
                "status": trial["status"] + (f", stage {trial['stage']}" if trial.get("stage") else ""),
                "point": [_short(trial["point"].get(key)) for key in keys],
            }
            for trial in trials
        ],
    }


def _value(trial: dict[str, Any]) -> float | None:
    """Value of a trial in the last stage that it reached."""
    known = [value for value in [*trial.get("means", []), trial["value"]] if value is not None]
    return known[-1] if known else None


def _order(trial: dict[str, Any], better: str) -> tuple[int, int, float]:
    value = _value(trial)
    if value is None:
        return 1, 0, 0.0
    return 0, -len(trial.get("means", [])), value if better == "lower" else -value


def _best_so_far(content: Content) -> str | None:
    """By trial, of the first stage, where all trials have had the same."""
    lower = content["search"]["better"] == "lower"
    x: list[float] = []
    y: list[float] = []
    for trial in sorted(content["trials"], key=lambda trial: trial["trial"]):
        value = (trial.get("means") or [trial["value"]])[0]
        if value is None:
            continue
        x.append(float(trial["trial"]))
        y.append(value if not y else (min if lower else max)(y[-1], value))
    return plots.curves([(x, y)], "best value so far by trial") if len(x) > 1 else None


def _range(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['low']:g} to {value['high']:g}" + (", log" if value.get("log") else "")
    return ", ".join(map(str, value))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else NONE if value is None else str(value)
