"""A forecaster of a series, around a recurrent layer. Axes: T time, D channels, n windows."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from sklearn.metrics import r2_score
from sklearn.utils import check_array
from sklearn.utils.validation import check_is_fitted
from torch import Tensor, nn
from torch.nn import functional as F

from physml.base.check import count
from physml.base.errors import InputError
from physml.estimators.base import Arguments, Estimator, Scale, axes
from physml.estimators.fitting import fit
from physml.estimators.layers import Layer, network
from physml.models.sequence.rnn import SequenceModel


class Increments(nn.Module):
    """The next value of each step: the last one and what the network adds. (B, T, D) -> (B, T, D)."""

    def __init__(self, net: SequenceModel) -> None:
        super().__init__()
        self.net = net

    def forward(self, x: Tensor, state: Any = None) -> tuple[Tensor, Any]:
        added, state = self.net(x, state=state)
        return x + added, state


class WindowArguments(Arguments):
    """The arguments of a forecaster."""

    def __init__(
        self,
        layer: Layer = "lem",
        *,
        window: int = 50,
        layer_args: Mapping[str, Any] | None = None,
        epochs: int = 100,
        batch_size: int = 32,
        learning_rate: float = 0.01,
        validation_fraction: float = 0.1,
        patience: int = 20,
        random_state: Any = None,
        verbose: int = 0,
    ) -> None:
        super().__init__(
            layer,
            layer_args=layer_args,
            epochs=epochs,
            batch_size=batch_size,
            learning_rate=learning_rate,
            validation_fraction=validation_fraction,
            patience=patience,
            random_state=random_state,
            verbose=verbose,
        )
        self.window = window

    __init__.__qualname__ = "forecaster.__init__"


class Forecaster(WindowArguments, Estimator):
    r"""The future of one series, step by step: a recurrent layer that learned the next value of each step.

    .. math:: \hat y_{n+1} = y_n + R\, h_n + r

    with :math:`h_n` the layer's output for the last w values, :math:`y_{n-w+1}` to :math:`y_n`. Windows of w
    values train it. To predict, it reads the last w values and then its own predictions.

    Args:
        layer: as in `SequenceClassifier`, like the rest.
        window: w; a shorter series is one window.
        layer_args: its arguments.
        epochs: at most.
        batch_size: windows in a batch.
        learning_rate: of Adam.
        validation_fraction: the share of the windows, the last ones in time, that is held out for early
            stopping; they overlap with those that train.
        patience: epochs without a better loss on that share.
        random_state: of all that is drawn.
        verbose: 0, 1 or 2.

    Attributes: `n_features_in_`, D; `network_`; `history_`.
    Shapes: y (T,) or (T, D) -> (steps,) or (steps, D).

    Example:
        >>> y = np.sin(np.arange(60) / 5)
        >>> Forecaster("lem", window=20, epochs=5, random_state=0).fit(y).predict(7).shape
        (7,)
    """

    def fit(self, y: Any, X: None = None) -> "Forecaster":
        """Train from the start on a series of two values or more. Returns the estimator."""
        count("window", self.window)
        settings = self._settings()
        series = self._series(y, shortest=2)
        self.one_channel_ = axes(y) == 1
        self.n_features_in_ = series.shape[1]
        self.scale_ = Scale(series)
        self.last_ = self.scale_(series[-self.window :])
        windows = _windows(self.scale_(series), min(self.window, len(series) - 1) + 1)
        n_valid = int(len(windows) * self.validation_fraction)
        train, valid = windows[: len(windows) - n_valid], windows[len(windows) - n_valid :]
        d = series.shape[1]
        self.network_, self.history_ = fit(
            lambda: Increments(network(self.layer, self.layer_args, d, d, "every")),
            (train[:, :-1], train[:, 1:]),
            (valid[:, :-1], valid[:, 1:]) if n_valid else None,
            F.mse_loss,
            settings,
        )
        return self

    @torch.no_grad()
    def predict(self, steps: int, y: Any = None) -> np.ndarray:
        """The values after the end of a series.

        Args:
            steps: how many.
            y: the series that goes on, (T,) or (T, D); None: that of `fit`.
        """
        check_is_fitted(self)
        count("steps", steps)
        path = self.last_ if y is None else self.scale_(self._known(y)[-self.window :])
        value, state = self.network_(path[None])
        value = value[:, -1:]
        future = [value]
        for _ in range(steps - 1):
            value, state = self.network_(value, state)
            future.append(value)
        values = self.scale_.back(torch.cat(future, 1)[0])
        return values[:, 0] if self.one_channel_ else values

    @torch.no_grad()
    def score(self, y: Any, X: None = None) -> float:
        """R^2 of the next value at each step of a series, each predicted from the values before it."""
        check_is_fitted(self)
        series = self._known(y, shortest=3)
        windows = _windows(self.scale_(series), min(self.window, len(series) - 1) + 1)
        first = self.network_(windows[:1, :-1])[0][0]
        later = self.network_(windows[1:, :-1])[0][:, -1] if len(windows) > 1 else first[:0]
        return float(r2_score(series[1:], self.scale_.back(torch.cat([first, later]))))

    def _known(self, y: Any, shortest: int = 1) -> np.ndarray:
        series = self._series(y, shortest)
        if series.shape[1] != self.n_features_in_:
            raise InputError(f"y must have {self.n_features_in_} channels, as in fit; got {series.shape[1]}.")
        return series

    def _series(self, y: Any, shortest: int) -> np.ndarray:
        series = check_array(
            y, dtype=np.float64, ensure_2d=False, ensure_min_samples=shortest, input_name="y"
        )
        if series.ndim > 2 or series.size == 0:
            raise InputError(f"y must be one series, (T,) or (T, D); got shape {series.shape}.")
        return series.reshape(len(series), -1)


def _windows(series: Tensor, length: int) -> Tensor:
    """All windows of a series (T, D): (n, length, D)."""
    return series.unfold(0, length, 1).transpose(1, 2)
