"""The page of one search: its trials, and the best value so far."""

from itertools import accumulate
from typing import Any

from physml.records.searches import Content, best_trial, last_value, spread_of_search, state_text
from physml.report.text.document import NONE
from physml.site import plots


def search_context(ident: str, experiment: str, content: Content) -> dict[str, Any]:
    spec = content["search"]
    metric = f"valid/{spec['metric']}"
    trials = sorted(content["trials"], key=lambda trial: _order(trial, spec["better"]))
    keys = list(dict.fromkeys(key for trial in trials for key in trial["point"]))
    facts = [("trials", str(len(trials))), ("seed", str(spec["seed"]))]
    facts += [("points", content["design"]), ("sampler seed", str(content["sampler_seed"]))]
    best = best_trial(content)
    facts += [("best trial", str(best["trial"]))] if best else []
    facts += [("repeated with other points", str(spread))] if (spread := spread_of_search(ident)) else []
    drawn = content["rounds"][-1]["space"]  # as wide as it became
    facts += [(f"range of {key}", _range(value)) for key, value in drawn.items()]
    return {
        "ident": ident,
        "experiment": experiment,
        "state": state_text(ident),
        "earlier": content["design"] == "random",
        "metric": metric,
        "facts": facts,
        "keys": keys,
        "best": _best_so_far(content),
        "trials": [
            {
                "number": trial["trial"],
                "value": NONE if (value := last_value(trial)) is None else f"{value:.5g}",
                "status": f"{trial['status']}, stage {trial['stage']}",
                "point": [_short(trial["point"].get(key)) for key in keys],
            }
            for trial in trials
        ],
    }


def _order(trial: dict[str, Any], better: str) -> tuple[int, int, float]:
    value = last_value(trial)
    if value is None:
        return 1, 0, 0.0
    return 0, -len(trial["means"]), value if better == "lower" else -value


def _best_so_far(content: Content) -> str | None:
    """By trial, of the first stage, where all trials have had the same."""
    lower = content["search"]["better"] == "lower"
    values = {trial["trial"]: trial["means"][0] for trial in content["trials"]}
    x = sorted(trial for trial, value in values.items() if value is not None)
    y = list(accumulate((values[trial] for trial in x), min if lower else max))
    names = ("trial", f"best valid/{content['search']['metric']} so far")
    return plots.curves([(x, y)], "best value so far by trial", names) if len(x) > 1 else None


def _range(value: Any) -> str:
    if isinstance(value, dict):
        return f"{value['low']:g} to {value['high']:g}" + (", log" if value.get("log") else "")
    return ", ".join(map(str, value))


def _short(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else NONE if value is None else str(value)
