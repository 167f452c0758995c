"""Recurrent layers as estimators of scikit-learn; `physml.estimators.for_sktime` has those of sktime.

    >>> from physml.estimators import SequenceClassifier
    >>> SequenceClassifier("lem", epochs=50).fit(X, y).predict(X)  # doctest: +SKIP

The names below are imported when they are first used.
"""

from typing import TYPE_CHECKING, Any

from physml.base.errors import needed_by

if TYPE_CHECKING:
    from physml.estimators.forecaster import Forecaster
    from physml.estimators.sequences import SequenceClassifier, SequenceRegressor

_MODULES = {
    "Forecaster": "physml.estimators.forecaster",
    "SequenceClassifier": "physml.estimators.sequences",
    "SequenceRegressor": "physml.estimators.sequences",
}

__all__ = ["Forecaster", "SequenceClassifier", "SequenceRegressor"]


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'physml.estimators' has no attribute {name!r}")
    from importlib import import_module

    with needed_by("physml.estimators"):
        globals()[name] = cls = getattr(import_module(_MODULES[name]), name)
    return cls
