"""The picture of a search, as far as it is."""

from pathlib import Path

from physml.base.errors import ConfigError
from physml.report.figure.search_plot import write_search_plot
from physml.search.plain import SearchSpec, load_search
from physml.search.points import importances
from physml.search.state import best_trial, content_of_file, results_path


def picture(ident: str, spec: SearchSpec | None = None) -> tuple[Path, dict[str, float]]:
    """Draw results/search/<id>.png; the file, and the importance of each key.

    Trials of a search in stages count by their value in the first stage, which all of them have.

    Raises:
        ConfigError: Nothing of the search is there.
    """
    spec = spec or load_search(ident)
    content = content_of_file(spec.id)
    if content is None:
        raise ConfigError(f"search {spec.id} has no trials yet. Make some: physml search {ident}")
    staged = bool(content["search"].get("stages"))
    trials = [row | {"value": row["means"][0] if staged else row["value"]} for row in content["trials"]]
    space = content["rounds"][-1]["space"] if staged else content["search"]["space"]
    tried = [(row["point"], row["value"]) for row in trials if row["value"] is not None]
    parts = importances(space, tried, content["search"]["better"])
    best = best_trial(content)
    metric = f"valid/{content['search']['metric']}" + (", first stage" if staged else "")
    path = results_path(spec.id).with_suffix(".png")
    number = best["trial"] if best else None
    return write_search_plot(spec.id, metric, space, trials, number, parts, path), parts
