"""Estimators of scikit-learn: its own checks, and what they do not ask."""

import pickle
import sys
import warnings
from typing import Any

import numpy as np
import pytest
import torch
from refusals import refuses
from torch import Tensor, nn

pytest.importorskip("sklearn", reason="needs the extra estimators")

from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.model_selection import GridSearchCV, cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import parametrize_with_checks

from physml.base.errors import ConfigError, InputError, MissingExtra
from physml.estimators import Forecaster, SequenceClassifier, SequenceRegressor
from physml.estimators.base import Scale
from physml.estimators.layers import names
from physml.models.sequence.lem import LEM

# Small and quick; scikit-learn wants an accuracy of 0.83 on three blobs, and an R^2 of 0.5.
QUICK: dict[str, Any] = {"layer_args": {"d_hidden": 8}, "epochs": 40, "learning_rate": 0.03}


@parametrize_with_checks([SequenceClassifier(**QUICK), SequenceRegressor(**QUICK)])
def test_checks_of_scikit_learn(estimator: Any, check: Any) -> None:
    """No failure is expected. Its check of array API inputs skips itself where SCIPY_ARRAY_API is not set."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        check(estimator)


def waves(n: int = 60, steps: int = 20, channels: int = 1) -> tuple[np.ndarray, np.ndarray]:
    """Sines of random phase, slow or fast, and which they are."""
    rng = np.random.default_rng(0)
    fast = np.arange(n) % 2
    t = np.arange(steps)[None, :, None]
    phase = rng.uniform(0, 6.28, (n, 1, channels))
    return np.sin((0.3 + 0.9 * fast[:, None, None]) * t + phase), fast


X, y = waves()


def classifier(**settings: Any) -> SequenceClassifier:
    return SequenceClassifier(**{**QUICK, "random_state": 0, **settings})


def test_sequences_of_several_channels_and_of_any_length() -> None:
    X, y = waves(channels=3)
    model = classifier().fit(X, np.array(["slow", "fast"])[y])
    assert model.n_features_in_ == 3 and list(model.classes_) == ["fast", "slow"]
    assert model.score(X, np.array(["slow", "fast"])[y]) > 0.9
    probabilities = model.predict_proba(X[:, :13])
    assert probabilities.shape == (60, 2) and np.allclose(probabilities.sum(1), 1)
    for wrong, got in ((X[:, :, :2], r"\(60, 20, 2\)"), (X[:, :, 0], "")):
        refuses(InputError, rf"X must have shape \(n, T, 3\).*{got}", model.predict, wrong)


def test_a_table_is_one_channel() -> None:
    table, panel = classifier(epochs=3).fit(X[:, :, 0], y), classifier(epochs=3).fit(X, y)
    assert table.n_features_in_ == 20 and panel.n_features_in_ == 1
    assert np.array_equal(table.predict_proba(X[:, :, 0]), panel.predict_proba(X))
    with pytest.raises(ValueError, match="X has 19 features, but SequenceClassifier is expecting 20"):
        table.predict(X[:, 1:, 0])


def test_a_constant_channel_is_only_centred_and_one_class_alone_refused() -> None:
    # The mean of a constant is rounded, so its standard deviation is not 0 but 1e-15.
    x = np.random.default_rng(0).normal(size=(40, 7, 2))
    for value in (0.1, 0.3, 1e5 + 0.1):
        x[:, :, 1] = value
        assert Scale(x).sd[1] == 1.0 and abs(float(Scale(x)(x)[..., 1].max())) < 1e-9
    model = SequenceClassifier("gru", epochs=1, validation_fraction=0.75, random_state=0)
    assert model.fit(x[:4], [0, 0, 1, 1]).predict(x).shape == (40,)
    with pytest.raises(InputError, match="two classes or more; got one class alone, 'a'"):
        classifier(epochs=1).fit(X, ["a"] * 60)
    with pytest.raises(InputError, match="the loss is no longer a number after epoch"):
        SequenceRegressor("tanh_rnn", epochs=50, learning_rate=1e30, random_state=0).fit(X, X[:, -1, 0])


def test_a_random_state_gives_the_same_bits_and_names_are_those_of_recurrent_models() -> None:
    before = torch.get_rng_state()
    first, again, other = (classifier(epochs=4, random_state=s).fit(X, y) for s in (3, 3, 4))
    assert torch.equal(torch.get_rng_state(), before)
    assert first.history_ == again.history_
    assert np.array_equal(first.predict_proba(X), again.predict_proba(X))
    assert not np.array_equal(first.predict_proba(X), other.predict_proba(X))
    assert {"lem", "cornn", "bilstm"} <= set(names()) and "gcn" not in names() and "own" not in names()


def test_the_best_epoch_on_the_held_out_share_is_kept_and_progress_printed_on_demand(capsys) -> None:
    noise = np.random.default_rng(1).permutation(y)
    model = classifier(epochs=200, patience=5, validation_fraction=0.3).fit(X, noise)
    losses = model.history_.valid
    assert len(losses) < 200 and len(losses) == model.history_.best + 5
    assert model.history_.best == int(np.argmin(losses)) + 1
    everything = classifier(epochs=7, validation_fraction=0).fit(X, y)
    assert len(everything.history_.train) == everything.history_.best == 7
    assert everything.history_.valid == []
    classifier(epochs=30).fit(X, y)
    assert capsys.readouterr().out == ""
    classifier(epochs=30, verbose=1, patience=100).fit(X, y)
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == 11 and lines[0].startswith("epoch 1/30: loss ") and ", held out " in lines[0]


class Mean(nn.Module):
    """A layer of one's own: the mean so far of a linear map."""

    def __init__(self, d_in: int, width: int) -> None:
        super().__init__()
        self.d_out = width
        self.map = nn.Linear(d_in, width)

    def forward(self, u: Tensor, state: None = None) -> tuple[Tensor, None]:
        x = self.map(u).cumsum(1)
        return x / torch.arange(1, u.shape[1] + 1)[None, :, None], None


