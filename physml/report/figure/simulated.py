"""Figures without runs: what a function of tasks/ or physml/lab/simulate/ that a config names returns.

Kind `trajectories`: an array (N, T, D), whose first two variables are drawn, of the first of N.
Kind `simulation`: a mapping, with x and y, each (n,), for a line that has gaps where y is NaN, or with values
(n,) for a histogram. Where the figure has seeds, the function is called with each, and the median is drawn.
Kind `measurement`: the same without seeds, of a function that reads what was measured.
"""

import importlib.util
import inspect
from collections.abc import Callable, Mapping
from typing import Any, get_type_hints

import numpy as np

from physml.base import doing
from physml.base.errors import ConfigError
from physml.config.class_source import module_file
from physml.config.load import WORDS, coerce, refuse_unknown
from physml.report.figure.spec import FigureSpec, Panel, Series

SIMULATIONS = ("tasks.", "physml.lab.simulate.")  # where a function that a config names may stand
Arrays = dict[str, np.ndarray]


def simulate(spec: FigureSpec, panel: Panel, series: Series) -> Arrays:
    """The drawn arrays of one series: x and y, with low and high if there are seeds; or values.

    ConfigError where the function can't be called so, or returns something else; whatever it raises.
    """
    name = panel.function or spec.function or ""
    function = function_of(name)
    where, hints = f"{spec.id}: series {series.label}", get_type_hints(function)
    arguments = {
        key: _argument(value, hints.get(key), f"{where}: {key}")
        for key, value in (panel.arguments | series.arguments).items()
    }
    calls: list[dict[str, Any]] = [arguments]
    if spec.kind == "simulation" and (seeds := spec.seeds_of(series)):
        calls = [arguments | {"seed": seed} for seed in seeds]
    try:
        inspect.signature(function).bind(**calls[0])
    except TypeError as error:
        raise ConfigError(f"{where}: {name}: {error}.") from error
    doing.say(f"computing {spec.id}: {series.label}")
    if spec.kind == "trajectories":
        path = np.asarray(function(**arguments))
        if path.ndim != 3 or path.shape[2] < 2:
            raise ConfigError(f"{name} must return (N, T, D) with D of at least 2; got {path.shape}.")
        return {"x": path[0, :, 0], "y": path[0, :, 1]}
    results = []
    for i, call in enumerate(calls):
        if i:
            doing.say(f"computing {spec.id}: {series.label}, seed {i + 1} of {len(calls)}")
        results.append(_checked(name, function(**call)))
    return _together(results)


def _argument(value: Any, hint: Any, where: str) -> Any:
    """A value of a config as the function takes it: a list becomes an array."""
    if isinstance(value, dict):
        raise ConfigError(f"{where} must not be a mapping; got {value!r}.")
    if hint in WORDS:
        return coerce(value, hint, where)
    try:
        return np.array(value, float) if isinstance(value, list) else value
    except ValueError as error:
        raise ConfigError(f"{where} must be numbers in a list; got {value!r}.") from error


def _checked(name: str, result: Any) -> Arrays:
    """The answer of a function for a simulation. ConfigError unless it is x and y, or values."""
    wants = f"{name} must return a mapping with x and y of the same length, or with values, each (n,)"
    if not isinstance(result, Mapping) or set(result) not in ({"x", "y"}, {"values"}):
        raise ConfigError(
            f"{wants}; got {sorted(result) if isinstance(result, Mapping) else type(result).__name__}."
        )
    arrays = {key: np.asarray(value, float) for key, value in result.items()}
    shapes = {array.shape for array in arrays.values()}
    if len(shapes) > 1 or any(len(shape) != 1 or not shape[0] for shape in shapes):
        raise ConfigError(f"{wants}; got {', '.join(f'{k} {a.shape}' for k, a in arrays.items())}.")
    return arrays


def _together(results: list[Arrays]) -> Arrays:
    """One answer as it is; of several all values, or median, least and greatest of y at each x."""
    if len(results) == 1:
        return results[0]
    if "values" in results[0]:
        return {"values": np.concatenate([result["values"] for result in results])}
    if not all(np.array_equal(result["x"], results[0]["x"]) for result in results):
        raise ConfigError("x must be the same for every seed: the median is taken at each x.")
    every = np.stack([result["y"] for result in results])
    return {"x": results[0]["x"], "y": np.median(every, 0), "low": every.min(0), "high": every.max(0)}


def function_of(target: str) -> Callable[..., Any]:
    """A function of our own, from its file in the checkout, whatever else is called `tasks`."""
    module, _, name = target.rpartition(".")
    if not module.startswith(SIMULATIONS):
        raise ConfigError(
            "function must be one of tasks/ or physml/lab/simulate/, such as tasks.lorenz96.trajectories; "
            f"got {target!r}."
        )
    file = module_file(module)
    spec = importlib.util.spec_from_file_location(f"physml_figure_{file.stem}", file)
    assert spec is not None and spec.loader is not None  # module_file gave a .py file
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    functions = {n: f for n, f in vars(loaded).items() if inspect.isfunction(f) and f.__module__ == spec.name}
    refuse_unknown([name], functions, f"{module} has no function ")
    return functions[name]
