"""Wrappers of sktime: its own checks, none of which is expected to fail."""

import warnings
from typing import Any

import numpy as np
import pytest

pytest.importorskip("sktime", reason="needs the extra series")

from sktime.utils.estimator_checks import check_estimator

from physml.estimators import Forecaster, SequenceClassifier
from physml.estimators.for_sktime import SktimeClassifier, SktimeForecaster, SktimeRegressor

ALL = (SktimeClassifier, SktimeRegressor, SktimeForecaster)


def failed(estimator: Any) -> dict[str, str]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(estimator, raise_exceptions=False, verbose=False)
    assert len(results) > 50
    return {name: str(result)[:200] for name, result in results.items() if result != "PASSED"}


@pytest.mark.slow
@pytest.mark.parametrize(
    "estimator", [SktimeClassifier, SktimeRegressor, pytest.param(SktimeForecaster, marks=pytest.mark.grid)]
)
def test_checks_of_sktime(estimator: Any) -> None:
    assert failed(estimator.create_test_instance()) == {}


@pytest.mark.grid
@pytest.mark.parametrize("estimator", ALL)
def test_checks_of_sktime_with_all_settings(estimator: Any) -> None:
    assert failed(estimator) == {}


def test_a_panel_is_turned_to_batch_first() -> None:
    X, y = np.random.default_rng(0).normal(size=(20, 2, 9)), np.arange(20) % 2  # n, channels, time
    settings: dict[str, Any] = {"layer_args": {"d_hidden": 4}, "epochs": 2, "random_state": 0}
    ours = SequenceClassifier("cornn", **settings).fit(X.transpose(0, 2, 1), y)
    theirs = SktimeClassifier("cornn", **settings).fit(X, y)
    assert theirs.estimator_.n_features_in_ == 2
    assert np.array_equal(theirs.predict_proba(X), ours.predict_proba(X.transpose(0, 2, 1)))


def test_steps_ahead_are_picked_and_named() -> None:
    import pandas as pd

    index = pd.period_range("2000-01", periods=30, freq="M")
    y = pd.Series(np.sin(np.arange(30) / 3), index=index, name="wave")
    settings: dict[str, Any] = {"window": 8, "epochs": 2, "random_state": 0}
    forecast = SktimeForecaster("gru", **settings).fit(y).predict(fh=[1, 4])
    assert list(map(str, forecast.index)) == ["2002-07", "2002-10"] and forecast.name == "wave"
    assert np.allclose(forecast, Forecaster("gru", **settings).fit(y.to_numpy()).predict(4)[[0, 3]])


def test_forecasts_go_on_from_the_end_of_an_update_which_may_overlap() -> None:
    import pandas as pd

    y = pd.Series(np.sin(np.arange(40) / 3))
    settings: dict[str, Any] = {"window": 8, "epochs": 2, "random_state": 0}
    model = SktimeForecaster("gru", **settings).fit(y[:30])
    plain = Forecaster("gru", **settings).fit(y[:30].to_numpy())
    model.update(y[25:36], update_params=False)
    assert np.allclose(model.predict([2]), plain.predict(2, y[:36].to_numpy())[1])
    model.update(y[36:], update_params=False)
    assert np.allclose(model.predict([1]), plain.predict(1, y.to_numpy()))