@pytest.mark.parametrize("layer", [Mean, LEM, "unicornn", "lstm"], ids=str)
def test_any_layer_survives_clone_and_pickle(layer: Any) -> None:
    arguments = {"width": 4} if layer is Mean else {"d_hidden": 4}
    model = classifier(layer=layer, layer_args=arguments, epochs=2)
    fitted = clone(model).fit(X, y)
    assert clone(fitted).get_params() == model.get_params()
    assert np.array_equal(pickle.loads(pickle.dumps(fitted)).predict_proba(X), fitted.predict_proba(X))


@pytest.mark.parametrize(
    ("settings", "error", "message"),
    [
        ({"layer": "lme"}, ConfigError, r"there is no layer lme. Did you mean lem"),
        ({"layer": "gcn"}, InputError, "gcn is a model of graphs"),
        ({"layer": 3}, InputError, "layer must be a name, such as 'lem', or a class; got 3"),
        ({"layer": LEM(2, 4)}, InputError, "layer must be a class; got an object of LEM. Give LEM, and its"),
        ({"layer_args": {"hidden": 4}}, ConfigError, r"layer.hidden: LEM has no such argument"),
        ({"layer": LEM, "layer_args": {"hidden": 4}}, InputError, "layer=LEM: .*hidden"),
        ({"epochs": 0}, InputError, "epochs must be positive; got 0"),
        ({"verbose": None}, InputError, "verbose must be a number; got None"),
        ({"validation_fraction": 1.5}, InputError, "validation_fraction must lie in"),
        ({"learning_rate": -1.0}, InputError, "learning_rate must be positive"),
    ],
)
def test_wrong_settings_are_refused_by_fit(settings: dict[str, Any], error: Any, message: str) -> None:
    refuses(error, message, classifier(**settings).fit, X, y)


