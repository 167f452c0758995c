"""Thin wrappers in the interface of sktime, for its pipelines and benchmarks.

sktime hands panels over as (n, channels, time), which are turned to (n, time, channels). The arguments are
those of `physml.estimators`. Axes: n series, D channels, T time.
"""

import warnings
from typing import Any, ClassVar

from physml.base.errors import needed_by

with needed_by("physml.estimators.for_sktime"):
    from sktime.classification.base import BaseClassifier
    from sktime.forecasting.base import BaseForecaster
    from sktime.regression.base import BaseRegressor

import numpy as np
import pandas as pd

from physml.estimators.base import Arguments
from physml.estimators.forecaster import Forecaster, WindowArguments
from physml.estimators.sequences import SequenceClassifier, SequenceRegressor

COMMON = {
    "authors": ["the physml contributors"],
    "maintainers": ["the physml contributors"],
    "python_dependencies": ["torch"],
    "capability:multivariate": True,
    "property:randomness": "derandomized",
    "capability:random_state": True,
}
# For sktime's own checks.
SMALL = (
    {"layer": "lem", "layer_args": {"d_hidden": 4}, "epochs": 2},
    {"layer": "gru", "epochs": 1, "patience": 1},
)


class _Panel(Arguments):
    """Both estimators of panels, around one of scikit-learn."""

    of_panels: ClassVar[type[SequenceClassifier | SequenceRegressor]]

    def _fit(self, X: np.ndarray, y: np.ndarray) -> "_Panel":
        self.estimator_ = self.of_panels(**self.get_params(deep=False))  # type: ignore[attr-defined]
        self.estimator_.fit(X.transpose(0, 2, 1), y)
        return self

    def _predict(self, X: np.ndarray) -> np.ndarray:
        return self.estimator_.predict(X.transpose(0, 2, 1))

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """For sktime's own checks: small and quick."""
        return [dict(settings) for settings in SMALL]


class SktimeClassifier(_Panel, BaseClassifier):
    """`SequenceClassifier` for sktime.

    Args: those of `physml.estimators.SequenceClassifier`.

    Example:
        >>> from physml.estimators.for_sktime import SktimeClassifier
        >>> from sktime.datasets import load_unit_test
        >>> X, y = load_unit_test("train")
        >>> SktimeClassifier("lem", epochs=2, random_state=0).fit(X, y).predict(X).shape
        (20,)
    """

    _tags: ClassVar[dict[str, Any]] = {**COMMON, "X_inner_mtype": "numpy3D", "capability:predict_proba": True}

    of_panels = SequenceClassifier

    def _predict_proba(self, X: np.ndarray) -> np.ndarray:
        return self.estimator_.predict_proba(X.transpose(0, 2, 1))


class SktimeRegressor(_Panel, BaseRegressor):
    """`SequenceRegressor` for sktime.

    Args: those of `physml.estimators.SequenceRegressor`.

    Example:
        >>> from physml.estimators.for_sktime import SktimeRegressor
        >>> from sktime.datasets import load_unit_test
        >>> X, y = load_unit_test("train")
        >>> SktimeRegressor("lem", epochs=2, random_state=0).fit(X, y.astype(float)).predict(X).shape
        (20,)
    """

    _tags: ClassVar[dict[str, Any]] = {**COMMON, "X_inner_mtype": "numpy3D"}
    of_panels = SequenceRegressor


class _Quiet(BaseForecaster):
    """Without the warning of a default that will change, and that nothing here depends on."""

    def __init__(self) -> None:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "The default of config ``remember_data``", FutureWarning)
            super().__init__()


class SktimeForecaster(WindowArguments, _Quiet):
    """`Forecaster` for sktime: one network for all columns of a series, without exogenous data.

    Args: those of `physml.estimators.Forecaster`.

    Example:
        >>> from physml.estimators.for_sktime import SktimeForecaster
        >>> from sktime.datasets import load_airline
        >>> y = load_airline()
        >>> SktimeForecaster("gru", window=24, epochs=2, random_state=0).fit(y).predict([1, 2, 3]).shape
        (3,)
    """

    _tags: ClassVar[dict[str, Any]] = {
        **COMMON,
        "y_inner_mtype": "pd.DataFrame",
        "requires-fh-in-fit": False,
        "capability:exogenous": False,
        "capability:insample": False,
        "capability:pred_int": False,
    }

    def _fit(self, y: pd.DataFrame, X: Any = None, fh: Any = None) -> "SktimeForecaster":
        self.estimator_ = Forecaster(**self.get_params(deep=False)).fit(y.to_numpy())
        self._seen = y.iloc[-self.window :]
        return self

    def _update(self, y: pd.DataFrame, X: Any = None, update_params: bool = True) -> "SktimeForecaster":
        """Forecasts go on from the end of y, by the same network unless parameters are to change."""
        self._seen = y.combine_first(self._seen).iloc[-self.window :]
        return super()._update(y, X, update_params) if update_params else self

    def _predict(self, fh: Any, X: Any = None) -> pd.DataFrame:
        steps = np.asarray(fh.to_relative(self.cutoff), dtype=int)
        values = self.estimator_.predict(int(steps.max()), self._seen.to_numpy())
        return pd.DataFrame(
            values[steps - 1], index=fh.to_absolute_index(self.cutoff), columns=self._get_columns("predict")
        )

    @classmethod
    def get_test_params(cls, parameter_set: str = "default") -> list[dict[str, Any]]:
        """For sktime's own checks: small and quick."""
        return [{**settings, "window": 5} for settings in SMALL]
