"""The picture of a search, as far as it is."""

from pathlib import Path

from physml.base.errors import ConfigError
from physml.records.searches import best_trial, content_of_file, results_path
from physml.report.figure.pictures import write_search_plot
from physml.search.points import importances
from physml.search.spec import load_search


def picture(name: str) -> tuple[Path, dict[str, float]]:
    """Draw results/search/<id>.png; the file, and the importance of each key.

    Trials count by their value in the first stage, which all of them have.

    Raises:
        ConfigError: Nothing of the search is there.
    """
    spec = load_search(name)
    ident, content = spec.id, content_of_file(spec.id)
    if content is None:
        raise ConfigError(f"search {ident} has no trials yet. Make some: physml search {name}")
    search, space = content["search"], content["rounds"][-1]["space"]
    trials = [row | {"value": row["means"][0]} for row in content["trials"]]
    tried = [(row["point"], row["value"]) for row in trials if row["value"] is not None]
    parts = importances(space, tried, search["better"])
    best = best_trial(content)
    metric = f"valid/{search['metric']}" + (", first stage" if len(content["stages"]) > 1 else "")
    number, path = best["trial"] if best else None, results_path(ident).with_suffix(".png")
    return write_search_plot(ident, metric, space, trials, number, parts, path), parts