def test_there_may_be_several_numbers_per_sequence_and_pipelines_and_searches_work() -> None:
    pairs = np.stack([100 + 50 * X[:, -1, 0], X[:, -2, 0]], 1)
    model = SequenceRegressor(**{**QUICK, "random_state": 0, "epochs": 80}).fit(X, pairs)
    assert model.predict(X).shape == (60, 2)
    assert model.score(X, pairs) > 0.9
    model = make_pipeline(StandardScaler(), classifier(epochs=2))
    assert cross_val_score(model, X[:, :, 0], y, cv=2).shape == (2,)
    space = {"layer": ["lem", "gru"], "batch_size": np.array([4])}
    search = GridSearchCV(classifier(epochs=1), space, cv=2).fit(X, y)
    assert search.best_params_["layer"] in ("lem", "gru")


def test_without_scikit_learn_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    import physml.estimators

    monkeypatch.delitem(vars(physml.estimators), "SequenceClassifier")
    for module in [name for name in sys.modules if name.startswith(("sklearn", "physml.estimators."))]:
        monkeypatch.delitem(sys.modules, module)
    monkeypatch.setitem(sys.modules, "sklearn", None)
    install = r"needs sklearn. Install it with: pip install 'scikit-learn>=1\.6'"
    with pytest.raises(MissingExtra, match=install):
        physml.estimators.SequenceClassifier  # noqa: B018
    with pytest.raises(AttributeError, match="no attribute 'Sequence'"):
        physml.estimators.Sequence  # noqa: B018


# ---------------------------------------------------------------------------- the forecaster


def forecaster(**settings: Any) -> Forecaster:
    return Forecaster(**{"layer_args": {"d_hidden": 8}, "window": 20, "random_state": 0, **settings})


def test_a_sine_goes_on_and_series_may_have_several_channels_or_be_short() -> None:
    t = np.arange(160)
    series = 5 + 3 * np.sin(t / 5)
    model = forecaster(epochs=60).fit(series[:130])
    forecast = model.predict(20)
    assert np.abs(forecast - series[130:150]).max() < 1.0  # the last value for ever would be 5.8 away
    assert np.abs(series[129] - series[130:150]).max() > 4
    assert model.score(series[100:]) > 0.98
    assert np.allclose(model.predict(5, y=series[:130]), forecast[:5])
    assert not np.allclose(model.predict(5, y=series[:120]), forecast[:5])
    series = np.stack([np.sin(np.arange(40) / 4), np.arange(40.0)], 1)
    model = forecaster(epochs=2).fit(series)
    assert model.predict(3).shape == (3, 2) and model.n_features_in_ == 2
    again = pickle.loads(pickle.dumps(clone(model).fit(series)))
    assert np.array_equal(again.predict(3), model.predict(3))
    assert forecaster(epochs=1).fit([1.0, 2.0]).predict(2).shape == (2,)
    refuses(InputError, "y must have 2 channels, as in fit; got 1", model.predict, 3, y=[1.0, 2.0])
    for wrong in ([1.0], [[[1.0]]], [1.0, np.nan]):
        with pytest.raises(ValueError):
            forecaster().fit(wrong)
    with pytest.raises(NotFittedError):
        forecaster().predict(3)
    refuses(InputError, "steps must be positive; got 0", model.predict, 0)


@pytest.mark.parametrize("estimator", [SequenceClassifier, SequenceRegressor, Forecaster])
def test_an_argument_that_is_none_is_refused(estimator: Any) -> None:
    refuses(TypeError, r"^(estimator|forecaster)\.__init__\(\) got .* 'lr'", estimator, "lem", lr=0.1)


def test_sequences_of_unequal_lengths_and_of_four_axes_are_refused() -> None:
    refuses(
        InputError, "must have one length; got unequal ones", classifier().fit, [[1.0], [1.0, 2.0]], [0, 1]
    )
    refuses(
        InputError, r"\(n, T\) or \(n, T, D\); got 4 axes", classifier().fit, np.zeros((2, 3, 1, 1)), [0, 1]
    )
