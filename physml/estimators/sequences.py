"""Estimators of scikit-learn for one answer per sequence. Axes: n sequences, T time, D channels."""

from typing import Any

import numpy as np
import torch
from sklearn.base import ClassifierMixin, RegressorMixin
from sklearn.model_selection import train_test_split
from sklearn.utils.multiclass import check_classification_targets
from torch import Tensor
from torch.nn import functional as F

from physml.base.errors import InputError
from physml.estimators.base import Scale, SequenceEstimator
from physml.estimators.fitting import Loss, fit
from physml.estimators.layers import network


class SequenceClassifier(ClassifierMixin, SequenceEstimator):
    """A class per sequence, by a recurrent layer and a linear read-out of its last step.

    Channels are scaled by their mean and standard deviation in the training data. Adam lowers the cross
    entropy; the weights that are kept are those of the epoch with the lowest one on the held-out share.

    Args:
        layer: a model of `physml list models` for sequences, such as "lem", "cornn" or "lstm"; or a class,
            called as layer(d_in, **layer_args), see docs/add-a-model.md.
        layer_args: its arguments; of a name, the others are those of conf/model.
        epochs: at most.
        batch_size: sequences in a batch.
        learning_rate: of Adam.
        validation_fraction: the share of the sequences that is held out for early stopping; 0: none, and all
            epochs are trained.
        patience: epochs without a better loss on that share, after which training ends.
        random_state: of initialisation, held-out share, batches and dropout. The same number gives the same
            bits on the same machine.
        verbose: 0: silent; 1: about ten lines; 2: one per epoch.

    Attributes: `classes_`; `n_features_in_`, the columns of a table or the channels D; `network_`, a
    `physml.SequenceModel`; `history_`, losses by epoch.
    Shapes: X (n, T), one channel, or (n, T, D), batch first; y (n,). With three axes, T may differ between
    fit and predict.
    Errors: InputError, which is a ValueError, for wrong arguments, and where the loss becomes infinite.

    Example:
        >>> X = np.random.default_rng(0).normal(size=(40, 12)).cumsum(1)
        >>> model = SequenceClassifier("lem", epochs=5, random_state=0).fit(X, X[:, -1] > 0)
        >>> model.predict_proba(X).shape
        (40, 2)
    """

    def fit(self, X: Any, y: Any) -> "SequenceClassifier":
        """Train from the start. Returns the estimator."""
        x, y = self._fitted_on(X, y)
        check_classification_targets(y)
        self.classes_, index = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise InputError(
                f"y must have two classes or more; got one class alone, {str(self.classes_[0])!r}. Add items "
                "of another one."
            )
        index = index.astype(np.int64)
        _train(self, x, torch.from_numpy(index), len(self.classes_), F.cross_entropy, index)
        return self

    def predict_proba(self, X: Any) -> np.ndarray:
        """The probability of each class, (n, classes), in the order of `classes_`."""
        return self._outputs(X).double().softmax(1).numpy()

    def predict(self, X: Any) -> np.ndarray:
        """The most probable class of each sequence, (n,)."""
        best = self._outputs(X).argmax(1).numpy()
        return self.classes_[best]


class SequenceRegressor(RegressorMixin, SequenceEstimator):
    """A number, or several, per sequence, by a recurrent layer and a linear read-out of its last step.

    As `SequenceClassifier`, with the mean squared error of targets that are scaled like the channels.

    Args:
        layer: as in `SequenceClassifier`, like the rest.
        layer_args: its arguments.
        epochs: at most.
        batch_size: sequences in a batch.
        learning_rate: of Adam.
        validation_fraction: the share that is held out for early stopping.
        patience: epochs without a better loss on that share.
        random_state: of all that is drawn.
        verbose: 0, 1 or 2.

    Shapes: X (n, T) or (n, T, D); y (n,) or (n, O).

    Example:
        >>> X = np.random.default_rng(0).normal(size=(40, 12))
        >>> SequenceRegressor("cornn", epochs=5, random_state=0).fit(X, X.mean(1)).predict(X).shape
        (40,)
    """

    _numbers = True

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.multi_output = True
        return tags

    def fit(self, X: Any, y: Any) -> "SequenceRegressor":
        """Train from the start. Returns the estimator."""
        x, y = self._fitted_on(X, y)
        self.one_output_ = y.ndim == 1
        y = y.astype(np.float64).reshape(len(y), -1)
        self.target_scale_ = Scale(y)
        _train(self, x, self.target_scale_(y), y.shape[1], F.mse_loss, None)
        return self

    def predict(self, X: Any) -> np.ndarray:
        """The answer to each sequence, in the shape of y."""
        scaled = self._outputs(X)
        values = self.target_scale_.back(scaled)
        return values[:, 0] if self.one_output_ else values


def _train(
    estimator: SequenceEstimator,
    x: np.ndarray,
    y: Tensor,
    d_out: int,
    loss: Loss,
    stratify: np.ndarray | None,
) -> None:
    settings = estimator._settings()
    estimator.scale_ = Scale(x)
    inputs = estimator.scale_(x)
    train, valid = _held_out(len(x), estimator.validation_fraction, settings.seed, stratify)
    estimator.network_, estimator.history_ = fit(
        lambda: network(estimator.layer, estimator.layer_args, x.shape[2], d_out, "last"),
        (inputs[train], y[train]),
        (inputs[valid], y[valid]) if len(valid) else None,
        loss,
        settings,
    )


def _held_out(n: int, share: float, seed: int, stratify: np.ndarray | None) -> tuple[Any, Any]:
    """Places of the sequences that train and that are held out; none where the share is less than one."""
    places, n_valid = np.arange(n), int(n * share)
    if n_valid == 0:
        return places, places[:0]
    if stratify is not None:  # shares can be kept where each class has a sequence or more on both sides
        counts = np.bincount(stratify)
        if counts.min() < 2 or min(n_valid, n - n_valid) < len(counts):
            stratify = None
    return tuple(train_test_split(places, test_size=n_valid, random_state=seed, stratify=stratify))
