"""Shared parts of the estimators: their settings, checks of X, scaling. Axes: n items, T time, D channels."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.base import BaseEstimator
from sklearn.utils import check_array, check_random_state
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor, nn

from physml.base.check import within
from physml.base.errors import InputError
from physml.estimators.fitting import History, Settings, outputs
from physml.estimators.layers import Layer


class Scale:
    """Mean and standard deviation of each channel; constant channels are only centred."""

    def __init__(self, x: np.ndarray) -> None:
        axes = tuple(range(x.ndim - 1))
        self.mean = x.mean(axes, dtype=np.float64)
        sd = x.std(axes, dtype=np.float64)  # of a constant not 0 but rounding
        self.sd = np.where(x.max(axes) > x.min(axes), sd, 1.0)

    def __call__(self, x: np.ndarray) -> Tensor:
        return torch.from_numpy(((x - self.mean) / self.sd).astype(np.float32))

    def back(self, x: Tensor) -> np.ndarray:
        return x.double().numpy() * self.sd + self.mean


def axes(x: Any) -> int:
    if hasattr(x, "ndim"):
        return int(x.ndim)
    try:
        return np.asarray(x).ndim
    except ValueError as error:
        raise InputError(
            "the sequences of one call must have one length; got unequal ones. Cut them, or pad with zeros."
        ) from error


class Arguments:
    """The arguments of every estimator; see `SequenceClassifier`."""

    def __init__(
        self,
        layer: Layer = "lem",
        *,
        layer_args: Mapping[str, Any] | None = None,
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 0.01,
        validation_fraction: float = 0.1,
        patience: int = 20,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        self.layer = layer
        self.layer_args = layer_args
        self.epochs = epochs
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.validation_fraction = validation_fraction
        self.patience = patience
        self.random_state = random_state
        self.verbose = verbose
        super().__init__()

    __init__.__qualname__ = "estimator.__init__"  # what Python's messages on arguments name


class Estimator(Arguments, BaseEstimator):
    """Settings of training, from the arguments."""

    network_: nn.Module
    history_: History
    n_features_in_: int
    scale_: Scale

    def _settings(self) -> Settings:
        within("validation_fraction", self.validation_fraction, 0.0, 0.9)
        seed = int(check_random_state(self.random_state).randint(2**31 - 1))
        return Settings(self.epochs, self.batch_size, self.learning_rate, self.patience, self.verbose, seed)


class SequenceEstimator(Estimator):
    """X of sequences: (n, T), one channel, or (n, T, D)."""

    _numbers = False  # whether y holds numbers, one or several for each sequence

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.input_tags.three_d_array = True
        return tags

    def _fitted_on(self, X: Any, y: Any) -> tuple[np.ndarray, Any]:
        """X as (n, T, D) and y, at the start of `fit`."""
        if (n_axes := axes(X)) > 3:
            raise InputError(f"X must have shape (n, T) or (n, T, D); got {n_axes} axes.")
        self.of_table_ = n_axes != 3  # whose columns scikit-learn counts; else T is free
        X, y = validate_data(
            self,
            X,
            y,
            dtype=np.float64,
            allow_nd=not self.of_table_,
            ensure_2d=self.of_table_,
            multi_output=self._numbers,
            y_numeric=self._numbers,
        )
        if not self.of_table_:
            if 0 in X.shape:
                raise InputError(f"X must not be empty; got shape {X.shape}.")
            self.n_features_in_ = X.shape[2]
        x = X[:, :, None] if self.of_table_ else X
        self.n_channels_ = x.shape[2]
        return x, y

    def _outputs(self, X: Any) -> Tensor:
        """The network's answers to X, which is checked and scaled."""
        check_is_fitted(self)
        if self.of_table_ and axes(X) != 3:
            x = validate_data(self, X, reset=False, dtype=np.float64)[:, :, None]
        else:
            x = check_array(
                X, dtype=np.float64, allow_nd=True, ensure_2d=False, estimator=self, input_name="X"
            )
            x = x[:, :, None] if x.ndim == 2 else x
        if x.ndim != 3 or x.shape[2] != self.n_channels_ or 0 in x.shape:
            raise InputError(
                f"X must have shape (n, T, {self.n_channels_}), batch first, with the channels of fit; got "
                f"{np.shape(X)}."
            )
        return outputs(self.network_, self.scale_(x))
